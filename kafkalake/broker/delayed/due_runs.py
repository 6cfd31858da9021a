"""Entries in order of their due times, as sorted runs: adding and taking cost O(log n) an entry, by arrays and not one by one.

A run is a sorted array, with the place of its first entry that is not taken yet. Added entries are a new run, and runs are merged
while the last is not much smaller than the one before it, up to `RUN_MAX` entries. So there are few of them, and no call sorts
more than a run: ten million entries that are due together are 200 runs, of each of which a call looks at a short beginning.
"""

from __future__ import annotations

import numpy as np

from kafkalake.record.arrays import Int64s

DUE, ORDER, OFFSET = range(3)
"""The columns of entries. An entry is a waiting record: its due time in ms since 1970, its place among those of equal due time, and
its offset in the journal."""
ENTRY_BYTES = 24

RUN_MAX = 64 << 10
"""The entries of a run, at most, which is sorted in about 10 ms."""
HEAD_MIN = 16
"""The entries that are looked at in each run, at least."""

Entries = Int64s
"""int64[entries, 3]"""

NO_ENTRIES: Entries = np.zeros((0, 3), dtype=np.int64)


def sort_entries(entries: Entries) -> Entries:
    """Return entries by (due, order, offset)."""
    taken: Entries = entries[_order(entries)]
    return taken


def _order(entries: Entries) -> Int64s:
    """Return the places of entries in their order."""
    return np.lexsort((entries[:, OFFSET], entries[:, ORDER], entries[:, DUE]))


class _Run:
    __slots__ = ("begin", "entries")

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        self.begin = 0

    def __len__(self) -> int:
        return len(self.entries) - self.begin

    def rest(self, limit: int) -> Entries:
        found: Entries = self.entries[self.begin : self.begin + limit]
        return found


class DueRuns:
    """Entries by (due, order, offset)."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    @property
    def next_due_ms(self) -> int | None:
        """The earliest due time, None without entries."""
        return min((int(run.entries[run.begin, DUE]) for run in self._runs), default=None)

    def add(self, entries: Entries) -> None:
        """Add entries in any order."""
        for begin in range(0, len(entries), RUN_MAX):
            self._runs.append(_Run(sort_entries(entries[begin : begin + RUN_MAX])))
            self._merge()

    def _merge(self) -> None:
        runs = self._runs
        while len(runs) > 1 and 2 * len(runs[-1]) > len(runs[-2]) and len(runs[-1]) + len(runs[-2]) <= RUN_MAX:
            last, before = runs.pop(), runs.pop()
            both = np.concatenate((before.rest(len(before)), last.rest(len(last))))
            runs.append(_Run(sort_entries(both)))

    def take(self, due_ms: int, limit: int) -> Entries:
        """Remove and return the first entries that are due at `due_ms`, at most `limit`, in order."""
        taken, counts = self._first(due_ms, limit)
        for run, count in zip(self._runs, counts, strict=True):
            run.begin += count
        self._runs = [run for run in self._runs if len(run)]
        return taken

    def peek(self, due_ms: int, limit: int) -> Entries:
        """Return what `take` would, and keep it."""
        return self._first(due_ms, limit)[0]

    def _first(self, due_ms: int, limit: int) -> tuple[Entries, list[int]]:
        """Return the first entries, and how many of them are of each run.

        A beginning of each run is looked at, and more of those whose beginnings are all among the first.
        """
        if not self._runs:
            return NO_ENTRIES, []
        lengths = np.full(len(self._runs), min(limit, max(2 * limit // len(self._runs), HEAD_MIN)))
        while True:
            heads = [self._head(run, due_ms, length) for run, length in zip(self._runs, lengths.tolist(), strict=True)]
            found = np.concatenate(heads)
            order = _order(found)
            seen = np.array([len(head) for head in heads])
            is_cut = (seen == lengths) & (seen < [len(run) for run in self._runs])
            ends = np.cumsum(seen)
            ranks = np.empty(len(order), dtype=np.int64)
            ranks[order] = np.arange(len(order))
            is_cut[is_cut] = ranks[ends[is_cut] - 1] < limit - 1
            if not is_cut.any():
                first = order[:limit]
                counts = np.bincount(np.searchsorted(ends, first, side="right"), minlength=len(heads))
                taken: Entries = found[first]
                return taken, counts.tolist()
            lengths[is_cut] = np.minimum(4 * lengths[is_cut], limit)

    @staticmethod
    def _head(run: _Run, due_ms: int, limit: int) -> Entries:
        head = run.rest(limit)
        found: Entries = head[: int(np.searchsorted(head[:, DUE], due_ms, side="right"))]
        return found

    def count_due(self, due_ms: int) -> int:
        """Return the number of entries that are due at `due_ms`."""
        return sum(len(self._head(run, due_ms, len(run))) for run in self._runs)
