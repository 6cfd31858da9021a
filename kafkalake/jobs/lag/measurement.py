"""Measures the lag of groups from the lake's files: now, or at a past time from the history of the tables.

committed    `group_offsets`, of all groups, with or without active members
log end      each partition's `state` file: the high watermark; in the past, its row of `partitions`
seconds      the timestamp of the next record to read, by the index of its segment
rates        the history of `group_offsets`, and of `partitions` in its older versions, over a window
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalake.jobs.lag.next_record import RecordLookup, place_of, timestamps_of
from kafkalake.jobs.lag.report import (
    Commit,
    CommitHistory,
    GroupPartition,
    Lag,
    PartitionEdge,
    measure,
    position,
)
from kafkalake.metadata.catalog import is_committed_to, segments_by_id
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.history import History
from kafkalake.metadata.tables.schemas import PartitionRow, TopicRow
from kafkalake.reader.live_partitions import LivePartitions
from kafkalake.reader.read import PartitionSnapshot
from kafkalake.reader.read_options import READ_UNCOMMITTED
from kafkalake.reader.snapshot import partition_now
from kafkalake.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOW_MS = 600_000
"""The time over which rates are taken."""

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measurement of the commits to `topics` of a lake.

    spark: returns a session, called if there is much to read, if any. reading: the context in which a partition, by topic and
    number, is looked at; if it swallows an error, the partition is left out.
    """

    lake: Path
    store: DeltaMetadataStore
    topics: Sequence[TopicRow]
    commits: CommitHistory
    spark: Callable[[], SparkSession] | None = None
    reading: Callable[[str, int], AbstractContextManager[None]] = lambda topic, partition: nullcontext()

    def now(self, now_ms: int, window_ms: int = WINDOW_MS) -> list[Lag]:
        """Return the lag, by group, topic and partition. Raise `LakeError` if files of the lake are missing."""
        committed = self.commits.at(now_ms + _HOUR_MS)  # committers' clocks may be ahead
        snapshots = self._snapshots({(key.topic, key.partition) for key in committed})
        past = History(self.lake).partitions_at(now_ms - window_ms)
        edges = self._edges(snapshots, past.rows, now_ms - past.time_ms)
        times = self._next_records(committed, edges, snapshots)
        there = {key: commit for key, commit in committed.items() if (key.topic, key.partition) in edges}
        return _measured(there, edges, times, now_ms, lambda key: self.commits.rate(key, now_ms - window_ms, now_ms))

    def at(self, time_ms: int) -> list[Lag]:
        """Return the lag at a past time, without rates, and in seconds where the next record is still there.

        Raise `LakeError` if the tables do not reach that far back.
        """
        edges = past_edges(self.store.load_partitions(timestamp_ms=time_ms), self.topics)
        committed = {key: at for key, at in self.commits.at(time_ms).items() if (key.topic, key.partition) in edges}
        snapshots = self._snapshots({(key.topic, key.partition) for key in committed})
        there = {
            key: commit
            for key, commit in committed.items()
            if (found := snapshots.get((key.topic, key.partition))) is not None and commit.offset >= found.start_offset
        }
        times = self._next_records(there, edges, snapshots)
        return _measured(committed, edges, times, time_ms, lambda key: None)

    def _next_records(
        self,
        committed: Mapping[GroupPartition, Commit],
        edges: Mapping[TopicPartition, PartitionEdge],
        snapshots: Mapping[TopicPartition, PartitionSnapshot],
    ) -> dict[tuple[str, int, int], int | None]:
        """Return timestamps of the next records, by topic, partition and committed offset. Each place is read once."""
        places: dict[tuple[str, int, int], RecordLookup] = {}
        for key, commit in committed.items():
            where = (key.topic, key.partition)
            edge = edges.get(where)
            at = None if edge is None else position(commit, edge)
            if at is not None:
                places.setdefault((*where, commit.offset), place_of(snapshots[where], at))
        return dict(zip(places, timestamps_of(list(places.values()), self.spark), strict=True))

    def _snapshots(self, wanted: Collection[TopicPartition]) -> dict[TopicPartition, PartitionSnapshot]:
        """Return current snapshots of partitions."""
        live = LivePartitions(self.lake, self.store.load_partitions(), self.store.newest_image)
        sealed = segments_by_id(self.store.load_segments())
        found = {}
        for topic in self.topics:
            for number in range(topic.partitions):
                if (topic.topic, number) in wanted:
                    segments = sealed.get((topic.topic_id, number), [])
                    with self.reading(topic.topic, number):
                        partition = live.of(topic, number)
                        found[topic.topic, number] = partition_now(self.lake, partition, segments, READ_UNCOMMITTED)
        return found

    def _edges(
        self, snapshots: Mapping[TopicPartition, PartitionSnapshot], past: Sequence[PartitionRow], passed_ms: int
    ) -> dict[TopicPartition, PartitionEdge]:
        """Return the edges of partitions, and the records per second added since `past`, `passed_ms` ago."""
        ids = {topic.topic: topic.topic_id for topic in self.topics}
        then = {(row.topic_id, row.partition): row.high_watermark for row in past}
        edges = {}
        for (topic, number), snapshot in snapshots.items():
            before = then.get((ids[topic], number))
            rate = None
            if before is not None and passed_ms > 0:
                rate = max(0, snapshot.end_offset - before) * 1000 / passed_ms
            edges[topic, number] = PartitionEdge(snapshot.start_offset, snapshot.end_offset, rate)
        return edges


def _measured(
    committed: Mapping[GroupPartition, Commit],
    edges: Mapping[TopicPartition, PartitionEdge],
    times: Mapping[tuple[str, int, int], int | None],
    now_ms: int,
    rate_out: Callable[[GroupPartition], float | None],
) -> list[Lag]:
    """Return the lag of each commit, in order. times: of the next records, as `Measurement._next_records` returns them."""
    return [
        measure(
            key,
            commit,
            edges[key.topic, key.partition],
            now_ms=now_ms,
            next_record_ms=times.get((key.topic, key.partition, commit.offset)),
            rate_out=rate_out(key),
        )
        for key, commit in sorted(committed.items())
    ]


def past_edges(rows: Iterable[PartitionRow], topics: Iterable[TopicRow]) -> dict[TopicPartition, PartitionEdge]:
    """Return the edges of partitions in past `rows`, without those of earlier topics of the same names."""
    ids = {topic.topic: topic.topic_id for topic in topics}
    return {
        (row.topic, row.partition): PartitionEdge(row.log_start_offset, row.high_watermark)
        for row in rows
        if ids.get(row.topic) == row.topic_id
    }


def commits_of(
    lake: Path, topics: Sequence[TopicRow], wanted: Callable[[str], bool] = lambda group: True
) -> CommitHistory:
    """Return the commits to `topics` of the groups that are `wanted`, without those to earlier topics of the same names.

    Raise `LakeError` if they cannot be read.
    """
    by_name = {topic.topic: topic for topic in topics}
    return CommitHistory(
        row for row in History(lake).committed() if is_committed_to(row, by_name.get(row.topic)) and wanted(row.group)
    )
