"""Loads the partitions of a journal that a broker leads: all at once at its start, and in the background those it is given later.

While a partition is loading, requests for its names are refused with COORDINATOR_LOAD_IN_PROGRESS. A partition that is taken away
meanwhile is read no further. One that could not be read is tried again until it is, and keeps no other waiting. A new leader
first waits for its followers: until the watermark has reached the start of its epoch, the newest records of the one before are
above it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from typing import Generic, Protocol, TypeVar

from kafkalake.broker.coordination.automata import MachineSlot
from kafkalake.broker.coordination.journal_replay import JournalReplay
from kafkalake.broker.coordination.journal_writer import JournalWriter
from kafkalake.broker.coordination.journaled_coordinator import JournaledCoordinator
from kafkalake.broker.coordination.table import Changed, Shard
from kafkalake.broker.coordination.waiting import wait_for_call
from kafkalake.broker.partitions.partition import Partition
from kafkalake.clock import Clock
from kafkalake.errors import KafkaError, as_value
from kafkalake.record.build import build_batch
from kafkalake.run_blocking import TURN_NS, RunBlocking

logger = logging.getLogger(__name__)

FILL_RECORDS = 500
READ_BYTES = 256 << 10
"""Bytes read at once in the background."""
WAIT_S = 5.0
RETRY_S = 1.0
RETRY_S_MAX = 30.0

E = TypeVar("E", bound=MachineSlot)
R = TypeVar("R")
C = TypeVar("C", bound=Changed)


class LoadPoint(Enum):
    """Points for crash tests between the steps of a load. The values name them in `KAFKALAKE_KILL_AT`."""

    BEGUN = "coordinator-load-begun"
    READ = "coordinator-load-read"
    LOADED = "coordinator-loaded"


class LoadingHost(Protocol):
    """The parts of a broker that loading needs."""

    clock: Clock
    run_blocking: RunBlocking


class Published(Generic[C]):
    """Delta's rows of a journal by partition, and the positions of its partitions from which Delta lacks records."""

    def __init__(self, rows: Iterable[C] = (), positions: Mapping[int, int] | None = None) -> None:
        self.positions = positions or {}
        self.rows: dict[int, list[C]] = defaultdict(list)
        for row in rows:
            self.rows[row.journal_partition].append(row)


