"""What runs in the background of a broker, under one rule: an error ends a task's turn, never the task.

It is logged, and the task begins anew after a pause that doubles up to `PAUSE_S_MAX` while it fails; once it has run well for that
long, the next failure counts as the first. No error of the background stops the broker: what Delta lacks is published when it can
be, or by the next start. Only a lease that is lost does, and its keeper says so.
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
    """Do `work` until it returns, beginning anew where it raises."""
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
