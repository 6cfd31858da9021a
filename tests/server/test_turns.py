"""Long work in turns: each turn goes on, and of what takes memory only a part is in progress."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from manual_clock import ManualClock

from kafkalake.run_blocking import TURN_NS
from kafkalake.server.turns import FewAtATime, Steps, Turns

TURN_MS = TURN_NS // 1_000_000


class Loop:
    """Callbacks of an event loop, and what the work that they do has come to."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.soon: list[Callable[[], None]] = []
        self.turns = Turns(self.soon.append, self.clock)
        self.few = FewAtATime(self.turns, 2)
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.unwanted: set[str] = set()

    def iterate(self) -> None:
        """Call what is to be called in the next iteration."""
        due, self.soon[:] = list(self.soon), []
        for each in due:
            each()

    def iterate_to_the_end(self) -> None:
        while self.soon:
            self.iterate()

    def run(self, name: str, steps: int, *, fails: bool = False) -> None:
        """Run work of steps that take a turn each."""

        def work() -> Steps:
            self.begun.append(name)
            for _ in range(steps):
                self.clock.advance(TURN_MS)
                yield
            if fails:
                raise ValueError(name)
            return name

        self.few.run(
            work(),
            lambda: name not in self.unwanted,
            self.ended.append,
            lambda error: self.ended.append(repr(error)),
        )


def test_a_turn_goes_on_however_long_the_others_took() -> None:
    loop = Loop()
    taken: list[int] = []

    def steps() -> Steps:
        for number in range(3):
            taken.append(number)
            yield

    loop.turns.run(steps(), lambda: True, lambda _: None, lambda _: None)
    assert taken == [0, 1, 2]
    readings = iter(range(0, 1000 * TURN_NS, TURN_NS))  # each comes a turn after the one before
    loop.clock.monotonic_ns = lambda: next(readings)  # type: ignore[method-assign]
    slow = Turns(loop.soon.append, loop.clock)
    taken.clear()
    slow.run(steps(), lambda: True, lambda _: None, lambda _: None)
    assert taken == [0]
    loop.iterate_to_the_end()
    assert taken == [0, 1, 2]


def test_only_a_few_are_in_progress_and_the_others_follow_in_order() -> None:
    loop = Loop()
    for name in "abcd":
        loop.run(name, steps=3)
    assert (loop.begun, loop.ended) == (["a", "b"], [])
    loop.iterate_to_the_end()
    assert (loop.begun, loop.ended) == (["a", "b", "c", "d"], ["a", "b", "c", "d"])


def test_what_comes_as_room_is_given_waits_behind_the_others() -> None:
    loop = Loop()
    for name in "abc":
        loop.run(name, steps=1)
    loop.iterate()
    assert loop.ended == ["a"]
    loop.run("d", steps=1)
    assert "d" not in loop.begun
    loop.iterate_to_the_end()
    assert loop.ended == ["a", "b", "c", "d"]


@pytest.mark.parametrize("ends", ["fails", "is no longer wanted"])
def test_room_is_given_however_work_ends(ends: str) -> None:
    loop = Loop()
    for name in "abcd":
        loop.run(name, steps=2, fails=ends == "fails")
    if ends != "fails":
        loop.unwanted |= {"a", "c"}
    loop.iterate_to_the_end()
    loop.run("e", steps=1)
    loop.run("f", steps=1)
    assert loop.begun[-2:] == ["e", "f"]
    loop.iterate_to_the_end()
    expected = [f"ValueError('{name}')" for name in "abcd"] if ends == "fails" else ["b", "d"]
    assert loop.ended == [*expected, "e", "f"]
    assert ("c" in loop.begun) == (ends == "fails")