class JournalLoading(Generic[E, R, C]):
    """The loading of one journal. Runs on the event loop's thread.

    `published` reads Delta and is called in a thread. `loaded` is called when partitions were loaded in the background,
    `reached` at each point of that.
    """

    def __init__(
        self,
        host: LoadingHost,
        writer: JournalWriter,
        coordinator: JournaledCoordinator[E, R, C],
        published: Callable[[], Published[C]],
        loaded: Callable[[], None],
        reached: Callable[[Enum], None],
    ) -> None:
        self.damage_ends_at: dict[int, int] = {}
        """Journal partition -> the offset behind the damage found when it was loaded. Trimming removes the damage."""
        self._host = host
        self._writer = writer
        self._coordinator = coordinator
        self._published = published
        self._loaded = loaded
        self._reached = reached
        self._given: dict[int, Shard] = {}
        self._retry_s: dict[int, float] = {}
        """The next pause of a partition that could not be loaded."""
        self._work: asyncio.Task[None] | None = None

    def load(self, published: Published[C]) -> None:
        """Load all partitions that this broker leads and that are not loaded. Blocks. Those that fail are tried again later.

        All are loaded before any resumes: the markers of transactions are written together, before the next publish.
        """
        table = self._coordinator.table
        replays = []
        for each in [each for each in self._writer.led() if table.shard(each.index) is None]:
            if each.is_watermark_behind:
                self.load_soon(each.index)
                continue
            try:
                replay = self._begin(each, published)
                replay.run()
                replays.append(replay)
            except Exception as error:
                logger.warning("journal not loaded partitions=%s error=%r", [each.index], error)
                self._coordinator.unload(each.index)
                self.load_soon(each.index)
        self._finish(replays)

    def load_soon(self, index: int) -> None:
        """Begin to load a partition that this broker leads now, in the background."""
        partition = self._writer.partition(index)
        self._coordinator.begin_load(index, leader_epoch=partition.leader_epoch)
        self._writer.when_caught_up(partition, partial(self._give, index, self._shard(index)))

    def _give(self, index: int, shard: Shard) -> None:
        """Load a partition that has all records now, unless it was taken away meanwhile."""
        if not self._is(index, shard):
            return
        self._given[index] = shard
        if self._work is None or self._work.done():
            self._work = asyncio.ensure_future(self._load_given())

    async def wait(self) -> None:
        """Wait for what is being loaded in the background, at most `WAIT_S`."""
        if self._work is not None:
            await asyncio.wait([self._work], timeout=WAIT_S)

    def stop(self) -> None:
        """Stop loading in the background."""
        self._given.clear()
        if self._work is not None:
            self._work.cancel()

    async def _load_given(self) -> None:
        while self._given:
            given, self._given = self._given, {}
            try:
                await self._load_these(given)
            except Exception as error:
                self._put_off(given, as_value(error))

    def _put_off(self, given: Mapping[int, Shard], error: Exception) -> None:
        """Load those of these partitions that are loading again after a pause."""
        waiting = {index: shard for index, shard in given.items() if shard.loading and self._is(index, shard)}
        if not waiting:
            return
        logger.warning("journal not loaded partitions=%s error=%s", sorted(waiting), error)
        retry_s = max(self._retry_s.get(index, RETRY_S) for index in waiting)
        self._retry_s.update(dict.fromkeys(waiting, min(2 * retry_s, RETRY_S_MAX)))
        asyncio.get_running_loop().call_later(retry_s, self._give_again, waiting)

    def _give_again(self, waiting: Mapping[int, Shard]) -> None:
        for index, shard in waiting.items():
            self._give(index, shard)

    async def _load_these(self, given: dict[int, Shard]) -> None:
        """Load the partitions of `given`. It has the shards to go on with if this raises."""
        self._reached(LoadPoint.BEGUN)
        published: Published[C] = await self._host.run_blocking(self._published)
        replays: dict[int, JournalReplay] = {}
        for index in list(given):
            try:
                if self._is(index, given[index]):
                    replays[index] = self._begin_again(index, given, published)
                    await self._run(replays[index], partial(self._is, index, given[index]))
                    # Writes from before an earlier resignation are then in the journal, or will never be.
                    await wait_for_call(partial(self._coordinator.when_written, index))
            except Exception as error:
                replays.pop(index, None)
                self._put_off({index: given[index]}, as_value(error))
        led = []
        for index, replay in replays.items():
            try:
                if self._is(index, given[index]):
                    replay.run()  # what was appended while the others were read
                    led.append(replay)
            except Exception as error:
                self._put_off({index: given[index]}, as_value(error))
        self._reached(LoadPoint.READ)
        self._finish(led)
        self._loaded()
        self._reached(LoadPoint.LOADED)

    def _begin_again(self, index: int, given: dict[int, Shard], published: Published[C]) -> JournalReplay:
        """Begin to load a partition, of which an earlier attempt may have read some, and keep its new shard in `given`."""
        partition = self._writer.partition(index)
        self._fill(partition, published.positions.get(index, 0))
        self._coordinator.unload(index)
        try:
            return self._begin(partition, published)
        finally:
            given[index] = self._shard(index)

    async def _run(self, replay: JournalReplay, is_wanted: Callable[[], bool]) -> None:
        now_ns = self._host.clock.monotonic_ns
        end_ns = now_ns() + TURN_NS
        for _ in replay.steps(READ_BYTES):
            if now_ns() >= end_ns:
                await asyncio.sleep(0)
                if not is_wanted():
                    return
                end_ns = now_ns() + TURN_NS

    def _is(self, index: int, shard: Shard) -> bool:
        return self._coordinator.table.shard(index) is shard

    def _shard(self, index: int) -> Shard:
        shard = self._coordinator.table.shard(index)
        assert shard is not None
        return shard

    def _begin(self, partition: Partition, published: Published[C]) -> JournalReplay:
        coordinator, index = self._coordinator, partition.index
        position = published.positions.get(index, 0)
        self._fill(partition, position)
        begin = max(position, partition.log.log_start_offset)
        coordinator.begin_load(index, begin, published.rows[index], partition.leader_epoch)
        return JournalReplay(partition, partial(coordinator.load, index, begin=begin))

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

    def _finish(self, replays: Iterable[JournalReplay]) -> None:
        for replay in replays:
            partition = replay.partition
            if replay.lost:
                self.damage_ends_at[partition.index] = replay.lost[-1].stop
            self._retry_s.pop(partition.index, None)
            self._coordinator.finish_load(partition.index, partition.log.high_watermark, replay.lost)
