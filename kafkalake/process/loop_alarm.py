"""The event loop as the alarm of the broker's timers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafkalake.clock import Clock


class LoopAlarm:
    """The alarm, set by `Timers`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._handle: asyncio.TimerHandle | None = None

    def set(self, at_ms: int, ring: Callable[[], None]) -> None:
        if self._handle is not None:
            self._handle.cancel()
        delay_ms = max(0, at_ms - self._clock.monotonic_ms())
        self._handle = self._loop.call_later(delay_ms / 1000, ring)
