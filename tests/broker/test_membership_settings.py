"""What the settings of a member of a cluster do: each of them changes what the broker does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import pytest
from broker.members import FailingReplicas, RefusingController, membership
from manual_clock import ManualClock
from memory_control_store import MemoryControlStore

from kafkalake.broker.controller.joining import TopicsRead
from kafkalake.broker.controller.membership import NO_EPOCH
from kafkalake.broker.controller.protocol import EarlierRun, OtherBrokers
from kafkalake.broker.partitions.purgatory import NoAlarm
from kafkalake.broker.partitions.scheduler import Scheduler
from kafkalake.cluster.controller_election import Vote, claim
from kafkalake.cluster.election import ElectionRules
from kafkalake.cluster.image import BrokerRegistration, ClusterImage, PartitionRegistration
from kafkalake.errors import BrokerUnavailableError, RequestTimedOutError

TOPIC = UUID(int=7)
SECOND_MS = 1_000
HERE = BrokerRegistration(1, NO_EPOCH, UUID(int=5), ())


class Lots(Random):
    """Chance that remembers between which limits it was drawn. It draws the least."""

    def __init__(self) -> None:
        super().__init__(1)
        self.drawn: list[tuple[float, float]] = []

    def uniform(self, a: float, b: float) -> float:
        self.drawn.append((a, b))
        return a


class Member:
    """Broker 1 of the brokers 0 and 1, and the controller unless `controller` is another one.

    are_gone: of the others no process is left. is_fenced: broker 1 is. more: brokers.
    """

    def __init__(
        self,
        *,
        controller: int = 1,
        are_gone: bool = False,
        is_fenced: bool = False,
        more: Sequence[int] = (),
        partitions: Sequence[PartitionRegistration] = (),
        **settings: str,
    ) -> None:
        self.clock, self.lots = ManualClock(), Lots()
        self.controller = RefusingController(BrokerUnavailableError("cut") if are_gone else None)
        brokers = {each: BrokerRegistration(each, 1, UUID(int=each), (), is_fenced=False) for each in (0, 1, *more)}
        brokers[1] = replace(brokers[1], is_fenced=is_fenced)
        image = replace(ClusterImage("lake"), brokers=brokers, partitions={TOPIC: tuple(partitions)})
        self.store = MemoryControlStore(claim(image, controller))
        replicas = FailingReplicas()
        replicas.failures = 1
        self.here = membership(
            self.controller,
            self.clock,
            self.store,
            replicas,
            "broker,controller",
            others=self._others(are_gone),
            random=self.lots,
            **settings,
        )
        self.here._here, self.here._epoch = HERE, 1
        self._scheduler = Scheduler(self.clock, NoAlarm())

    def _others(self, are_gone: bool) -> OtherBrokers:
        async def is_gone(broker_id: int) -> bool:
            return are_gone

        async def lease_of(broker_id: int) -> str:
            return "lease"

        async def ask_vote(broker_id: int, controller_epoch: int, timeout_ms: int) -> Vote:
            return Vote.GONE if are_gone else Vote.REACHES

        async def tell(broker_id: int, version: int, timeout_ms: int) -> int:
            return version

        return cast(
            OtherBrokers,
            SimpleNamespace(
                controller=self.controller,
                is_gone=is_gone,
                lease_of=lease_of,
                ask_vote=ask_vote,
                tell=tell,
                stop=lambda: None,
            ),
        )

    async def begin(self) -> None:
        await self.here.look()
        if self.newest.controller_id == 1:
            self.here.controller.activate(self.newest)
        self.here.begin(self._scheduler)

    async def pass_time(self, duration_ms: int) -> None:
        for _ in range(duration_ms // SECOND_MS):
            self.clock.advance(SECOND_MS)
            self._scheduler.ring()
            await turns()

    async def stop(self) -> None:
        await self._scheduler.stop()
        self.here.stop()

    @property
    def newest(self) -> ClusterImage:
        return self.store.load()


async def turns() -> None:
    """Let what was begun go on."""
    for _ in range(60):
        await asyncio.sleep(0)


def led(leader: int, *replicas: int) -> PartitionRegistration:
    return PartitionRegistration(leader, 0, replicas, replicas)


@pytest.mark.parametrize("session_ms", [3_000, 7_000])
def test_a_broker_is_fenced_when_its_session_has_ended(session_ms: int) -> None:
    async def run() -> None:
        member = Member(broker_session_timeout_ms=str(session_ms))
        await member.begin()
        await member.pass_time(session_ms)
        assert not member.newest.brokers[0].is_fenced
        await member.pass_time(2 * SECOND_MS)
        assert member.newest.brokers[0].is_fenced
        await member.stop()

    asyncio.run(run())


@pytest.mark.parametrize("seconds", [2, 5])
def test_leaders_are_balanced_at_an_interval(seconds: int) -> None:
    async def run() -> None:
        member = Member(partitions=[led(1, 0, 1)], leader_imbalance_check_interval_seconds=str(seconds))
        await member.begin()
        await member.pass_time((seconds - 1) * SECOND_MS)
        assert member.newest.partitions[TOPIC][0].leader == 1
        await member.pass_time(SECOND_MS)
        assert member.newest.partitions[TOPIC][0].leader == 0
        await member.stop()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("settings", "leaders"),
    [
        ({}, [0, 0]),
        ({"leader_imbalance_per_broker_percentage": "49"}, [0, 0]),
        ({"leader_imbalance_per_broker_percentage": "50"}, [1, 0]),
        ({"auto_leader_rebalance_enable": "false"}, [1, 0]),
    ],
    ids=["default", "more than it may be", "as much as it may be", "off"],
)
def test_leaders_are_balanced_where_too_many_are_led_elsewhere(settings: dict[str, str], leaders: list[int]) -> None:
    """Broker 0 leads one of the two partitions that prefer it."""

    async def run() -> None:
        member = Member(
            partitions=[led(1, 0, 1), led(0, 0, 1)], leader_imbalance_check_interval_seconds="1", **settings
        )
        await member.begin()
        await member.pass_time(3 * SECOND_MS)
        assert [each.leader for each in member.newest.partitions[TOPIC]] == leaders
        await member.stop()

    asyncio.run(run())


@pytest.mark.parametrize("enable", ["true", "false"])
def test_a_broker_whose_connections_are_refused_is_fenced_at_once(enable: str) -> None:
    async def run() -> None:
        member = Member(are_gone=True, broker_connection_fencing_enable=enable)
        await member.begin()
        member.here.lost(0)
        await turns()
        assert member.newest.brokers[0].is_fenced == (enable == "true")
        await member.stop()

    asyncio.run(run())


@pytest.mark.parametrize("enable", ["true", "false"])
def test_a_controller_whose_connections_are_refused_is_replaced_at_once(enable: str) -> None:
    async def run() -> None:
        member = Member(controller=0, are_gone=True, broker_connection_fencing_enable=enable)
        await member.begin()
        member.here.lost(0)
        await turns()
        assert member.newest.controller_id == (1 if enable == "true" else 0)
        await member.stop()

    asyncio.run(run())


@pytest.mark.parametrize("timeout_ms", [500, 2_000])
def test_a_candidate_waits_for_a_random_part_of_the_election_timeout(timeout_ms: int) -> None:
    async def run() -> None:
        member = Member(controller=0, are_gone=True, more=[2], controller_quorum_election_timeout_ms=str(timeout_ms))
        await member.begin()
        member.here.lost(0)
        await turns()
        assert member.newest.controller_id == 1
        assert member.lots.drawn == [(0, timeout_ms)]
        await member.stop()

    asyncio.run(run())


@pytest.mark.parametrize("enable", ["true", "false"])
def test_a_broker_that_ends_in_order_asks_to_be_relieved(enable: str) -> None:
    async def run() -> None:
        member = Member(controller=0, controlled_shutdown_enable=enable)
        await member.begin()
        await member.here.leave()
        said = member.controller.last
        assert (said is not None and said.wants_shutdown) == (enable == "true")
        await member.stop()

    asyncio.run(run())


@pytest.mark.parametrize("timeout_ms", [2_000, 5_000])
def test_a_broker_that_is_not_let_in_gives_up(timeout_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not registered, or not unfenced: each try takes a second."""

    async def run() -> None:
        member = Member(controller=0, is_fenced=True, initial_broker_registration_timeout_ms=str(timeout_ms))

        async def refuse(*arguments: object, **named: object) -> int:
            member.clock.advance(SECOND_MS)
            raise BrokerUnavailableError("cut")

        pauses: list[float] = []

        async def pause(duration_s: float) -> None:
            pauses.append(duration_s)

        for name in ("register", "heartbeat"):
            monkeypatch.setattr(member.controller, name, refuse, raising=False)
        topics = TopicsRead(lambda now: now, lambda topic_id: ElectionRules(), lambda image: True)
        monkeypatch.setattr("kafkalake.broker.controller.membership.asyncio.sleep", pause)
        for give_up in (
            member.here.join(HERE, lambda: topics, EarlierRun(NO_EPOCH, is_cut=False)),
            member.here.enter(),
        ):
            began_ms = member.clock.monotonic_ms()
            with pytest.raises(RequestTimedOutError):
                await give_up
            assert member.clock.monotonic_ms() - began_ms == timeout_ms
        monkeypatch.undo()
        assert len(pauses) == 2 * timeout_ms // SECOND_MS - 1
        await member.stop()

    asyncio.run(run())
