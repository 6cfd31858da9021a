"""The ISR of a partition that is led here: who joins and leaves it, and what becomes of requests to the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from leaderships import THREE, LedPartition

from kafkalake.broker.partitions.isr_changes import IsrChanges
from kafkalake.broker.partitions.topics import Topics
from kafkalake.cluster.election import ElectionRules
from kafkalake.cluster.image import BrokerRegistration, ClusterImage
from kafkalake.cluster.partition_changes import IsrChange, IsrState, alter_partitions
from kafkalake.cluster.registration import fence_broker
from kafkalake.cluster.replication import ReplicaFetch, follow_registration
from kafkalake.errors import (
    BrokerUnavailableError,
    KafkaError,
    NotControllerError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
)

LAG_MS = 30_000


def rules(topic_id: UUID) -> ElectionRules:
    return ElectionRules(min_isr=2)


class Cluster:
    """Broker 0 as the leader of a partition of three brokers, and a controller that decides by the production rules."""

    def __init__(self, directory: Path) -> None:
        self.led = LedPartition(directory)
        self.partition = self.led.partition
        self.of = (self.led.topic.topic_id, 0)
        brokers = {each: BrokerRegistration(each, 10 * each, UUID(int=each), (), is_fenced=False) for each in range(3)}
        image = ClusterImage("lake", version=1, brokers=brokers, partitions={self.of[0]: (THREE,)})
        self.image = image
        self.topics = Topics(image)
        self.topics.add(self.led.topic)
        self.requests: list[list[IsrChange]] = []
        self.faults: list[Exception | KafkaError] = []
        """What the next requests run into, and whether they are carried out: a `KafkaError` is an answer."""
        self.carried_out = True
        self.gate: asyncio.Event | None = None
        self.changes = IsrChanges(
            0,
            self.topics,
            controller=lambda: self,
            broker_epoch=lambda: 0,
            advance=self.led.queue.advance,
            later=self.led.timers.schedule,
            clock=self.led.clock,
            lag_ms=lambda: LAG_MS,
        )

    async def alter_partition(
        self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChange]
    ) -> list[IsrState | KafkaError]:
        self.requests.append(list(changes))
        if self.gate is not None:
            await self.gate.wait()
        fault = self.faults.pop(0) if self.faults else None
        if fault is None or self.carried_out:
            image, errors = alter_partitions(self.image, broker_id, broker_epoch, changes, rules)
            self.image = image
        if isinstance(fault, KafkaError):
            return [fault for _ in changes]
        if fault is not None:
            raise fault
        found = self.image.partition(self.of)
        assert found is not None
        state = IsrState(found.leader, found.leader_epoch, found.partition_epoch, found.isr)
        return [errors.get(change.partition, state) for change in changes]

    def follow(self) -> None:
        """Let the leader follow the controller's image."""
        if self.image.version > self.topics.image.version:
            self.topics.apply(self.image)
        found = self.image.partition(self.of)
        assert found is not None
        self.partition.lead(follow_registration(self.partition.leadership, found))
        self.led.queue.advance(self.partition)

    def fetch(self, broker_id: int, offset: int, broker_epoch: int | None = None) -> None:
        epoch = 10 * broker_id if broker_epoch is None else broker_epoch
        self.changes.note_fetch(self.partition, ReplicaFetch(broker_id, epoch, offset))

    @property
    def isr(self) -> tuple[int, ...]:
        return self.partition.leadership.isr

    @property
    def proposed(self) -> tuple[int, ...] | None:
        return self.partition.leadership.proposed

    async def turns(self) -> None:
        """Run the event loop for as many turns as a request may take."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def repeat(self, times: int) -> None:
        """Let the longest pause between requests pass, several times."""
        for _ in range(times):
            await self.turns()
            self.led.pass_time(1_001)
        await self.turns()


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


async def shrunk(cluster: Cluster) -> None:
    """Let follower 2 leave the ISR, for its lag."""
    cluster.led.produce(b"a")
    cluster.fetch(1, 1)
    cluster.led.clock.advance(LAG_MS + 1)
    cluster.led.produce(b"b")
    cluster.fetch(1, 2)
    cluster.changes.propose_shrinks()
    await cluster.turns()
    assert cluster.isr == (0, 1)


def test_a_follower_that_lags_leaves_and_the_watermark_moves_when_the_controller_has_agreed(cluster: Cluster) -> None:
    async def run() -> None:
        cluster.gate = asyncio.Event()
        waiting = cluster.led.produce(b"a")
        cluster.fetch(1, 1)
        cluster.led.clock.advance(LAG_MS + 1)
        cluster.fetch(1, 1)
        cluster.changes.propose_shrinks()
        cluster.changes.propose_shrinks()
        await cluster.turns()
        assert (cluster.isr, cluster.proposed, waiting) == ((0, 1, 2), (0, 1), [])
        cluster.gate.set()
        await cluster.turns()
        assert (cluster.isr, cluster.proposed, waiting) == ((0, 1), None, [0])
        assert len(cluster.requests) == 1

    asyncio.run(run())


def test_a_follower_that_has_caught_up_joins_and_holds_the_watermark_from_its_proposal_on(cluster: Cluster) -> None:
    async def run() -> None:
        await shrunk(cluster)
        cluster.fetch(2, 1)
        await cluster.turns()
        assert (cluster.isr, cluster.proposed) == ((0, 1), None)
        cluster.gate = asyncio.Event()
        cluster.fetch(2, 2)
        waiting = cluster.led.produce(b"c")
        cluster.fetch(1, 3)
        assert (cluster.proposed, waiting) == ((0, 1, 2), [])
        cluster.gate.set()
        await cluster.turns()
        assert cluster.isr == (0, 1, 2)
        cluster.fetch(2, 3)
        assert waiting == [2]

    asyncio.run(run())


def test_a_fenced_broker_and_an_earlier_incarnation_do_not_join(cluster: Cluster) -> None:
    async def run() -> None:
        await shrunk(cluster)
        cluster.image = replace(fence_broker(cluster.image, 2, 20, rules), version=cluster.image.version + 5)
        cluster.follow()
        cluster.fetch(2, 2)
        assert cluster.proposed is None
        brokers = {**cluster.image.brokers, 2: replace(cluster.image.brokers[2], epoch=21, is_fenced=False)}
        cluster.image = replace(cluster.image, version=cluster.image.version + 1, brokers=brokers)
        cluster.follow()
        with pytest.raises(NotLeaderOrFollowerError):
            cluster.fetch(2, 2, broker_epoch=20)
        assert cluster.proposed is None
        cluster.fetch(2, 2, broker_epoch=21)
        assert cluster.proposed == (0, 1, 2)
        await cluster.turns()
        assert cluster.isr == (0, 1, 2)

    asyncio.run(run())


def test_a_broker_that_is_no_replica_is_refused(cluster: Cluster) -> None:
    with pytest.raises(UnknownLeaderEpochError):
        cluster.fetch(3, 0, broker_epoch=30)


@pytest.mark.parametrize("carried_out", [True, False])
@pytest.mark.parametrize("fault", [BrokerUnavailableError("cut"), NotControllerError(), RuntimeError("a bug")])
def test_a_request_without_an_answer_is_repeated_until_its_outcome_is_known(
    cluster: Cluster, fault: Exception, carried_out: bool
) -> None:
    """Carried out and sent again, it is refused for its partition epoch: the image says what came of it."""

    async def run() -> None:
        cluster.faults, cluster.carried_out = [fault, fault], carried_out
        cluster.led.produce(b"a")
        cluster.fetch(1, 1)
        cluster.led.clock.advance(LAG_MS + 1)
        cluster.fetch(1, 1)
        cluster.changes.propose_shrinks()
        await cluster.repeat(2)
        if carried_out:
            cluster.follow()
        assert (cluster.isr, cluster.proposed) == ((0, 1), None)
        count = len(cluster.requests)
        assert count == 3
        await cluster.repeat(2)
        assert len(cluster.requests) == count, "and then no more"

    asyncio.run(run())


def test_an_image_that_comes_before_the_answer_settles_the_proposal(cluster: Cluster) -> None:
    async def run() -> None:
        cluster.gate = asyncio.Event()
        cluster.led.produce(b"a")
        cluster.fetch(1, 1)
        cluster.led.clock.advance(LAG_MS + 1)
        cluster.fetch(1, 1)
        cluster.changes.propose_shrinks()
        await cluster.turns()
        cluster.image, _ = alter_partitions(cluster.image, 0, 0, cluster.requests[0], rules)
        cluster.follow()
        assert (cluster.isr, cluster.proposed) == ((0, 1), None)
        cluster.gate.set()
        await cluster.turns()
        assert (cluster.isr, cluster.proposed, len(cluster.requests)) == ((0, 1), None, 1)

    asyncio.run(run())


def test_a_leader_that_resigns_asks_no_more(cluster: Cluster) -> None:
    async def run() -> None:
        cluster.faults, cluster.carried_out = [BrokerUnavailableError("cut")] * 9, False
        cluster.led.clock.advance(LAG_MS + 1)
        cluster.led.produce(b"a")
        cluster.changes.propose_shrinks()
        await cluster.turns()
        cluster.partition.resign()
        await cluster.repeat(2)
        assert len(cluster.requests) == 1

    asyncio.run(run())
