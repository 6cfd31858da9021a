"""All brokers are away for a while, and again: clients try rarely, and go on when they are back."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from client.consuming.test_consumer_core import World
from simulated_network import SimulatedNetwork
from simulated_producer import SimulatedProducer

from kafkalake.client.consuming.assignors import ASSIGNORS
from kafkalake.client.consuming.core import ConsumerCore
from kafkalake.client.producing.transactions import Transactions
from kafkalake.client.requests import (
    CONSUMER_GROUP_HEARTBEAT,
    FIND_COORDINATOR,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from kafkalake.errors import ClusterAuthorizationError
from kafkalake.wire.messages.groups import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    FindCoordinatorResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupResponse,
    SyncGroupResponse,
    TopicPartitions,
)
from kafkalake.wire.messages.offsets import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kafkalake.wire.messages.transactions import InitProducerIdResponse

AWAY_MS = 60_000
POLLS_MAX = 600
"""Pauses grow to a second: some polls for each attempt, of which there are 60."""


def polls_of(machine: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count how often a machine is polled."""
    count = 0
    poll = machine.poll

    def counted(now_ms: int) -> Any:
        nonlocal count
        count += 1
        return poll(now_ms)

    monkeypatch.setattr(machine, "poll", counted)
    return lambda: count


class GroupWorld(World):
    """A group of one member, with its coordinator on broker 1."""

    def __init__(self, protocol: str) -> None:
        super().__init__(**{"group.id": "g", "group.protocol": protocol, "enable.auto.commit": False})
        self.core = ConsumerCore(self.settings, [ASSIGNORS["range"]], "me", Random(1))
        self.network = SimulatedNetwork(self.core, self.brokers)
        self.topics.ids["t"] = uuid.UUID(int=1)
        self.beats: list[int] = []
        for broker in self.brokers:
            broker.handlers[FIND_COORDINATOR] = lambda request: FindCoordinatorResponse(node_id=1)
        self.brokers[0].handlers.update(
            {
                JOIN_GROUP: self.join,
                SYNC_GROUP: lambda request: SyncGroupResponse(assignment=request.assignments[0].assignment),
                HEARTBEAT: self.beat,
                LEAVE_GROUP: lambda request: LeaveGroupResponse(),
                CONSUMER_GROUP_HEARTBEAT: self.beat_with_target,
                OFFSET_FETCH: self.fetch_offsets,
            }
        )
        self.core.subscriptions.subscribe(["t"])

    def join(self, request: Any) -> JoinGroupResponse:
        protocol = request.protocols[0]
        return JoinGroupResponse(
            generation_id=1,
            protocol_type="consumer",
            protocol_name=protocol.name,
            leader="m",
            member_id="m",
            members=[JoinGroupResponseMember(member_id="m", metadata=protocol.metadata)],
        )

    def fetch_offsets(self, request: Any) -> OffsetFetchResponse:
        numbers = [number for topic in request.topics for number in topic.partition_indexes]
        none = [OffsetFetchResponsePartition(partition_index=number, committed_offset=-1) for number in numbers]
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=none)])

    def beat(self, request: Any) -> HeartbeatResponse:
        self.beats.append(self.network.now_ms)
        return HeartbeatResponse()

    def beat_with_target(self, request: Any) -> ConsumerGroupHeartbeatResponse:
        self.beats.append(self.network.now_ms)
        target = Assignment(topic_partitions=[TopicPartitions(topic_id=uuid.UUID(int=1), partitions=[0, 1])])
        return ConsumerGroupHeartbeatResponse(
            member_id="me", member_epoch=1, heartbeat_interval=3_000, assignment=target
        )

    def run(self, milliseconds: int) -> None:
        """Let the application poll every 20 ms."""
        for _ in range(milliseconds // 20):
            self.core.begin_poll(self.network.now_ms)
            change = self.core.change
            if change is not None:
                self.core.begin_change(change, self.network.now_ms)
                self.core.give_up(change)
                self.core.take_over(change)
                self.core.end_change(self.network.now_ms)
            self.network.run(20)


@pytest.mark.exhaustive
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_beats_again_after_brokers_were_away_for_longer_than_a_session(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = GroupWorld(protocol)
    world.run(8_000)
    assert set(world.core.subscriptions.partitions) == {("t", 0), ("t", 1)}
    for _ in range(2):
        before = len(world.beats)
        for broker in world.brokers:
            broker.is_up = False
            world.network.cut(broker)
        world.run(100)
        polls = polls_of(world.core, monkeypatch)
        world.network.run(AWAY_MS)
        monkeypatch.undo()
        assert polls() < POLLS_MAX
        for broker in world.brokers:
            broker.is_up = True
        world.run(10_000)
        assert len(world.beats) >= before + 2


@pytest.mark.parametrize("settings", [{}, {"transactional_id": "x"}], ids=["idempotent", "transactional"])
def test_a_producer_that_has_no_id_yet_waits_for_brokers(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = SimulatedProducer(linger_ms=0, **settings).start()
    for broker in producer.brokers:
        broker.is_up = False
        broker.handlers[FIND_COORDINATOR] = lambda request: FindCoordinatorResponse(node_id=1)
        producer.network.cut(broker)
    outcomes = [producer.core.operate(Transactions.initialize)] if settings else []
    futures = [] if settings else [producer.send(b"a")]
    polls = polls_of(producer.core.sender, monkeypatch)
    producer.run(AWAY_MS)
    assert polls() < POLLS_MAX
    for broker in producer.brokers:
        broker.is_up = True
    producer.run(5_000)
    assert all(each.is_done for each in [*outcomes, *futures])
    assert all(future.get(0).offset == 0 for future in futures)


def test_a_producer_that_gets_no_id_does_not_ask_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = SimulatedProducer(linger_ms=0).start()
    asked: list[Any] = []

    def refuse(request: Any) -> InitProducerIdResponse:
        asked.append(request)
        return InitProducerIdResponse(error_code=ClusterAuthorizationError.code)

    for broker in producer.brokers:
        broker.handlers[INIT_PRODUCER_ID] = refuse
    polls = polls_of(producer.core.sender, monkeypatch)
    for _ in range(2):
        future = producer.send(b"a")
        producer.run(AWAY_MS)
        with pytest.raises(ClusterAuthorizationError):
            future.get(0)
    assert len(asked) == 1 and polls() < POLLS_MAX


@pytest.mark.exhaustive
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_whose_application_does_not_poll_is_quiet(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = GroupWorld(protocol)
    world.run(8_000)
    polls = polls_of(world.core, monkeypatch)
    world.network.run(2 * world.settings.max_poll_interval_ms)
    assert polls() < 20 * POLLS_MAX
    quiet_from = polls()
    world.network.run(AWAY_MS)
    assert polls() - quiet_from < POLLS_MAX
    world.run(10_000)
    assert len(world.core.subscriptions.partitions) == 2
