"""Heartbeats of a group of the consumer protocol that take long: they are processed in turns, between which others are answered."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from broker.groups.consumer_worlds import REBALANCE_MS, OurGroup
from manual_clock import ManualClock

from kafkalake.broker.groups.consumer_requests import LEAVE_EPOCH, HeartbeatRequest
from kafkalake.errors import (
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    NotCoordinatorError,
    UnknownMemberIdError,
)

TOPICS = {f"t{n}": 4 for n in range(60)}
MEMBERS = 40


class BusyClock(ManualClock):
    """A clock of a machine on which everything between two looks takes a millisecond, while `is_busy`."""

    is_busy = False
    looks = 0

    def monotonic_ns(self) -> int:
        self.looks += 1
        if self.is_busy:
            self.advance(1)
        return super().monotonic_ns()


def joining(member: str, *topics: str, regex: str | None = None, assignor: str = "uniform") -> HeartbeatRequest:
    return HeartbeatRequest(
        member,
        0,
        rebalance_timeout_ms=REBALANCE_MS,
        topics=topics or None,
        regex=regex,
        assignor=assignor,
        owned=frozenset(),
    )


def busy_group(subscribe: Callable[[int], HeartbeatRequest]) -> tuple[OurGroup, BusyClock]:
    """Return a group with many members, on a machine that is busy from now on."""
    clock = BusyClock()
    w = OurGroup(TOPICS, clock)
    for number in range(MEMBERS):
        assert w.replies[w.send(subscribe(number))].error is None
    clock.is_busy = True
    return w, clock


def turns_until_answered(w: OurGroup, clock: BusyClock, number: int) -> int:
    """Let the group go on until the answer is there. Return the number of turns."""
    turns = 0
    while number not in w.replies:
        looks, turns = clock.looks, turns + 1
        w.advance(0)
        assert 0 < clock.looks - looks < 20, "a turn ends when its time is over"
    return turns


ALIKE = "the same topics"
SUBSCRIPTIONS: dict[str, Callable[[int], HeartbeatRequest]] = {
    ALIKE: lambda number: joining(f"m{number}", *TOPICS),
    "ranges": lambda number: joining(f"m{number}", *TOPICS, assignor="range"),
    "different topics": lambda number: joining(f"m{number}", *list(TOPICS)[number:]),
    "different regular expressions": lambda number: joining(f"m{number}", regex=f"t[0-9]*{number % 10}|t{number}"),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", SUBSCRIPTIONS)
def test_a_join_of_a_large_group_is_processed_in_turns(case: str) -> None:
    w, clock = busy_group(SUBSCRIPTIONS[case])
    quick = OurGroup(TOPICS)
    for number in range(MEMBERS):
        quick.send(SUBSCRIPTIONS[case](number))
    join = SUBSCRIPTIONS[case](0)
    last = joining("last", *(join.topics or ()), regex=join.regex, assignor=join.assignor or "")
    number = w.send(last)
    assert number not in w.replies
    assert turns_until_answered(w, clock, number) > 10
    quick.send(last)
    assert w.group.state.targets == quick.group.state.targets and w.journal == quick.journal
    left = w.send(HeartbeatRequest("last", LEAVE_EPOCH))
    assert (turns_until_answered(w, clock, left) > 1) == (case not in (ALIKE, "ranges"))
    assert w.replies[left].error is None and "last" not in w.group.state.subscriptions


def test_what_comes_meanwhile_waits_its_turn() -> None:
    w, clock = busy_group(SUBSCRIPTIONS[ALIKE])
    first, second = w.send(joining("x", *TOPICS)), w.send(joining("y", *TOPICS))
    assert not w.group.is_vacant and w.group.is_at_work
    turns_until_answered(w, clock, first)
    assert second not in w.replies
    turns_until_answered(w, clock, second)
    assert {"x", "y"} <= w.group.state.subscriptions.keys()


def test_many_heartbeats_that_wait_for_one_are_processed_in_turns() -> None:
    w, clock = busy_group(SUBSCRIPTIONS[ALIKE])
    w.hold = True
    clock.is_busy = False
    w.send(joining("last", *TOPICS))
    waiting = [w.send(HeartbeatRequest("unknown", 1)) for _ in range(100)]
    clock.is_busy = True
    w.durable()
    assert sum(number in w.replies for number in waiting) < 10
    turns_until_answered(w, clock, waiting[-1])


def test_topics_that_are_created_meanwhile_make_a_new_epoch_with_the_next_heartbeat() -> None:
    w, clock = busy_group(SUBSCRIPTIONS["different regular expressions"])
    number = w.send(joining("last", regex="t.*"))
    w.topics = {**w.topics, "t1": w.topics["t1"]._replace(partitions=8)}
    w.group.topics_changed()
    turns_until_answered(w, clock, number)
    epoch = w.replies[number].member_epoch
    clock.is_busy = False
    beat = w.replies[w.send(HeartbeatRequest("last", epoch))]
    assert beat.member_epoch == epoch + 1
    assert sum(map(len, w.group.state.targets.values())) == sum(topic.partitions for topic in w.topics.values())


def test_a_session_that_ends_meanwhile_ends_afterwards() -> None:
    w, clock = busy_group(SUBSCRIPTIONS[ALIKE])
    number = w.send(joining("last", *TOPICS))
    clock.advance(w.config.group_consumer_session_timeout_ms)
    turns_until_answered(w, clock, number)
    clock.is_busy = False
    w.advance(1_000)
    assert w.group.state.subscriptions.keys() == {"last"}


@pytest.mark.parametrize("error", [NotCoordinatorError, GroupIdNotFoundError])
def test_a_group_that_ends_meanwhile_answers_and_goes_on_no_more(error: type[NotCoordinatorError]) -> None:
    w, clock = busy_group(SUBSCRIPTIONS[ALIKE])
    number = w.send(joining("last", *TOPICS))
    w.group.die(error)
    w.run()
    assert w.replies[number].error is error
    looks, written = clock.looks, len(w.journal)
    w.advance(1_000)
    assert (clock.looks, len(w.journal)) == (looks, written) and not w.timers


def test_a_refused_heartbeat_makes_no_work_for_the_next_one() -> None:
    w, clock = busy_group(SUBSCRIPTIONS["different topics"])

    def looks_of_a_beat() -> int:
        looks = clock.looks
        number = w.send(HeartbeatRequest("m0", w.group.state.current("m0").epoch))
        assert w.replies[number].error is None
        return clock.looks - looks

    alone = looks_of_a_beat()
    assert w.replies[w.send(HeartbeatRequest("unknown", 1))].error is UnknownMemberIdError
    assert looks_of_a_beat() <= alone


def test_topics_that_have_changed_before_a_join_that_is_refused_are_found_by_the_next_heartbeat() -> None:
    w = OurGroup({"t0": 4}, group_coordinator_metadata_max_bytes=1_048_576)
    assert w.replies[w.send(joining("m0", "t0"))].error is None
    w.topics = {**w.topics, "t0": w.topics["t0"]._replace(partitions=5_000)}
    w.group.topics_changed()
    assert w.replies[w.send(joining("m1", "t0"))].error is CoordinatorNotAvailableError
    assert w.replies[w.send(HeartbeatRequest("m0", 1))].member_epoch == 2
    assert len(w.group.state.targets["m0"]) == 5_000
