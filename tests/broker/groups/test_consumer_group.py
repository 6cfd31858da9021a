"""A group of the consumer protocol by tables of events: times that run out, writes that fail, restarts, topics that change."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from broker.groups.consumer_worlds import REBALANCE_MS, Beat, OurGroup

from kafkalake.broker.coordination.patterns import matching
from kafkalake.broker.groups.consumer import ConsumerGroup
from kafkalake.broker.groups.consumer_records import MemberState
from kafkalake.broker.groups.consumer_requests import HeartbeatRequest
from kafkalake.broker.groups.consumer_topics import TopicOfGroup
from kafkalake.broker.groups.records import GroupTombstone
from kafkalake.errors import (
    CoordinatorNotAvailableError,
    InvalidRegularExpressionError,
    NonEmptyGroupError,
    NotCoordinatorError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)

SESSION_MS = 45_000
ALL = [("t", 0), ("t", 1), ("t", 2), ("t", 3)]


def group(**config: int) -> OurGroup:
    return OurGroup({"t": 4, "u": 2}, **config)


def join(w: OurGroup, member: str, *topics: str, instance: str | None = None, timeout_ms: int = REBALANCE_MS) -> Beat:
    return w.beat(member, 0, [], topics or ("t",), instance=instance, timeout_ms=timeout_ms, assignor="range")


def test_a_silent_member_is_out_after_its_session() -> None:
    w = group()
    join(w, "a")
    join(w, "b")
    w.advance(SESSION_MS - 1)
    assert w.beat("a", 1)[0] == "NONE"
    w.advance(1)
    assert [one[0] for one in w.describe()[5]] == ["a"]
    assert w.beat("b", 2)[0] == "UNKNOWN_MEMBER_ID"
    w.advance(SESSION_MS)
    assert w.describe()[1] == "Empty" and not w.timers


class Alone(dict[str, Any]):
    """Members that are looked up, not walked through."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("a heartbeat that changes nothing costs the same in a group of any size")

    keys = items = values = __iter__  # type: ignore[assignment]


def test_a_heartbeat_that_changes_nothing_looks_at_one_member(monkeypatch: pytest.MonkeyPatch) -> None:
    w = group()
    join(w, "a")
    join(w, "b")
    w.beat("a", 1)
    w.beat("a", 1, ALL[:2])
    w.beat("b", 2)
    state = w.group.state
    for name in ("subscriptions", "targets", "currents"):
        monkeypatch.setattr(state, name, Alone(getattr(state, name)))
    assert w.beat("a", 2)[:2] == w.beat("b", 2)[:2] == ("NONE", 2)


def test_a_member_that_does_not_give_up_in_time_is_out() -> None:
    w = group()
    join(w, "a", timeout_ms=10_000)
    join(w, "b")
    assert w.beat("a", 1)[2] == ALL[:2]
    w.advance(5_000)
    w.beat("a", 1, ALL)
    w.beat("b", 2)
    w.advance(5_000)
    assert w.beat("a", 1)[0] == "UNKNOWN_MEMBER_ID"
    assert w.beat("b", 2)[2] == ALL


def fail_twice(w: OurGroup) -> None:
    """The next change is not written, and neither is the next attempt."""
    w.hold = True
    for _ in range(2):
        w.advance(1_000)
        w.fail(CoordinatorNotAvailableError)
    w.hold = False
    w.advance(1_000)


def test_a_silent_member_is_out_once_that_can_be_written() -> None:
    w = group()
    join(w, "a")
    join(w, "b")
    w.advance(SESSION_MS - 1)
    w.beat("a", 1)
    fail_twice(w)
    assert [one[0] for one in w.describe()[5]] == ["a"]


def test_a_member_that_was_to_be_removed_and_is_back_stays() -> None:
    w = group()
    join(w, "a")
    w.hold = True
    w.advance(SESSION_MS)
    w.fail(CoordinatorNotAvailableError)
    w.hold = False
    assert w.beat("a", 1)[0] == "NONE"
    w.advance(SESSION_MS - 1)
    assert w.describe()[1] == "Stable"
    w.advance(1)
    assert w.describe()[1] == "Empty"


def test_a_member_that_does_not_give_up_is_out_once_that_can_be_written() -> None:
    w = group()
    join(w, "a", timeout_ms=10_000)
    join(w, "b")
    w.beat("a", 1)
    w.advance(9_999)
    fail_twice(w)
    assert w.beat("a", 1)[0] == "UNKNOWN_MEMBER_ID"
    assert w.beat("b", 2)[2] == ALL


def test_a_member_that_gives_up_in_time_stays() -> None:
    w = group()
    join(w, "a", timeout_ms=10_000)
    join(w, "b")
    w.beat("a", 1)
    w.advance(9_000)
    assert w.beat("a", 1, ALL[:2])[:2] == ("NONE", 2)
    assert w.beat("b", 2)[2] == ALL[2:]
    w.advance(9_000)
    assert w.describe()[1] == "Stable"


def test_the_line_waits_for_the_journal_and_a_failed_write_changes_nothing() -> None:
    w = group()
    w.hold = True
    first = w.send(HeartbeatRequest("a", 0, rebalance_timeout_ms=1, topics=("t",), owned=frozenset()))
    second = w.send(HeartbeatRequest("b", 0, rebalance_timeout_ms=1, topics=("t",), owned=frozenset()))
    assert not w.replies and not len(w.group.state)
    w.fail(NotCoordinatorError)
    assert w.replies[first].error is NotCoordinatorError
    assert second not in w.replies and not w.group.exists
    w.durable()
    assert w.replies[second].member_epoch == 1
    assert w.names(w.replies[second].assignment or frozenset()) == ALL


