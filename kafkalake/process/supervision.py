"""Supervises a broker's background tasks: an error ends one run of a task, never the task.

The error is logged, and the task restarts after a pause that doubles up to `PAUSE_S_MAX` while it fails. After a run of that
length, the next failure counts as the first. No background error stops the broker: data missing from Delta is published later, or
by the next start. Only a lost lease stops it, reported by the lease keeper.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kafkalake.clock import Clock
from kafkalake.errors import KafkaLakeError

PAUSE_S_MIN = 0.25
PAUSE_S_MAX = 30.0

logger = logging.getLogger(__name__)


async def supervise(name: str, work: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Run `work` until it returns, restarting it when it raises."""
    failures = 0
    while True:
        began_ms = clock.monotonic_ms()
        try:
            await work()
            return
        except Exception as error:
            if clock.monotonic_ms() - began_ms >= PAUSE_S_MAX * 1000:
                failures = 0
            pause_s = min(PAUSE_S_MIN * 2 ** min(failures, 20), PAUSE_S_MAX)
            failures += 1
            logger.error(
                "background task failed task=%r failures=%d next_try_s=%g error=%s",
                name,
                failures,
                pause_s,
                error,
                exc_info=not isinstance(error, KafkaLakeError),
            )
        await asyncio.sleep(pause_s)
