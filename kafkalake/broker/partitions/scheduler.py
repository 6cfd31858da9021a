"""The periodic work of a broker under one value: publishing, upkeep, retention, expiry, the look at idle connections.

Each work has a name, and an interval that begins when its last run has ended. An error ends one run: it is logged, the other works
go on, and the next run follows after a pause that doubles up to `PAUSE_MS_MAX` while the work fails. After a run of that length,
the next failure counts as the first. No error here stops the broker: data missing from Delta is published later, or by the next
start. Only a lost lease stops it, reported by the lease keeper.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.partitions.purgatory import Alarm
from kafkalake.clock import Clock
from kafkalake.errors import KafkaLakeError

PAUSE_MS_MIN = 250
PAUSE_MS_MAX = 30_000

logger = logging.getLogger(__name__)

Run = Callable[[], Awaitable[object] | None]
"""One run of a work. It is over when it returns None, or when the awaitable that it returns is done."""


@dataclass(slots=True, eq=False)
class _Work:
    name: str
    run: Run
    interval_ms: Callable[[], int] | None
    due_ms: int | None
    failures: int = 0
    task: asyncio.Task[None] | None = None


class Scheduler:
    """The works, by the monotonic clock. Runs on the event loop's thread, which `alarm` wakes."""

    def __init__(self, clock: Clock, alarm: Alarm) -> None:
        self._clock = clock
        self._alarm = alarm
        self._works: list[_Work] = []

    def every(self, name: str, interval_ms: Callable[[], int], run: Run, *, first_ms: int | None = None) -> None:
        """Call `run` after `first_ms` (None: an interval), and an interval after each run."""
        delay_ms = interval_ms() if first_ms is None else first_ms
        self._add(_Work(name, run, interval_ms, self._clock.monotonic_ms() + delay_ms))

    def once(self, name: str, run: Run) -> None:
        """Call `run` soon, and again only if it fails."""
        self._add(_Work(name, run, None, self._clock.monotonic_ms()))

    def _add(self, work: _Work) -> None:
        self._works.append(work)
        self._set_alarm()

    @property
    def names(self) -> list[str]:
        """The names of all works that run or will run again."""
        return [work.name for work in self._works if work.due_ms is not None or work.task is not None]

    def ring(self) -> None:
        """Begin the runs that are due."""
        now_ms = self._clock.monotonic_ms()
        for work in self._works:
            if work.due_ms is not None and work.due_ms <= now_ms:
                work.due_ms = now_ms + PAUSE_MS_MIN  # in case it cannot even begin
                call_isolated(CallbackLoop.PERIODIC_WORK, self._begin, work, now_ms)
        self._set_alarm()

    async def stop(self) -> None:
        """Cancel all works and wait until none runs."""
        works, self._works = self._works, []
        running = [work.task for work in works if work.task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _begin(self, work: _Work, began_ms: int) -> None:
        try:
            running = work.run()
            if running is None:
                self._succeeded(work)
        except Exception as error:
            self._failed(work, began_ms, error)
            return
        if running is not None:
            work.due_ms = None
            work.task = asyncio.ensure_future(self._finish(work, began_ms, running))

    async def _finish(self, work: _Work, began_ms: int, running: Awaitable[object]) -> None:
        try:
            await running
            self._succeeded(work)
        except Exception as error:
            self._failed(work, began_ms, error)
        finally:
            work.task = None
        self._set_alarm()

    def _succeeded(self, work: _Work) -> None:
        work.due_ms = None if work.interval_ms is None else self._clock.monotonic_ms() + work.interval_ms()
        work.failures = 0

    def _failed(self, work: _Work, began_ms: int, error: Exception) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - began_ms >= PAUSE_MS_MAX:
            work.failures = 0
        pause_ms = min(PAUSE_MS_MIN << min(work.failures, 20), PAUSE_MS_MAX)
        work.failures += 1
        work.due_ms = now_ms + pause_ms
        logger.error(
            "background task failed task=%r failures=%d next_try_s=%g error=%s",
            work.name,
            work.failures,
            pause_ms / 1000,
            error,
            exc_info=None if isinstance(error, KafkaLakeError) else error,
        )

    def _set_alarm(self) -> None:
        due_ms = min((work.due_ms for work in self._works if work.due_ms is not None), default=None)
        if due_ms is not None:
            self._alarm.set(due_ms, self.ring)
