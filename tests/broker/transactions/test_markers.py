"""Markers go through the queue of their partition, and a transaction's wave has ended only when all of them are there.

Real logs on a disk that fails when it is told to; the event loop's turns are taken by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from faulty_files import FaultyFiles
from leaderships import alone
from manual_clock import ManualClock
from no_transaction_peers import NoTransactionPeers
from record_batches import simple_batch

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.partitions.append_queue import AppendQueue
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.pending_append import PendingAppend
from kafkalake.broker.partitions.purgatory import Purgatory, Timers
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.broker.partitions.wire_cache import WireCache
from kafkalake.broker.transactions.cut import UNFINISHED, UNKNOWN, EndedTransaction
from kafkalake.broker.transactions.decisions import Marker
from kafkalake.broker.transactions.markers import MarkerWriter
from kafkalake.broker.transactions.remote_admission import MarkerWatch
from kafkalake.broker.transactions.remote_markers import RemoteMarkers, WriteHere
from kafkalake.broker.transactions.waves import HOLD_MS, TRANSACTIONS_MAX, Waves
from kafkalake.cluster.image import ClusterImage
from kafkalake.config.layers import Settings
from kafkalake.errors import InvalidProducerEpochError, KafkaStorageError, UnknownTopicOrPartitionError
from kafkalake.offset_range import OffsetRange
from kafkalake.ownership import Ownership
from kafkalake.storage.config import LogConfig
from kafkalake.storage.log import Log
from kafkalake.storage.open_files import OpenFiles

PRODUCER_ID = 7
COMMIT = Marker(PRODUCER_ID, 0, committed=True)


class NoOffsets:
    """No group has committed an offset in a transaction."""

    is_damaged = False

    def open_transactions(self, partition: int) -> list[int]:
        return []

    def end_transaction(self, partition: int, producer_id: int, *, committed: bool, position: int) -> None:
        raise AssertionError("no marker is for the groups' journal here")


class World:
    """Two partitions of `clicks`, each on a disk of its own."""

    def __init__(self, directory: Path) -> None:
        self.clock = clock = ManualClock()
        self.turns: list[Callable[[], object]] = []
        self.marked: list[str] = []
        self.disks = [FaultyFiles(), FaultyFiles()]
        ownership = Ownership(clock)
        ownership.renewed(clock.elapsed_ms(), 3_600_000)
        self.timers = Timers(clock)
        self.queue = AppendQueue(
            Purgatory(self.timers), self.turns.append, self._no_threads, lambda partition: None, ownership, clock
        )
        topic = Topic("clicks", uuid4(), {}, Settings({}, {}, {}).topic({}), 0)
        for index, files in enumerate(self.disks):
            log = Log.open(directory / str(index), LogConfig(), clock, files, OpenFiles(files, 16))
            topic.replicas[index] = Partition(topic, index, log, WireCache(1 << 20).tail(), alone())
        self.partitions = list(topic.replicas.values())
        topics = Topics(ClusterImage("", 0))
        topics.add(topic)
        self.topics = topics
        self.waves = Waves(self.timers)
        self.markers = self.new_writer()
        self.answers: dict[int, list[ErrorClass | None]] = {0: [], 1: []}

    def new_writer(self) -> MarkerWriter:
        def marked(partition: Partition, is_written: bool) -> None:
            if is_written:
                self.marked.append(partition.name)

        def alone(write: WriteHere) -> RemoteMarkers:
            return RemoteMarkers(0, self.topics.leader_id, NoTransactionPeers(), self.timers, write)

        return MarkerWriter(self.topics, self.queue, self.waves, marked, NoOffsets(), MarkerWatch(), alone)

    async def _no_threads(self, work: Callable[[], None]) -> None:
        raise AssertionError("no partition is forced to the disk here")

    def write(self, index: int, value: bytes = b"x", sequence: int = 0) -> None:
        batch = simple_batch([value], producer_id=PRODUCER_ID, epoch=0, sequence=sequence, transactional=True)
        self.queue.add(PendingAppend(self.partitions[index], batch, None))

    def mark(self, index: int, marker: Marker = COMMIT) -> None:
        self.markers(("clicks", index), marker, 0, self.answers[index].append)

    def turn(self) -> None:
        while self.turns:
            self.turns.pop(0)()

    def prepare(self, *indexes: int) -> None:
        partitions = [("clicks", index) for index in indexes]
        self.waves.committed(0, 0, PRODUCER_ID, partitions, loading=False)

    def unfinished(self) -> list[set[int]]:
        """The partitions of the transactions with markers that may lack some."""
        found = [each.ranges for each in self.waves.report()]
        return [{index for _, index in each} for each in found if UNFINISHED in {last for _, last in each.values()}]


@pytest.fixture
def w(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_marker_comes_after_the_batches_before_it(w: World) -> None:
    w.write(0)
    w.mark(0)
    w.turn()
    log = w.partitions[0].log
    assert (log.log_end_offset, log.last_stable_offset, w.answers[0]) == (2, 2, [None])
    w.write(0, sequence=1)
    w.turn()
    assert (log.log_end_offset, log.last_stable_offset) == (3, 2), "the next transaction"


def test_a_wave_ends_when_all_markers_are_written(w: World) -> None:
    w.prepare(0, 1)
    for index in (0, 1):
        w.write(index)
    w.turn()
    w.disks[1].capacity_bytes = 0
    for index in (0, 1):
        w.mark(index)
    w.turn()
    assert (w.answers[0], w.answers[1]) == ([None], [KafkaStorageError])
    assert w.unfinished() == [{0, 1}]
    w.disks[1].capacity_bytes = None
    w.mark(1)
    w.turn()
    assert w.answers[1] == [KafkaStorageError, None]
    assert w.unfinished() == []
    assert sorted(set(w.marked)) == ["clicks-0", "clicks-1"]


def test_a_partition_that_is_gone_needs_no_marker(w: World) -> None:
    w.prepare(0, 9)
    w.write(0)
    w.turn()
    w.mark(0)
    w.markers(("clicks", 9), COMMIT, 0, w.answers[1].append)
    assert w.answers[1] == [UnknownTopicOrPartitionError]
    w.turn()
    assert w.unfinished() == []


def test_one_refused_marker_ends_the_wave_as_another_coordinator_goes_on_with_it(w: World) -> None:
    w.prepare(0, 1)
    for index in (0, 1):
        w.write(index)
    w.turn()
    w.mark(0, Marker(PRODUCER_ID, 5, committed=False))
    w.turn()
    w.disks[1].capacity_bytes = 0
    for index in (1, 0):
        w.mark(index)
    w.turn()
    assert (w.answers[1], w.answers[0][1:]) == ([KafkaStorageError], [InvalidProducerEpochError])
    assert w.unfinished() == []


def test_a_wave_that_is_held_begins_after_the_hold(w: World) -> None:
    w.prepare(0, 1)
    for index in (0, 1):
        w.write(index)
    w.turn()
    drained: list[None] = []
    w.waves.hold(drained.append)
    for index in (0, 1):
        w.mark(index)
    w.turn()
    assert drained == [None]
    assert [partition.log.last_stable_offset for partition in w.partitions] == [0, 0]
    assert w.unfinished() == []
    assert w.waves.release()
    w.turn()
    assert [partition.log.last_stable_offset for partition in w.partitions] == [2, 2]


def test_a_hold_waits_for_the_wave_under_way_and_lets_its_markers_through(w: World) -> None:
    w.prepare(0, 1)
    for index in (0, 1):
        w.write(index)
    w.turn()
    w.disks[1].capacity_bytes = 0
    for index in (0, 1):
        w.mark(index)
    w.turn()
    drained: list[None] = []
    w.waves.hold(drained.append)
    assert (drained, w.unfinished()) == ([], [{0, 1}])
    w.disks[1].capacity_bytes = None
    w.mark(1)
    w.turn()
    assert (drained, w.unfinished()) == ([None], [])


def test_a_transaction_is_reported_with_its_records_until_it_is_shown(w: World) -> None:
    w.prepare(0, 1)
    assert w.waves.report() == [], "no partition has a marker"
    w.write(0)
    w.write(0, sequence=1)
    w.write(1)
    w.mark(0)
    w.mark(1)
    w.turn()
    whole = EndedTransaction((0, 0), {("clicks", 0): OffsetRange(0, 1), ("clicks", 1): OffsetRange(0, 0)})
    assert w.waves.report() == [whole], "before the journal has its completion"
    w.waves.completed(0, PRODUCER_ID)
    w.waves.published(())
    assert w.waves.report() == [whole], "completed after the report"
    w.waves.published({(0, 0)})
    assert w.waves.report() == [whole], "hidden"
    assert (w.waves.has_unpublished, w.waves.first_unpublished(0, 9)) == (True, 0)
    w.waves.published(())
    assert (w.waves.report(), w.waves.has_unpublished, w.waves.first_unpublished(0, 9)) == ([], False, 9)


def test_of_a_transaction_that_a_coordinator_finds_only_the_partitions_are_known(w: World) -> None:
    partitions = [("clicks", 0), ("clicks", 1)]
    w.waves.committed(0, 5, PRODUCER_ID, partitions, loading=True)
    assert w.unfinished() == [{0, 1}], "some of its markers may be written"
    w.write(0)
    w.mark(0)
    w.mark(0)
    w.mark(1)
    w.turn()
    found = {("clicks", 0): OffsetRange(0, 0), ("clicks", 1): OffsetRange(UNKNOWN, 0)}
    assert w.waves.report() == [EndedTransaction((0, 5), found)], (
        "a marker without a transaction comes after its records"
    )
    w.waves.completed(0, PRODUCER_ID)
    w.waves.committed(0, 7, 8, partitions, loading=True)
    w.waves.completed(0, 8)
    unknown = dict.fromkeys(partitions, OffsetRange(UNKNOWN, UNKNOWN))
    assert w.waves.report() == [EndedTransaction((0, 5), found), EndedTransaction((0, 7), unknown)]
    w.waves.forget(0)
    assert w.waves.report() == []


def test_too_many_transactions_are_taken_for_as_many_as_share_no_partition(w: World) -> None:
    def commit(number: int, index: int) -> None:
        partitions = [("clicks", index), ("views", index)]
        w.waves.committed(0, number, number, partitions, loading=False)
        for each in partitions:
            w.waves.begin(each, number, lambda: None)
            w.waves.written(each, number, OffsetRange(number, number + 1))
        w.waves.completed(0, number)

    for number in range(3, 3 + TRANSACTIONS_MAX):
        commit(number, number % 2)
    w.waves.report()
    assert len(w.waves.report()) == TRANSACTIONS_MAX
    last = 3 + TRANSACTIONS_MAX
    commit(last, 1)
    merged = w.waves.report()
    assert [each.position[0] for each in merged] == [0, 0]
    assert {each.ranges["views", index] for each in merged for index in (0, 1) if ("views", index) in each.ranges} == {
        OffsetRange(4, last),
        OffsetRange(3, last + 1),
    }
    assert w.waves.first_unpublished(0, 10_000) == 3
    commit(last + 1, 0)
    assert len(w.waves.report()) == 3
    w.waves.published({each.position for each in merged})
    assert w.waves.report() == merged
    w.waves.published(())
    assert w.waves.first_unpublished(0, 10_000) == 10_000


def test_a_hold_runs_out(w: World) -> None:
    w.prepare(0)
    w.write(0)
    w.turn()
    w.waves.hold(lambda drained: None)
    w.mark(0)
    w.clock.advance(HOLD_MS + 1)
    w.timers.ring()
    w.turn()
    assert w.partitions[0].log.last_stable_offset == 2
    assert not w.waves.release(), "a wave may have begun"
