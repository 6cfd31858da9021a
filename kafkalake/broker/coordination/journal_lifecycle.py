"""A coordinator and the internal topic behind its journal, from the broker's start to its stop.

The topic is created on first use, as in Kafka, and this broker leads all its partitions. At start each partition is loaded: the
rows of Delta's table, then the journal beyond them. It is trimmed up to Delta's position, so it stays short without compaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from kafkalake.broker.admin.topic_admin import TopicAdmin
from kafkalake.broker.admin.topic_plans import NewTopic
from kafkalake.broker.coordination.automata import MachineSlot
from kafkalake.broker.coordination.journal_writer import JournalWriter
from kafkalake.broker.coordination.journaled_coordinator import JournaledCoordinator
from kafkalake.broker.coordination.table import Changed, Changes
from kafkalake.broker.partitions.append_queue import AppendQueue
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.topics import Topics
from kafkalake.clock import Clock
from kafkalake.config.broker import BrokerConfig
from kafkalake.config.topics import TOPIC_SETTINGS
from kafkalake.errors import CoordinatorNotAvailableError, KafkaError, KafkaLakeError, TopicAlreadyExistsError
from kafkalake.record.build import ReadBatch, build_batch, read_batches
from kafkalake.storage.lost_records import lost_ranges
from kafkalake.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

TRIM_RECORDS = 5_000
"""Number of trimmable offsets from which a journal partition is trimmed. A damaged one is trimmed once Delta is past the damage."""

FILL_RECORDS = 500
READ_BYTES = 4 << 20
NEVER = 1 << 63
_FLUSHES_MAX = 10

E = TypeVar("E", bound=MachineSlot)
R = TypeVar("R")
C = TypeVar("C", bound=Changed)


def _size_setting(segment_bytes: int) -> str:
    """Return the topic setting that accepts this size: Kafka's settings of its journals have no minimum."""
    minimum = TOPIC_SETTINGS["segment.bytes"].minimum
    return "segment.bytes" if minimum is None or segment_bytes >= minimum else "internal.segment.bytes"


class JournalHost(Protocol):
    """The parts of a broker that the topic of a journal needs."""

    topics: Topics
    topic_admin: TopicAdmin
    append_queue: AppendQueue
    clock: Clock
    run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]]

    @property
    def config(self) -> BrokerConfig: ...

    def moved(self, partition: Partition) -> None: ...

    def flush(self) -> bool: ...


