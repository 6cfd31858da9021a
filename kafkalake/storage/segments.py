"""The segments of one log, in order: finds the segment of an offset and reads from there.

Sealed segments are a sorted list of base offsets. A `Segment` is created on first use and opens its file on first read. So a log
with thousands of segments opens at once, and a read costs two binary searches and a few preads for any number of segments.

A consumer's next read begins where its last one ended. The last `_HINTS` such positions are cached and need no search.
"""

from __future__ import annotations

import contextlib
import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

from kafkalake.errors import CorruptSegmentError
from kafkalake.record import layout as at
from kafkalake.record.message_set import MessageSet
from kafkalake.storage.active_segment import ActiveSegment
from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.producer_state import AbortedTransaction
from kafkalake.storage.scanner import good_message_after, scan_segment
from kafkalake.storage.segment import FIRST_MESSAGE, Segment
from kafkalake.storage.segment_names import TXN_INDEX_SUFFIX, file_name

logger = logging.getLogger(__name__)
_HINTS = 64


@cache
def no_messages() -> MessageSet:
    """Return an empty message set."""
    numbers = np.zeros(0, dtype=np.int64)
    return MessageSet(
        np.zeros(0, dtype=np.uint8),
        numbers,
        np.zeros((0, at.LAYOUT_SIZE), dtype=np.int64),
        np.zeros((0, at.HEADER_FIELDS), dtype=np.int64),
        np.zeros(1, dtype=np.int64),
        np.zeros(1, dtype=np.int64),
    )


def is_empty(messages: MessageSet) -> bool:
    """Return whether these messages have neither records nor markers, but only offsets left by compaction."""
    headers = messages.headers
    return not (headers[:, at.RECORDS].any() or (headers[:, at.ATTRIBUTES] & at.ATTRIBUTE_CONTROL).any())


class Cut(NamedTuple):
    """The point of a truncation: the base offset of the last segment left, the position in its file, and the log end."""

    base_offset: int
    position: int
    offset: int


class _Looked(NamedTuple):
    """Which sealed segments have aborted transactions.

    bases: the list of which the first `known` were looked at. It is another list once segments were removed or replaced.
    aborted: the base offsets of those that have some, in order.
    """

    bases: list[int]
    known: int
    aborted: list[int]


class SegmentsInOrder:
    """A point-in-time view of a log's segments, by number. Accessing one does not open the others."""

    def __init__(self, segments: Segments, bases: list[int], active: ActiveSegment | None) -> None:
        self._segments = segments
        self._bases = bases
        self._active = active

    def __len__(self) -> int:
        return len(self._bases) + (self._active is not None)

    def __iter__(self) -> Iterator[Segment]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int, /) -> Segment:
        if number == len(self._bases) and self._active is not None:
            return self._active
        return self._segments.sealed(self._bases[number])


