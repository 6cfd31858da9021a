"""A set of offsets of one log, for tens of millions of them: one byte for each offset of the log, changed and asked by arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kafkalake.record.arrays import Int64s

_ROOM_MIN = 1 << 12


class OffsetSet:
    """Offsets at or above `start`, which moves up as the log's start does. Arrays of offsets have no duplicates."""

    def __init__(self, start: int) -> None:
        self.start = start
        self._is_in = np.zeros(0, dtype=np.bool_)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, offsets: Int64s) -> None:
        """Add offsets, those at or above `start`."""
        places = offsets[offsets >= self.start] - self.start
        if not len(places):
            return
        end = int(places.max()) + 1
        if end > len(self._is_in):
            room = np.zeros(max(2 * len(self._is_in), end, _ROOM_MIN), dtype=np.bool_)
            room[: len(self._is_in)] = self._is_in
            self._is_in = room
        self._count += len(places) - int(np.count_nonzero(self._is_in[places]))
        self._is_in[places] = True

    def discard(self, offsets: Int64s) -> None:
        """Remove offsets that are in the set."""
        places = self._places(offsets)
        self._count -= int(np.count_nonzero(self._is_in[places]))
        self._is_in[places] = False

    def contains(self, offsets: Int64s) -> npt.NDArray[np.bool_]:
        """Return bool[offsets]: whether each is in the set."""
        within = (offsets >= self.start) & (offsets < self.start + len(self._is_in))
        within[within] = self._is_in[offsets[within] - self.start]
        return within

    def count(self, begin: int, end: int) -> int:
        """Return the number of offsets in [begin, end)."""
        return int(np.count_nonzero(self._is_in[max(begin - self.start, 0) : max(end - self.start, 0)]))

    def offsets(self, begin: int, end: int) -> Int64s:
        """Return the offsets in [begin, end), ascending."""
        first = max(begin - self.start, 0)
        found: Int64s = np.flatnonzero(self._is_in[first : max(end - self.start, 0)]) + (self.start + first)
        return found

    def first(self, default: int) -> int:
        """Return the first offset, `default` without one."""
        place = int(np.argmax(self._is_in)) if self._count else -1
        return self.start + place if place >= 0 else default

    def raise_start(self, start: int) -> None:
        """Forget the offsets below `start`."""
        gone = start - self.start
        if gone > 0:
            self._count -= int(np.count_nonzero(self._is_in[:gone]))
            self._is_in = self._is_in[gone:].copy()
            self.start = start

    def _places(self, offsets: Int64s) -> Int64s:
        places = offsets - self.start
        within: Int64s = places[(places >= 0) & (places < len(self._is_in))]
        return within