class JournalLifecycle(Generic[E, R, C]):
    """One coordinator and its journal's topic. Runs on the event loop's thread. Loading blocks it.

    `segment_bytes` applies to the topic's creation, as does the number of partitions of `writer`. `keep(index, position)` writes
    records again that a trim would lose, and waits until they are durable. It may raise a `KafkaError`.
    """

    def __init__(
        self,
        name: str,
        segment_bytes: int,
        host: JournalHost,
        writer: JournalWriter,
        coordinator: JournaledCoordinator[E, R, C],
        keep: Callable[[int, int], Awaitable[None]] | None = None,
    ) -> None:
        self._name = name
        self._segment_bytes = segment_bytes
        self._host = host
        self._writer = writer
        self._coordinator = coordinator
        self._keep = keep
        self._creating = asyncio.Lock()
        self._trimming: set[int] = set()
        self._damage_ends_at: dict[int, int] = {}
        self._final: Changes[C] | None = None

    @property
    def is_ready(self) -> bool:
        """Return whether the topic exists."""
        return self._writer.topic is not None

    @property
    def is_stopped(self) -> bool:
        """Return whether the broker stops: the topic is no longer created or trimmed."""
        return self._final is not None

    def key(self, name: str) -> TopicPartition:
        """Return the topic and partition of a group or transactional id, whether or not it exists."""
        return self._name, self._coordinator.table.partition_of(name)

    # Start and stop

    async def make_ready(self) -> None:
        """Create the topic if it does not exist. Raise `CoordinatorNotAvailableError` if that fails."""
        async with self._creating:
            if self.is_ready:
                return
            if self.is_stopped:
                raise CoordinatorNotAvailableError
            new = NewTopic(
                self._name,
                self._writer.partitions,
                config={
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    _size_setting(self._segment_bytes): str(self._segment_bytes),
                },
            )
            try:
                topic = await self._host.topic_admin.create(new, timeout_ms=self._host.config.request_timeout_ms)
            except TopicAlreadyExistsError as error:
                found = self._host.topics.find(self._name)
                if found is None:  # left in Delta by a creation of unknown outcome: it is removed and created again
                    raise CoordinatorNotAvailableError from error
                topic = found
            except KafkaError as error:
                logger.warning("%s not created error=%s", self._name, error)
                raise CoordinatorNotAvailableError from error
            self._writer.attach(topic)
            self._load((), {})

    def start(self, published: Iterable[C], positions: Mapping[int, int]) -> None:
        """Load the journal if its topic exists. `published` and `positions` come from Delta.

        Damage in the journal is logged, and what could be read is served. Raise `KafkaStorageError` on I/O errors.
        """
        topic = self._host.topics.find(self._name)
        if topic is not None:
            self._writer.attach(topic)
            self._load(published, positions)

    def stop(self) -> None:
        """Stop serving. Pending requests fail with NOT_COORDINATOR. Changes are kept for the last `take_changes`."""
        if self.is_stopped:
            return
        self.flush()
        self._final = self._coordinator.table.take_changes()
        for partition in self._coordinator.table.partitions:
            self._coordinator.unload(partition)

    def flush(self) -> None:
        """Write pending batches and their consequences: a Prepare state leads to markers, these to the completion."""
        for _ in range(_FLUSHES_MAX):
            if not self._host.flush():
                return

    # For Delta

    def take_changes(self) -> Changes[C]:
        """Return the changes that Delta lacks. After `stop`, return the last of them once."""
        if self._final is None:
            return self._coordinator.table.take_changes()
        final, self._final = self._final, Changes((), {})
        return final

    def put_back(self, changes: Changes[C]) -> None:
        """Restore `changes` after a failed publish."""
        if self._final is None:
            self._coordinator.table.put_back(changes)
        else:
            self._final = Changes((), {})  # its positions would skip unpublished rows: the next start reads them again

    # Loading

    def _load(self, published: Iterable[C], positions: Mapping[int, int]) -> None:
        rows: dict[int, list[C]] = defaultdict(list)
        for row in published:
            rows[row.journal_partition].append(row)
        coordinator, lost = self._coordinator, {}
        for index in range(self._writer.partitions):
            partition = self._writer.partition(index)
            if partition.is_offline:
                continue  # its names are not served: Delta may lack their newest records
            position = positions.get(index, 0)
            self._fill(partition, position)
            begin = max(position, partition.log.log_start_offset)
            coordinator.begin_load(index, begin, rows[index], partition.leader_epoch)
            lost[index] = self._replay(partition, partial(coordinator.load, index, begin=begin))
        # All partitions are loaded before any resumes: the markers of transactions are written together, before the next publish.
        for index, ranges in lost.items():
            coordinator.finish_load(index, self._writer.partition(index).log.high_watermark, ranges)

    def _replay(self, partition: Partition, follow: Callable[[ReadBatch], None]) -> list[range]:
        """Call `follow` with every batch of a partition. Return the ranges of offsets that are damaged or lost.

        Damage is logged and skipped up to the next whole message, wherever that is. The partition is trimmed behind the damage as
        soon as Delta has what follows it.
        """
        log, index = partition.log, partition.index
        at = log.log_start_offset
        lost: list[range] = []

        def lose(end: int, reason: str) -> None:
            logger.error(
                "damaged journal topic=%s partition=%d offsets=[%d, %d) error=%s", self._name, index, at, end, reason
            )
            lost.append(range(at, end))

        while at < log.high_watermark:
            reason = "nothing is there"
            try:
                messages = log.read(at, READ_BYTES)
            except KafkaLakeError as error:
                messages, reason = log.read_behind_damage(at, READ_BYTES), str(error)
            if not len(messages):
                lose(log.high_watermark, reason)
                break
            for gone in lost_ranges(messages):
                at = gone.start
                lose(gone.stop, "the machine stopped before they were on the disk")
            for batch in read_batches(messages):
                end = batch.base_offset + max(len(batch.pairs), 1)
                if batch.base_offset > at:
                    lose(batch.base_offset, reason)
                    at = batch.base_offset
                if end > at:
                    try:
                        follow(batch)
                    except KafkaLakeError as error:
                        lose(end, str(error))
                    at = end
            at = max(at, messages.next_offset)
        if lost:
            self._damage_ends_at[index] = lost[-1].stop
        return lost

    def _fill(self, partition: Partition, position: int) -> None:
        """Append filler up to `position`: after a power loss the journal may end before Delta's, and no offset may be reused."""
        records = self._coordinator.format
        filler, log = records.encode(records.filler), partition.log
        while log.log_end_offset < position:
            count = min(position - log.log_end_offset, FILL_RECORDS)
            batch = build_batch([filler] * count, self._host.clock.now_ms())
            for result in log.append([batch], partition.leader_epoch):
                if isinstance(result, KafkaError):
                    raise result
            partition.advance_high_watermark()

    # Trimming

    async def trim(self, resume_at: Mapping[int, int]) -> None:
        """Trim the partitions up to `resume_at`, where Delta has the rows and it is worth it. Failures are retried."""
        for index, position in resume_at.items():
            if self.is_stopped or index in self._trimming:
                continue
            log = self._writer.partition(index).log
            if position - log.log_start_offset < TRIM_RECORDS and position < self._damage_ends_at.get(index, NEVER):
                continue
            self._trimming.add(index)
            try:
                if self._keep is not None:
                    await self._keep(index, position)
                    if self.is_stopped:
                        return  # what it had to keep has been unloaded
                await self._cut(index, position)
                if position >= self._damage_ends_at.get(index, NEVER):
                    del self._damage_ends_at[index]
            except KafkaLakeError as error:
                logger.warning("journal not trimmed topic=%s partition=%d error=%s", self._name, index, error)
            finally:
                self._trimming.discard(index)

    async def _cut(self, index: int, position: int) -> None:
        partition = self._writer.partition(index)

        def cut() -> None:
            partition.log.roll()
            partition.log.delete_records_before(position)

        await self._host.run_blocking(cut)
        self._host.moved(partition)
