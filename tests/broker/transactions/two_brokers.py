"""Two brokers in one process that share the partitions of a transaction, with real logs and a scripted network between them.

`clicks` has a partition on each. Each broker coordinates one of two transactional ids, `ID_OF[broker]`.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from broker.groups.coordination import MemoryJournal
from faulty_files import FaultyFiles
from leaderships import alone, sole_replica
from manual_clock import ManualClock
from record_batches import simple_batch

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.coordination.journal import ProducerIdAndEpoch, journal_partition
from kafkalake.broker.partitions.append_queue import AppendQueue
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.pending_append import PendingAppend
from kafkalake.broker.partitions.purgatory import Purgatory, Timers
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.broker.partitions.wire_cache import WireCache
from kafkalake.broker.transactions.admission import Admission
from kafkalake.broker.transactions.config import TransactionConfig
from kafkalake.broker.transactions.coordinator import TransactionCoordinator
from kafkalake.broker.transactions.cut import UNFINISHED
from kafkalake.broker.transactions.decisions import MarkerResult
from kafkalake.broker.transactions.ending import CLIENT_VERSION_2, EndRequest
from kafkalake.broker.transactions.markers import MarkerWriter
from kafkalake.broker.transactions.remote_admission import MarkerWatch, RemoteAdmission
from kafkalake.broker.transactions.remote_markers import RemoteMarkers
from kafkalake.broker.transactions.requests import PartitionResults, ProducerResult
from kafkalake.broker.transactions.transaction_peers import AdmissionRequest, MarkerRequest
from kafkalake.broker.transactions.waves import Waves
from kafkalake.cluster.image import ClusterImage
from kafkalake.config.layers import Settings
from kafkalake.errors import BrokerUnavailableError, KafkaError
from kafkalake.ownership import Ownership
from kafkalake.storage.config import LogConfig
from kafkalake.storage.log import Log
from kafkalake.storage.open_files import OpenFiles
from kafkalake.topic_partition import TopicPartition

TIMEOUT_MS = 60_000
JOURNAL_PARTITIONS = 2
P0, P1 = ("clicks", 0), ("clicks", 1)
ID_OF = [
    next(name for n in range(100) if journal_partition(name := f"app-{n}", JOURNAL_PARTITIONS) == broker)
    for broker in range(JOURNAL_PARTITIONS)
]
TOPIC_ID = uuid.uuid4()


class NoOffsets:
    """No group has committed an offset in a transaction."""

    is_damaged = False

    def open_transactions(self, partition: int) -> list[int]:
        return []

    def end_transaction(self, partition: int, producer_id: int, *, committed: bool, position: int) -> None:
        raise AssertionError("no marker is for the groups' journal here")


class Network:
    """What a broker asks the other one. `script`: what happens to the next requests, then they are answered.

    lost: it does not arrive. unanswered: it is done, and the answer is lost. late: it is answered when `release` is called.
    """

    def __init__(self, brokers: list[Member]) -> None:
        self._brokers = brokers
        self.script: list[str] = []
        self.sent: list[Sequence[MarkerRequest] | Sequence[AdmissionRequest]] = []
        self._released = asyncio.Event()

    def release(self) -> None:
        self._released.set()

    async def write_markers(self, broker_id: int, markers: Sequence[MarkerRequest]) -> Sequence[MarkerResult]:
        await self._before(markers)
        receiver = self._brokers[broker_id]
        results: list[MarkerResult] = await receiver.receive(markers)
        return await self._after(results)

    async def admit(self, broker_id: int, writes: Sequence[AdmissionRequest]) -> Sequence[PartitionResults]:
        await self._before(writes)
        results = await self._brokers[broker_id].asked(writes)
        return await self._after(results)

    async def _before(self, request: Sequence[MarkerRequest] | Sequence[AdmissionRequest]) -> None:
        self.sent.append(request)
        await asyncio.sleep(0)
        if self.script and self.script[0] == "lost":
            self.script.pop(0)
            raise BrokerUnavailableError("lost")

    async def _after(self, results: Sequence) -> Sequence:  # type: ignore[type-arg]
        what = self.script.pop(0) if self.script else "answered"
        if what == "unanswered":
            raise BrokerUnavailableError("unanswered")
        if what == "late":
            await self._released.wait()
        await asyncio.sleep(0)
        return results


class Member:
    """One of the brokers."""

    def __init__(self, broker_id: int, directory: Path, clock: ManualClock, network: Network, image: ClusterImage):
        self.broker_id = broker_id
        self.timers = Timers(clock)
        self.turns: list[Callable[[], object]] = []
        self.disk = FaultyFiles()
        self.journal = MemoryJournal(JOURNAL_PARTITIONS)
        self.journal_leaders = list(range(JOURNAL_PARTITIONS))
        ownership = Ownership(clock)
        ownership.renewed(clock.elapsed_ms(), 3_600_000)
        self.queue = AppendQueue(
            Purgatory(self.timers), self.turns.append, self._no_threads, lambda partition: None, ownership, clock
        )
        self.topics = Topics(ClusterImage(""))
        topic = Topic("clicks", TOPIC_ID, {}, Settings({}, {}, {}).topic({}), 0)
        self.topics.add(topic)
        self.topics.apply(image)
        log = Log.open(directory / f"{broker_id}", LogConfig(), clock, self.disk, OpenFiles(self.disk, 16))
        self.partition = Partition(topic, broker_id, log, WireCache(1 << 20).tail(), alone())
        topic.replicas[broker_id] = self.partition
        self.waves = Waves(self.timers)
        self.watch = MarkerWatch()
        self.markers = MarkerWriter(
            self.topics,
            self.queue,
            self.waves,
            lambda partition, is_written: None,
            NoOffsets(),
            self.watch,
            lambda write: RemoteMarkers(broker_id, self.topics.leader_id, network, self.timers, write),
        )
        config = TransactionConfig()
        self.coordinator = TransactionCoordinator(
            config,
            clock,
            self.timers,
            self.journal,
            self.markers,
            itertools.count(1000 * (broker_id + 1)).__next__,
            self.waves,
        )
        remote = RemoteAdmission(self.topics, network, self.timers, self.watch, config.remote_wait_ms)
        self.admission = Admission(self.coordinator, self.timers, remote, self._coordinator_elsewhere)
        self.load(broker_id)

    def load(self, partition: int, leader_epoch: int = 1) -> None:
        """Lead a partition of the transactions' journal."""
        journaled = self.coordinator.journaled
        journaled.begin_load(partition, leader_epoch=leader_epoch)
        for batch in self.journal.batches[partition]:
            journaled.load(partition, batch.as_read())
        journaled.finish_load(partition)

    def _coordinator_elsewhere(self, transactional_id: str) -> int | None:
        leader = self.journal_leaders[self.coordinator.table.partition_of(transactional_id)]
        return None if leader == self.broker_id else leader

    async def _no_threads(self, work: Callable[[], None]) -> None:
        raise AssertionError("no partition is forced to the disk here")

    # What the handlers do

    async def receive(self, markers: Sequence[MarkerRequest]) -> list[MarkerResult]:
        results: dict[int, MarkerResult] = {}
        found = {}
        for number, each in enumerate(markers):
            try:
                found[number] = self.topics.leader(*each.partition)
            except KafkaError as error:
                results[number] = type(error)
        for number, partition in found.items():
            each = markers[number]
            self.markers.write(
                partition,
                each.marker,
                each.coordinator_epoch,
                lambda error, number=number: results.__setitem__(number, error),  # type: ignore[misc]
            )
        await until(lambda: len(results) == len(markers))
        return [results[number] for number in range(len(markers))]

    async def asked(self, writes: Sequence[AdmissionRequest]) -> list[PartitionResults]:
        results: dict[int, PartitionResults] = {}
        for number, each in enumerate(writes):
            if each.add:
                self.admission.add(
                    each.transactional_id,
                    each.producer,
                    each.partitions,
                    lambda error, n=number, e=each: results.__setitem__(n, dict.fromkeys(e.partitions, error)),  # type: ignore[misc]
                    client_version=CLIENT_VERSION_2,
                )
            else:
                self.admission.verify(
                    each.transactional_id,
                    each.producer,
                    each.partitions,
                    lambda found, n=number: results.__setitem__(n, found),  # type: ignore[misc]
                )
        await until(lambda: len(results) == len(writes))
        return [results[number] for number in range(len(writes))]

    # What clients do

    def producer(self) -> ProducerIdAndEpoch:
        answers: list[ProducerResult] = []
        self.coordinator.init_producer_id(ID_OF[self.broker_id], TIMEOUT_MS, None, answers.append)
        (made,) = answers
        assert made.error is None
        return ProducerIdAndEpoch(made.producer_id, made.epoch)

    def add(self, producer: ProducerIdAndEpoch, *partitions: TopicPartition, v2: bool = False) -> None:
        answers: list[ErrorClass | None] = []
        self.coordinator.add_partitions(
            ID_OF[self.broker_id], producer, partitions, answers.append, client_version=2 if v2 else 0
        )
        assert answers == [None]

    def end(self, producer: ProducerIdAndEpoch, *, committed: bool = True, v2: bool = False) -> list[ProducerResult]:
        answers: list[ProducerResult] = []
        self.coordinator.end(ID_OF[self.broker_id], EndRequest(producer, committed, v2), answers.append)
        return answers

    @property
    def state(self) -> str:
        return self.coordinator.describe(ID_OF[self.broker_id]).state

    def admit(self, transactional_id: str, producer: ProducerIdAndEpoch, *, add: bool = True) -> list[object]:
        """Ask whether the producer may write to this broker's partition. The list gets the error, None for none."""
        answers: list[object] = []
        key = ("clicks", self.broker_id)
        self.admission.admit(transactional_id, producer, (key,), lambda results: answers.append(results[key]), add=add)
        return answers

    def write(self, producer: ProducerIdAndEpoch, sequence: int = 0) -> None:
        """Append a batch, without asking."""
        batch = simple_batch(
            [b"x"], producer_id=producer.producer_id, epoch=producer.epoch, sequence=sequence, transactional=True
        )
        self.queue.add(PendingAppend(self.partition, batch, None))

    def turn(self) -> None:
        while self.turns:
            self.turns.pop(0)()

    @property
    def stable(self) -> int:
        return self.partition.log.last_stable_offset

    @property
    def unfinished(self) -> int:
        """The number of transactions with markers that may lack some."""
        found = [each.ranges.values() for each in self.waves.report()]
        return sum(UNFINISHED in {last for _, last in each} for each in found)


class TwoBrokers:
    """Both, and the network between them. `go` lets the event loop turn until it is so, with all timers as they are due."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.nodes: list[Member] = []
        self.network = Network(self.nodes)
        self.image = ClusterImage("").with_topics({TOPIC_ID: (sole_replica(0, 0), sole_replica(1, 0))})
        for broker_id in (0, 1):
            self.nodes.append(Member(broker_id, directory, self.clock, self.network, self.image))

    async def go(self, is_so: Callable[[], bool], *, without: Sequence[int] = ()) -> None:
        """`without`: brokers that append nothing meanwhile."""
        for _ in range(20_000):
            if is_so():
                return
            self.clock.advance(1)
            for node in self.nodes:
                if node.broker_id not in without:
                    node.turn()
                node.timers.ring()
            await asyncio.sleep(0)
        raise AssertionError("it never comes true")

    async def settle(self, turns: int = 200) -> None:
        """Let everything happen that happens by itself."""
        left = itertools.count(turns, -1)
        await self.go(lambda: next(left) <= 0)


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0)


def run(scenario: Awaitable[None]) -> None:
    """Run a scenario to its end, with a time limit."""

    async def limited() -> None:
        async with asyncio.timeout(30):
            await scenario

    asyncio.run(limited())
