"""Passes log changes to the publisher and commits its publishes to Delta.

The broker reports partition changes and each log its segment changes. `schedule` decides when a publish is due. It is committed
here in a thread, one at a time. At startup, changes left unpublished by a kill are found by comparing the sealed segments on disk
with Delta. At shutdown, all pending changes are published.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.scheduler import Scheduler
from kafkalake.broker.partitions.topics import Topics
from kafkalake.broker.publishing.schedule import PublishSchedule, application_id, reconcile
from kafkalake.clock import Clock
from kafkalake.cluster.image import NO_LEADER
from kafkalake.errors import KafkaLakeError, as_value
from kafkalake.log_starts import raised_log_start
from kafkalake.metadata import paths
from kafkalake.metadata.store import JobPosition, PublishedState, PublishedTables
from kafkalake.metadata.tables.schemas import PartitionRow, SegmentKey, SegmentRow
from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.log_events import LogEvents
from kafkalake.storage.sealed_segment import SealedSegment
from kafkalake.topic_partition import PartitionId, TopicPartition

logger = logging.getLogger(__name__)

_CHECK_INTERVAL_MS = 50
_JOBS_INTERVAL_MS = 500


class PartitionPublisher:
    """The broker's observer. Methods are called on the event loop's thread unless stated otherwise."""

    def __init__(
        self,
        lake: Path,
        broker_id: int,
        store: PublishedTables,
        clock: Clock,
        run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]],
        stable_offset: Callable[[Partition], int],
    ) -> None:
        """`stable_offset` returns the last stable offset to publish for a partition."""
        self.lake = lake
        self.broker_id = broker_id
        self._store = store
        self._clock = clock
        self._run_blocking = run_blocking
        self._publisher: PublishSchedule | None = None
        self._partitions: dict[TopicPartition, Partition] = {}
        self._loop = asyncio.get_running_loop()
        self._under_way: asyncio.Future[bool] | None = None
        self._stable_offset = stable_offset
        self._swapped_read: JobPosition | None = None
        self._looked_ms = clock.monotonic_ms()

    @property
    def publisher(self) -> PublishSchedule:
        """The publisher. Available once started."""
        assert self._publisher is not None
        return self._publisher

    async def start(self, interval_ms: int) -> None:
        """Create the publisher, continuing after this broker's last published version."""
        version = await self._run_blocking(lambda: self._store.last_published_version(application_id(self.broker_id)))
        self._publisher = PublishSchedule(self.broker_id, self._describe, last_version=version, interval_ms=interval_ms)

    # Callbacks of the broker and the logs.

    def partition_added(self, partition: Partition) -> None:
        key = (partition.topic.name, partition.index)
        self._partitions[key] = partition
        self.publisher.moved(key)

    def partition_moved(self, partition: Partition) -> None:
        self._moved((partition.topic.name, partition.index))

    def partition_removed(self, partition: Partition) -> None:
        key = (partition.topic.name, partition.index)
        self._partitions.pop(key, None)
        self.publisher.dropped(key)
        for base_offset in partition.log.sealed_base_offsets:
            generation = partition.log.generation_of(base_offset)
            self.publisher.removed(SegmentKey(str(partition.topic.topic_id), partition.index, base_offset, generation))

    def partition_resigned(self, partition: Partition) -> None:
        key = (partition.topic.name, partition.index)
        row = self._describe(key)
        self._partitions.pop(key, None)
        self.publisher.dropped(key)
        if row is not None and row.leader == NO_LEADER:  # its records stay readable from here
            self.publisher.keep(replace(row, leader=self.broker_id))

    def events_of(self, topic: str, topic_id: UUID, index: int) -> LogEvents:
        """Return the receiver of the events of a partition's log."""
        return _Segments(self, topic, str(topic_id), index)

    def segment_sealed(self, segment: SegmentRow) -> None:
        """Publish a sealed segment. Safe in any thread."""
        self._loop.call_soon_threadsafe(self.publisher.sealed, segment)

    def segment_removed(self, key: SegmentKey) -> None:
        """Publish that a segment is no longer part of its log. Safe in any thread."""
        self._loop.call_soon_threadsafe(self.publisher.removed, key)

    # Publishing to Delta.

    def begin(self, scheduler: Scheduler) -> None:
        """Publish whenever a publish is due, and apply changes made by jobs, from now on."""
        scheduler.every("publishing", lambda: _CHECK_INTERVAL_MS, self._check)

    def _check(self) -> Awaitable[None] | None:
        now_ms = self._clock.monotonic_ms()
        looks = now_ms - self._looked_ms >= _JOBS_INTERVAL_MS
        return self._work(looks=looks) if looks or self.publisher.due(now_ms) else None

    async def _work(self, *, looks: bool) -> None:
        if self.publisher.due(self._clock.monotonic_ms()):
            await self._publish()
        if looks:
            self._looked_ms = self._clock.monotonic_ms()
            await self._look_for_jobs()

    async def finish(self) -> bool:
        """Publish all pending changes after any publish in progress, and return whether nothing is left.

        One failure is retried. After a second one the next start repairs the difference.
        """
        if self._under_way is not None:
            await self._under_way
        for _ in range(2):
            if not self.publisher.pending or await self._publish():
                return True
        return False

    async def _publish(self) -> bool:
        publisher = self.publisher
        state = publisher.take(self._clock.monotonic_ms(), self._clock.now_ms())
        if state is None:
            return True
        # A commit continues when its waiting task is cancelled at shutdown. `finish` then waits for it.
        self._under_way = asyncio.ensure_future(self._commit(publisher, state))
        return await asyncio.shield(self._under_way)

    async def _commit(self, publisher: PublishSchedule, state: PublishedState) -> bool:
        try:
            await self._run_blocking(lambda: self._store.publish(state))
        except Exception as error:
            publisher.failed(self._clock.monotonic_ms(), as_value(error))
            return False
        publisher.succeeded(self._clock.monotonic_ms())
        return True

    # Changes made by jobs.

    async def _look_for_jobs(self) -> None:
        """Apply log starts raised (retention) and segments rewritten (compaction) by jobs to the logs."""
        try:
            await self._run_blocking(lambda: self._follow_log_starts(self._store.raised_log_starts(self.broker_id)))
        except Exception as error:
            logger.warning("log starts that a job has raised were not taken over error=%s", error)
        partitions = list(self._partitions.values())
        try:
            await self._run_blocking(lambda: self._take_swapped(partitions))
        except Exception as error:
            self._swapped_read = None
            logger.warning("segments that a job has rewritten were not taken over error=%s", error)

    def take_published(self, rows: Iterable[PartitionRow]) -> None:
        """Raise the log starts that jobs raised in Delta while the broker was down. Blocking."""
        self._follow_log_starts({(row.topic_id, row.partition): row.log_start_offset for row in rows})

    def _follow_log_starts(self, starts: Mapping[PartitionId[str], int]) -> None:
        """Remove the segments before these offsets from the logs. Blocking, safe in any thread."""
        for key, partition in list(self._partitions.items()):
            raised = starts.get((str(partition.topic.topic_id), partition.index), 0)
            log = partition.log
            start = raised_log_start(log.log_start_offset, raised, log.high_watermark)
            if start > log.log_start_offset:
                _begin_at(partition, start)
                self._loop.call_soon_threadsafe(self._moved, key)

    def _moved(self, key: TopicPartition) -> None:
        if key in self._partitions:
            self.publisher.moved(key)

    def load_swapped(self) -> dict[PartitionId[str], list[RewrittenSegment]]:
        """Return this broker's segments rewritten by jobs since the last call (the first call: ever). Blocking."""
        found = self._store.load_swapped(self._swapped_read)
        if found is None:
            return {}
        self._swapped_read = found.position
        segments: dict[PartitionId[str], list[RewrittenSegment]] = {}
        for row in self._own(found.rows):
            swapped = RewrittenSegment(row.base_offset, row.next_offset, row.generation)
            segments.setdefault((row.topic_id, row.partition), []).append(swapped)
        return segments

    def _take_swapped(self, partitions: Iterable[Partition]) -> None:
        """Swap segments rewritten by jobs into the logs. Blocking, safe in any thread."""
        if not (swapped := self.load_swapped()):
            return
        for partition in partitions:
            segments_of = self._segments_of(partition)
            segments = swapped.get((str(partition.topic.topic_id), partition.index), [])
            before = partition.log.generations
            for foreign in partition.log.adopt_rewritten(segments):
                segments_of.segment_removed(foreign.base_offset, foreign.generation)
            if partition.log.generations != before:
                logger.info("segments swapped partition=%s rewritten=%d", partition.name, len(segments))
                self._loop.call_soon_threadsafe(partition.forget_tail)
                self._loop.call_soon_threadsafe(self.publisher.republish)

    def reconcile(self, topics: Topics) -> None:
        """Compare the sealed segments on disk with Delta and schedule the difference for publishing. Blocking."""
        published = self._own(self._store.load_segments())
        self._take_swapped(topics.partitions())  # after reading Delta, so that the logs have every segment it names
        by_partition: dict[TopicPartition, list[SegmentRow]] = {}
        for row in published:
            by_partition.setdefault((row.topic_id, row.partition), []).append(row)
        offline = {
            (str(topic.topic_id), partition.index)
            for topic in topics
            for partition in topic.replicas.values()
            if partition.is_offline
        }
        for state in self._store.load_partitions() if offline else ():
            if (state.topic_id, state.partition) in offline:
                self._loop.call_soon_threadsafe(self.publisher.keep, state)
        on_disk: list[SegmentRow] = []
        for partition in (partition for topic in topics for partition in topic.replicas.values()):
            known = by_partition.get((str(partition.topic.topic_id), partition.index), [])
            if partition.is_offline:
                on_disk += known
                continue
            try:
                on_disk += self._sealed_rows(partition, known)
            except KafkaLakeError as error:
                logger.error("sealed segments not compared partition=%s error=%s", partition.name, error)
                on_disk += known
        repair = reconcile(on_disk, published)
        for missing in repair.missing:
            self._loop.call_soon_threadsafe(self.publisher.sealed, missing)
        for gone in repair.gone:
            self._loop.call_soon_threadsafe(self.publisher.removed, gone)
        if repair.missing or repair.gone:
            logger.info("publish repaired missing=%d gone=%d", len(repair.missing), len(repair.gone))

    def _sealed_rows(self, partition: Partition, published: list[SegmentRow]) -> list[SegmentRow]:
        """Return rows of a partition's sealed segments: the published rows where there are any, the others read from the files."""
        log = partition.log
        bases = set(log.sealed_base_offsets)
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
            leader=registered.leader,
            leader_epoch=registered.leader_epoch,
            replicas=registered.replicas,
            isr=registered.isr,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
            last_stable_offset=self._stable_offset(partition),
            log_end_offset=log.log_end_offset,
        )

    def _own(self, rows: Iterable[SegmentRow]) -> list[SegmentRow]:
        """Return the rows of segments among this broker's logs."""
        return [row for row in rows if row.broker_id == self.broker_id]

    def _segments_of(self, partition: Partition) -> _Segments:
        return _Segments(self, partition.topic.name, str(partition.topic.topic_id), partition.index)


class _Segments:
    """The segments of one partition's log, as rows of `segments`: its `LogEvents`."""

    def __init__(self, publishing: PartitionPublisher, topic: str, topic_id: str, index: int) -> None:
        self._publishing = publishing
        self._topic = topic
        self._topic_id = topic_id
        self._index = index

    def segment_sealed(self, segment: SealedSegment) -> None:
        self._publishing.segment_sealed(self.row(segment))

    def segment_removed(self, base_offset: int, generation: int) -> None:
        self._publishing.segment_removed(SegmentKey(self._topic_id, self._index, base_offset, generation))

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


def _begin_at(partition: Partition, offset: int) -> None:
    """Move a log's start to `offset`. Blocking. A failure is only logged, because Delta still has the log start."""
    try:
        partition.log.delete_records_before(offset)
        logger.info("log start raised by a job partition=%s offset=%d", partition.name, offset)
    except KafkaLakeError as error:
        logger.error("log start not raised partition=%s offset=%d error=%s", partition.name, offset, error)
