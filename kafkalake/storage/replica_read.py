"""Reads a log as its followers copy it: whole messages, byte for byte, and the segment that they are in.

Nothing is decoded, and of the checksums only those of the first and the last message's metadata are verified: the follower
verifies all. Two kinds of segments are not copied by messages but as a whole file: one that a job has rewritten, because its
messages have other borders than those that a follower may already have, and a large sealed one of which a follower has nothing,
because that costs less.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafkalake.errors import CorruptSegmentError, OffsetOutOfRangeError
from kafkalake.record.message import OK, REASONS, TORN
from kafkalake.storage.active_segment import ActiveSegment
from kafkalake.storage.segment import Segment
from kafkalake.storage.segment_kernels import whole_messages
from kafkalake.storage.segments import Segments

_LEAST_READ_BYTES = 4 << 10
NEVER = 1 << 62
"""The size from which on sealed segments are copied as files, if none is."""


class SegmentRef(NamedTuple):
    """A sealed segment that is copied as a whole: its data file, and behind it its index of aborted transactions.

    That index is not a hint, and of a rewritten segment it cannot be made from the messages again.
    """

    base_offset: int
    next_offset: int
    generation: int
    size_bytes: int
    txn_index_bytes: int

    @property
    def total_bytes(self) -> int:
        """The bytes to copy."""
        return self.size_bytes + self.txn_index_bytes


class ReplicaRead(NamedTuple):
    """Whole messages of one segment as they are in its file. Empty at the log end, and with `whole`.

    segment_base_offset: of their segment, or at the log end of the one that the next message goes to. ends_segment: it is sealed
    and ends with them. whole: the segment to copy instead, from its base offset on, which may be below the requested offset.
    """

    messages: memoryview
    first_offset: int
    next_offset: int
    segment_base_offset: int
    ends_segment: bool = False
    whole: SegmentRef | None = None


_NOTHING = memoryview(b"")


def read_messages(
    listed: Segments, offset: int, max_bytes: int, log_end_offset: int, whole_from_bytes: int
) -> ReplicaRead:
    """Return the messages from the one that begins at `offset`, which is below the log end: up to `max_bytes`, at least one.

    whole_from_bytes: the size of a sealed segment that is copied as a file if it begins at `offset`.
    Raise OffsetOutOfRangeError if none begins there, `CorruptSegmentError` on damage, `OSError` if I/O fails.
    """
    segment = listed.holding(offset)
    if segment.generation or _is_large(segment, offset, whole_from_bytes):
        whole = reference(listed, segment, log_end_offset)
        return ReplicaRead(_NOTHING, offset, offset, segment.base_offset, whole=whole)
    position = listed.position_of(segment, offset)
    if position is None:
        raise CorruptSegmentError(
            segment.path, segment.end(), f"acknowledged records from offset {offset} on are missing"
        )
    end = segment.end()
    data, found = _read_whole(segment, position, end, max_bytes)
    length, first_offset, next_offset = found
    if first_offset != offset:
        raise OffsetOutOfRangeError(f"no message begins at offset {offset}, but one at {first_offset}")
    listed.remember(next_offset, segment.path, position + length)
    ends_segment = position + length == end and not isinstance(segment, ActiveSegment)
    return ReplicaRead(data[:length], offset, next_offset, segment.base_offset, ends_segment)


def read_at_end(listed: Segments, log_end_offset: int) -> ReplicaRead:
    """Return the read at the log end: no messages, and the segment of the next one."""
    active = listed.active
    base = log_end_offset if active is None else active.base_offset
    return ReplicaRead(_NOTHING, log_end_offset, log_end_offset, base)


def _is_large(segment: Segment, offset: int, whole_from_bytes: int) -> bool:
    """Return whether a segment begins at `offset`, is whole, and has so many bytes."""
    if isinstance(segment, ActiveSegment) or offset != segment.base_offset:
        return False
    return segment.end() >= whole_from_bytes and segment.whole


def read_file(segment: Segment, ref: SegmentRef, position: int, length: int) -> memoryview:
    """Return bytes [position, position + length) of the data file with the index of aborted transactions behind it.

    Raise `CorruptSegmentError` if the file is shorter than `ref` says, `OSError` if I/O fails.
    """
    data = _NOTHING
    if position < ref.size_bytes:
        data = segment.read_bytes(position, min(length, ref.size_bytes - position)).data
    wanted = min(length, ref.total_bytes - position)
    if len(data) < wanted and ref.txn_index_bytes:
        index = segment.read_txn_index(max(0, position - ref.size_bytes), wanted - len(data))
        data = memoryview(b"".join((data, index)))
    if len(data) < wanted:
        raise CorruptSegmentError(segment.path, position + len(data), "the file became shorter")
    return data


def reference(listed: Segments, segment: Segment, log_end_offset: int) -> SegmentRef:
    """Return what a follower copies of a sealed segment, in a log that ends at `log_end_offset`. Raise `OSError` if I/O fails."""
    next_offset = listed.end_of(segment.base_offset, log_end_offset)
    return SegmentRef(
        segment.base_offset, next_offset, segment.generation, segment.size_bytes(), segment.txn_index_bytes()
    )


def _read_whole(segment: Segment, position: int, end: int, max_bytes: int) -> tuple[memoryview, list[int]]:
    """Return bytes from `position` on, and of the whole messages there: length, first offset, next offset."""
    found = np.zeros(3, dtype=np.int64)
    length = max(max_bytes, _LEAST_READ_BYTES)
    while True:
        data = segment.read_bytes(position, min(length, end - position))
        status = int(whole_messages(data, max_bytes, found))
        if status == OK:
            return data.data, found.tolist()
        needed = int(found[0]) if found[0] else 4 * length
        if status != TORN or len(data) < length or needed > end - position:
            raise CorruptSegmentError(segment.path, position, REASONS[status])
        length = needed
