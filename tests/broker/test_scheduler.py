"""The scheduler of a broker's periodic work, on a clock that stands until it is moved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest
from manual_clock import ManualClock

from kafkalake.broker.partitions.scheduler import Scheduler


class Alarm:
    def __init__(self) -> None:
        self.at_ms = -1

    def set(self, at_ms: int, ring: Callable[[], None]) -> None:
        self.at_ms = at_ms


class World:
    """A scheduler and what ran, as `name at time`."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.alarm = Alarm()
        self.scheduler = Scheduler(self.clock, self.alarm)
        self.ran: list[tuple[str, int]] = []

    def note(self, name: str) -> Callable[[], None]:
        return lambda: self.ran.append((name, self.clock.monotonic_ms()))

    def every(self, name: str, interval_ms: int, work: Callable[[], object], first_ms: int | None = None) -> None:
        self.scheduler.every(name, lambda: interval_ms, work, first_ms=first_ms)  # type: ignore[arg-type]

    def advance(self, milliseconds: int) -> None:
        """Ring whenever the alarm says so."""
        end_ms = self.clock.monotonic_ms() + milliseconds
        while self.clock.monotonic_ms() <= self.alarm.at_ms <= end_ms:
            self.clock.advance(self.alarm.at_ms - self.clock.monotonic_ms())
            self.alarm.at_ms = -1
            self.scheduler.ring()
        self.clock.advance(end_ms - self.clock.monotonic_ms())


@pytest.fixture
def w() -> World:
    return World()


def times(w: World, name: str, since_ms: int) -> list[int]:
    return [at_ms - since_ms for each, at_ms in w.ran if each == name]


def test_works_run_at_their_intervals(w: World) -> None:
    now_ms = w.clock.monotonic_ms()
    w.every("a", 100, w.note("a"))
    w.every("b", 250, w.note("b"), first_ms=0)
    w.scheduler.once("c", w.note("c"))  # type: ignore[arg-type]
    w.advance(500)
    assert times(w, "a", now_ms) == [100, 200, 300, 400, 500]
    assert times(w, "b", now_ms) == [0, 250, 500]
    assert times(w, "c", now_ms) == [0]
    assert w.scheduler.names == ["a", "b"]


def test_a_work_that_fails_is_logged_and_the_others_go_on(w: World, caplog: pytest.LogCaptureFixture) -> None:
    now_ms = w.clock.monotonic_ms()

    def fail() -> None:
        w.note("bad")()
        if len(times(w, "bad", 0)) < 11:
            raise ZeroDivisionError("on purpose")

    w.every("bad", 100, fail)
    w.every("good", 1_000, w.note("good"))
    w.advance(160_000)
    assert times(w, "good", now_ms) == list(range(1_000, 160_001, 1_000))
    runs = times(w, "bad", now_ms)
    pauses = [after - before for before, after in pairwise(runs)]
    assert pauses[:10] == [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]
    assert set(pauses[10:]) == {100}
    assert [record.getMessage() for record in caplog.records[:2]] == [
        "background task failed task='bad' failures=1 next_try_s=0.25 error=on purpose",
        "background task failed task='bad' failures=2 next_try_s=0.5 error=on purpose",
    ]


def test_an_interval_begins_when_a_run_has_ended_and_a_stop_ends_all(w: World) -> None:
    async def scenario() -> None:
        gates = [asyncio.Event() for _ in range(3)]
        ended: list[str] = []

        async def run() -> None:
            gate = gates[len(w.ran)]
            w.note("slow")()
            try:
                await gate.wait()
                if gate is gates[1]:
                    raise ZeroDivisionError("on purpose")
            finally:
                ended.append("slow")

        async def settle() -> None:
            for _ in range(5):
                await asyncio.sleep(0)

        now_ms = w.clock.monotonic_ms()
        w.every("slow", 100, run)
        w.every("quick", 100, w.note("quick"), first_ms=10_000)
        for passed_ms in (100, 200):
            w.advance(passed_ms)
            await settle()
        assert times(w, "slow", now_ms) == [100]
        gates[0].set()
        await settle()
        w.advance(100)
        await settle()
        gates[1].set()
        await settle()
        w.advance(250)
        await settle()
        assert times(w, "slow", now_ms) == [100, 400, 650], "the third follows the pause after a failure"
        await w.scheduler.stop()
        assert ended == ["slow"] * 3
        w.advance(60_000)
        assert times(w, "quick", now_ms) == []
        assert w.scheduler.names == []

    asyncio.run(scenario())
