"""Work that yields between its steps, so that an event loop goes on meanwhile, taken to its end at once."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def run_steps(steps: Generator[None, None, T]) -> T:
    """Take all steps and return what they return."""
    return count_steps(steps)[1]


def count_steps(steps: Generator[None, None, T]) -> tuple[int, T]:
    """Take all steps. Return how many there were, and what they return."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return count, stop.value
        count += 1
