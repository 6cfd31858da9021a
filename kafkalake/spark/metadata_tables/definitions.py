"""The metadata tables: the columns of each, the function that has its rows, and what it can be asked of the past."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafkalake.spark.metadata_tables import delayed, groups, history, jobs, logs, producers
from kafkalake.spark.metadata_tables.subject import Rows, Subject


@dataclass(frozen=True, slots=True)
class MetadataTable:
    """A table. columns: as DDL, without the topic, which the rows of the whole lake begin with.

    has_versions: VERSION AS OF has a meaning. has_times: TIMESTAMP AS OF has one.
    """

    columns: str
    rows: Callable[[Subject], Rows]
    has_versions: bool = False
    has_times: bool = True


TABLES = {
    "segments": MetadataTable(logs.SEGMENT_COLUMNS, logs.segments, has_versions=True),
    "partitions": MetadataTable(logs.PARTITION_COLUMNS, logs.partitions, has_versions=True),
    "groups": MetadataTable(groups.GROUP_COLUMNS, groups.groups),
    "lag": MetadataTable(groups.LAG_COLUMNS, groups.lag),
    "history": MetadataTable(history.HISTORY_COLUMNS, history.history, has_versions=True),
    "transactions": MetadataTable(producers.TRANSACTION_COLUMNS, producers.transactions),
    "producers": MetadataTable(producers.PRODUCER_COLUMNS, producers.producers, has_times=False),
    "delayed": MetadataTable(delayed.DELAYED_COLUMNS, delayed.delayed, has_times=False),
    "jobs": MetadataTable(jobs.JOB_COLUMNS, jobs.jobs),
}
"""The tables by name."""

TOPIC_COLUMN = "topic STRING"
"""The first column of a table of the whole lake."""
