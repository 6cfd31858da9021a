"""Collects what a broker has to report of the partitions that it leads, and applies what jobs have changed to its logs.

The broker notes partition changes, and each log its segment changes. The controller asks for them (`broker_reports`). A partition
that is led here from now on is compared with Delta: what an earlier leader, or this broker before a kill, has left unpublished is
reported, and what is there already is not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.scheduler import Scheduler
from kafkalake.broker.partitions.topics import Topics
from kafkalake.broker.publishing.raised_starts import begin_at, raised_starts
from kafkalake.broker.publishing.reconcile import Repair, lost_rows, reconcile, still_there
from kafkalake.broker.publishing.unpublished import UnpublishedChanges
from kafkalake.clock import Clock
from kafkalake.cluster.image import NO_LEADER
from kafkalake.errors import KafkaLakeError
from kafkalake.metadata import paths
from kafkalake.metadata.store import JobPosition, PublishedTables
from kafkalake.metadata.tables.schemas import PartitionRow, SegmentKey, SegmentRow
from kafkalake.run_blocking import RunBlocking
from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.log_events import LogEvents
from kafkalake.storage.sealed_segment import SealedSegment
from kafkalake.topic_partition import PartitionId, TopicPartition

logger = logging.getLogger(__name__)

_JOBS_INTERVAL_MS = 500
_AGAIN_INTERVAL_MS = 30_000


class PartitionReporter:
    """The broker's observer. Methods are called on the event loop's thread unless stated otherwise."""

    def __init__(
        self,
        lake: Path,
        broker_id: int,
        store: PublishedTables,
        clock: Clock,
        run_blocking: RunBlocking,
    ) -> None:
        self.lake = lake
        self.broker_id = broker_id
        self.changes = UnpublishedChanges(broker_id, self._describe, clock.now_ms())
        self._store = store
        self._run_blocking = run_blocking
        self._partitions: dict[TopicPartition, Partition] = {}
        self._uncompared: dict[TopicPartition, Partition] = {}
        """Partitions that are led here and not compared with Delta yet."""
        self._unread: dict[TopicPartition, Partition] = {}
        """Those of which the comparison has failed."""
        self._loop = asyncio.get_running_loop()
        self._swapped_read: JobPosition | None = None

    # Callbacks of the broker and the logs.

    def partition_added(self, partition: Partition) -> None:
        key = (partition.topic.name, partition.index)
        self._partitions[key] = partition
        self._uncompared[key] = partition
        self.changes.moved(key)
        if any(producer.coordinator_epoch >= 0 for _, producer in partition.log.producers()):
            self.changes.marked(key)  # perhaps a marker that the last leader has not published

    def partition_moved(self, partition: Partition) -> None:
        key = (partition.topic.name, partition.index)
        if key in self._partitions:
            self.changes.moved(key)

    def partition_marked(self, partition: Partition, is_written: bool) -> None:
        key = (partition.topic.name, partition.index)
        if is_written:
            self.changes.marked(key)
            self.partition_moved(partition)
        else:
            self.changes.marking(key)

    def partition_removed(self, partition: Partition) -> None:
        key = (partition.topic.name, partition.index)
        if (
            self._partitions.get(key, partition) is partition
        ):  # else it is of a later topic of the name, in the same version
            self._forget(key)
            self.changes.dropped(key)
        for base_offset in partition.log.sealed_base_offsets:
            generation = partition.log.generation_of(base_offset)
            self.changes.removed(SegmentKey(str(partition.topic.topic_id), partition.index, base_offset, generation))

    def partition_swapped(self, partition: Partition) -> None:
        partition.forget_tail()
        self.changes.swapped()

    def partition_resigned(self, partition: Partition) -> None:
        key = (partition.topic.name, partition.index)
        row, leader = self._describe(key), partition.topic.registrations[partition.index].leader
        if row is not None and leader in (NO_LEADER, self.broker_id):
            self.changes.orphaned(row)  # its records stay readable from here, or its log has failed
        else:
            self.changes.dropped(key)
        self._forget(key)

    def _forget(self, key: TopicPartition) -> None:
        for partitions in (self._partitions, self._uncompared, self._unread):
            partitions.pop(key, None)

    def events_of(self, topic: str, topic_id: UUID, index: int) -> LogEvents:
        """Return the receiver of the events of a partition's log."""
        return _Segments(self, topic, str(topic_id), index)

    def segment_sealed(self, segment: SegmentRow) -> None:
        """Report a sealed segment. Safe in any thread."""
        self._loop.call_soon_threadsafe(self._if_led, segment.topic, segment.key, self.changes.sealed, segment)

    def segment_removed(self, topic: str, key: SegmentKey) -> None:
        """Report that a segment is no longer part of its log. Safe in any thread."""
        self._loop.call_soon_threadsafe(self._if_led, topic, key, self.changes.removed, key)

    def _if_led(self, topic: str, key: SegmentKey, note: Callable[[Any], None], change: object) -> None:
        """Note a change if this broker leads the partition. Else it is the leader's to report."""
        partition = self._partitions.get((topic, key.partition))
        if partition is not None and str(partition.topic.topic_id) == key.topic_id:
            note(change)

    def report_all(self) -> None:
        """Report every partition again, as a new controller may not find what the last one has published."""
        for key in self._partitions:
            self.changes.moved(key)

    # Changes made by jobs.

    def begin(self, scheduler: Scheduler) -> None:
        """Apply changes made by jobs, and compare partitions that this broker is given with Delta, from now on."""
        scheduler.every("changes by jobs", lambda: _JOBS_INTERVAL_MS, self._look)
        scheduler.every("partitions to be compared again", lambda: _AGAIN_INTERVAL_MS, self._compare_unread)

    def _compare_again(self, partition: Partition) -> None:
        """Compare a partition with Delta once more, which lacks what was rewritten to segments that its log has refused."""
        key = (partition.topic.name, partition.index)
        if self._partitions.get(key) is partition:
            self._uncompared[key] = partition

    def _compare_unread(self) -> None:
        self._uncompared = self._unread | self._uncompared
        self._unread = {}

    async def _look(self) -> None:
        if self._partitions:  # what a job has changed until then is seen by a later look
            await self._look_for_jobs()
        if self._uncompared:
            await self._compare_added()

    async def _look_for_jobs(self) -> None:
        """Apply log starts raised (retention) and segments rewritten (compaction) by jobs to the logs."""
        try:
            await self._follow_log_starts(lambda: self._store.raised_log_starts(self.broker_id))
        except Exception as error:
            logger.warning("log starts that a job has raised were not taken over error=%s", error)
        partitions = list(self._partitions.values())
        try:
            await self._take_swapped(partitions)
        except Exception as error:
            self._swapped_read = None
            logger.warning("segments that a job has rewritten were not taken over error=%s", error)

    async def take_published(self, load: Callable[[], Iterable[PartitionRow]]) -> None:
        """Raise the log starts that jobs raised in Delta while this broker was down or did not lead.

        `load` returns what Delta has, and is called in a thread.
        """
        await self._follow_log_starts(lambda: {(row.topic_id, row.partition): row.log_start_offset for row in load()})

    async def _follow_log_starts(self, load: Callable[[], Mapping[PartitionId[str], int]]) -> None:
        """Remove the segments before the offsets that `load` returns from the logs."""
        partitions = list(self._partitions.values())
        for partition, start in await self._run_blocking(lambda: raised_starts(partitions, load())):
            await self._change_log(partition, partial(begin_at, partition, start))
            self.partition_moved(partition)

    async def _change_log(self, partition: Partition, change: Callable[[], None]) -> None:
        """Change a log as a job asks, unless it is led here no more."""
        if not partition.removed:
            await partition.change_log(self._run_blocking, change)

    def load_swapped(self) -> dict[PartitionId[str], list[RewrittenSegment]]:
        """Return the segments rewritten by jobs since the last call (the first call: ever). Blocking.

        A row is true of every replica, in whose directory the job wrote: one that lacks the file keeps the older segments.
        """
        found = self._store.load_swapped(self._swapped_read)
        if found is None:
            return {}
        self._swapped_read = found.position
        segments: dict[PartitionId[str], list[RewrittenSegment]] = {}
        for row in found.rows:
            swapped = RewrittenSegment(row.base_offset, row.next_offset, row.generation)
            segments.setdefault((row.topic_id, row.partition), []).append(swapped)
        return segments

    async def _take_swapped(self, partitions: Iterable[Partition]) -> None:
        """Swap segments rewritten by jobs into the logs. If that fails, all are read again."""
        if not (swapped := await self._run_blocking(self.load_swapped)):
            return
        read, self._swapped_read = self._swapped_read, None
        for partition in partitions:
            if segments := swapped.get((str(partition.topic.topic_id), partition.index)):
                await self._change_log(partition, partial(self._swap_into, partition, segments))
        self._swapped_read = read

    def _swap_into(self, partition: Partition, segments: Sequence[RewrittenSegment]) -> None:
        segments_of, before = self._segments_of(partition), partition.log.generations
        if refused := partition.log.adopt_rewritten(segments):
            for foreign in refused:
                segments_of.segment_removed(foreign.base_offset, foreign.generation)
            self._loop.call_soon_threadsafe(self._compare_again, partition)
        if partition.log.generations != before:
            logger.info("segments swapped partition=%s rewritten=%d", partition.name, len(segments))
            self._loop.call_soon_threadsafe(self.partition_swapped, partition)

    async def compare_all(self, topics: Topics) -> None:
        """Compare all partitions that are led here with Delta, at the start, and report the segments of topics that are gone.

        What cannot be compared now, for lack of descriptors for example, is compared at a later look.
        """
        compared, self._uncompared = self._uncompared, {}
        published = await self._run_blocking(self._store.load_segments)
        for row in published:
            if row.broker_id == self.broker_id and topics.find_id(UUID(row.topic_id)) is None:
                self.changes.removed(row.key)
        try:
            await self._compare_with(compared, published)
        except KafkaLakeError as error:
            logger.warning("sealed segments not compared at the start error=%s", error)
            self._uncompared = self._led_of(compared) | self._uncompared

    async def _compare_with(
        self, partitions: Mapping[TopicPartition, Partition], published: Iterable[SegmentRow]
    ) -> None:
        # After reading Delta, so that the logs have every segment it names.
        await self._take_swapped(list(self._partitions.values()))
        unread = await self._run_blocking(lambda: self._compare(partitions, published))
        self._unread |= self._led_of(unread)

    async def _compare_added(self) -> None:
        """Compare the partitions that this broker was given since the last call with Delta."""
        compared = {key: each for key, each in self._uncompared.items() if _may_have_segments(each)}
        self._uncompared = {}
        if not compared:
            return
        names = {topic for topic, _ in compared}
        try:
            await self.take_published(self._store.load_partitions)
            published = await self._run_blocking(
                lambda: self._store.load_segments(names.pop() if len(names) == 1 else None)
            )
            await self._compare_with(compared, published)
        except Exception:
            self._uncompared = self._led_of(compared) | self._uncompared
            raise

    def _led_of(self, partitions: Mapping[TopicPartition, Partition]) -> dict[TopicPartition, Partition]:
        """Return those that are led here still."""
        return {key: each for key, each in partitions.items() if self._partitions.get(key) is each}

    def _compare(
        self, partitions: Mapping[TopicPartition, Partition], published: Iterable[SegmentRow]
    ) -> dict[TopicPartition, Partition]:
        """Compare the sealed segments on disk with Delta and report the differences. Blocking.

        Return the partitions whose segments cannot be read now.
        """
        rows: dict[PartitionId[str], list[SegmentRow]] = {}
        for row in published:
            rows.setdefault((row.topic_id, row.partition), []).append(row)
        missing = gone = 0
        unread: dict[TopicPartition, Partition] = {}
        for (topic, index), partition in partitions.items():
            known = rows.get((str(partition.topic.topic_id), index), [])
            try:
                repair = self._compare_one(partition, known)
            except KafkaLakeError as error:
                logger.error("sealed segments not compared partition=%s error=%s", partition.name, error)
                unread[topic, index] = partition
                continue
            for key in repair.gone:  # first: what was rewritten to one of them is added only with or after its removal
                self.segment_removed(topic, key)
            self._loop.call_soon_threadsafe(self._note_missing, partition, repair.missing)
            missing, gone = missing + len(repair.missing), gone + len(repair.gone)
        if missing or gone:
            logger.info("publish repaired missing=%d gone=%d", missing, gone)
        return unread

    def _note_missing(self, partition: Partition, missing: Iterable[SegmentRow]) -> None:
        log = partition.log
        for row in still_there(missing, log.sealed_base_offsets, log.generation_of):
            self._if_led(row.topic, row.key, self.changes.sealed, row)

    def _compare_one(self, partition: Partition, published: Sequence[SegmentRow]) -> Repair:
        """Return the differences of one partition.

        A row that another leader has published is gone only below the log start, or where an unclean election has lost records:
        this replica may not have its file yet.
        """
        start = partition.log.log_start_offset
        borders = partition.log.segment_borders
        lost = lost_rows(published, borders)
        on_disk = self._sealed_rows(partition, set(borders[:-2]), [row for row in published if row.key not in lost])
        keys = lost.keys() | {row.key for row in on_disk}
        mine = [
            row for row in published if row.broker_id == self.broker_id or row.key in keys or row.next_offset <= start
        ]
        return reconcile(on_disk, mine)

    def _sealed_rows(self, partition: Partition, bases: Set[int], published: Iterable[SegmentRow]) -> list[SegmentRow]:
        """Return rows of a partition's sealed segments: the published rows where there are any, the others read from the files."""
        log = partition.log
        known = {
            row.base_offset: row
            for row in published
            if row.base_offset in bases and row.generation == log.generation_of(row.base_offset)
        }
        unknown = sorted(bases - known.keys())
        rows = list(known.values())
        if unknown:
            sealed = log.sealed_segments(unknown[0])
            segments = self._segments_of(partition)
            rows += [segments.row(each) for each in sealed if each.base_offset in unknown]
        return rows

    def _describe(self, key: TopicPartition) -> PartitionRow | None:
        partition = self._partitions.get(key)
        if partition is None:
            return None
        log, registered = partition.log, partition.topic.registrations[partition.index]
        return PartitionRow(
            topic=partition.topic.name,
            topic_id=str(partition.topic.topic_id),
            partition=partition.index,
            leader=self.broker_id,
            leader_epoch=partition.leader_epoch,
            replicas=registered.replicas,
            isr=registered.isr,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_end_offset=log.log_end_offset,
        )

    def _segments_of(self, partition: Partition) -> _Segments:
        return _Segments(self, partition.topic.name, str(partition.topic.topic_id), partition.index)