class Segments:
    """The sealed segments and the active one. Changes need the log's lock, reads none.

    generations: of the sealed segments rewritten by a job, by base offset. Others have 0. A reader with `bases` from before a
    swap reads old files, which stay for a while, or new ones. Each read uses a single file.
    """

    def __init__(
        self,
        directory: str,
        open_files: OpenFiles,
        bases: list[int],
        active: ActiveSegment | None,
        generations: Mapping[int, int] | None = None,
    ) -> None:
        self.bases = bases
        self.active = active
        self.generations = dict(generations or {})
        self._directory = directory
        self._open_files = open_files
        self._known: dict[int, Segment] = {}
        self._hints: dict[int, tuple[str, int]] = {}
        self._looked = _Looked([], 0, [])

    def sealed(self, base_offset: int) -> Segment:
        """Return the sealed segment with that base offset."""
        segment = self._known.get(base_offset)
        generation = self.generations.get(base_offset, 0)
        if segment is None or segment.generation != generation:
            segment = Segment(self._directory, base_offset, self._open_files, generation)
            self._known[base_offset] = segment
        return segment

    def swap(self, new: RewrittenSegment) -> list[Segment] | None:
        """Replace the sealed segments in the range of `new` by it and return them. Return None if the range does not fit.

        The range must consist of whole sealed segments, except for segments already removed at the start of the log.
        """
        replaced = self.replaced_by(new)
        if not replaced:
            return None
        old = [self.sealed(base) for base in replaced]
        self.generations = {**self.generations, new.base_offset: new.generation}
        self.bases = sorted({*self.bases}.difference(replaced) | {new.base_offset})
        for base in replaced:
            self._known.pop(base, None)
        self._hints = {}
        return old

    def replaced_by(self, new: RewrittenSegment) -> list[int]:
        """Return the base offsets of the sealed segments in the range of `new`, none if the range does not fit."""
        end = self.active.base_offset if self.active is not None else new.next_offset
        replaced = [base for base in self.bases if new.base_offset <= base < new.next_offset]
        following = next((base for base in self.bases if base >= new.next_offset), end)
        if not replaced or following != new.next_offset:
            return []
        return replaced if replaced[0] in (new.base_offset, self.bases[0]) else []

    def extend(self, new: RewrittenSegment) -> list[Segment]:
        """Add a sealed segment at the end, in place of those that begin in its range, and return these."""
        old: list[Segment] = [self.sealed(base) for base in self.bases if base >= new.base_offset]
        if self.active is not None:
            assert self.active.base_offset >= new.base_offset, "what lies before the new segment stays"
            old.append(self.active)
        self.active = None
        if new.generation:
            self.generations = {**self.generations, new.base_offset: new.generation}
        self.bases = [*(base for base in self.bases if base < new.base_offset), new.base_offset]
        for segment in old:
            self._known.pop(segment.base_offset, None)
            segment.forget()
        self._hints = {}
        return old

    def in_order(self) -> SegmentsInOrder:
        """Return a point-in-time view of the segments that hold messages."""
        active, bases = self.active, list(self.bases)
        if active is None or active.empty or (bases and bases[-1] >= active.base_offset):
            active = None
        return SegmentsInOrder(self, bases, active)

    def ending_from(self, offset: int, log_end_offset: int) -> Iterator[Segment]:
        """Yield the segments, including the active one, that end at or above `offset`."""
        ends = [*self.bases[1:], log_end_offset if self.active is None else self.active.base_offset]
        yield from map(self.sealed, self.bases[bisect_left(ends, offset) :])
        if self.active is not None:
            yield self.active

    def begin(self, log_end_offset: int) -> int:
        """Return where the first segment of a log that ends at `log_end_offset` begins, or is to begin."""
        bases, active = self.bases, self.active
        if bases:
            return bases[0]
        return log_end_offset if active is None else active.base_offset

    def begin_active(self, active: ActiveSegment) -> None:
        """Add the segment to append to, after the last one was sealed."""
        self.active = active

    def seal_active(self) -> None:
        """Add the active segment to the sealed ones, after it was sealed."""
        assert self.active is not None
        self.bases.append(self.active.base_offset)
        self.active = None
        self._hints = {}

    def remove_first(self, count: int) -> list[int]:
        """Remove the `count` oldest sealed segments and return their base offsets."""
        removed, self.bases = self.bases[:count], self.bases[count:]
        self._hints = {}
        for base in removed:
            segment = self._known.pop(base, None)
            if segment is not None:
                segment.forget()
        return removed

    def holding(self, offset: int) -> Segment:
        """Return the segment of `offset`. Raise `CorruptSegmentError` if it is missing."""
        active, bases = self.active, self.bases
        if active is not None and offset >= active.base_offset:
            return active
        if not bases:
            raise CorruptSegmentError(self._directory, -1, f"the segment that holds offset {offset} is missing")
        return self.sealed(bases[max(0, bisect_right(bases, offset) - 1)])

    def end_of(self, base_offset: int, log_end_offset: int) -> int:
        """Return the offset after the sealed segment at `base_offset`, in a log that ends at `log_end_offset`."""
        bases, active = self.bases, self.active
        following = bisect_right(bases, base_offset)
        if following < len(bases):
            return bases[following]
        return log_end_offset if active is None else active.base_offset

    def position_of(self, segment: Segment, offset: int) -> int | None:
        """Return the position of the message with `offset`, or as `Segment.locate`. Raise as it does."""
        hint = self._hints.get(offset)
        return hint[1] if hint is not None and hint[0] == segment.path else segment.locate(offset)

    def read(self, offset: int, max_bytes: int, end_offset: int) -> MessageSet:
        """Return whole messages from the one with `offset`, which must be below `end_offset`.

        Raise `CorruptSegmentError` on damage, `OSError` if I/O fails.
        """
        segment = self.holding(offset)
        hint = self._hints.get(offset)
        if hint is not None and hint[0] == segment.path:
            found = segment.read(hint[1], max_bytes, end_offset)
            if found is not None and found.messages.base_offset <= offset < found.messages.next_offset:
                self.remember(found.messages.next_offset, segment.path, found.end)
                return found.messages
        found = segment.fetch(max(offset, segment.base_offset), max_bytes, end_offset)
        if found is None or found.messages.base_offset > offset:
            # Offsets are contiguous even after compaction, so missing ones were lost.
            reason = f"acknowledged records from offset {offset} on are missing"
            raise CorruptSegmentError(segment.path, segment.end(), reason)
        self.remember(found.messages.next_offset, segment.path, found.end)
        return found.messages

    def read_behind(self, offset: int, max_bytes: int, end_offset: int) -> MessageSet:
        """Return whole messages from the first one after the damage at `offset`, empty if there is none.

        Scans the file from its start, because index entries may point into the damage. Unreadable files count as damaged.
        """
        for segment in self.from_offset(offset):
            with contextlib.suppress(OSError):
                position, size = FIRST_MESSAGE - 8, segment.size_bytes()
                while (follows := good_message_after(segment, position, size, offset + 1)) is not None:
                    try:
                        found = segment.read(follows.position, max_bytes, end_offset)
                    except CorruptSegmentError:  # valid metadata, damaged body
                        position = follows.position
                        continue
                    if found is None:
                        return no_messages()
                    self.remember(found.messages.next_offset, segment.path, found.end)
                    return found.messages
        return no_messages()

    def from_offset(self, offset: int) -> Iterator[Segment]:
        """Yield the segments from the one of `offset` on."""
        bases, active = self.bases, self.active
        yield from map(self.sealed, bases[max(0, bisect_right(bases, offset) - 1) :])
        if active is not None and not active.empty:
            yield active

    def remember(self, offset: int, path: str, position: int) -> None:
        """Keep the position of the message with `offset`, for the next read."""
        hints = self._hints
        hints[offset] = (path, position)
        if len(hints) > _HINTS:
            with contextlib.suppress(StopIteration, KeyError, RuntimeError):  # another thread may evict too
                del hints[next(iter(hints))]

    def cut(self, offset: int) -> Cut:
        """Return where to truncate, so that the log ends at `offset` or, inside a message, at its first offset.

        A rewritten segment has other borders than the leader's log may have, so it is cut at its base offset.
        Raise `CorruptSegmentError` on damage before `offset`, `OSError` if I/O fails.
        """
        segment = self.holding(offset)
        if segment.generation:
            return Cut(segment.base_offset, FIRST_MESSAGE, segment.base_offset)
        try:
            position = segment.locate(offset)
            if position is None:
                return Cut(segment.base_offset, segment.end(), offset)
            found = segment.read(position, 1, 1 << 62, 0)
        except CorruptSegmentError:  # perhaps only the message that begins at `offset`
            scanned = scan_segment(segment, columns=0)
            if scanned.content.next_offset != offset:
                raise
            return Cut(segment.base_offset, scanned.end, offset)
        first = offset if found is None else found.messages.base_offset
        return Cut(segment.base_offset, position, min(first, offset))

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in [from_offset, to_offset).

        Raise `CorruptSegmentError` on damage, `OSError` if I/O fails.
        """
        found: list[AbortedTransaction] = []
        for segment in self._with_aborted(from_offset):
            for aborted in segment.aborted_from(from_offset):
                if aborted.first_offset < to_offset:
                    found.append(aborted)
                if aborted.last_stable_offset >= to_offset:
                    return found
        return found

    def _with_aborted(self, offset: int) -> Iterator[Segment]:
        """Yield the segments with aborted transactions, from the one of `offset` on. Raise `OSError` if I/O fails."""
        active = self.active
        if active is None or offset < active.base_offset:
            aborted = self._sealed_with_aborted()
            end = len(aborted) if active is None else bisect_left(aborted, active.base_offset)  # sealed meanwhile
            yield from map(self.sealed, aborted[max(0, bisect_right(aborted, offset) - 1) : end])
        if active is not None and active.has_aborted():
            yield active

    def _sealed_with_aborted(self) -> list[int]:
        """Return the base offsets of the sealed segments with aborted transactions, in order. Raise `OSError` if I/O fails.

        They are looked for once, with the names in the directory. A read of committed records that looked beside each of the
        segments that follow would take as long as the log has segments.
        """
        bases, looked = self.bases, self._looked
        count = len(bases)
        if looked.bases is not bases:
            there = {name for name in self._open_files.files.list(self._directory) if name.endswith(TXN_INDEX_SUFFIX)}
            generations = self.generations
            names = ((base, file_name(base, TXN_INDEX_SUFFIX, generations.get(base, 0))) for base in bases[:count])
            looked = _Looked(bases, count, [base for base, name in names if name in there] if there else [])
        elif looked.known < count:
            new = [base for base in bases[looked.known : count] if self.sealed(base).has_aborted()]
            looked = _Looked(bases, count, [*looked.aborted, *new])
        self._looked = looked
        return looked.aborted

    def size_bytes(self) -> int:
        """Return the bytes of all data files. Raise `OSError` if I/O fails."""
        return sum(segment.size_bytes() for segment in self.in_order())

    def forget(self) -> None:
        """Release all open files."""
        for segment in self._known.values():
            segment.forget()
        if self.active is not None:
            self.active.forget()
