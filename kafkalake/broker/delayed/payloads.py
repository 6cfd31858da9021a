"""The records of entries that are due soon, read before they are due: one pass over the journal for many of them.

    prefetched   the records of a window of time, read in one pass
    arrivals     records that came later and are due within the window, as they were read when the journal was followed
    the rest     is read when it is due: what came while a window was read, or did not fit

It is only a cache: what it does not have is read from the journal. So it may forget anything at any time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np
import numpy.typing as npt

from kafkalake.broker.delayed.rows import WaitingRows
from kafkalake.record.arrays import Int64s

Read = Callable[[Int64s], Awaitable[WaitingRows]]
"""Read the waiting records at these offsets, in this order."""


class Room:
    """The bytes of records in memory, of all journal partitions of a broker, and their limit."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0

    @property
    def free_bytes(self) -> int:
        """The bytes that are free."""
        return max(0, self.bytes_max - self.held_bytes)

    def take(self, size_bytes: int) -> None:
        """Count bytes that are held from now on, or with a minus sign no longer."""
        self.held_bytes += size_bytes


class _Chunk:
    """Records by ascending offsets. `left`: the number of those that have not been taken."""

    __slots__ = ("held_bytes", "last_due_ms", "left", "offsets", "rows")

    def __init__(self, rows: WaitingRows) -> None:
        offsets = rows.offsets
        if len(offsets) > 1 and (np.diff(offsets) < 0).any():
            rows = rows.take(np.argsort(offsets))
        self.rows = rows
        self.offsets = rows.offsets
        self.left = len(rows)
        self.held_bytes = rows.held_bytes
        self.last_due_ms = int(rows.due_ms.max())


class Payloads:
    """The records of one journal partition that are in memory."""

    def __init__(self, read: Read, room: Room) -> None:
        self._read = read
        self._room = room
        self._chunks: list[_Chunk] = []
        self._arrivals: list[_Chunk] = []

    def keep(self, rows: WaitingRows) -> None:
        """Keep records that have come and will be taken soon, if there is room."""
        if len(rows) and self._room.free_bytes:
            arrivals = self._arrivals
            arrivals.append(self._held(rows))
            while len(arrivals) > 1 and 2 * len(arrivals[-1].offsets) > len(arrivals[-2].offsets):
                last, before = arrivals.pop(), arrivals.pop()
                self._room.take(-last.held_bytes - before.held_bytes)
                arrivals.append(self._held(WaitingRows.concat([before.rows, last.rows])))
                arrivals[-1].left = last.left + before.left

    def _held(self, rows: WaitingRows) -> _Chunk:
        chunk = _Chunk(rows)
        self._room.take(chunk.held_bytes)
        return chunk

    def forget_before(self, due_ms: int) -> None:
        """Forget the records that are due before a time: none of them will be taken."""
        for chunks in (self._chunks, self._arrivals):
            for chunk in [each for each in chunks if each.last_due_ms < due_ms or each.left <= 0]:
                chunks.remove(chunk)
                self._room.take(-chunk.held_bytes)

    def close(self) -> None:
        """Forget all records."""
        self.forget_before(1 << 62)

    async def prefetch(self, offsets: Int64s) -> None:
        """Read records that will be taken soon, those that are not here. Raise as `read_waiting`."""
        missing = offsets[~self._has(offsets)]
        if len(missing):
            self._chunks.append(self._held(await self._read(np.sort(missing))))

    def _has(self, offsets: Int64s) -> npt.NDArray[np.bool_]:
        found = np.zeros(len(offsets), dtype=np.bool_)
        for chunk in (*self._chunks, *self._arrivals):
            places = np.minimum(np.searchsorted(chunk.offsets, offsets), len(chunk.offsets) - 1)
            found |= chunk.offsets[places] == offsets
        return found

    async def take(self, offsets: Int64s) -> WaitingRows:
        """Return the records at these offsets, in this order. Raise as `read_waiting`."""
        parts: list[WaitingRows] = []
        places: list[Int64s] = []
        missing = np.ones(len(offsets), dtype=np.bool_)
        for chunk in (*self._chunks, *self._arrivals):
            rows = np.minimum(np.searchsorted(chunk.offsets, offsets), len(chunk.offsets) - 1)
            here = missing & (chunk.offsets[rows] == offsets)
            if here.any():
                missing &= ~here
                parts.append(chunk.rows.take(rows[here]))
                places.append(np.flatnonzero(here))
                chunk.left -= int(np.count_nonzero(here))
        if missing.any():
            parts.append(await self._read(offsets[missing]))
            places.append(np.flatnonzero(missing))
        if len(parts) == 1:
            return parts[0]
        back = np.empty(len(offsets), dtype=np.int64)
        back[np.concatenate(places)] = np.arange(len(offsets))
        return WaitingRows.concat(parts).take(back)
