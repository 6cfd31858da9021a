"""The timing wheel against a sorted list, and its worked example."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkalake.broker.partitions.timing_wheel import Timeout, TimingWheel


def nothing() -> None:
    pass


def deadlines(timeouts: list[Timeout]) -> list[int]:
    return [timeout.deadline_ms for timeout in timeouts]


def test_worked_example() -> None:
    wheel = TimingWheel(0)
    wheel.schedule(7, nothing)
    wheel.schedule(450, nothing)
    assert wheel.next_due_ms() == 7
    assert deadlines(wheel.advance(10)) == [7]
    assert wheel.next_due_ms() == 400
    assert wheel.advance(400) == []
    assert wheel.next_due_ms() == 440
    assert wheel.advance(440) == []
    assert wheel.next_due_ms() == 450
    assert deadlines(wheel.advance(450)) == [450]
    assert wheel.next_due_ms() is None


def test_a_deadline_in_the_past_is_due_at_once() -> None:
    wheel = TimingWheel(1000)
    wheel.schedule(3, nothing)
    assert deadlines(wheel.advance(1000)) == [3]


def test_cancelled_timeouts_leave_nothing_behind() -> None:
    wheel = TimingWheel(0)
    timeouts = [wheel.schedule(deadline, nothing) for deadline in range(1, 10_000)]
    for timeout in timeouts:
        wheel.cancel(timeout)
        wheel.cancel(timeout)
    assert len(wheel) == 0
    assert wheel.next_due_ms() is None
    assert wheel.advance(20_000) == []


moves = st.lists(
    st.one_of(
        st.tuples(st.just("schedule"), st.integers(0, 20_000)),
        st.tuples(st.just("cancel"), st.integers(0, 1_000)),
        st.tuples(st.just("advance"), st.integers(0, 9_000)),
    ),
    max_size=60,
)


@given(moves, st.sampled_from([(1, 20), (3, 2), (10, 7)]), st.integers(0, 10_000))
def test_returns_what_a_sorted_list_would(steps: list[tuple[str, int]], shape: tuple[int, int], start_ms: int) -> None:
    """Never early; late by less than a tick when `advance` is called as `next_due_ms` says, here: at any time."""
    tick_ms, size = shape
    now_ms = start_ms
    wheel = TimingWheel(now_ms, tick_ms, size)
    waiting: list[Timeout] = []
    for step, number in steps:
        if step == "schedule":
            waiting.append(wheel.schedule(now_ms + number, nothing))
        elif step == "cancel" and waiting:
            wheel.cancel(waiting.pop(number % len(waiting)))
        elif step == "advance":
            now_ms += number
            expired = wheel.advance(now_ms)
            assert deadlines(expired) == sorted(deadlines(expired))
            assert all(timeout.deadline_ms <= now_ms for timeout in expired)
            waiting = [timeout for timeout in waiting if timeout not in expired]
            assert all(timeout.deadline_ms > now_ms - now_ms % tick_ms for timeout in waiting)
        assert len(wheel) == len(waiting)
    for timeout in wheel.advance(now_ms + 30_000):
        waiting.remove(timeout)
    assert waiting == []
