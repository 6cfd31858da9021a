"""Scans and verifies one segment file, for recovery, verification and descriptions of a segment.

`scan_segment` reads the file in chunks, passes each run of whole messages to a visitor, and returns the end of the messages and
the kind of bytes after it. It makes no decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import numpy as np

from kafkalake.errors import CorruptSegmentError
from kafkalake.record import layout as at
from kafkalake.record.batch import Int64s
from kafkalake.record.message import OK, REASONS, TORN
from kafkalake.record.message_set import MessageSet, scan
from kafkalake.record.schema import END_OF_STREAM, PREAMBLE
from kafkalake.storage.active_segment import SegmentContent
from kafkalake.storage.segment import FIRST_MESSAGE, Segment
from kafkalake.storage.segment_kernels import NO_TIMESTAMP, find_message, next_message, smallest_timestamp

CHUNK_BYTES = 8 << 20
_TIMESTAMPS = 0b10
"""The one column that is decoded. The stored bytes of the others are verified but not decompressed."""


class Stop(Enum):
    """The bytes after the last whole message."""

    END_OF_FILE = "the file ends"
    END_OF_STREAM = "the footer begins"
    DAMAGE = "bytes that are no message"


class SegmentScan(NamedTuple):
    """The result of a scan. `reason`: why there is no message at `end`. `preamble_right`: the file starts with `PREAMBLE`."""

    end: int
    stop: Stop
    reason: str
    content: SegmentContent
    size: int
    preamble_right: bool


Visitor = Callable[[MessageSet, int], None]
"""A callback with whole messages and the file position of their `data[0]`: message m begins at position + messages.positions[m].
Compressed messages have only their timestamps."""


def scan_segment(
    segment: Segment,
    visit: Visitor | None = None,
    *,
    columns: int = at.ALL_COLUMNS,
    start: int = FIRST_MESSAGE,
    end: int | None = None,
    content: SegmentContent | None = None,
) -> SegmentScan:
    """Verify the messages of a segment from position `start` (to `end`, as if the file ended there) and return the scan.

    Raise `OSError` if I/O fails. Damage is reported in the result.
    """
    size = segment.size_bytes() if end is None else min(end, segment.size_bytes())
    preamble_right = segment.read_bytes(0, FIRST_MESSAGE).tobytes() == PREAMBLE
    content = content or SegmentContent(next_offset=segment.base_offset)
    position = start
    length = CHUNK_BYTES
    while position < size:
        data = segment.read_bytes(position, min(length, size - position))
        found = scan(data, 0, len(data), columns, plain_columns=_TIMESTAMPS)
        messages, status = found.messages, found.status
        in_order = _in_order(messages, content.next_offset)
        if in_order < len(messages):
            messages, status = messages.slice(0, in_order), OK
        if len(messages):
            if visit is not None:
                visit(messages, position)
            _count(content, messages, columns)
        position += int(messages.positions[-1])
        if in_order < len(found.messages):
            offset = int(bases_of(found.messages)[in_order])
            reason = f"offset {offset} stands where {content.next_offset} should"
            return SegmentScan(position, Stop.DAMAGE, reason, content, size, preamble_right)
        if status == OK:
            continue
        if status == TORN and position + len(data) - int(messages.positions[-1]) < size:
            length = CHUNK_BYTES
            if len(messages):
                continue
            try:
                length = segment.message_length(position, size)  # a message longer than a chunk
            except CorruptSegmentError:
                pass
            else:
                continue
        marker = segment.read_bytes(position, len(END_OF_STREAM)).tobytes()
        stop = Stop.END_OF_STREAM if marker == END_OF_STREAM else Stop.DAMAGE
        return SegmentScan(position, stop, REASONS[status], content, size, preamble_right)
    return SegmentScan(min(position, size), Stop.END_OF_FILE, "", content, size, preamble_right)


def bases_of(messages: MessageSet) -> Int64s:
    """Return int64[M]: first offset of each message."""
    bases: Int64s = messages.headers[messages.first_batch[:-1], at.BASE_OFFSET]
    return bases


def ends_of(messages: MessageSet) -> Int64s:
    """Return int64[M]: next offset of each message."""
    last = messages.headers[messages.first_batch[1:] - 1]
    ends: Int64s = last[:, at.BASE_OFFSET] + last[:, at.LAST_OFFSET_DELTA] + 1
    return ends


def _in_order(messages: MessageSet, next_offset: int) -> int:
    """Return the number of messages with contiguous offsets from `next_offset` on, batch by batch."""
    if not len(messages):
        return 0
    bases = messages.headers[:, at.BASE_OFFSET]
    ends = bases + messages.headers[:, at.LAST_OFFSET_DELTA] + 1
    floors = np.concatenate(([next_offset], ends[:-1]))
    wrong = np.nonzero((bases != floors) | (ends <= bases))[0]
    if not len(wrong):
        return len(messages)
    return int(np.searchsorted(messages.first_batch, wrong[0], side="right")) - 1


def _count(content: SegmentContent, messages: MessageSet, columns: int) -> None:
    largest = np.where(messages.headers[:, at.RECORDS] > 0, messages.headers[:, at.MAX_TIMESTAMP], -1)
    top = int(np.argmax(largest))
    smallest = NO_TIMESTAMP
    if columns & _TIMESTAMPS:
        smallest = int(smallest_timestamp(messages.data, messages.starts, messages.layouts))
    content.add(
        messages.rows,
        messages.next_offset,
        smallest,
        int(largest[top]),
        int(messages.headers[top, at.BASE_OFFSET]),
    )


class Resumption(NamedTuple):
    """A whole message after damage: its position and first offset."""

    position: int
    offset: int


def good_message_after(segment: Segment, position: int, size: int, least_offset: int) -> Resumption | None:
    """Return the first message with valid metadata and offset >= `least_offset` after damage at `position`, None for a torn tail.

    Raise `OSError` if I/O fails.
    """
    overlap = 1 << 20
    start = position + 8
    while start < size:
        data = segment.read_bytes(start, min(CHUNK_BYTES, size - start))
        found = int(next_message(data, 0, len(data), least_offset))
        if found >= 0:
            seen = np.zeros(5, dtype=np.int64)
            find_message(data, found, len(data), -1, seen)
            return Resumption(start + found, int(seen[2]))
        if len(data) < CHUNK_BYTES:
            return None
        start += CHUNK_BYTES - overlap
    return None
