"""Fetch sessions of followers: both sides' epochs, and what a fetch reads of many partitions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from broker.test_replica_fetch import LAGGING_MS, Followed

from kafkalake.broker.partitions.fetch_session import FetchSession
from kafkalake.broker.partitions.fetch_sessions import FINAL_EPOCH, IDLE_MS, INITIAL_EPOCH
from kafkalake.broker.partitions.follower_fetch import FollowedAnswer, FollowedPartition, FollowerFetch
from kafkalake.broker.partitions.follower_sessions import SESSIONS_MAX
from kafkalake.broker.partitions.leader_replicas import AskedReplica, ReplicaId
from kafkalake.broker.partitions.replica_fetch import WATERMARK_MS
from kafkalake.errors import FetchSessionIdNotFoundError, InvalidFetchSessionEpochError

TOPIC = UUID(int=7)


def asked(*offsets: int) -> dict[ReplicaId, AskedReplica]:
    """Partitions 0, 1, ... at these offsets; -1: not asked for."""
    return {
        (TOPIC, number): AskedReplica((TOPIC, number), 1, offset, 1, 0, 0, 100)
        for number, offset in enumerate(offsets)
        if offset >= 0
    }


def changed(*numbers: int) -> list[ReplicaId]:
    return [(TOPIC, number) for number in numbers]


def named(of: FetchSession, replicas: dict[ReplicaId, AskedReplica], *numbers: int) -> tuple[object, ...]:
    request = of.begin(replicas, changed(*numbers))
    of.answered(request, 5)
    offsets = {each.replica[1]: each.offset for each in request.named}
    return request.session_id, request.epoch, offsets, [number for _, number in request.forgotten]


# The follower's side


def test_a_session_names_what_has_changed_and_forgets_what_is_not_asked_for() -> None:
    session = FetchSession()
    assert named(session, asked(1, 2, 3), 0, 1, 2) == (0, INITIAL_EPOCH, {0: 1, 1: 2, 2: 3}, [])
    assert named(session, asked(1, 7, 3), 1) == (5, 1, {1: 7}, [])
    assert named(session, asked(1, 7, 3)) == (5, 2, {}, [])
    assert named(session, asked(1, -1, 3), 1) == (5, 3, {}, [1])
    assert named(session, asked(1, -1, 3), 1) == (5, 4, {}, []), "it was forgotten"
    assert named(session, asked(1, 8, 3), 1) == (5, 5, {1: 8}, [])


def test_a_request_beside_the_one_that_asks_for_a_session_has_none_and_is_told_later() -> None:
    session = FetchSession()
    first = session.begin(asked(1, 2), changed(0, 1))
    second = session.begin(asked(1, 2, 3), changed(2))
    assert (second.session_id, second.epoch, len(second.named)) == (0, FINAL_EPOCH, 3)
    session.answered(first, 5)
    session.answered(second, 0)
    assert named(session, asked(1, 2, 3)) == (5, 1, {2: 3}, [])


def test_after_an_error_a_new_session_takes_the_place_of_the_old_one_once() -> None:
    session = FetchSession()
    named(session, asked(1, 2), 0, 1)
    failed, also_failed = session.begin(asked(1, 2), []), session.begin(asked(1, 3), changed(1))
    session.failed(failed)
    again = session.begin(asked(1, 3), [])
    session.failed(also_failed)
    assert (again.session_id, again.epoch, len(again.named)) == (5, INITIAL_EPOCH, 2)
    session.answered(again, 6)
    assert named(session, asked(2, 3), 0)[:3] == (6, 1, {0: 2})


# The leader's side


class InSession(Followed):
    """Fetches of broker 1 in a session."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.session_id, self.epoch = 0, INITIAL_EPOCH
        self.answers: list[list[FollowedAnswer]] = []

    def ask(self, *offsets: int, wait_ms: int = 500, broker_epoch: int = 10, forgets: bool = False) -> int:
        """Fetch, naming the partition at an offset, and return the number of answers until now."""
        topic_id = self.led.topic.topic_id
        partitions = [FollowedPartition(topic_id, 0, offset, 1 << 20, 5, -1, 0, 0) for offset in offsets]
        request = FollowerFetch(1, broker_epoch, partitions, 1, 1 << 20, wait_ms, self.session_id, self.epoch)
        if forgets:
            request = FollowerFetch(*self._fields(request), forgotten=[(topic_id, 0)])
        for _ in self.service.fetch(request, self._answered):
            pass
        self.epoch += 1
        return len(self.answers)

    @staticmethod
    def _fields(request: FollowerFetch) -> tuple[object, ...]:
        return tuple(getattr(request, name) for name in FollowerFetch.__slots__[:-1])

    def _answered(self, answers: list[FollowedAnswer], session_id: int) -> None:
        self.answers.append(answers)
        self.session_id = session_id


@pytest.fixture
def followed(tmp_path: Path) -> InSession:
    return InSession(tmp_path)


def read_bytes(answers: list[FollowedAnswer]) -> int:
    return sum(each.bytes for each in answers)


def test_a_partition_is_answered_when_it_moves_and_counts_as_fetched_where_it_was_named(followed: InSession) -> None:
    assert followed.ask(0, wait_ms=0) == 1
    assert [each.bytes for each in followed.answers[0]] == [0]
    assert followed.ask() == 1
    followed.led.produce(b"a", acks=1)
    assert len(followed.answers) == 2 and read_bytes(followed.answers[1]) > 0
    assert followed.ask(1) == 2
    assert followed.led.partition.leadership.follower(1).log_end == 1
    followed.fetch(1, broker_id=2)
    assert followed.led.log.high_watermark == 1
    followed.led.pass_time(WATERMARK_MS + 1)
    assert [each.high_watermark for each in followed.answers[2]] == [1], "told soon"


