"""The records of one journal partition that cannot be delivered, until the dead-letter topic has them.

Only their offsets are kept: they are read again when it is their turn, a batch at a time, once nothing of the one before is left.
So a dead-letter topic that takes nothing (no leader, no replicas in sync, not to be created, settings that refuse each record), for
however long, keeps neither memory nor the records of other topics back.

The index cannot keep them, as it does those that are parked: they have been in an intent, and it may have them or not.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from kafkalake.broker.coordination.journal import Timers
from kafkalake.broker.delayed.hand_overs import Target
from kafkalake.broker.delayed.rows import WaitingRows
from kafkalake.record.arrays import Int64s

logger = logging.getLogger(__name__)

REFUSED_PAUSE_MS = 60_000
"""How long records that their topic refuses are left alone."""


class _Part(NamedTuple):
    """Records that are given up for one reason: int64[n] offsets and sizes in bytes, and the error code."""

    offsets: Int64s
    sizes: Int64s
    error_code: int


class Read(Protocol):
    """Read records by their offsets: in parts, without those that are damaged. Raise `KafkaLakeError` or `OSError`."""

    def __call__(self, offsets: Int64s) -> Awaitable[Sequence[WaitingRows]]: ...


class DeadLetters:
    """See the module. Runs on the event loop's thread."""

    def __init__(
        self,
        find_target: Callable[[], Awaitable[Target]],
        read: Read,
        give: Callable[[Target, WaitingRows, int], None],
        pause_ms: Callable[[int], int],
        rows_max: int,
        bytes_max: int,
        timers: Timers,
    ) -> None:
        """find_target: returns the dead-letter partition, creates it if need be. give: hands over one batch for an error code.

        pause_ms: by the number of failures. rows_max, bytes_max: of one batch, if one record is not larger.
        """
        self._find_target = find_target
        self._read = read
        self._give = give
        self._pause_ms = pause_ms
        self._rows_max, self._bytes_max = rows_max, bytes_max
        self._timers = timers
        self._parts: deque[_Part] = deque()
        self._refused: list[_Part] = []
        self._given: Int64s = np.zeros(0, dtype=np.int64)
        """The offsets of the records that were given, and have not come to an end: of a batch that is refused, parts wait."""
        self._is_closed = False
        self._is_free = asyncio.Event()
        self._is_free.set()
        self._task: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Give nothing more."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()

    def add(self, rows: WaitingRows, error_code: int) -> None:
        """Take records that are given up, behind those before."""
        self._parts.append(_Part(rows.offsets, rows.sizes, error_code))
        self.finished(rows)
        self._begin()

    def return_batch(self, rows: WaitingRows, error_code: int) -> None:
        """Take a batch back that the topic does not get: it has been deleted."""
        self._parts.appendleft(_Part(rows.offsets, rows.sizes, error_code))
        self.finished(rows)
        self._begin()

    def refused(self, rows: WaitingRows, error_code: int) -> None:
        """Take records back that the topic refuses, as long as its settings do not change: they keep the others no longer."""
        if not self._refused:
            self._timers.schedule(REFUSED_PAUSE_MS, self._give_refused)
        self._refused.append(_Part(rows.offsets, rows.sizes, error_code))
        self.finished(rows)

    def _give_refused(self) -> None:
        self._parts.extend(self._refused)
        self._refused.clear()
        self._begin()

    def finished(self, rows: WaitingRows) -> None:
        """Take the news that records have come to an end, of those that were given perhaps."""
        self._given = np.setdiff1d(self._given, rows.offsets, assume_unique=True)
        if not len(self._given):
            self._is_free.set()

    def _begin(self) -> None:
        if not self._is_closed and (self._task is None or self._task.done()):
            self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        failures = 0
        while self._parts:
            await self._is_free.wait()
            part = self._next()
            try:
                target = await self._find_target()
                found = await self._read(part.offsets)
            except Exception as error:
                logger.warning("no dead letters of delayed records written, to be repeated error=%r", error)
                self._parts.appendleft(part)
                await asyncio.sleep(self._pause_ms(failures) / 1000)
                failures += 1
                continue
            failures = 0
            if found:
                rows = WaitingRows.concat(found)
                self._given = rows.offsets
                self._is_free.clear()
                self._give(target, rows, part.error_code)

    def _next(self) -> _Part:
        """Remove and return the records of the next batch, at least one."""
        first = self._parts.popleft()
        fitting = int(np.searchsorted(np.cumsum(first.sizes), self._bytes_max, side="right"))
        count = max(min(fitting, self._rows_max), 1)
        if count < len(first.offsets):
            self._parts.appendleft(_Part(first.offsets[count:], first.sizes[count:], first.error_code))
        return _Part(first.offsets[:count], first.sizes[:count], first.error_code)
