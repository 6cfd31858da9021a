"""Producers are answered before records are read for the consumers that wait for them; many such reads go in turns."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from contract.wire_client import batch
from leaderships import alone
from manual_clock import ManualClock

from kafkalake.broker.partitions.append_queue import TURN_NS, AppendQueue
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.pending_append import PendingAppend
from kafkalake.broker.partitions.purgatory import DelayedOperation, Purgatory, Timers
from kafkalake.broker.partitions.topics import Topic
from kafkalake.broker.partitions.wire_cache import WireCache
from kafkalake.ownership import Ownership
from kafkalake.storage.config import LogConfig
from kafkalake.storage.log import Log
from kafkalake.wire.record_batch import decode_produced

TURN_MS = TURN_NS // 1_000_000


class Waiting(DelayedOperation):
    """A fetch that any change of its partition completes."""

    def __init__(self, complete: Callable[[], None]) -> None:
        super().__init__()
        self._complete = complete

    def is_complete(self, key: Hashable) -> bool:
        return True

    def complete(self) -> None:
        self._complete()


class World:
    """A queue and partitions whose answers are recorded in `sent`."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.sent: list[str] = []
        self.soon: list[Callable[[], object]] = []
        self.purgatory = Purgatory(Timers(self.clock))
        ownership = Ownership(self.clock)
        ownership.renewed(self.clock.elapsed_ms(), 1_000_000)
        unused: Any = None
        self.queue = AppendQueue(
            self.purgatory, self.soon.append, unused, lambda partition: None, ownership, self.clock
        )
        self.topic = Topic("t", uuid4(), {}, None, 0)
        self.partitions = [self._partition(directory / str(index), index) for index in range(3)]

    def _partition(self, directory: Path, index: int) -> Partition:
        directory.mkdir()
        log = Log.open(directory, LogConfig(), self.clock)
        return Partition(self.topic, index, log, WireCache(1 << 20).tail(), alone())  # type: ignore[arg-type]

    def produce(self, partition: Partition) -> None:
        original = batch([(None, b"x")])
        self.queue.add(
            PendingAppend(partition, decode_produced(original), original), lambda: self.send(f"ack {partition.index}")
        )

    def send(self, answer: str) -> None:
        """As a connection does: what is answered within a flush is sent together."""
        assert self.queue.is_answering
        self.queue.when_answered(lambda: self.sent.append(answer))

    def wait(self, partition: Partition, complete: Callable[[], None] = lambda: None) -> None:
        def answered() -> None:
            self.sent.append(f"read {partition.index}")
            complete()
            self.send(f"records {partition.index}")

        self.purgatory.watch(Waiting(answered), [partition], 1_000)

    def turn(self) -> None:
        soon, self.soon[:] = list(self.soon), []
        for action in soon:
            action()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_all_producers_are_answered_before_anything_is_read_for_consumers(world: World) -> None:
    for partition in world.partitions[:2]:
        world.wait(partition)
        world.produce(partition)
    world.turn()
    assert world.sent == ["ack 0", "ack 1", "read 0", "read 1", "records 0", "records 1"]
    world.turn()
    assert not world.soon


def test_reads_for_many_consumers_are_made_in_turns_of_their_own(world: World) -> None:
    """So is what is flushed meanwhile, whose producers are answered first again. Nothing is read twice."""
    for partition in world.partitions:
        world.wait(partition, lambda: world.clock.advance(TURN_MS))
        world.produce(partition)
    world.turn()
    assert world.sent == ["ack 0", "ack 1", "ack 2", "read 0", "records 0"]
    world.produce(world.partitions[0])
    world.turn()
    assert world.sent[5:] == ["ack 0", "read 1", "records 1"]
    world.turn()
    world.turn()
    assert world.sent[8:] == ["read 2", "records 2"]
    assert not world.soon


def test_a_flush_that_may_take_its_time_completes_the_reads_that_were_left(world: World) -> None:
    for partition in world.partitions:
        world.wait(partition, lambda: world.clock.advance(TURN_MS))
        world.produce(partition)
    world.turn()
    assert not world.queue.flush()
    assert world.sent[5:] == ["read 1", "read 2", "records 1", "records 2"]
    world.turn()
    assert len(world.sent) == 9


def test_a_read_that_fails_keeps_no_other_back(world: World) -> None:
    def fail() -> None:
        raise RuntimeError("a fault")

    for partition in world.partitions:
        world.wait(partition, fail if partition.index == 1 else lambda: None)
        world.produce(partition)
    world.turn()
    assert world.sent == ["ack 0", "ack 1", "ack 2", "read 0", "read 1", "read 2", "records 0", "records 2"]
    assert not world.queue.is_answering


def test_a_partition_that_leaves_answers_its_producers_first(world: World) -> None:
    partition = world.partitions[0]
    world.wait(partition)
    partition.resign()
    world.queue.leave(partition)
    assert world.sent == ["read 0", "records 0"]
    assert not world.soon
