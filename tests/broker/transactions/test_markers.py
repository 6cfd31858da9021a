"""Markers go through the queue of their partition, and Delta is told of a transaction's end only when all of them are there.

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
from record_batches import simple_batch

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.partitions.append_queue import AppendQueue
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.pending_append import PendingAppend
from kafkalake.broker.partitions.purgatory import Purgatory, Timers
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.broker.partitions.wire_cache import WireCache
from kafkalake.broker.transactions.decisions import Marker
from kafkalake.broker.transactions.held_offsets import HeldOffsets
from kafkalake.broker.transactions.markers import MarkerWriter, WriteMarkers
from kafkalake.broker.transactions.remote_admission import MarkerWatch
from kafkalake.broker.transactions.remote_markers import RemoteMarkers
from kafkalake.broker.transactions.transaction_peers import NoTransactionPeers
from kafkalake.cluster.image import ClusterImage
from kafkalake.config.layers import Settings
from kafkalake.errors import InvalidProducerEpochError, KafkaStorageError, UnknownTopicOrPartitionError
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
        clock = ManualClock()
        self.turns: list[Callable[[], object]] = []
        self.moved: list[str] = []
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
        self.held = HeldOffsets()
        self.markers = self.new_writer()
        self.answers: dict[int, list[ErrorClass | None]] = {0: [], 1: []}

    def new_writer(self) -> MarkerWriter:
        def moved(partition: Partition) -> None:
            self.moved.append(partition.name)

        def alone(write: WriteMarkers) -> RemoteMarkers:
            return RemoteMarkers(0, self.topics.leader_id, NoTransactionPeers(), self.timers, write)

        return MarkerWriter(self.topics, self.queue, self.held, moved, NoOffsets(), MarkerWatch(), alone)

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

    def stable(self) -> list[int]:
        """What Delta is told."""
        return [self.held.stable_offset(partition) for partition in self.partitions]


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


def test_delta_is_told_when_all_markers_are_written(w: World) -> None:
    for index in (0, 1):
        w.write(index)
    w.turn()
    assert w.stable() == [0, 0]
    w.disks[1].capacity_bytes = 0
    for index in (0, 1):
        w.mark(index)
    w.turn()
    assert (w.answers[0], w.answers[1]) == ([None], [KafkaStorageError])
    assert [partition.log.last_stable_offset for partition in w.partitions] == [2, 0]
    assert w.stable() == [0, 0], "Delta sees nothing of it yet"
    w.disks[1].capacity_bytes = None
    w.mark(1)
    w.turn()
    assert w.answers[1] == [KafkaStorageError, None]
    assert w.stable() == [2, 2]
    assert sorted(set(w.moved)) == ["clicks-0", "clicks-1"], "the publisher looks at both again"


def test_a_partition_that_is_gone_holds_nothing_back(w: World) -> None:
    w.write(0)
    w.turn()
    w.mark(0)
    w.markers(("clicks", 9), COMMIT, 0, w.answers[1].append)
    assert w.answers[1] == [UnknownTopicOrPartitionError]
    w.turn()
    assert w.stable() == [2, 0]


def test_what_another_coordinator_refuses_holds_nothing_back(w: World) -> None:
    w.write(0)
    w.turn()
    w.mark(0, Marker(PRODUCER_ID, 5, committed=False))
    w.turn()
    w.mark(0)
    w.turn()
    assert w.answers[0] == [None, InvalidProducerEpochError]
    assert w.stable() == [2, 0]


def test_one_refused_marker_releases_what_was_held_for_the_others(w: World) -> None:
    """The coordinator gives the transaction up, so the marker that the disk did not take is never tried again."""
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
    w.disks[1].capacity_bytes = None
    # An operator ends it by hand.
    w.markers.write(w.partitions[1], Marker(PRODUCER_ID, 6, committed=False), 0, w.answers[1].append)
    w.turn()
    assert w.stable() == [partition.log.last_stable_offset for partition in w.partitions] == [2, 2]


def test_a_broker_that_dies_between_two_markers_and_fails_at_the_second_again_shows_none_of_them(w: World) -> None:
    for index in (0, 1):
        w.write(index)
    w.turn()
    w.mark(0)
    w.turn()
    w.held = HeldOffsets()
    w.markers = w.new_writer()
    w.held.resume({("clicks", 0): 0, ("clicks", 1): 0})
    w.disks[1].capacity_bytes = 0
    for index in (0, 1):
        w.mark(index)
    w.held.resumed()
    w.turn()
    assert w.partitions[0].log.last_stable_offset > 0
    assert w.stable() == [0, 0]
    w.disks[1].capacity_bytes = None
    w.mark(1)
    w.turn()
    assert w.stable() == [partition.log.last_stable_offset for partition in w.partitions]


def test_markers_of_another_brokers_coordinator_are_shown_together(w: World) -> None:
    for index in (0, 1):
        w.write(index)
    w.turn()
    for partition in w.partitions:
        w.markers.hold(partition, COMMIT)
    for index, partition in enumerate(w.partitions):
        w.markers.receive(partition, COMMIT, 3, w.answers[index].append)
        w.queue.flush(0)
        assert w.stable() == [[0, 0], [2, 2]][index]
    assert w.answers == {0: [None], 1: [None]}
