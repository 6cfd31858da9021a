"""Compiled walks over the messages of a segment, without Python per message.

A length is used only after `check_frame`, and an offset only after the metadata's checksum.
"""

from __future__ import annotations

import numpy as np

from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.compiled import compiled
from kafkalake.record.memory import load_i64
from kafkalake.record.merge import merge_bodies, merged_bound
from kafkalake.record.message import OK, TORN, check_frame, metadata_bytes, read_metadata

NO_TIMESTAMP = (1 << 63) - 1


@compiled("int64(view, int64, int64, int64, int64[::1])", allocates=True)
def find_message(data: Bytes, begin: int, end: int, offset: int, found: Int64s) -> int:
    """Walk from the message at `begin` to the one with `offset`, or the first one past it. Only its metadata must be in `data`.

    Fills found int64[5]: position of the message, its length with body, its first offset, its next offset, and the first
    offset of the message at `begin`. Return OK if found, TORN if the bytes end before (continue at position found[0]), or the
    fault of the message at found[0].
    """
    lengths = np.empty(3, dtype=np.int64)
    layout = np.empty(at.LAYOUT_SIZE, dtype=np.int64)
    sums = np.empty(6, dtype=np.int64)
    headers = np.empty((16, at.HEADER_FIELDS), dtype=np.int64)
    position = begin
    while True:
        found[0] = position
        if position >= end:
            return TORN
        status = check_frame(data, position, end, lengths)
        if status != OK:
            return status
        if lengths[0] > end - position:
            return TORN
        batches = lengths[2]
        if batches > len(headers):
            headers = np.empty((batches, at.HEADER_FIELDS), dtype=np.int64)
        status = read_metadata(data, position, lengths, layout, headers[:batches], sums)
        if status != OK:
            return status
        if position == begin:
            found[4] = headers[0, at.BASE_OFFSET]
        next_offset = headers[batches - 1, at.BASE_OFFSET] + headers[batches - 1, at.LAST_OFFSET_DELTA] + 1
        if next_offset > offset:
            found[1] = lengths[0] + lengths[1]
            found[2] = headers[0, at.BASE_OFFSET]
            found[3] = next_offset
            return OK
        position += lengths[0] + lengths[1]


@compiled(allocates=True)
def _offsets(data: Bytes, position: int, ends: Int64s) -> int:
    """Read the first and the next offset of the whole message at `position`. Return OK or the fault of its metadata."""
    lengths = np.empty(3, dtype=np.int64)
    check_frame(data, position, len(data), lengths)
    headers = np.empty((lengths[2], at.HEADER_FIELDS), dtype=np.int64)
    layout = np.empty(at.LAYOUT_SIZE, dtype=np.int64)
    sums = np.empty(6, dtype=np.int64)
    status = read_metadata(data, position, lengths, layout, headers, sums)
    if status == OK:
        last = lengths[2] - 1
        ends[0] = headers[0, at.BASE_OFFSET]
        ends[1] = headers[last, at.BASE_OFFSET] + headers[last, at.LAST_OFFSET_DELTA] + 1
    return int(status)


@compiled("int64(view, int64, int64[::1])", allocates=True)
def whole_messages(data: Bytes, max_bytes: int, found: Int64s) -> int:
    """Find the whole messages at the start of `data` by their frames: up to `max_bytes`, at least one.

    Only the metadata of the first and the last is verified.

    Fills found int64[3]: their length, the first offset and the next offset. If the first one is not whole, found[0] is its
    length or, if even that cannot be read, 0. Return OK if there is one, else TORN or the fault.
    """
    lengths = np.empty(3, dtype=np.int64)
    ends = np.zeros(2, dtype=np.int64)
    position = 0
    last = -1
    status = TORN
    while position < len(data):
        status = check_frame(data, position, len(data), lengths)
        if status != OK or lengths[0] + lengths[1] > len(data) - position:
            break
        if last >= 0 and position + lengths[0] + lengths[1] > max_bytes:
            break
        last = position
        position += lengths[0] + lengths[1]
    found[0] = position
    if last < 0:
        found[0] = lengths[0] + lengths[1] if status == OK else 0
        return TORN if status == OK else status
    status = _offsets(data, 0, ends)
    if status != OK:
        return status
    found[1] = ends[0]
    if last:
        status = _offsets(data, last, ends)
    found[2] = ends[1]
    return status


