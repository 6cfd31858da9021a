"""Scans and verifies one segment file, for recovery, verification and descriptions of a segment.

`scan_segment` passes each run of whole messages in the file to a visitor, and returns the end of the messages and
the kind of bytes after it. It makes no decisions.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kafkalake.record import layout as at
from kafkalake.record.message_set import MessageSet
from kafkalake.record.schema import PREAMBLE
from kafkalake.storage.active_segment import SegmentContent
from kafkalake.storage.segment import FIRST_MESSAGE, Segment
from kafkalake.storage.segment_kernels import NO_TIMESTAMP, find_message, next_message, smallest_timestamp
from kafkalake.storage.segment_reader import End, SegmentReader, Stop, bases_of, messages_in_order

CHUNK_BYTES = 8 << 20


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

    Only timestamps are decoded. The stored bytes of the other columns are verified but not decompressed. Raise `OSError` if
    I/O fails or the file becomes shorter meanwhile. Damage is reported in the result.
    """
    reader = SegmentReader(segment, -1 if end is None else end, first_chunk_bytes=CHUNK_BYTES, chunk_bytes=CHUNK_BYTES)
    preamble_right = segment.read_bytes(0, FIRST_MESSAGE).tobytes() == PREAMBLE
    content = content or SegmentContent(next_offset=segment.base_offset)
    end_of_pass = End(start, Stop.END_OF_FILE, "")
    for found in reader.runs(start, columns, at.TIMESTAMP_COLUMN):
        if isinstance(found, End):
            end_of_pass = found
            break
        messages, position = found
        in_order = messages_in_order(messages, content.next_offset)
        whole = messages.slice(0, in_order)
        if len(whole):
            if visit is not None:
                visit(whole, position)
            _count(content, whole, columns)
        if in_order < len(messages):
            reason = f"offset {bases_of(messages)[in_order]} stands where {content.next_offset} should"
            end_of_pass = End(position + int(whole.positions[-1]), Stop.DAMAGE, reason)
            break
    if end_of_pass.stop is Stop.SHORTER:
        raise OSError(errno.EIO, end_of_pass.reason, segment.path)
    return SegmentScan(*end_of_pass, content, reader.size, preamble_right)


def _count(content: SegmentContent, messages: MessageSet, columns: int) -> None:
    largest = np.where(messages.headers[:, at.RECORDS] > 0, messages.headers[:, at.MAX_TIMESTAMP], -1)
    top = int(np.argmax(largest))
    smallest = NO_TIMESTAMP
    if columns & at.TIMESTAMP_COLUMN:
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
