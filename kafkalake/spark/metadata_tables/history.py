"""`history`: the versions of a lake in which something happened to a topic, and what.

A version is one of the lake's table `partitions`, which VERSION AS OF takes. Settings are in the table `topics`: a change of them
is listed with the version that was the newest then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from kafkalake.counted import counted
from kafkalake.metadata import paths
from kafkalake.metadata.changes import current_partitions
from kafkalake.metadata.tables.schemas import PartitionRow, TopicRow, from_table
from kafkalake.spark.metadata_tables.subject import Rows, Subject, micros

HISTORY_COLUMNS = (
    "version BIGINT, committed_at TIMESTAMP, what STRING, offsets BIGINT, added MAP<INT, BIGINT>, "
    "log_starts MAP<INT, BIGINT>, settings MAP<STRING, STRING>"
)
"""added: offsets by partition, with those of transactions' markers, and their sum `offsets`. log_starts: by partition, where they
moved. settings: their new values, null for one that was returned to its default."""

VERSIONS_MAX, SETTINGS_VERSIONS_MAX = 10_000, 1_000
"""The most versions of `partitions` and of `topics` that are looked at, the newest."""

_By = tuple[str, int]


class Offsets(NamedTuple):
    """The offsets of a partition in a version."""

    log_start: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class Happened:
    """The changes of a topic by one commit."""

    version: int
    committed_ms: int
    parts: Sequence[str]
    added: Mapping[int, int] = field(default_factory=dict)
    log_starts: Mapping[int, int] = field(default_factory=dict)
    settings: Mapping[str, str | None] = field(default_factory=dict)

    def row(self) -> tuple[object, ...]:
        """Return the values of `HISTORY_COLUMNS`."""
        return (
            self.version,
            micros(self.committed_ms),
            ", ".join(self.parts),
            sum(self.added.values()),
            sorted(self.added.items()),
            sorted(self.log_starts.items()),
            sorted(self.settings.items()),
        )


def history(subject: Subject) -> Rows:
    """Yield what happened to a topic of this name, or to all, oldest first, as far back as the tables are kept."""
    topics = [subject.topic] if subject.topic is not None else sorted(subject.names)
    for topic in topics:
        found = [*_of_partitions(subject, topic), *_of_settings(subject, topic)]
        found.sort(key=lambda each: each.committed_ms)
        for each in found:
            is_later = subject.version is not None and each.version > subject.version
            if not is_later and (subject.as_of_ms is None or each.committed_ms <= subject.as_of_ms):
                yield topic, *each.row()


def _of_partitions(subject: Subject, topic: str) -> list[Happened]:
    """Return what happened in versions of `partitions`."""
    before, changed = subject.store.topic_changes(paths.PARTITIONS, topic, _offsets, most=VERSIONS_MAX)
    found = []
    for number, committed_ms, now in changed:
        found.append(compare(number, committed_ms, before, now))
        before = now
    return found


def _offsets(rows: pa.Table) -> dict[_By, Offsets]:
    return {
        (row.topic_id, row.partition): Offsets(row.log_start_offset, row.high_watermark)
        for row in current_partitions(from_table(PartitionRow, rows))
    }


def compare(version: int, committed_ms: int, before: Mapping[_By, Offsets], now: Mapping[_By, Offsets]) -> Happened:
    """Return what happened between two states of a topic's partitions, by topic id and number."""
    parts: list[str] = []
    new = now.keys() - before.keys()
    gone_ids = {topic_id for topic_id, _ in before} - {topic_id for topic_id, _ in now}
    known_ids = {topic_id for topic_id, _ in before}
    if gone_ids:
        parts.append("deleted")
    if any(topic_id not in known_ids for topic_id, _ in new):
        parts.append("created")
    elif new:
        parts.append(counted(len(new), "partition") + " added")
    added, starts = {}, {}
    for key, offsets in now.items():
        was = before.get(key, Offsets(0, 0))
        if offsets.high_watermark > was.high_watermark:
            added[key[1]] = offsets.high_watermark - was.high_watermark
        if offsets.log_start > was.log_start:
            starts[key[1]] = offsets.log_start
    if added:
        parts.append(f"{counted(sum(added.values()), 'offset')} added")
    if starts:
        parts.append("log start moved")
    return Happened(version, committed_ms, parts, added, starts)


def _of_settings(subject: Subject, topic: str) -> Iterator[Happened]:
    """Yield the changes of the topic's settings."""
    before, changed = subject.store.topic_changes(
        paths.TOPICS, topic, _settings, most=SETTINGS_VERSIONS_MAX, may_return=True
    )
    for _, committed_ms, now in changed:
        if before is not None and now is not None and now.topic_id == before.topic_id:
            names = sorted(
                name
                for name in now.config.keys() | before.config.keys()
                if now.config.get(name) != before.config.get(name)
            )
            if names:
                version = subject.store.version_then(committed_ms)
                settings = {name: now.config.get(name) for name in names}
                yield Happened(version, committed_ms, ["settings changed"], settings=settings)
        before = now


def _settings(rows: pa.Table) -> TopicRow | None:
    return next(iter(from_table(TopicRow, rows)), None)
