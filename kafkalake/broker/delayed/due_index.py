"""The waiting records of one journal partition by due time: near ones in memory and in order, far ones in buckets.

    near_end, a full minute, at least one minute ahead: entries before it are in `DueRuns`
    fine_end, a full hour, at least one hour ahead:     entries before it are in buckets of a minute
    from there on:                                      entries are in buckets of an hour

A bucket is neither sorted nor searched, so that a new entry costs an append. When its time is near, a bucket of an hour is spread
over buckets of a minute, and a bucket of a minute moves to the near ones: a part of `SLICE` entries a call, as buckets may be large
and the index is used on the event loop. Together the buckets keep at most `in_memory_max` entries in memory. Beyond it the largest
are appended to files, which are read once, and only derived from the journal.

**Worked example**, now = 10:00:30: near_end is 10:02, fine_end is 12:00. An entry due at 10:01:10 is near. One due at 10:31:05 is
in the bucket of the minute 10:31 until 10:30:00, when `advance` sets near_end to 10:32. One due tomorrow at 8:15 is in the bucket
of that hour until 7:00, then in the bucket of the minute 8:15.

No clock is read.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Protocol

import numpy as np

from kafkalake.broker.delayed.due_runs import DUE, ENTRY_BYTES, NO_ENTRIES, DueRuns, Entries

logger = logging.getLogger(__name__)

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
SLICE = 32 << 10
"""Entries that a call moves, which takes about 20 ms."""


class BucketFiles(Protocol):
    """Files by name, see `storage.temporary_files`. All calls raise `OSError` if I/O fails."""

    def write(self, name: str, position: int, data: bytes) -> None: ...

    def read(self, name: str, position: int, length: int) -> bytes: ...

    def remove(self, name: str) -> None: ...


class _Bucket:
    """Entries of one span of time: in memory, and how many more are in its file, of which some have been read."""

    __slots__ = ("held", "parts", "read", "stored")

    def __init__(self) -> None:
        self.parts: list[Entries] = []
        self.held = 0
        self.stored = 0
        self.read = 0

    def __len__(self) -> int:
        return self.held + self.stored - self.read


class Buckets:
    """Entries in buckets of `width_ms`. `name` begins the names of their files."""

    def __init__(self, name: str, width_ms: int, files: BucketFiles) -> None:
        self._name = name
        self._width_ms = width_ms
        self._files = files
        self._buckets: dict[int, _Bucket] = {}
        self.held = 0
        """The number of entries in memory."""

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    @property
    def next_due_ms(self) -> int | None:
        """The beginning of the first bucket, None without entries."""
        return min(self._buckets) * self._width_ms if self._buckets else None

    def add(self, entries: Entries) -> None:
        """Add entries in any order."""
        if not len(entries):
            return
        numbers = entries[:, DUE] // self._width_ms
        # 16 bits are sorted by counting. Entries whose numbers are 2^16 apart are only in more parts.
        order = np.argsort(numbers.astype(np.uint16), kind="stable")
        numbers = numbers[order]
        begins = np.concatenate(([0], np.flatnonzero(np.diff(numbers)) + 1))
        for number, part in zip(numbers[begins].tolist(), np.split(entries[order], begins[1:]), strict=True):
            bucket = self._buckets.setdefault(number, _Bucket())
            bucket.parts.append(part)
            bucket.held += len(part)
        self.held += len(entries)

    def take_below(self, end_ms: int, limit: int) -> Entries:
        """Remove and return entries of the first bucket before `end_ms`, a multiple of the width: about `limit`, none without one.

        Raise `OSError` if its file cannot be read, with nothing changed.
        """
        number = min(self._buckets, default=None)
        if number is None or number * self._width_ms >= end_ms:
            return NO_ENTRIES
        bucket = self._buckets[number]
        entries = self._read(number, bucket, limit) if bucket.read < bucket.stored else self._take_held(bucket, limit)
        if not len(bucket):
            del self._buckets[number]
            if bucket.stored:
                with contextlib.suppress(OSError):  # the next opening of the log removes it
                    self._files.remove(self._file(number))
        return entries

    def _read(self, number: int, bucket: _Bucket, limit: int) -> Entries:
        count = min(limit, bucket.stored - bucket.read)
        data = self._files.read(self._file(number), bucket.read * ENTRY_BYTES, count * ENTRY_BYTES)
        bucket.read += count
        return np.frombuffer(data, dtype=np.int64).reshape(-1, 3)

    def _take_held(self, bucket: _Bucket, limit: int) -> Entries:
        taken: list[Entries] = []
        count = 0
        while bucket.parts and count < limit:
            taken.append(bucket.parts.pop())
            count += len(taken[-1])
        entries = np.concatenate(taken)
        if len(entries) > limit:
            bucket.parts.append(entries[limit:])
            entries = entries[:limit]
        bucket.held -= len(entries)
        self.held -= len(entries)
        return entries

    def spill(self) -> None:
        """Append the entries of the bucket with most of them in memory to its file. Raise `OSError`, with nothing changed."""
        number, bucket = max(self._buckets.items(), key=lambda each: each[1].held)
        position = bucket.stored * ENTRY_BYTES
        self._files.write(self._file(number), position, np.concatenate(bucket.parts).tobytes())
        self.held -= bucket.held
        bucket.stored += bucket.held
        bucket.parts, bucket.held = [], 0

    def close(self) -> None:
        """Remove the files."""
        for number, bucket in self._buckets.items():
            if bucket.stored:
                self._files.remove(self._file(number))
        self._buckets.clear()
        self.held = 0

    def _file(self, number: int) -> str:
        return f"{self._name}-{number}"


def _split_at(entries: Entries, end_ms: int) -> tuple[Entries, Entries]:
    """Return the entries that are due before `end_ms`, and the others. Nothing is copied if all are of one kind."""
    is_before = entries[:, DUE] < end_ms
    count = np.count_nonzero(is_before)
    if count == 0:
        return NO_ENTRIES, entries
    return (entries, NO_ENTRIES) if count == len(entries) else (entries[is_before], entries[~is_before])


class DueIndex:
    """Entries by due time. Begins at `now_ms`, and is to be advanced at least once a minute while it has any."""

    def __init__(self, now_ms: int, files: BucketFiles, in_memory_max: int) -> None:
        self._near = DueRuns()
        self._minutes = Buckets("minute", MINUTE_MS, files)
        self._hours = Buckets("hour", HOUR_MS, files)
        self._in_memory_max = self._spill_above = in_memory_max
        self._far: list[Entries] = []
        self._far_count = 0
        self._near_end_ms = self._fine_end_ms = 0
        self.taken_to_ms = 0
        """The latest due time of an entry that was taken, whatever the wall clock says now."""
        self._set_ends(now_ms)

    def __len__(self) -> int:
        return len(self._near) + self._far_count + len(self._minutes) + len(self._hours)

    @property
    def complete_ms(self) -> int:
        """The time before which all entries are near, so that they can be taken in order."""
        far = (self._minutes.next_due_ms, self._hours.next_due_ms)
        return min([self._near_end_ms, *(each for each in far if each is not None)])

    @property
    def next_due_ms(self) -> int | None:
        """The latest time for the next calls of `advance` and `take`, None without entries."""
        near = self._near.next_due_ms
        if near is not None:
            return near
        self._sort_far()
        far = [each for each in (self._minutes.next_due_ms, self._hours.next_due_ms) if each is not None]
        return min(far, default=None)

    def _set_ends(self, now_ms: int) -> None:
        self._near_end_ms = max(self._near_end_ms, (now_ms // MINUTE_MS + 2) * MINUTE_MS)
        self._fine_end_ms = max(self._fine_end_ms, (now_ms // HOUR_MS + 2) * HOUR_MS)

    def add(self, entries: Entries) -> None:
        """Add entries in any order. If files cannot be written, they stay in memory; with more of them it is tried again."""
        near, far = _split_at(entries, self._near_end_ms)
        self._near.add(near)
        if len(far):
            self._far.append(far)
            self._far_count += len(far)
            if self._far_count > self._in_memory_max:
                self._sort_far()

    def _sort_far(self) -> None:
        """Put the far entries that were added into their buckets."""
        if not self._far:
            return
        fine, coarse = _split_at(np.concatenate(self._far), self._fine_end_ms)
        self._far, self._far_count = [], 0
        self._minutes.add(fine)
        self._hours.add(coarse)
        self._spill()

    def _spill(self) -> None:
        if self._held <= self._spill_above:
            return
        self._spill_above = self._in_memory_max
        try:
            while 2 * self._held > self._in_memory_max:
                max(self._hours, self._minutes, key=lambda each: each.held).spill()
        except OSError as error:
            logger.warning(
                "far due times stay in memory: their files cannot be written entries=%d error=%s", self._held, error
            )
            self._spill_above = 2 * self._held

    @property
    def _held(self) -> int:
        return self._minutes.held + self._hours.held

    def advance(self, now_ms: int) -> bool:
        """Move a part of the entries that are near at `now_ms` to the near ones. Return whether there may be more to move.

        Raise `OSError` if a file cannot be read. The index is then to be built again.
        """
        self._sort_far()
        self._set_ends(now_ms)
        entries = self._hours.take_below(self._fine_end_ms, SLICE)
        if not len(entries):
            entries = self._minutes.take_below(self._near_end_ms, SLICE)
        self.add(entries)
        return len(entries) > 0

    def take(self, due_ms: int, limit: int) -> Entries:
        """Remove and return the first entries that are due at `due_ms` and before `complete_ms`, at most `limit`.

        By (due, order, offset).
        """
        entries = self._near.take(min(due_ms, self.complete_ms - 1), limit)
        if len(entries):
            self.taken_to_ms = max(self.taken_to_ms, int(entries[-1, DUE]))
        return entries

    def peek(self, due_ms: int, limit: int) -> Entries:
        """Return what `take` would, and keep it."""
        return self._near.peek(min(due_ms, self.complete_ms - 1), limit)

    def count_due(self, due_ms: int) -> int:
        """Return the number of near entries that are due at `due_ms`."""
        return self._near.count_due(due_ms)

    def close(self) -> None:
        """Remove the files. Raise `OSError` if that fails."""
        self._minutes.close()
        self._hours.close()