def test_nothing_is_read_or_answered_of_a_partition_that_has_not_moved(
    followed: InSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed.ask(0, wait_ms=0)
    followed.ask(wait_ms=0)
    monkeypatch.setattr(followed.led.log, "read_replica", lambda *_: pytest.fail("it is read"))
    for number in range(3, 6):
        assert followed.ask(wait_ms=0) == number
        assert followed.answers[-1] == []


def test_messages_that_were_not_taken_are_sent_again(followed: InSession) -> None:
    followed.led.produce(b"a", acks=1)
    followed.ask(0)
    followed.ask()
    assert read_bytes(followed.answers[0]) == read_bytes(followed.answers[1]) > 0


def test_the_end_of_the_leadership_is_told_once_and_the_partition_is_no_part_of_the_session_then(
    followed: InSession,
) -> None:
    followed.ask(0, wait_ms=0)
    followed.ask()
    del followed.led.topic.replicas[0]
    followed.led.partition.resign()
    followed.led.purgatory.check(followed.led.partition)
    (answer,) = followed.answers[1]
    assert answer.error is not None and answer.error.label == "NOT_LEADER_OR_FOLLOWER"
    assert followed.ask(wait_ms=0) == 3
    assert followed.answers[2] == []


def test_another_request_of_the_session_ends_the_wait_of_the_one_before(followed: InSession) -> None:
    followed.ask(0, wait_ms=0)
    assert followed.ask() == 1
    assert followed.ask() == 2
    assert followed.answers[1] == []
    followed.led.produce(b"a", acks=1)
    assert len(followed.answers) == 3 and read_bytes(followed.answers[2]) > 0


def test_a_wait_ends_with_its_time_and_a_forgotten_partition_is_not_answered(followed: InSession) -> None:
    followed.ask(0, wait_ms=0)
    followed.ask(forgets=True)
    followed.led.produce(b"a", acks=1)
    assert len(followed.answers) == 1
    followed.led.pass_time(501)
    assert followed.answers[1] == []


def test_a_follower_that_repeats_its_fetch_stays_in_the_isr_and_one_that_does_not_leaves_it(
    followed: InSession,
) -> None:
    followed.ask(0, wait_ms=0)
    followed.fetch(0, broker_id=2)
    followed.led.pass_time(50_000)
    followed.ask(wait_ms=0)
    followed.led.produce(b"a", acks=1)
    followed.sessions.count_repeated()
    caught_up_ms = [each.caught_up_ms for each in followed.led.partition.leadership.followers]
    assert caught_up_ms[0] - caught_up_ms[1] >= 50_000


def test_a_replica_outside_of_the_isr_is_let_in_without_a_move_of_the_partition(followed: InSession) -> None:
    async def test() -> None:
        followed.led.set_isr(0, 2)
        fenced = followed.topics.image
        followed.topics.apply(fenced.with_broker(replace(fenced.brokers[1], is_fenced=True)), [], [])
        followed.ask(0, wait_ms=0)
        followed.ask(wait_ms=0)
        assert followed.led.partition.leadership.proposed is None
        followed.topics.apply(replace(fenced, version=3), [], [])
        followed.ask(wait_ms=0)
        assert followed.led.partition.leadership.proposed == (0, 2, 1)
        followed.changes.stop()

    asyncio.run(test())


def test_epochs_incarnations_and_sessions_that_are_gone_are_refused(followed: InSession) -> None:
    followed.ask(0, wait_ms=0)
    followed.ask(wait_ms=0)
    followed.epoch = 1
    with pytest.raises(InvalidFetchSessionEpochError):
        followed.ask(wait_ms=0)
    followed.epoch = 2
    with pytest.raises(FetchSessionIdNotFoundError):
        followed.ask(wait_ms=0, broker_epoch=11)
    followed.led.pass_time(IDLE_MS + 1)
    followed.sessions.count_repeated()
    assert len(followed.sessions) == 0
    with pytest.raises(FetchSessionIdNotFoundError):
        followed.ask(wait_ms=0)


def test_sessions_of_a_broker_are_bounded_and_those_of_an_earlier_incarnation_end(followed: InSession) -> None:
    for _ in range(SESSIONS_MAX + 3):
        followed.session_id, followed.epoch = 0, INITIAL_EPOCH
        followed.ask(0, wait_ms=0)
    assert len(followed.sessions) == SESSIONS_MAX
    followed.session_id, followed.epoch = 0, INITIAL_EPOCH
    followed.ask(0, wait_ms=0, broker_epoch=11)
    assert len(followed.sessions) == 1


def test_what_a_throttle_held_back_is_sent_once_the_rate_allows_it_though_nothing_is_named(tmp_path: Path) -> None:
    here = InSession(tmp_path)
    here.led.set_isr(0, 2)
    for _ in range(2):
        here.led.produce(bytes(5_000), acks=1)
    here.led.pass_time(LAGGING_MS)
    here.fetch(2, broker_id=2)
    here.throttled.rate = 1_000
    assert not here.throttled.throttle.is_exceeded
    here.throttled.throttle.count(here.led.partition.replica, 6_000)
    here.ask(0)
    here.led.pass_time(501)
    for _ in range(3):
        before = here.ask()
        here.led.produce(b"later", acks=1)
        assert len(here.answers) == before
        here.led.pass_time(501)
    assert not any(each.read for answers in here.answers for each in answers)
    here.led.pass_time(6_000)
    here.ask()
    (answer,) = here.answers[-1]
    assert answer.read is not None and len(answer.read.messages) > 5_000
