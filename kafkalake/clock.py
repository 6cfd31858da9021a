"""Time as a parameter: code that needs it takes a `Clock`, so that tests control it and simulations replay it."""

from __future__ import annotations

import time
from functools import partial
from typing import Protocol

_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS has no such clock


class Clock(Protocol):
    """Readings of time, in milliseconds unless the name says ns."""

    def now_ms(self) -> int:
        """Return the wall clock: milliseconds since the Unix epoch, UTC. May jump."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds since some fixed point. Never goes back. For timeouts and ages."""
        ...

    def monotonic_ns(self) -> int:
        """Return `monotonic_ms` in nanoseconds, for turns of the event loop. Called for each request."""
        ...

    def elapsed_ms(self) -> int:
        """Return `monotonic_ms` from another fixed point, which also advances while the machine is suspended. For leases."""
        ...

    def elapsed_ns(self) -> int:
        """Return `elapsed_ms` in nanoseconds. Called for each write."""
        ...


class Deadline:
    """The end of a request's timeout. Over at once if that is 0 or less, as in Kafka."""

    __slots__ = ("_clock", "_ends_ms")

    def __init__(self, clock: Clock, timeout_ms: int) -> None:
        self._clock = clock
        self._ends_ms = clock.monotonic_ms() + timeout_ms

    @property
    def left_ms(self) -> int:
        """Return the time that is left, 0 if it is over."""
        return max(self._ends_ms - self._clock.monotonic_ms(), 0)

    @property
    def is_over(self) -> bool:
        """Return whether no time is left."""
        return self.left_ms == 0


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def elapsed_ms(self) -> int:
        return self.elapsed_ns() // 1_000_000

    monotonic_ns = staticmethod(time.monotonic_ns)
    elapsed_ns = staticmethod(partial(time.clock_gettime_ns, _ELAPSED))
