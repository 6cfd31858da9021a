"""A member of a cluster without a network: broker 1, whose controller and replicas do what a test says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

from manual_clock import ManualClock
from memory_control_store import MemoryControlStore

from kafkalake.broker.controller.membership import Membership
from kafkalake.broker.controller.protocol import Heartbeat, HeartbeatAnswer, OtherBrokers
from kafkalake.broker.partitions.replicas import Replicas
from kafkalake.cluster.election import ElectionRules
from kafkalake.cluster.image import ClusterImage
from kafkalake.config.layers import Settings
from kafkalake.errors import KafkaStorageError
from kafkalake.world import World

INTERVAL_MS = 1_000


class RefusingController:
    """The controller, on another broker. error: what heartbeats raise."""

    is_active = False

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.heartbeats = 0
        self.last: Heartbeat | None = None
        self.is_fenced = False

    async def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatAnswer:
        self.heartbeats += 1
        self.last = heartbeat
        if self.error is not None:
            raise self.error
        return HeartbeatAnswer(True, self.is_fenced, False)


async def in_turn(work: Any) -> Any:
    return work()


class FailingReplicas:
    """Replicas that follow a version at the second attempt."""

    version = 0
    failures = 0
    idle: Mapping[object, object] = MappingProxyType({})

    def offline(self) -> tuple[()]:
        return ()

    cut = offline

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
    roles: str = "broker",
    elected: Callable[[], None] = lambda: None,
    others: OtherBrokers | None = None,
    random: Random | None = None,
    **settings: str,
) -> Membership:
    """Return the membership of broker 1. settings: of the broker, with underscores."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    config = Settings({"process.roles": roles, "broker.heartbeat.interval.ms": str(INTERVAL_MS), **given}).broker
    return Membership(
        1,
        "lake",
        store or MemoryControlStore(),
        cast(Replicas, replicas or FailingReplicas()),
        lambda topic_id: ElectionRules(),
        lambda rows: lambda topic_id: ElectionRules(),
        World(clock, random or Random(1)),
        lambda: config,
        in_turn,
        lambda member: others or cast(OtherBrokers, SimpleNamespace(controller=controller)),
        lambda settings: None,
        elected,
        lambda step: None,
    )