class _Segments:
    """The segments of one partition's log, as rows of `segments`: its `LogEvents`."""

    def __init__(self, publishing: PartitionReporter, topic: str, topic_id: str, index: int) -> None:
        self._publishing = publishing
        self._topic = topic
        self._topic_id = topic_id
        self._index = index

    def segment_sealed(self, segment: SealedSegment) -> None:
        self._publishing.segment_sealed(self.row(segment))

    def segment_removed(self, base_offset: int, generation: int) -> None:
        key = SegmentKey(self._topic_id, self._index, base_offset, generation)
        self._publishing.segment_removed(self._topic, key)

    def row(self, segment: SealedSegment) -> SegmentRow:
        """Return a sealed segment's row."""
        return SegmentRow(
            topic=self._topic,
            topic_id=self._topic_id,
            partition=self._index,
            base_offset=segment.base_offset,
            next_offset=segment.next_offset,
            generation=segment.generation,
            path=paths.relative_path(self._publishing.lake, Path(segment.path)),
            records=segment.records,
            bytes=segment.bytes,
            min_timestamp_ms=segment.min_timestamp,
            max_timestamp_ms=segment.max_timestamp,
            sealed_at_ms=segment.sealed_at_ms,
            broker_id=self._publishing.broker_id,
        )


def _may_have_segments(partition: Partition) -> bool:
    """Return whether a partition is not a new one."""
    return partition.leader_epoch > 0 or bool(partition.log.sealed_base_offsets)
