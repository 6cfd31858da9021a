"""Which of many alike cases run with all tests, and which only in `scripts/soak`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def first_of(cases: Sequence[T], count: int) -> Sequence[T]:
    """Return the first `count` cases, the telling ones; all of them where `LONG_RUNS` is set, as `scripts/soak` does."""
    return cases if os.environ.get("LONG_RUNS") else cases[:count]
