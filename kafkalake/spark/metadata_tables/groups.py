"""`lag` and `groups`: how far groups with committed offsets are behind, by partition and in sum, as the lag job measures it."""

from __future__ import annotations

from collections import defaultdict

from kafkalake.errors import BrokerUnavailableError
from kafkalake.jobs.lag.measurement import Measurement, commits_of
from kafkalake.jobs.lag.report import Lag
from kafkalake.reader.lake_broker import connect
from kafkalake.spark.metadata_tables.subject import Rows, Subject, micros

LAG_COLUMNS = (
    "`group` STRING, partition INT, committed_offset BIGINT, committed_at TIMESTAMP, log_start_offset BIGINT, "
    "log_end_offset BIGINT, lag BIGINT, lag_seconds DOUBLE, rate_in DOUBLE, rate_out DOUBLE, catch_up_seconds DOUBLE, lost BIGINT"
)
"""As in the Delta table `lag`."""

GROUP_COLUMNS = "`group` STRING, state STRING, partitions INT, lag BIGINT, lag_seconds DOUBLE, committed_at TIMESTAMP"
"""state: of the group as a whole, null in the past, and where no broker runs. lag_seconds: the longest of a partition."""


def lag(subject: Subject) -> Rows:
    """Yield the lag, by group, topic and partition."""
    return (lag_row(row) for row in _measured(subject))


def lag_row(row: Lag) -> tuple[object, ...]:
    """Return the topic and the values of `LAG_COLUMNS`."""
    return (
        row.topic,
        row.group,
        row.partition,
        row.committed_offset,
        micros(row.committed_at_ms),
        row.log_start_offset,
        row.log_end_offset,
        row.lag,
        row.lag_seconds,
        row.rate_in,
        row.rate_out,
        row.catch_up_seconds,
        row.lost,
    )


def groups(subject: Subject) -> Rows:
    """Yield the groups with committed offsets in a topic, by topic and name."""
    states = {} if subject.is_past else _states(subject)
    found: dict[tuple[str, str], list[Lag]] = defaultdict(list)
    for row in _measured(subject):
        found[row.topic, row.group].append(row)
    for (topic, group), rows in sorted(found.items()):
        seconds = [row.lag_seconds for row in rows if row.lag_seconds is not None]
        yield (
            topic,
            group,
            states.get(group),
            len(rows),
            sum(row.lag for row in rows),
            max(seconds, default=None),
            micros(max(row.committed_at_ms for row in rows)),
        )


def _measured(subject: Subject) -> list[Lag]:
    measurement = Measurement(subject.lake, subject.store, subject.topics, commits_of(subject.lake, subject.topics))
    return measurement.now(subject.now_ms) if subject.as_of_ms is None else measurement.at(subject.as_of_ms)


def _states(subject: Subject) -> dict[str, str]:
    try:
        with connect(subject.lake) as admin:
            return {group.group_id: group.state for group in admin.list_groups()}
    except BrokerUnavailableError:
        return {}
