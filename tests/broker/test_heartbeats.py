"""Heartbeats go on at their interval, whatever the controller answers: a pause that grew would end the broker's session."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from manual_clock import ManualClock

from kafkalake.broker.controller.membership import NO_EPOCH, Membership
from kafkalake.broker.controller.protocol import Heartbeat, HeartbeatAnswer, OtherBrokers
from kafkalake.broker.partitions.purgatory import NoAlarm
from kafkalake.broker.partitions.replicas import Replicas
from kafkalake.broker.partitions.scheduler import Scheduler
from kafkalake.cluster.control_store import MemoryControlStore
from kafkalake.cluster.controller_election import claim
from kafkalake.cluster.election import ElectionRules
from kafkalake.cluster.image import BrokerRegistration, ClusterImage
from kafkalake.config.layers import Settings
from kafkalake.errors import (
    BrokerUnavailableError,
    KafkaError,
    KafkaStorageError,
    NotControllerError,
    RequestTimedOutError,
)
from kafkalake.world import World

INTERVAL_MS = 1_000
MINUTE_MS = 60_000


class RefusingController:
    """The controller, on another broker. error: what heartbeats raise."""

    is_active = False

    def __init__(self, error: Exception) -> None:
        self.error: Exception | None = error
        self.heartbeats = 0

    async def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatAnswer:
        self.heartbeats += 1
        if self.error is not None:
            raise self.error
        return HeartbeatAnswer(True, False, False)


async def in_turn(work: Any) -> Any:
    return work()


class FailingReplicas:
    """Replicas that follow a version at the second attempt."""

    version = 0
    failures = 0

    def offline(self) -> tuple[()]:
        return ()

    async def follow(self, image: ClusterImage, rows: object) -> None:
        self.failures += 1
        if self.failures == 1:
            raise KafkaStorageError("Delta is away")
        self.version = image.version


def membership(
    controller: RefusingController,
    clock: ManualClock,
    store: MemoryControlStore | None = None,
    replicas: FailingReplicas | None = None,
) -> Membership:
    config = Settings({"process.roles": "broker", "broker.heartbeat.interval.ms": str(INTERVAL_MS)}).broker
    return Membership(
        1,
        "lake",
        store or MemoryControlStore(),
        cast(Replicas, replicas or FailingReplicas()),
        lambda topic_id: ElectionRules(),
        World(clock),
        lambda: config,
        in_turn,
        lambda member: cast(OtherBrokers, SimpleNamespace(controller=controller)),
        lambda settings: None,
        lambda: None,
        lambda step: None,
    )


@pytest.mark.parametrize(
    "error",
    [BrokerUnavailableError("cut"), NotControllerError(), RequestTimedOutError(), KafkaError("an error of its own")],
)
def test_a_refused_heartbeat_is_followed_by_the_next_one_after_the_interval(error: Exception) -> None:
    async def run() -> None:
        controller, clock = RefusingController(error), ManualClock()
        scheduler = Scheduler(clock, NoAlarm())
        membership(controller, clock).begin(scheduler)

        async def pass_a_minute() -> int:
            before = controller.heartbeats
            for _ in range(MINUTE_MS // INTERVAL_MS):
                clock.advance(INTERVAL_MS)
                scheduler.ring()
                for _ in range(10):
                    await asyncio.sleep(0)
            return controller.heartbeats - before

        assert await pass_a_minute() == MINUTE_MS // INTERVAL_MS
        controller.error = None
        assert await pass_a_minute() == MINUTE_MS // INTERVAL_MS
        await scheduler.stop()

    asyncio.run(run())


def test_a_version_that_could_not_be_followed_is_followed_soon_also_by_a_broker_alone() -> None:
    async def run() -> None:
        clock, replicas = ManualClock(), FailingReplicas()
        registered = BrokerRegistration(1, NO_EPOCH, UUID(int=1), (), is_fenced=False)
        alone = replace(claim(ClusterImage("lake"), 1), brokers={1: registered})
        store = MemoryControlStore(alone)
        here = membership(RefusingController(NotControllerError()), clock, store, replicas)
        here.controller.activate(alone)
        scheduler = Scheduler(clock, NoAlarm())
        here.begin(scheduler)
        with pytest.raises(KafkaStorageError):
            await here.controller.change(lambda image: replace(image, version=image.version + 1))
        assert replicas.version < store.load().version
        for _ in range(3):
            clock.advance(INTERVAL_MS)
            scheduler.ring()
            for _ in range(20):
                await asyncio.sleep(0)
        assert replicas.version == store.load().version
        await scheduler.stop()

    asyncio.run(run())