def test_a_lost_answer_is_given_again_if_the_member_has_no_more_than_it_was_given() -> None:
    w = group()
    join(w, "a")
    join(w, "b")
    w.beat("a", 1)
    assert w.beat("a", 1, ALL[:2])[:2] == ("NONE", 2)
    assert w.beat("a", 1, ALL[:2])[:2] == ("NONE", 2)
    assert w.beat("a", 1, ALL)[0] == "FENCED_MEMBER_EPOCH"
    assert w.beat("a", 1)[0] == "FENCED_MEMBER_EPOCH"


def test_a_new_coordinator_knows_what_the_old_one_said() -> None:
    w = group()
    join(w, "a", timeout_ms=10_000)
    join(w, "b")
    w.beat("a", 1)
    before = w.describe()
    w.start()
    assert w.describe() == before
    assert w.group.state.current("a").state is MemberState.UNREVOKED_PARTITIONS
    assert w.beat("b", 2)[0] == "NONE"
    w.advance(10_000)
    assert w.beat("b", 2)[2] == ALL, "the time to give up begins anew, and runs out"
    w.advance(SESSION_MS)
    assert w.describe()[1] == "Empty"


def test_more_partitions_make_a_new_epoch_with_the_next_heartbeat() -> None:
    w = group()
    join(w, "a", "t", "later")
    w.topics["t"] = TopicOfGroup(w.topics["t"].topic_id, 5)
    assert w.beat("a", 1) == ("NONE", 1, None)
    w.group.topics_changed()
    assert w.beat("a", 1) == ("NONE", 2, [*ALL, ("t", 4)])
    w.group.topics_changed()
    assert w.beat("a", 2) == ("NONE", 2, None)
    assert not w.group.reads("u") and w.group.reads("later")


def test_a_regular_expression_follows_the_topics() -> None:
    w = group()
    assert w.beat("a", 0, [], None, regex="u|t.", timeout_ms=1)[2] == [("u", 0), ("u", 1)]
    w.topics["t2"] = TopicOfGroup(uuid.uuid4(), 1)
    w.group.topics_changed()
    assert len(w.beat("a", 1)[2] or []) == 3
    assert w.group.reads("t2") and not w.group.reads("t")


@pytest.mark.parametrize("pattern", ["(", "a)|(b", "*", "[z-a]"])
def test_what_is_no_regular_expression_is_refused(pattern: str) -> None:
    assert group().beat("a", 0, [], None, regex=pattern, timeout_ms=1)[0] == "INVALID_REGULAR_EXPRESSION"
    with pytest.raises(InvalidRegularExpressionError):
        matching(pattern, ["a"])


def test_a_group_has_its_limit() -> None:
    w = group(group_consumer_max_size=1)
    join(w, "a")
    assert join(w, "b")[0] == "GROUP_MAX_SIZE_REACHED"
    assert w.beat("a", 1)[0] == "NONE"


def test_who_may_commit_and_fetch() -> None:
    w = group()
    w.group.check_commit("", None, -1)
    join(w, "a")
    w.group.check_commit("a", None, 1)
    w.group.check_commit("", None, -1, transactional=True)
    w.group.check_fetch(None, -1)
    w.group.check_fetch("a", 1)
    for member, epoch, error in (
        ("a", 0, StaleMemberEpochError),
        ("a", 2, StaleMemberEpochError),
        ("a", -1, StaleMemberEpochError),
        ("b", 1, UnknownMemberIdError),
    ):
        with pytest.raises(error):
            w.group.check_commit(member, None, epoch)
        with pytest.raises(error):
            w.group.check_fetch(member, epoch)
    with pytest.raises(UnknownMemberIdError):
        w.group.check_commit("", None, -1)
    assert w.group.expiry.subscribed == {"t"}


def test_a_static_member_that_does_not_come_back_is_out_after_its_session() -> None:
    w = group()
    join(w, "a", instance="i")
    join(w, "b")
    w.beat("a", 1, ALL, instance="i")
    assert w.beat("a", -2, instance="i")[:2] == ("NONE", -2)
    assert w.beat("b", 2)[2] == ALL[2:], "what it had to give up anyway is free, the rest waits for it"
    w.advance(SESSION_MS - 1)
    w.beat("b", 2)
    w.advance(1)
    assert w.beat("b", 2)[2] == ALL


def test_a_group_that_is_deleted_or_goes_elsewhere_answers_everybody() -> None:
    w = group()
    join(w, "a")
    with pytest.raises(NonEmptyGroupError):
        w.group.check_delete()
    w.hold = True
    waiting = [w.send(HeartbeatRequest("a", -1)), w.send(HeartbeatRequest("a", 1))]
    w.group.die(NotCoordinatorError)
    w.run()
    assert [w.replies[one].error for one in waiting] == [NotCoordinatorError] * 2
    assert not w.timers
    w.durable()
    assert w.replies[w.send(HeartbeatRequest("a", 1))].error is CoordinatorNotAvailableError


def test_an_empty_classic_group_gives_way_and_an_empty_group_leaves_nothing() -> None:
    w = group()
    w.group = ConsumerGroup("g", w.config, w.clock, lambda: w.topics, replaces_classic=True)
    w.hold = True
    join_request = HeartbeatRequest("a", 0, rebalance_timeout_ms=1, topics=("t",), owned=frozenset())
    w.send(join_request)
    assert w._held[0].records[0] == GroupTombstone("g")
    w.fail(NotCoordinatorError)
    w.send(join_request)
    assert w._held[0].records[0] == GroupTombstone("g")
    w.durable()
    w.hold = False
    w.beat("a", -1)
    w.group.check_delete()
    w.write(w.group.tombstones())
    w.start()
    assert not w.group.exists and w.group.is_vacant
