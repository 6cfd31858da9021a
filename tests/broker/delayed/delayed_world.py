"""A journal partition of delayed delivery on a real log, targets with real logs, and a clock that the test drives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
from leaderships import LedPartition, sole_replica
from manual_clock import ManualClock
from record_batches import Row, record_batch, simple_batch
from storage.partition_logs import open_log, read_all

from kafkalake.broker.delayed.coordinator import JournalCoordinator
from kafkalake.broker.delayed.payloads import Room
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.pending_append import PendingAppend
from kafkalake.cluster.image import PartitionRegistration
from kafkalake.delayed_headers import DELAY_ID
from kafkalake.delayed_journal import NO_DUE_TIME, Origin, encode
from kafkalake.errors import InvalidRecordError, KafkaError, MessageTooLargeError
from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.storage.append_group import AppendResult
from kafkalake.storage.log import Log
from kafkalake.storage.producer_state import ABORT, COMMIT, EndMarker
from kafkalake.storage.temporary_files import TemporaryFiles
from kafkalake.topic_partition import PartitionId

ORDERS = UUID(int=1 << 100 | 1)
SOURCE = UUID(int=2)
DEAD_LETTERS = UUID(int=3)
START_MS = 1_700_000_000_000
ALONE = sole_replica(0, 1)


class Killed(Exception):
    """The process ends here."""


class Sent(NamedTuple):
    """A record of a test: its value, when it is due, its delay id. A value of None is a cancel. Its key is its value, or none."""

    value: bytes | None
    due_ms: int
    delay_id: bytes | None = None
    has_key: bool = True


class TargetLogs:
    """`Targets` with a real log each. `faults` are what happens to the next appends, None: nothing."""

    def __init__(self, directory: Path, clock: ManualClock) -> None:
        self._directory = directory
        self._clock = clock
        self._logs: dict[PartitionId[UUID], Log] = {}
        self.faults: list[KafkaError | None] = []
        self.faults_after: list[KafkaError | None] = []
        """Errors of appends that have succeeded."""
        self.appends: list[tuple[PartitionId[UUID], int]] = []
        self._lost = 0
        self.deleted: set[UUID] = set()
        self.refused: dict[UUID, KafkaError] = {}
        """The answers of some targets to everything."""
        self.compacted: set[UUID] = set()
        self.refused_dead_letters: set[bytes] = set()
        """The values that the dead-letter topic refuses with the whole batch."""
        self.dead_letter_faults: list[KafkaError] = []
        self.dead_letters = DEAD_LETTERS
        self.largest_bytes = 1 << 30
        self.always: KafkaError | None = None
        """The answer of all targets but the dead letters."""

    def log(self, target: PartitionId[UUID]) -> Log:
        if target not in self._logs:
            self._logs[target] = open_log(self._directory / f"{target[0].int:x}-{target[1]}-{self._lost}", self._clock)
        return self._logs[target]

    def append(
        self, target: PartitionId[UUID], batch: ProducerBatch, done: Callable[[KafkaError | None], None]
    ) -> None:
        asyncio.get_running_loop().call_soon(self._append, target, batch, done)

    def _append(
        self, target: PartitionId[UUID], batch: ProducerBatch, done: Callable[[KafkaError | None], None]
    ) -> None:
        fault = (self.faults.pop(0) if self.faults else None) or self.refused.get(target[0])
        if target[0] != DEAD_LETTERS:
            fault = fault or self.always
            if len(batch.body) > self.largest_bytes:
                fault = MessageTooLargeError()
        elif self.refused_dead_letters.intersection(batch.to_arrow().column("value").to_pylist()):
            fault = InvalidRecordError()
        if target[0] in self.compacted and batch.layout[at.KEY_NULLS]:
            fault = InvalidRecordError()
        if fault is not None:
            done(fault)
            return
        log = self.log(target)
        (result,) = log.append([batch], 0)
        log.advance_high_watermark(log.log_end_offset)
        self.appends.append((target, batch.rows))
        after = self.faults_after.pop(0) if self.faults_after else None
        done(after if after is not None or isinstance(result, AppendResult) else result)

    def exists(self, target: PartitionId[UUID]) -> bool:
        return target[0] not in self.deleted

    async def dead_letter(self) -> PartitionId[UUID]:
        if self.dead_letter_faults:
            raise self.dead_letter_faults.pop(0)
        return self.dead_letters, 0

    def lose_all(self, target: PartitionId[UUID]) -> None:
        """A target has none of its records, and another log, that has none of its producers either."""
        self.log(target).close()
        self._lost += 1
        del self._logs[target]

    def append_others(self, target: PartitionId[UUID]) -> None:
        """Let a target have other records under the next sequences of each producer."""
        log = self.log(target)
        for producer_id, state in log.producers():
            batch = simple_batch(
                [b"lost"] * 3, producer_id=producer_id, epoch=state.epoch, sequence=state.batches[-1].last_sequence + 1
            )
            assert isinstance(log.append([batch], 0)[0], AppendResult)
        log.advance_high_watermark(log.log_end_offset)

    def records(self, target: PartitionId[UUID]) -> list[Row]:
        """Return the records that a target has."""
        return [row for _, row in read_all(self.log(target), max_bytes=1 << 20)]

    def values(self, target: PartitionId[UUID] = (ORDERS, 0)) -> list[bytes | None]:
        return [row[2] for row in self.records(target)]


class Seen:
    """The metrics of hand-overs."""

    def __init__(self) -> None:
        self.lateness_ms: list[int] = []
        self.dead = 0

    def handed_over(self, lateness_ms: Any, now_ms: int) -> None:
        self.lateness_ms += lateness_ms.tolist()

    def dead_lettered(self, records: int) -> None:
        self.dead += records


class DelayedWorld:
    """A broker that leads one journal partition. `restart` is a new coordinator on what the disk has."""

    def __init__(self, directory: Path, registration: PartitionRegistration = ALONE, **config: int) -> None:
        self._directory = directory
        self.led = LedPartition(directory / "journal", registration, **config)
        self.following = registration.replicas[1:]
        """The followers that fetch the journal."""
        self.clock = self.led.clock
        self.clock.jump(START_MS)
        self.targets = TargetLogs(directory, self.clock)
        self.seen = Seen()
        self.kill_at: Enum | None = None
        self.twice = False
        self.appended = 0
        self.read_faults: list[Exception] = []
        self._loads = count()
        self.coordinator = self._start()

    # The parts of a broker

    @property
    def append_queue(self) -> Any:
        return self

    def add(self, pending: PendingAppend, settled: Callable[[], None]) -> None:
        """Append as the queue does, carried records twice if `twice` is set."""
        if self.twice and pending.batch is not None and pending.batch.rows > 5:
            again = ProducerBatch(pending.batch.body, pending.batch.layout, pending.batch.header.copy())
            self.led.queue.add(PendingAppend(self.led.partition, again, None))
        self.led.queue.add(pending, settled)

    def when_caught_up(self, partition: Partition, action: Callable[[], None]) -> None:
        self.led.queue.when_caught_up(partition, action)

    @property
    def purgatory(self) -> Any:
        return self.led.purgatory

    @property
    def timers(self) -> Any:
        return self.led.timers

    async def run_blocking(self, work: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        if self.read_faults:
            raise self.read_faults.pop(0)
        return work()

    def moved(self, partition: Partition) -> None:
        """A trim has moved the start."""

    def _reach(self, point: Enum) -> None:
        if point is self.kill_at:
            self.kill_at = None
            self.coordinator.close()
            raise Killed

    # What happens to it

    def _start(self) -> JournalCoordinator:
        def new_files() -> TemporaryFiles:
            return TemporaryFiles(str(self._directory / "journal"), self.led.files, f"{next(self._loads)}-")

        return JournalCoordinator(
            self.led.partition, self, self.targets, new_files, Room(1 << 20), self.seen, self._reach, self.cancels
        )

    def restart(self) -> None:
        """Another coordinator takes over."""
        self.coordinator.close()
        self.coordinator = self._start()
        self.coordinator.start()

    async def settle(self) -> None:
        """Let everything happen that happens now."""
        for _ in range(12):
            self.led.turn()
            for each in self.following:
                self.led.fetch(each, self.led.log.log_end_offset)
            await asyncio.sleep(0)

    async def pass_time(self, milliseconds: int, step_ms: int = 1_000) -> None:
        """Let time pass in steps, the end of each a millisecond at a time, for the timers that follow from those that are due."""
        while milliseconds > 0:
            step = min(step_ms, milliseconds)
            milliseconds -= step
            small = min(step, 8)
            for part in (step - small, *[1] * small):
                self.clock.advance(part)
                self.timers.ring()
                await self.settle()

    def cancels(self) -> int:
        """Return the number of cancels that are kept."""
        return self.coordinator.cancels

    async def pass_real_time(self, until: Callable[[], bool]) -> None:
        """Let what waits by the event loop's clock happen, until a condition is met."""
        while not until():
            await asyncio.sleep(0.01)
            await self.pass_time(1, 1)

    async def calm(self) -> None:
        """Let a second pass in small steps."""
        for _ in range(50):
            await self.pass_time(20, 20)

    def hand_in(
        self,
        records: Sequence[Sent],
        target: PartitionId[UUID] = (ORDERS, 0),
        *,
        producer_id: int = -1,
        epoch: int = 0,
        sequence: int = -1,
        base_offset: int | None = None,
        transactional: bool = False,
    ) -> list[str | None]:
        """Hand records in, and return a list that has the error's label or None once it is answered."""
        rows: list[Row] = [
            (
                self.clock.now_ms(),
                each.value if each.has_key else None,
                each.value,
                [("h", b"1")] + ([(DELAY_ID, each.delay_id)] if each.delay_id is not None else []),
            )
            for each in records
        ]
        base = self.appended if base_offset is None else base_offset
        self.appended = max(self.appended, base + len(rows))
        due = np.array([NO_DUE_TIME if each.value is None else each.due_ms for each in records], dtype=np.int64)
        ids = pa.array([each.delay_id for each in records], pa.binary())
        origin = Origin(target, (SOURCE, target[1]), producer_id, epoch, sequence, base, transactional)
        answers: list[str | None] = []
        self.coordinator.hand_in(
            encode(record_batch(rows).to_arrow(), due, origin, ids, self.clock.now_ms()),
            lambda error: answers.append(None if error is None else error.label),
        )
        return answers

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Write the marker of a producer's transaction to the journal partition."""
        end = EndMarker(producer_id, 0, COMMIT if committed else ABORT, coordinator_epoch=0)
        self.led.queue.add(PendingAppend(self.led.partition, None, None, marker=end))
        self.led.turn()


async def started(directory: Path, registration: PartitionRegistration = ALONE, **config: int) -> DelayedWorld:
    """Return a world whose coordinator has loaded an empty journal."""
    world = DelayedWorld(directory, registration, **config)
    world.coordinator.start()
    await world.settle()
    assert world.coordinator.is_loaded
    return world


def damage(world: DelayedWorld, value: bytes) -> None:
    """Change a value in the journal on the disk."""
    (path,) = [each for each in Path(world.led.log.directory).glob("*.arrow") if value in each.read_bytes()]
    data = bytearray(path.read_bytes())
    data[data.index(value)] ^= 1
    path.write_bytes(data)


def run(scenario: Any) -> None:
    """Run a scenario to its end, with a time limit."""

    async def limited() -> None:
        async with asyncio.timeout(60):
            await scenario

    asyncio.run(limited())
