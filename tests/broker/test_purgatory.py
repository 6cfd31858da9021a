"""Operations that wait: completed by what happens, by time, or not at all; nothing stays behind."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

import pytest
from manual_clock import ManualClock

from kafkalake.broker.partitions.purgatory import DelayedOperation, Purgatory, Timers


class Waiting(DelayedOperation):
    def __init__(self) -> None:
        super().__init__()
        self.enough = False
        self.completed = 0

    def is_complete(self, key: Hashable) -> bool:
        return self.enough

    def complete(self) -> None:
        self.completed += 1


class Alarm:
    """Notes when it is to ring."""

    def __init__(self) -> None:
        self.at_ms = -1

    def set(self, at_ms: int, ring: Callable[[], None]) -> None:
        self.at_ms = at_ms


def waiting_room() -> tuple[ManualClock, Timers, Alarm, Purgatory]:
    clock = ManualClock(1_000)
    alarm = Alarm()
    timers = Timers(clock, alarm)
    return clock, timers, alarm, Purgatory(timers)


def test_completed_by_a_key_once_there_is_enough() -> None:
    _, _, _, purgatory = waiting_room()
    operation = Waiting()
    purgatory.watch(operation, ["a", "b"], 500)
    purgatory.check("a")
    assert operation.completed == 0
    operation.enough = True
    purgatory.check("c")
    assert operation.completed == 0
    purgatory.check("b")
    purgatory.check("a")
    assert operation.completed == 1
    assert len(purgatory) == 0
    assert purgatory._watchers == {}


def test_completed_when_its_time_is_up() -> None:
    clock, timers, alarm, purgatory = waiting_room()
    operation = Waiting()
    purgatory.watch(operation, ["a"], 500)
    while alarm.at_ms > clock.monotonic_ms():
        clock.advance(alarm.at_ms - clock.monotonic_ms())
        timers.ring()
    assert clock.monotonic_ms() == 1_500
    assert operation.completed == 1
    purgatory.check("a")
    assert operation.completed == 1


def test_an_earlier_timeout_moves_the_alarm() -> None:
    _, _, alarm, purgatory = waiting_room()
    purgatory.watch(Waiting(), ["a"], 15)
    assert alarm.at_ms == 1_015
    purgatory.watch(Waiting(), ["a"], 7)
    assert alarm.at_ms == 1_007


def test_discarded_operations_are_never_completed() -> None:
    clock, timers, _, purgatory = waiting_room()
    operation = Waiting()
    operation.enough = True
    purgatory.watch(operation, ["a"], 10)
    assert purgatory.discard(operation)
    assert not purgatory.discard(operation)
    purgatory.check("a")
    clock.advance(100)
    timers.ring()
    assert operation.completed == 0


def test_everything_can_be_finished_at_once() -> None:
    _, _, _, purgatory = waiting_room()
    operations = [Waiting() for _ in range(10)]
    for operation in operations:
        purgatory.watch(operation, ["a"], 1000)
    purgatory.finish_all()
    assert [operation.completed for operation in operations] == [1] * 10


def test_timeouts_that_are_due_together_take_turns_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, timers, alarm, _ = waiting_room()
    now_ns = clock.monotonic_ns()
    called: list[int] = []

    def call(number: int) -> None:
        nonlocal now_ns
        now_ns += 1_000_000
        called.append(number)

    monkeypatch.setattr(clock, "monotonic_ns", lambda: now_ns)
    timeouts = [timers.schedule(10, partial(call, number)) for number in range(100)]
    clock.advance(10)
    timers.ring()
    assert called == list(range(5))
    assert alarm.at_ms == clock.monotonic_ms()
    timers.cancel(timeouts[7])
    timers.schedule(0, partial(call, 100))
    for _ in range(30):
        timers.ring()
    assert called == [number for number in range(101) if number != 7]
