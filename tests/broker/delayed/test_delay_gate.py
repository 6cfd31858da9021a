"""The way of records that wait: to the leader of their journal partition, created first if need be, with one answer in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any
from uuid import UUID

import pytest
from manual_clock import ManualClock
from record_batches import Row, record_batch

from kafkalake.broker.delayed.delayed_peers import HandInRequest
from kafkalake.broker.delayed.delaying_append import Done, HandIn, Received
from kafkalake.broker.delayed.gate import DelayGate
from kafkalake.broker.delayed.split import split_batch
from kafkalake.broker.partitions.purgatory import Timers
from kafkalake.cluster.image import NO_LEADER
from kafkalake.config.topic_rules import DelayRules
from kafkalake.delayed_headers import DELAY_MS
from kafkalake.delayed_journal import hand_in_key
from kafkalake.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaError,
    MessageTooLargeError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
)
from kafkalake.record.batch import ProducerBatch
from kafkalake.topic_partition import PartitionId, TopicPartition

ORDERS = UUID(int=5), 3
LATER: Row = (5, b"k", b"v", [(DELAY_MS, b"100")])
HERE, THERE = 0, 1


class FakeTopics:
    """A journal whose partitions all have one leader, once it exists."""

    def __init__(self, leader: int | None) -> None:
        self.leader = leader

    def find(self, name: str) -> object | None:
        return None if self.leader is None else self

    def leader_id(self, partition: TopicPartition) -> int:
        if self.leader is None:
            raise UnknownTopicOrPartitionError()
        return self.leader


class World:
    """The gate, and what it asks: of the test's making."""

    def __init__(self, leader: int | None = HERE) -> None:
        self.topics = FakeTopics(leader)
        self.clock = ManualClock(0)
        self.timers = Timers(self.clock)
        self.handed_in: list[tuple[int, ProducerBatch, Done]] = []
        self.created: list[asyncio.Future[None]] = []
        self.sent: list[tuple[int, Sequence[HandInRequest]]] = []
        self.admitted: list[tuple[str, Callable[[dict[TopicPartition, Any]], None]]] = []
        self.answers: list[str | None] = []
        world: Any = self
        self.gate = DelayGate(HERE, world.topics, world, world, world, self.timers)

    # As coordinator, admission and the other brokers.

    async def make_ready(self) -> None:
        self.created.append(asyncio.get_running_loop().create_future())
        await self.created[-1]

    def journal_partition(self, target: PartitionId[UUID]) -> int:
        return 7

    def admit(
        self, transactional_id: str, producer: object, keys: Collection[TopicPartition], reply: Any, *, add: bool
    ) -> None:
        assert add
        self.admitted.append((transactional_id, lambda errors: reply({key: errors.get(key) for key in keys})))

    async def hand_in(self, broker_id: int, batches: Sequence[HandInRequest]) -> Sequence[KafkaError | None]:
        self.sent.append((broker_id, batches))
        return [None] * len(batches)

    # What the tests do.

    def send(self, sequence: int = 0, transactional_id: str | None = None) -> None:
        batch = record_batch(
            [LATER], producer_id=9, epoch=1, sequence=sequence, transactional=transactional_id is not None
        )
        split = split_batch(batch, DelayRules(1_000), 1_000)
        assert split is not None
        received = Received(transactional_id, 1_000, 30_000)
        self.gate.hand_in(HandIn(ORDERS, ORDERS, split, 40, received), self._done)

    def _done(self, error: KafkaError | None) -> None:
        self.answers.append(None if error is None else error.label)


class Coordinated(World):
    """The same, of a broker that leads the journal: hand-ins wait for the test's answer."""

    def __init__(self, leader: int | None = HERE) -> None:
        super().__init__(leader)
        coordinator: Any = self
        self.gate._coordinator = coordinator

    def hand_in(self, index: int, batch: ProducerBatch, done: Done) -> None:  # type: ignore[override]
        self.handed_in.append((index, batch, done))


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (None, None),
        (CoordinatorLoadInProgressError(), "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
        (MessageTooLargeError(), "MESSAGE_TOO_LARGE"),
        (ProducerFencedError(), "INVALID_PRODUCER_EPOCH"),
    ],
)
def test_the_coordinators_answer_is_one_that_producers_know(error: KafkaError | None, answer: str | None) -> None:
    world = Coordinated()
    world.send()
    ((index, batch, done),) = world.handed_in
    assert index == 7 and hand_in_key(batch).source == ORDERS
    done(error)
    done(None)
    assert world.answers == [answer], "once"


def test_an_answer_that_is_too_late_is_none() -> None:
    world = Coordinated()
    world.send()
    world.clock.advance(30_001)
    world.timers.ring()
    world.handed_in[0][2](None)
    assert world.answers == ["REQUEST_TIMED_OUT"]


def test_the_journal_is_created_once_and_what_waits_for_it_goes_in_order() -> None:
    async def run() -> None:
        world = Coordinated(None)
        world.send(0)
        world.send(1)
        await asyncio.sleep(0)
        assert len(world.created) == 1 and world.handed_in == []
        world.created[0].set_exception(CoordinatorNotAvailableError())
        await asyncio.sleep(0.01)
        assert world.answers == ["NOT_ENOUGH_REPLICAS_AFTER_APPEND"] * 2
        world.send(2)
        world.send(3)
        await asyncio.sleep(0)
        world.topics.leader = HERE
        world.send(4)
        world.created[1].set_result(None)
        await asyncio.sleep(0.01)
        assert [hand_in_key(batch).first_sequence for _, batch, _ in world.handed_in] == [2, 3, 4]

    asyncio.run(run())


def test_batches_go_to_the_leader_elsewhere_and_without_one_are_sent_again() -> None:
    async def run() -> None:
        world = World(THERE)
        world.send(transactional_id="t")
        await asyncio.sleep(0.01)
        ((broker, requests),) = world.sent
        assert (broker, requests[0].journal_partition, requests[0].transactional_id) == (THERE, 7, "t")
        assert world.answers == [None]
        world.topics.leader = NO_LEADER
        world.send()
        assert world.answers[1:] == ["NOT_ENOUGH_REPLICAS_AFTER_APPEND"]

    asyncio.run(run())


def test_the_journals_partition_is_in_the_transaction_before_the_batch_is() -> None:
    world = Coordinated()
    world.send(transactional_id="t")
    world.send(transactional_id="t")
    assert [name for name, _ in world.admitted] == ["t", "t"] and world.handed_in == []
    world.admitted[0][1]({})
    world.admitted[1][1]({("__delayed", 7): ProducerFencedError})
    assert len(world.handed_in) == 1 and world.answers == ["INVALID_PRODUCER_EPOCH"]
