"""Breadth first through all states of a model, to the first state in which something holds that must not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from random import Random
from typing import NamedTuple, TypeVar

S = TypeVar("S", bound=Hashable)
Steps = Callable[[S], Iterator[tuple[str, S]]]


class Violation(Exception):
    """An invariant does not hold."""


class Explored(NamedTuple):
    """The number of states, and the labels of the steps to the first violation, with it as the last, empty if there is none."""

    states: int
    violation: tuple[str, ...]


def explore(start: S, steps: Steps[S], states_max: int, same: Callable[[S], S]) -> Explored:
    """Return what is found in all states that `steps` (label and state) lead to; a step raises `Violation`.

    `same` returns the state that is looked at instead of those that differ from it in names only.
    Raise `AssertionError` if there are more than `states_max`.
    """
    first = same(start)
    came_from: dict[S, S | None] = {first: None}
    queue = deque([first])
    while queue:
        state = queue.popleft()
        try:
            for _, reached in steps(state):
                after = same(reached)
                if after not in came_from:
                    came_from[after] = state
                    queue.append(after)
        except Violation:
            return Explored(len(came_from), tuple(_trace(start, steps, came_from, state, same)))
        assert len(came_from) <= states_max, f"more than {states_max} states"
    return Explored(len(came_from), ())


def _trace(start: S, steps: Steps[S], came_from: dict[S, S | None], last: S, same: Callable[[S], S]) -> Iterator[str]:
    """Walk to a state once more, with the same names all the way."""
    path = [last]
    while (before := came_from[path[-1]]) is not None:
        path.append(before)
    state = start
    for looked_at in path[-2::-1]:
        label, state = next((label, after) for label, after in steps(state) if same(after) == looked_at)
        yield label
    try:
        for _ in steps(state):
            pass
    except Violation as violation:
        yield str(violation)


def walk(start: S, steps: Steps[S], labels: Iterable[str]) -> S:
    """Return the state to which steps with these labels lead."""
    state = start
    for label in labels:
        state = next(after for each, after in steps(state) if each == label)
    return state


def wander(start: S, steps: Steps[S], random: Random, steps_max: int) -> tuple[str, ...]:
    """Walk through states at random. Return the labels of the steps to the first violation, with it as the last, if any."""
    state, labels = start, []
    for _ in range(steps_max):
        try:
            choices = list(steps(state))
        except Violation as violation:
            return (*labels, str(violation))
        if not choices:
            break
        label, state = random.choice(choices)
        labels.append(label)
    return ()
