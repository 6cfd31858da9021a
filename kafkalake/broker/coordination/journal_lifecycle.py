"""A coordinator and the internal topic behind its journal, from the broker's start to its stop.

The topic is created on first use, as in Kafka. A broker coordinates the names of the partitions that it leads: it loads them at its
start, when the topic is created, and when it becomes their leader (`lead`), and unloads those that it leads no longer (`resign`).
Loading reads the rows of Delta's table, then the journal beyond them. It is trimmed up to Delta's position, so it stays short
without compaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from enum import Enum
from typing import Generic, Protocol, TypeVar

from kafkalake.broker.admin.topic_admin import TopicAdmin
from kafkalake.broker.coordination.automata import MachineSlot
from kafkalake.broker.coordination.journal_creation import create_journal, size_setting
from kafkalake.broker.coordination.journal_loading import JournalLoading, Published
from kafkalake.broker.coordination.journal_writer import JournalWriter
from kafkalake.broker.coordination.journaled_coordinator import JournaledCoordinator
from kafkalake.broker.coordination.table import Changed, Changes
from kafkalake.broker.partitions.append_queue import AppendQueue
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.topics import Topics
from kafkalake.clock import Clock
from kafkalake.config.broker import BrokerConfig
from kafkalake.errors import CoordinatorNotAvailableError, KafkaLakeError
from kafkalake.run_blocking import RunBlocking
from kafkalake.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

TRIM_RECORDS = 5_000
"""Number of trimmable offsets from which a journal partition is trimmed. A damaged one is trimmed once Delta is past the damage."""

NEVER = 1 << 63
_FLUSHES_MAX = 10

E = TypeVar("E", bound=MachineSlot)
R = TypeVar("R")
C = TypeVar("C", bound=Changed)


class JournalHost(Protocol):
    """The parts of a broker that the topic of a journal needs."""

    topics: Topics
    topic_admin: TopicAdmin
    append_queue: AppendQueue
    clock: Clock
    run_blocking: RunBlocking

    @property
    def config(self) -> BrokerConfig: ...

    def moved(self, partition: Partition) -> None: ...

    def flush(self) -> bool: ...


class JournalLifecycle(Generic[E, R, C]):
    """One coordinator and its journal's topic. Runs on the event loop's thread. Loading at the start blocks it.

    `segment_bytes`, `factor_setting`, the name of the setting of its replicas, and `config`, more settings of the topic, apply to
    its creation, as does the number of partitions of `writer`. `published` reads Delta's rows.
    `keep(index, position)` writes records again that a trim would lose, waits until they are durable and returns their number. It
    may raise a `KafkaError`. `loaded` is called when partitions were loaded after the start, `resigned` with the entries of one
    that was unloaded before the stop, `reached` at each point of a load.
    """

    def __init__(
        self,
        name: str,
        segment_bytes: int,
        factor_setting: str,
        host: JournalHost,
        writer: JournalWriter,
        coordinator: JournaledCoordinator[E, R, C],
        published: Callable[[], Published[C]],
        keep: Callable[[int, int], Awaitable[int]] | None = None,
        loaded: Callable[[], None] = lambda: None,
        resigned: Callable[[Sequence[E]], None] = lambda entries: None,
        config: Mapping[str, str] | None = None,
        reached: Callable[[Enum], None] = lambda point: None,
    ) -> None:
        self._name = name
        self._factor_setting = factor_setting
        self._config = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            size_setting(segment_bytes): str(segment_bytes),
            **(config or {}),
        }
        self._host = host
        self._writer = writer
        self._coordinator = coordinator
        self._keep = keep
        self._resigned = resigned
        self._published = published
        self._loading = JournalLoading(host, writer, coordinator, published, loaded, reached)
        self._creating = asyncio.Lock()
        self._is_ready = False
        self._trimming: set[int] = set()
        self._kept: dict[int, int] = {}
        """Partition -> number of records that its last trim wrote again."""
        self._final: Changes[C] | None = None

    @property
    def is_ready(self) -> bool:
        """Return whether the topic exists, and the partitions led here are loaded or loading."""
        return self._is_ready and self.exists and not self._creating.locked()

    @property
    def exists(self) -> bool:
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
            if self._is_ready and self.exists:
                return
            if self.is_stopped:
                raise CoordinatorNotAvailableError
            # Another broker may have created it, or a request that was no longer waited for.
            if not self.exists:
                for index in list(self._coordinator.table.partitions):  # led until a creation that failed was undone
                    self.resign(index)
                await self._create()
            self._is_ready = True
            for partition in self._writer.led():
                self.lead(partition.index)
            await self._loading.wait()

    async def _create(self) -> None:
        if await create_journal(self._host, self._name, self._writer, self._factor_setting, self._config):
            self._loading.load(Published())

    async def start(self) -> None:
        """Load the partitions led by this broker if the topic exists.

        Damage in the journal is logged, and what could be read is served. A partition that cannot be read or filled is tried
        again in the background. Raise `KafkaStorageError` if Delta cannot be read.
        """
        published = await self._host.run_blocking(self._published)
        if self._writer.topic is not None:
            self._is_ready = True
            self._loading.load(published)

    def lead(self, index: int) -> None:
        """Coordinate the names of a partition that this broker leads now, or leads in a newer epoch.

        It is loaded in the background, unless it is loaded or its log could not be opened. Raise `NotLeaderOrFollowerError`.
        """
        partition = self._writer.partition(index)
        if self.is_stopped or partition.is_offline:
            return
        self._is_ready = True
        if self._coordinator.table.shard(index) is None:
            self._loading.load_soon(index)
        else:
            self._coordinator.table.raise_epoch(index, partition.leader_epoch)

    def resign(self, index: int) -> None:
        """Coordinate the names of a partition no longer. Pending requests fail with NOT_COORDINATOR.

        The next leader publishes the changes that Delta lacks: it reads them in the journal.
        """
        self._kept.pop(index, None)
        self._resigned(self._coordinator.unload(index))

    def stop(self) -> None:
        """Stop serving. Pending requests fail with NOT_COORDINATOR. Changes are kept for the last `take_changes`."""
        if self.is_stopped:
            return
        self._loading.stop()
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

    @property
    def has_changes(self) -> bool:
        """Return whether Delta may lack changes."""
        return self._coordinator.table.has_changes if self._final is None else bool(self._final.rows)

    def take_changes(self) -> Changes[C]:
        """Return the changes that Delta lacks. After `stop`, return the last of them once."""
        if self._final is None:
            return self._coordinator.table.take_changes()
        final, self._final = self._final, Changes((), {})
        return final

    def collect_changes(self) -> Generator[None, None, Changes[C]]:
        """Return the same in turns, and nothing if `take_changes` or `stop` overtakes it."""
        if self._final is None:
            return (yield from self._coordinator.table.collect_changes())
        return self.take_changes()

    def put_back(self, changes: Changes[C]) -> None:
        """Restore `changes` after a failed publish."""
        if self._final is None:
            self._coordinator.table.put_back(changes)
        else:
            self._final = Changes((), {})  # its positions would skip unpublished rows: the next start reads them again

    # Trimming

    async def trim(self, resume_at: Mapping[int, int]) -> None:
        """Trim the partitions up to `resume_at`, where Delta has the rows and it is worth it. Failures are retried."""
        for index, position in resume_at.items():
            if self._coordinator.table.is_serving(index) and index not in self._trimming:
                self._trimming.add(index)
                try:
                    await self._trim(index, position)
                except KafkaLakeError as error:
                    logger.warning("journal not trimmed topic=%s partition=%d error=%s", self._name, index, error)
                finally:
                    self._trimming.discard(index)

    async def _trim(self, index: int, position: int) -> None:
        table, damage_ends_at = self._coordinator.table, self._loading.damage_ends_at
        shard, partition = table.shard(index), self._writer.partition(index)
        log = partition.log
        kept = self._kept.get(index, 0)
        # As many again as have to be kept: a trim would otherwise lead to the next one, and each write them all.
        is_worth_it = position - log.log_start_offset - kept >= max(TRIM_RECORDS, kept)
        if not is_worth_it and position < damage_ends_at.get(index, NEVER):
            return
        if self._keep is not None:
            kept = await self._keep(index, position)
            if table.shard(index) is not shard:
                return  # what it had to keep has been unloaded

        def cut() -> None:
            log.roll()
            log.delete_records_before(position)

        await partition.change_log(self._host.run_blocking, cut)
        self._kept[index] = kept
        self._host.moved(partition)
        if position >= damage_ends_at.get(index, NEVER):
            del damage_ends_at[index]
