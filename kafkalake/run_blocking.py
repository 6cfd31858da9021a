"""How work that blocks (files, locks, Delta tables), or takes long, is run beside an event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

T = TypeVar("T")

TURN_NS = 5_000_000
"""For how long work may hold the event loop before other work has its turn."""


class RunBlocking(Protocol):
    """Run `work` in a thread of an executor; what it returns or raises is the awaited result."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...