@compiled("int64(view, int64, int64, int64[:,::1])", allocates=True)
def walk_blocks(data: Bytes, begin: int, origin: int, blocks: Int64s) -> int:
    """List the messages that begin in `data[begin:]`: blocks int64[N, 3] gets position in the file, metadata length, body length.

    `origin`: position in the file of data[0]. Frames written by the log itself are not verified. Return the number of messages.
    The last one may extend beyond `data`.
    """
    lengths = np.empty(3, dtype=np.int64)
    position = begin
    count = 0
    while count < len(blocks) and check_frame(data, position, len(data), lengths) == OK:
        blocks[count, 0] = origin + position
        blocks[count, 1] = lengths[0]
        blocks[count, 2] = lengths[1]
        count += 1
        position += lengths[0] + lengths[1]
        if position >= len(data):
            break
    return count


@compiled("int64(view, int64[::1], int64[:,::1])")
def smallest_timestamp(data: Bytes, starts: Int64s, layouts: Int64s) -> int:
    """Return the smallest timestamp (ms) of messages with plain bodies at `starts`, NO_TIMESTAMP without rows."""
    smallest = np.int64(NO_TIMESTAMP)
    for m in range(len(starts)):
        position = starts[m] + layouts[m, at.FIRST_BUFFER + 2 * at.TIMESTAMP_DATA]
        for i in range(layouts[m, at.ROWS]):
            smallest = min(smallest, np.int64(load_i64(data, position + 8 * i)))
    return int(smallest)


@compiled("int64(view, int64[::1], int64[:,::1], int64[:,::1], uint8[::1], int64[::1], int64[::1], boolean)")
def join_batches(
    bodies: Bytes,
    starts: Int64s,
    layouts: Int64s,
    headers: Int64s,
    out: Bytes,
    merged: Int64s,
    found: Int64s,
    apart: bool,
) -> int:
    """Join batches as `merge_bodies` does, behind the room for their message's metadata, and return the length of the body.

    If `out` is too small, write nothing and return the negative size needed. Fills found int64[2]: position of the body and
    smallest timestamp (ms, NO_TIMESTAMP without rows).
    """
    body = metadata_bytes(len(headers))
    needed = body + merged_bound(layouts, at.ALL_COLUMNS)
    if needed > len(out):
        return int(-needed)
    length = merge_bodies(bodies, starts, layouts, headers, out, body, merged, apart)
    found[0] = body
    found[1] = smallest_timestamp(out, found[:1], merged.reshape((1, at.LAYOUT_SIZE)))
    return int(length)


@compiled("int64(view, int64, int64, int64)", allocates=True)
def next_message(data: Bytes, begin: int, end: int, least_offset: int) -> int:
    """Return the position of the first message at or after `begin` (a multiple of 8) with valid metadata and an offset >=
    `least_offset`, -1 if there is none. Distinguishes a torn tail from damage in the middle."""
    lengths = np.empty(3, dtype=np.int64)
    layout = np.empty(at.LAYOUT_SIZE, dtype=np.int64)
    sums = np.empty(6, dtype=np.int64)
    for position in range(begin, end - at.FIRST_HEADER, 8):
        if check_frame(data, position, end, lengths) != OK or lengths[0] > end - position:
            continue
        headers = np.empty((lengths[2], at.HEADER_FIELDS), dtype=np.int64)
        status = read_metadata(data, position, lengths, layout, headers, sums)
        if status == OK and headers[0, at.BASE_OFFSET] >= least_offset:
            return position
    return -1
