"""Entries in order of their due times, as sorted runs: adding and taking cost O(log n) an entry, by arrays and not one by one.

A run is a sorted array, with the place of its first entry that is not taken yet. Added entries are a new run, and runs are merged
while the last is not much smaller than the one before it. So there are few of them, each at least twice as long as the next.
"""

from __future__ import annotations

import numpy as np

from kafkalake.record.arrays import Int64s

DUE, ORDER, OFFSET = range(3)
"""The columns of entries. An entry is a waiting record: its due time in ms since 1970, its place among those of equal due time, and
its offset in the journal."""
ENTRY_BYTES = 24

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
        if len(entries):
            self._runs.append(_Run(sort_entries(entries)))
            self._merge()

    def _merge(self) -> None:
        runs = self._runs
        while len(runs) > 1 and 2 * len(runs[-1]) > len(runs[-2]):
            last, before = runs.pop(), runs.pop()
            both = np.concatenate((before.rest(len(before)), last.rest(len(last))))
            runs.append(_Run(sort_entries(both)))

    def take(self, due_ms: int, limit: int) -> Entries:
        """Remove and return the first entries that are due at `due_ms`, at most `limit`, in order."""
        heads = [self._head(run, due_ms, limit) for run in self._runs]
        found = np.concatenate(heads) if heads else NO_ENTRIES
        of_run = np.repeat(np.arange(len(heads)), [len(head) for head in heads])
        first = _order(found)[:limit]
        for run, count in zip(self._runs, np.bincount(of_run[first], minlength=len(heads)).tolist(), strict=True):
            run.begin += count
        self._runs = [run for run in self._runs if len(run)]
        taken: Entries = found[first]
        return taken

    def peek(self, due_ms: int, limit: int) -> Entries:
        """Return what `take` would, and keep it."""
        heads = [self._head(run, due_ms, limit) for run in self._runs]
        return sort_entries(np.concatenate(heads))[:limit] if heads else NO_ENTRIES

    @staticmethod
    def _head(run: _Run, due_ms: int, limit: int) -> Entries:
        head = run.rest(limit)
        found: Entries = head[: int(np.searchsorted(head[:, DUE], due_ms, side="right"))]
        return found

    def count_due(self, due_ms: int) -> int:
        """Return the number of entries that are due at `due_ms`."""
        return sum(len(self._head(run, due_ms, len(run))) for run in self._runs)
