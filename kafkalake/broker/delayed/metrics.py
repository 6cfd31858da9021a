"""What a broker counts of the records that it hands over: how many, and how late they are. No clock.

Lateness is counted in buckets, exact below 64 ms and within a sixteenth above, so that its percentiles over the last minute cost
the same memory at any rate.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from kafkalake.record.arrays import Int64s

WINDOW_MS = 60_000
"""What percentiles are taken over, in slots of `_SLOT_MS`."""
_SLOT_MS = 10_000
_STEPS = 16
_EDGES: Int64s = np.concatenate(
    [np.arange(64), *((1 << power) // _STEPS * np.arange(_STEPS, 2 * _STEPS) for power in range(6, 40))]
)
"""Where the buckets begin, ms."""


class Lateness(NamedTuple):
    """The times from due times to hand-overs of the last minute: percentiles and the longest, 0 without records."""

    records: int
    p50_ms: int
    p99_ms: int
    max_ms: int


class HandOverMetrics:
    """The hand-overs of one broker."""

    def __init__(self) -> None:
        self.handed_over_records = 0
        self.dead_letters = 0
        self._slots: deque[tuple[int, Int64s]] = deque(maxlen=WINDOW_MS // _SLOT_MS)

    def handed_over(self, lateness_ms: Int64s, now_ms: int) -> None:
        """Count records, each so late (int64[records])."""
        slot = now_ms // _SLOT_MS
        if not self._slots or self._slots[-1][0] != slot:
            self._slots.append((slot, np.zeros(len(_EDGES), dtype=np.int64)))
        buckets = np.searchsorted(_EDGES, np.maximum(lateness_ms, 0), side="right") - 1
        self._slots[-1][1][:] += np.bincount(buckets, minlength=len(_EDGES))
        self.handed_over_records += len(lateness_ms)

    def dead_lettered(self, records: int) -> None:
        """Count records that went to the dead-letter topic."""
        self.dead_letters += records

    def lateness(self, now_ms: int) -> Lateness:
        """Return the lateness of the last minute. A percentile is the longest that its bucket holds."""
        first = (now_ms - WINDOW_MS) // _SLOT_MS + 1
        counts = np.zeros(len(_EDGES), dtype=np.int64)
        for slot, of_slot in self._slots:
            if slot >= first:
                counts += of_slot
        ends = np.cumsum(counts)
        records = int(ends[-1])
        if not records:
            return Lateness(0, 0, 0, 0)
        ranks = [-(-records * percent // 100) for percent in (50, 99, 100)]
        last = np.append(_EDGES[1:], 2 * _EDGES[-1]) - 1
        p50, p99, most = last[np.searchsorted(ends, ranks)].tolist()
        return Lateness(records, p50, p99, most)
