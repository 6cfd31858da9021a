"""Our transaction coordinator on a journal in memory, with logs that remember the markers they took; same requests as Kafka's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from broker.groups.coordination import MemoryJournal
from broker.groups.worlds import label
from broker.transactions.kafka_world import NOBODY, TIMEOUT_MS, Partition, ProducerNames
from manual_clock import ManualClock

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.coordination.table import Changes
from kafkalake.broker.partitions.purgatory import Timers
from kafkalake.broker.transactions.config import TransactionConfig
from kafkalake.broker.transactions.coordinator import TransactionCoordinator
from kafkalake.broker.transactions.decisions import FaultPoint, Marker
from kafkalake.broker.transactions.ending import EndRequest
from kafkalake.broker.transactions.expiry import Expiry
from kafkalake.broker.transactions.requests import ProducerResult
from kafkalake.broker.transactions.table import ChangedTransaction
from kafkalake.broker.transactions.waves import Waves
from kafkalake.errors import KafkaError

ID = "app-1"


class Crashed(BaseException):
    """The coordinator's process is gone."""


class Logs:
    """The partitions' logs: the markers they took, in order. `refuse`: what the next markers of a partition are answered."""

    def __init__(self) -> None:
        self.markers: dict[Partition, list[Marker]] = {}
        self.refuse: dict[Partition, list[ErrorClass]] = {}
        self.hold = False
        self._held: list[Callable[[], None]] = []

    def __call__(
        self, partition: Partition, marker: Marker, coordinator_epoch: int, done: Callable[[ErrorClass | None], None]
    ) -> None:
        if self.hold:
            self._held.append(lambda: self._write(partition, marker, done))
        else:
            self._write(partition, marker, done)

    def release(self) -> None:
        """What was held is written now."""
        held, self._held = self._held, []
        for write in held:
            write()

    def forget_held(self) -> None:
        """What was held never arrives."""
        self._held = []

    def _write(self, partition: Partition, marker: Marker, done: Callable[[ErrorClass | None], None]) -> None:
        refused = self.refuse.get(partition)
        if refused:
            done(refused.pop(0))
            return
        taken = self.markers.setdefault(partition, [])
        assert not taken or (taken[-1].producer_id, taken[-1].epoch) <= (marker.producer_id, marker.epoch)
        taken.append(marker)
        done(None)


class Cluster:
    """One coordinator; `start` makes a new one from the journal (and from what was published). `crash_at`: die there, once."""

    def __init__(self, **config: int) -> None:
        self.clock = ManualClock()
        self.journal = MemoryJournal()
        self.logs = Logs()
        self.config = TransactionConfig(**config)
        self.crash_at: FaultPoint | None = None
        self.next_producer_ids = itertools.count(1000)
        self.producer_id_errors: list[KafkaError] = []
        self.epoch = 0
        self.start()

    def start(self, published: Changes[ChangedTransaction] | None = None, lost: Sequence[range] = ()) -> None:
        self.timers = Timers(self.clock)
        self.epoch += 1
        self.waves = Waves(self.timers)
        self.coordinator = TransactionCoordinator(
            self.config,
            self.clock,
            self.timers,
            self.journal,
            self.logs,
            self._new_producer_id,
            self.waves,
            self._reached,
        )
        self.expiry = Expiry(self.coordinator, self.timers)
        for partition, batches in self.journal.batches.items():
            begin = 0 if published is None else published.resume_at[partition]
            rows = [] if published is None else [row for row in published.rows if row.journal_partition == partition]
            journaled = self.coordinator.journaled
            journaled.begin_load(partition, begin, rows, self.epoch)
            for batch in batches:
                if batch.position >= begin:
                    journaled.load(partition, batch.as_read())
            journaled.finish_load(partition, lost=lost)

    def _new_producer_id(self) -> int:
        if self.producer_id_errors:
            raise self.producer_id_errors.pop()
        return next(self.next_producer_ids)

    def _reached(self, point: FaultPoint) -> None:
        if point is self.crash_at:
            self.crash_at = None
            raise Crashed(point.value)

    def advance(self, milliseconds: int, step_ms: int = 50) -> None:
        """Time passes in steps; timers that are due ring."""
        end = self.clock.monotonic_ms() + milliseconds
        while self.clock.monotonic_ms() < end:
            self.clock.advance(min(step_ms, end - self.clock.monotonic_ms()))
            self.timers.ring()

    def init(
        self, expected: ProducerIdAndEpoch | None = None, timeout_ms: int = TIMEOUT_MS, name: str = ID
    ) -> list[ProducerResult]:
        answers: list[ProducerResult] = []
        self.coordinator.init_producer_id(name, timeout_ms, expected, answers.append)
        return answers

    def add(self, producer: ProducerIdAndEpoch, *partitions: Partition, v2: bool = False) -> list[ErrorClass | None]:
        answers: list[ErrorClass | None] = []
        self.coordinator.add_partitions(ID, producer, partitions, answers.append, client_version=2 if v2 else 0)
        return answers

    def end(self, producer: ProducerIdAndEpoch, *, committed: bool, v2: bool = False) -> list[ProducerResult]:
        answers: list[ProducerResult] = []
        self.coordinator.end(ID, EndRequest(producer, committed, v2), answers.append)
        return answers

    @property
    def state(self) -> str:
        return self.coordinator.describe(ID).state

    def producer(self) -> ProducerIdAndEpoch:
        """A producer that has just started."""
        result = self.init()[0]
        assert result.error is None
        return ProducerIdAndEpoch(result.producer_id, result.epoch)


class OurTransactions:
    """Our coordinator as a `kafka_world.World`."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self._names = ProducerNames()

    def settle(self) -> None:
        self.cluster.advance(1)

    def init(self, timeout_ms: int = TIMEOUT_MS, expected: tuple[str, int] | None = None) -> tuple[str, str, int]:
        known = None if expected is None else self._producer(*expected)
        return self._shown(self.cluster.init(known, timeout_ms)[0])

    def add(self, producer: str, epoch: int, partitions: Sequence[Partition], *, v2: bool) -> list[str]:
        answer = self.cluster.add(self._producer(producer, epoch), *partitions, v2=v2)[0]
        return [label(answer)] * len(partitions)

    def verify(self, producer: str, epoch: int, partitions: Sequence[Partition]) -> list[str]:
        try:
            found = self.cluster.coordinator.verify_partitions(ID, self._producer(producer, epoch), partitions)
        except KafkaError as error:
            return [error.label] * len(partitions)
        return [label(found[one]) for one in partitions]

    def add_offsets(self, producer: str, epoch: int, group: str) -> str:
        return label(self.cluster.add(self._producer(producer, epoch), ("__consumer_offsets", 0))[0])

    def end(self, producer: str, epoch: int, *, committed: bool, v2: bool) -> tuple[str, str, int]:
        result = self.cluster.end(self._producer(producer, epoch), committed=committed, v2=v2)[0]
        return self._shown(result) if v2 else (label(result.error), NOBODY, -1)

    def describe(self) -> tuple[str, str, list[Partition], str, int]:
        try:
            one = self.cluster.coordinator.describe(ID)
        except KafkaError as error:
            return error.label, "", [], NOBODY, -1
        return "NONE", one.state, list(one.partitions), self._names.name(one.producer_id), one.epoch

    def _producer(self, name: str, epoch: int) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self._names.producer_id(name), epoch)

    def _shown(self, result: ProducerResult) -> tuple[str, str, int]:
        return label(result.error), self._names.name(result.producer_id), result.epoch
