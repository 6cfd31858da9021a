"""`history`: the versions of a lake in which something happened to a topic, and what.

A version is one of the lake's table `partitions`, which VERSION AS OF takes. Settings are in the table `topics`: a change of them
is listed with the version that was the newest then.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kafkalake.metadata import paths
from kafkalake.metadata.changes import current_partitions
from kafkalake.metadata.tables.schemas import PartitionRow, TopicRow, from_table
from kafkalake.metadata.versions import versions_of
from kafkalake.spark.metadata_tables.subject import Rows, Subject, micros

HISTORY_COLUMNS = (
    "version BIGINT, committed_at TIMESTAMP, what STRING, records BIGINT, added MAP<INT, BIGINT>, "
    "log_starts MAP<INT, BIGINT>, settings MAP<STRING, STRING>"
)
"""added: offsets by partition, and their sum `records`. log_starts: by partition, where they moved. settings: their new values,
null for one that was returned to its default."""

_SETTINGS_VERSIONS_MAX = 1_000
_By = tuple[str, int]


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
        of_records, versions = _of_partitions(subject, topic)
        found = sorted([*of_records, *_of_settings(subject, topic, versions)], key=lambda each: each.committed_ms)
        for each in found:
            is_later = subject.version is not None and each.version > subject.version
            if not is_later and (subject.as_of_ms is None or each.committed_ms <= subject.as_of_ms):
                yield topic, *each.row()


def _of_partitions(subject: Subject, topic: str) -> tuple[list[Happened], list[tuple[int, int]]]:
    """Return what happened in versions of `partitions`, and all of them with the topic as (time in ms, version)."""
    found: list[Happened] = []
    versions: list[tuple[int, int]] = []
    before: dict[_By, PartitionRow] | None = None
    for number, committed_ms, table in versions_of(subject.lake, paths.PARTITIONS, topic):
        now = {(row.topic_id, row.partition): row for row in current_partitions(from_table(PartitionRow, table))}
        versions.append((committed_ms, number))
        if before is not None:
            happened = compare(number, committed_ms, before, now)
            found += [happened] if happened.parts else []
        elif now:
            found.append(Happened(number, committed_ms, ["the oldest version that is kept"]))
        before = now
    return found, versions


def compare(
    version: int, committed_ms: int, before: Mapping[_By, PartitionRow], now: Mapping[_By, PartitionRow]
) -> Happened:
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
        parts.append(_counted(len(new), "partition") + " added")
    added, starts = {}, {}
    for key, row in now.items():
        was = before.get(key)
        if (more := row.high_watermark - (0 if was is None else was.high_watermark)) > 0:
            added[row.partition] = more
        if row.log_start_offset > (0 if was is None else was.log_start_offset):
            starts[row.partition] = row.log_start_offset
    if added:
        parts.append(f"{_counted(sum(added.values()), 'record')} added")
    if starts:
        parts.append("log start moved")
    return Happened(version, committed_ms, parts, added, starts)


def _of_settings(subject: Subject, topic: str, versions: Sequence[tuple[int, int]]) -> Iterator[Happened]:
    """Yield the changes of the topic's settings. versions: of `partitions`, ascending, as (time in ms, version)."""
    before: TopicRow | None = None
    for _, committed_ms, table in versions_of(subject.lake, paths.TOPICS, topic, most=_SETTINGS_VERSIONS_MAX):
        now = next(iter(from_table(TopicRow, table)), None)
        if now is not None and before is not None and now.topic_id == before.topic_id and now.config != before.config:
            changed = {
                name: now.config.get(name)
                for name in sorted(now.config.keys() | before.config.keys())
                if now.config.get(name) != before.config.get(name)
            }
            place = bisect_right(versions, (committed_ms, 1 << 62))
            version = versions[max(place - 1, 0)][1] if versions else 0
            yield Happened(version, committed_ms, ["settings changed"], settings=changed)
        before = now


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
