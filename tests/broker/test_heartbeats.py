"""Heartbeats go on at their interval, whatever the controller answers: a pause that grew would end the broker's session."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest
from broker.members import INTERVAL_MS, FailingReplicas, RefusingController, membership
from manual_clock import ManualClock
from memory_control_store import MemoryControlStore

from kafkalake.broker.controller.joining import TopicsRead
from kafkalake.broker.controller.membership import NO_EPOCH
from kafkalake.broker.controller.protocol import EarlierRun, Heartbeat
from kafkalake.broker.partitions.purgatory import NoAlarm
from kafkalake.broker.partitions.scheduler import Scheduler
from kafkalake.cluster.controller_election import claim
from kafkalake.cluster.election import ElectionRules
from kafkalake.cluster.image import BrokerRegistration, ClusterImage
from kafkalake.errors import (
    BrokerUnavailableError,
    KafkaError,
    KafkaStorageError,
    NotControllerError,
    RequestTimedOutError,
)

MINUTE_MS = 60_000
SESSION_MS = 9_000


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


def registered(*broker_ids: int) -> dict[int, BrokerRegistration]:
    return {each: BrokerRegistration(each, NO_EPOCH, UUID(int=each), (), is_fenced=False) for each in broker_ids}


class Beats:
    """Broker 1 of two, its heartbeats one by one. `elected`: of which the image says that it is the controller."""

    def __init__(self, elected: int) -> None:
        self.clock, self.controller, self.replicas = ManualClock(), RefusingController(None), FailingReplicas()
        self.store = MemoryControlStore(replace(claim(ClusterImage("lake"), elected), brokers=registered(0, 1)))
        self.here = membership(self.controller, self.clock, self.store, self.replicas)
        self._scheduler = Scheduler(self.clock, NoAlarm())

    async def begin(self) -> None:
        """Follow the version that there is, at the second attempt."""
        with pytest.raises(KafkaStorageError):
            await self.here.look()
        await self.here.look()
        self.here.begin(self._scheduler)

    async def beat(self) -> None:
        self.clock.advance(INTERVAL_MS)
        self._scheduler.ring()
        for _ in range(20):
            await asyncio.sleep(0)

    async def stop(self) -> None:
        await self._scheduler.stop()


def test_a_broker_may_be_deposed_once_its_session_has_ended() -> None:
    """It began with the last heartbeat that was answered. The next one ends the doubt, with the version that came between."""

    async def run() -> None:
        beats = Beats(elected=0)
        await beats.begin()
        assert beats.here.may_be_deposed, "it has had no answer"
        await beats.beat()
        assert not beats.here.may_be_deposed
        beats.controller.error = BrokerUnavailableError("cut")
        for _ in range(SESSION_MS // INTERVAL_MS):
            assert not beats.here.may_be_deposed
            await beats.beat()
        assert beats.here.may_be_deposed
        beats.controller.error, beats.replicas.failures = None, 0
        before = beats.store.load()
        beats.store.commit(replace(before, version=before.version + 1))
        while beats.here.may_be_deposed:
            await beats.beat()
        assert beats.replicas.version == before.version + 1
        beats.controller.is_fenced = True
        await beats.beat()
        assert beats.here.may_be_deposed
        await beats.stop()

    asyncio.run(run())


def test_a_controller_may_be_deposed_once_the_others_are_silent_for_a_session() -> None:
    async def run() -> None:
        beats = Beats(elected=1)
        await beats.begin()
        beats.here.controller.activate(beats.store.load())
        beats.clock.advance(2 * INTERVAL_MS - 1)
        assert not beats.here.may_be_replaced
        beats.clock.advance(1)
        assert beats.here.may_be_replaced
        beats.clock.advance(SESSION_MS - 2 * INTERVAL_MS - 1)
        assert not beats.here.may_be_deposed
        beats.clock.advance(1)
        assert beats.here.may_be_deposed
        await beats.here.find_out()
        assert not beats.here.may_be_replaced
        assert beats.here.may_be_deposed, "they may be about to"
        await beats.stop()

    asyncio.run(run())


def test_heartbeats_that_arrive_after_a_stop_do_not_say_that_a_controller_is_none_any_more() -> None:
    """They were sent before, by brokers that have elected another one since."""

    async def run() -> None:
        beats = Beats(elected=1)
        await beats.begin()
        beats.here.controller.activate(beats.store.load())
        beats.clock.advance(SESSION_MS)
        await beats.here.controller.heartbeat(Heartbeat(0, NO_EPOCH, 0))
        for _ in range(2):
            assert beats.here.may_be_replaced
            assert beats.here.may_be_deposed
        await beats.here.find_out()
        assert not beats.here.may_be_replaced
        assert not beats.here.may_be_deposed
        beats.clock.advance(SESSION_MS)
        await beats.here.controller.heartbeat(Heartbeat(0, NO_EPOCH, 0))
        beats.store.commit(claim(beats.store.load(), 0))
        await beats.here.find_out()
        assert not beats.here.controller.is_active
        await beats.stop()

    asyncio.run(run())


def test_what_is_asked_in_doubt_waits_for_the_newest_version_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        beats = Beats(elected=0)
        await beats.begin()
        before = beats.store.load()
        beats.store.commit(replace(before, version=before.version + 1))
        await beats.here.find_out()
        assert beats.replicas.version == before.version + 1
        monkeypatch.setattr("kafkalake.broker.controller.membership.LOOK_TIMEOUT_S", 0.01)
        monkeypatch.setattr(beats.here, "_look", asyncio.Event().wait)
        with pytest.raises(RequestTimedOutError):
            await beats.here.find_out()
        await beats.stop()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("others", "are_together", "settled"),
    [((), True, 0), ((), False, 1), ((0,), True, 1)],
    ids=["alone", "alone, killed in the middle of a change", "among others"],
)
def test_a_broker_that_joins_as_the_controller_brings_topics_together(
    others: tuple[int], are_together: bool, settled: int
) -> None:
    """Another one before may be stopped in the middle of a change."""

    async def run() -> None:
        brokers = {each: BrokerRegistration(each, 1, UUID(int=9), ()) for each in (*others, 1)}
        image = claim(replace(ClusterImage("lake"), brokers=brokers), 1)
        elected: list[str] = []
        replicas = FailingReplicas()
        replicas.failures = 1
        store = MemoryControlStore(image)
        clock = ManualClock()
        member = membership(
            RefusingController(None), clock, store, replicas, "broker,controller", lambda: elected.append("settled")
        )
        here = BrokerRegistration(1, NO_EPOCH, UUID(int=5), ())
        await member.join(
            here,
            lambda: TopicsRead(lambda now: now, lambda topic_id: ElectionRules(), lambda image: are_together),
            EarlierRun(NO_EPOCH, is_cut=False),
        )
        assert member.controller.is_active
        assert elected == ["settled"] * settled

    asyncio.run(run())
