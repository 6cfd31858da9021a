"""Answers what the jar asks about metadata tables: names, columns, rows."""

from __future__ import annotations

import time
from typing import Any

from kafkalake.close_names import did_you_mean
from kafkalake.errors import ConfigurationError, UnknownTopicOrPartitionError
from kafkalake.reader.read_options import ReadOptions
from kafkalake.reader.snapshot import check_past
from kafkalake.spark.metadata_tables.definitions import TABLES, TOPIC_COLUMN, MetadataTable
from kafkalake.spark.metadata_tables.subject import Subject
from kafkalake.spark.planner.lakes import lake_path, open_lake
from kafkalake.spark.planner.question import Question


def list_tables(question: Question) -> list[str]:
    """Return the names of the tables about a topic, or about the lake (topic None). Raise `UnknownTopicOrPartitionError`."""
    _require_topic(_subject(question))
    return list(TABLES)


def columns_of(question: Question) -> str:
    """Return the columns (DDL) of the table `table` about a topic, or about the lake (topic None).

    Raise `UnknownTopicOrPartitionError` if there is no such table or topic, `ConfigurationError` if it has no such past,
    `LakeError` if that past is not kept.
    """
    table, subject = _table(question), _subject(question)
    _require_past(question["table"], table, subject)
    _require_topic(subject)
    return table.columns if subject.topic is not None else f"{TOPIC_COLUMN}, {table.columns}"


def rows_of(question: Question) -> list[tuple[Any, ...]]:
    """Return the rows of a table. Raise as `columns_of`, and `LakeError` if files of the lake are missing."""
    table, subject = _table(question), _subject(question)
    _require_past(question["table"], table, subject)
    first = 0 if subject.topic is None else 1
    return [row[first:] for row in table.rows(subject)]


def _table(question: Question) -> MetadataTable:
    name = question["table"]
    if name not in TABLES:
        hint = did_you_mean(name, TABLES) or f"there are {', '.join(TABLES)}"
        raise UnknownTopicOrPartitionError(f"no table {name!r} about a topic; {hint}")
    return TABLES[name]


def _subject(question: Question) -> Subject:
    lake = lake_path(question["lake"])
    version, as_of_ms = question.get("version"), question.get("as_of_ms")
    now_ms = time.time_ns() // 1_000_000
    return Subject(lake, open_lake(question["lake"]), question["topic"], version, as_of_ms, now_ms)


def _require_past(name: str, table: MetadataTable, subject: Subject) -> None:
    if subject.is_past and not (table.has_times or table.has_versions):
        raise ConfigurationError(f"the table {name} has no past: it is what there is now")
    if subject.version is not None and not table.has_versions:
        raise ConfigurationError(f"the table {name} has no versions, only times: ask for it with TIMESTAMP AS OF")
    check_past(ReadOptions(str(subject.lake), as_of_ms=subject.as_of_ms))


def _require_topic(subject: Subject) -> None:
    if subject.topic is not None and subject.store.find_topic(subject.topic) is None and not subject.topics:
        raise UnknownTopicOrPartitionError(f"no topic {subject.topic!r} in {subject.lake}")
