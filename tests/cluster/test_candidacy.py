"""A broker that does not reach the controller asks the others, and looks at the lake; asked itself, it tries to reach it."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from typing import cast

import pytest
from cluster_images import cluster
from manual_clock import ManualClock

from kafkalake.broker.controller.candidacy import Candidacy
from kafkalake.broker.controller.protocol import OtherBrokers
from kafkalake.cluster.controller_election import Vote
from kafkalake.cluster.image import NO_CONTROLLER, ClusterImage
from kafkalake.config.layers import Settings
from kafkalake.errors import BrokerUnavailableError, NotControllerError, StaleBrokerEpochError

IMAGE = replace(cluster(), controller_id=0, controller_epoch=5)


class Others:
    """The other brokers as a test says. A broker without a vote does not answer."""

    def __init__(self, votes: dict[int, Vote] | None = None, *, is_gone: bool = False) -> None:
        self.votes = votes or {}
        self.is_controller_gone = is_gone
        self.lease = "lease 1"
        self.asked: list[tuple[int, int]] = []

    async def is_gone(self, broker_id: int) -> bool:
        return self.is_controller_gone

    async def lease_of(self, broker_id: int) -> str:
        return self.lease

    async def ask_vote(self, broker_id: int, controller_epoch: int, timeout_ms: int) -> Vote | None:
        self.asked.append((broker_id, controller_epoch))
        return self.votes.get(broker_id)


class Broker:
    """Broker 1 of three. error: what its heartbeats raise."""

    def __init__(self, others: Others, **settings: str) -> None:
        self.clock = ManualClock()
        self.error: Exception | None = None
        config = Settings(settings).broker
        self.candidacy = Candidacy(1, self.clock, lambda: config, cast(OtherBrokers, others), self._beat)

    async def _beat(self) -> None:
        if self.error is not None:
            raise self.error

    def claims(self, image: ClusterImage = IMAGE) -> bool:
        return asyncio.run(self.candidacy.may_claim(image))

    def vote(self, controller_epoch: int) -> Vote | None:
        return asyncio.run(self.candidacy.vote(IMAGE, controller_epoch))


@pytest.mark.parametrize(("vote", "expected"), [(Vote.MISSES, True), (Vote.REACHES, False), (Vote.GONE, False)])
def test_most_others_decide(vote: Vote, expected: bool) -> None:
    others = Others({2: vote})
    assert Broker(others).claims() is expected
    assert others.asked == [(2, 5)]


def test_a_broker_whose_network_is_cut_does_not_depose_a_controller_that_renews_its_lease() -> None:
    others = Others()
    broker = Broker(others)
    for number in range(20):
        broker.clock.advance(10_000)
        others.lease = f"lease {number}"
        assert not broker.claims()
    broker.clock.advance(14_999)
    assert not broker.claims()
    broker.clock.advance(1)
    assert broker.claims(), "it has not renewed its lease either"


def test_an_answer_or_a_version_is_a_sign_of_life() -> None:
    for note in (Candidacy.note_answer, lambda candidacy: candidacy.note_version(IMAGE)):
        broker = Broker(Others())
        assert not broker.claims()
        broker.clock.advance(14_999)
        note(broker.candidacy)
        broker.clock.advance(14_999)
        assert not broker.claims()


def test_a_lease_that_is_seen_for_the_first_time_is_no_sign_of_life() -> None:
    """The silence of a controller that is stopped counts from its last answer: the rest of its session is not begun anew."""
    broker = Broker(Others())
    for _ in range(2):
        broker.clock.advance(2_500)
        assert not broker.claims()
    assert broker.candidacy.silent_ms == 5_000
    broker.candidacy.note_answer()
    broker.clock.advance(2_500)
    assert not broker.claims() and broker.candidacy.silent_ms == 2_500


def test_a_controller_that_is_cut_off_but_lives_has_no_other_session() -> None:
    """It still writes to the lake, and fences the brokers that it does not hear: they would wait for it twice as long."""
    others = Others()
    broker = Broker(others)
    broker.candidacy.note_version(IMAGE)
    broker.clock.advance(2_500)
    assert not broker.claims()
    broker.candidacy.note_version(replace(IMAGE, version=IMAGE.version + 1))
    others.lease = "lease 2"
    broker.clock.advance(2_500)
    assert not broker.claims() and broker.candidacy.silent_ms == 5_000
    broker.candidacy.note_version(replace(IMAGE, version=IMAGE.version + 2, controller_id=2, controller_epoch=6))
    assert broker.candidacy.silent_ms == 0, "another controller"


@pytest.mark.exhaustive
def test_most_others_decide_before_a_stopped_controller_has_answered_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Stopped(Others):
        async def is_gone(self, broker_id: int) -> bool:
            await asyncio.Event().wait()
            return False

    assert Broker(Stopped({2: Vote.MISSES})).claims()
    gc.collect()
    assert not caplog.records, "a future that is given up is no error"


def test_the_place_of_a_controller_that_has_ended_is_claimed_unless_another_broker_reaches_it() -> None:
    assert Broker(Others(is_gone=True)).claims()
    assert not Broker(Others({2: Vote.REACHES}, is_gone=True)).claims()


@pytest.mark.parametrize("controller_id", [NO_CONTROLLER, 1, 7])
def test_nobody_is_asked_where_there_is_no_controller(controller_id: int) -> None:
    others = Others({2: Vote.REACHES})
    assert Broker(others).claims(replace(IMAGE, controller_id=controller_id))
    assert others.asked == []


def test_a_broker_without_the_role_claims_nothing() -> None:
    broker = Broker(Others({2: Vote.MISSES}, is_gone=True), **{"process.roles": "broker"})
    assert not broker.claims() and not broker.claims(replace(IMAGE, controller_id=NO_CONTROLLER))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, Vote.REACHES),
        (StaleBrokerEpochError(), Vote.REACHES),
        (NotControllerError(), Vote.MISSES),
        (BrokerUnavailableError("cut"), Vote.MISSES),
    ],
)
def test_a_voter_tries_to_reach_the_controller(error: Exception | None, expected: Vote) -> None:
    broker = Broker(Others())
    broker.error = error
    assert broker.vote(5) is expected
    assert broker.vote(4) is Vote.REACHES and broker.vote(6) is None
