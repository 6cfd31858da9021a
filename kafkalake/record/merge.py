"""Kernels that join the bodies of several batches into one: of a group commit, or columns of messages from the log.

Each is a single compiled call for any number of batches. See `layout.py` for the bytes.
"""

from __future__ import annotations

import numpy as np

from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.compiled import compiled
from kafkalake.record.memory import copy, load_i32, load_i64, store_i32, store_i64


@compiled()
def _pad(position: int, out: Bytes) -> int:
    """Write zeros up to the next 8-byte boundary and return it."""
    while position & 7:
        out[position] = 0
        position += 1
    return position


@compiled()
def _set_buffer(layout: Int64s, buffer: int, offset: int, length: int) -> None:
    layout[at.FIRST_BUFFER + 2 * buffer] = offset
    layout[at.FIRST_BUFFER + 2 * buffer + 1] = length


@compiled()
def _merge_fixed(
    bodies: Bytes, starts: Int64s, layouts: Int64s, buffer: int, headers: Int64s, out: Bytes, position: int
) -> int:
    """Join int64 column `buffer`. Offsets get their batch's base offset, timestamps the log append time if the attribute is set."""
    for k in range(len(starts)):
        rows = layouts[k, at.ROWS]
        source = starts[k] + layouts[k, at.FIRST_BUFFER + 2 * buffer]
        if buffer == at.OFFSET_DATA:
            base = headers[k, at.BASE_OFFSET]
            for i in range(rows):
                store_i64(out, position + 8 * i, base + load_i64(bodies, source + 8 * i))
        elif headers[k, at.ATTRIBUTES] & at.ATTRIBUTE_LOG_APPEND_TIME:
            for i in range(rows):
                store_i64(out, position + 8 * i, headers[k, at.MAX_TIMESTAMP])
        else:
            copy(out, position, bodies, source, 8 * rows)
        position += 8 * rows
    return position


@compiled()
def _merge_validity(
    bodies: Bytes, starts: Int64s, layouts: Int64s, rows_at: int, buffer: int, out: Bytes, position: int
) -> int:
    """Join validity bitmaps. A batch without one has no nulls."""
    total = 0
    for k in range(len(starts)):
        total += layouts[k, rows_at]
    end = position + (total + 7) // 8
    for i in range(position, end):
        out[i] = 0
    row = 0
    for k in range(len(starts)):
        source = starts[k] + layouts[k, at.FIRST_BUFFER + 2 * buffer]
        present = layouts[k, at.FIRST_BUFFER + 2 * buffer + 1] > 0
        for i in range(layouts[k, rows_at]):
            if not present or (bodies[source + (i >> 3)] >> (i & 7)) & 1:
                out[position + (row >> 3)] |= np.uint8(1 << (row & 7))
            row += 1
    return end


@compiled()
def _merge_offsets(
    bodies: Bytes, starts: Int64s, layouts: Int64s, rows_at: int, buffer: int, out: Bytes, position: int
) -> int:
    """Join the offsets (int32, rows + 1) of a list or binary column, shifted to continue from batch to batch."""
    store_i32(out, position, 0)
    position += 4
    base = 0
    for k in range(len(starts)):
        rows = layouts[k, rows_at]
        source = starts[k] + layouts[k, at.FIRST_BUFFER + 2 * buffer]
        for i in range(1, rows + 1):
            store_i32(out, position, base + load_i32(bodies, source + 4 * i))
            position += 4
        if rows:
            base += load_i32(bodies, source + 4 * rows)
    return position


@compiled()
def _merge_data(
    bodies: Bytes, starts: Int64s, layouts: Int64s, buffer: int, out: Bytes, position: int, apart: bool
) -> int:
    for k in range(len(starts)):
        length = layouts[k, at.FIRST_BUFFER + 2 * buffer + 1]
        if not apart:
            copy(out, position, bodies, starts[k] + layouts[k, at.FIRST_BUFFER + 2 * buffer], length)
        position += length
    return position


@compiled()
def _merge_binary(
    bodies: Bytes,
    starts: Int64s,
    layouts: Int64s,
    rows_at: int,
    nulls: int,
    first: int,
    out: Bytes,
    base: int,
    p: int,
    merged: Int64s,
    apart: bool,
) -> int:
    """Join validity, offsets and data of the binary column with first buffer `first`. apart: leave room for the data."""
    begin = p
    if nulls:
        p = _merge_validity(bodies, starts, layouts, rows_at, first, out, p)
    _set_buffer(merged, first, begin - base, p - begin)
    begin = p = _pad(p, out)
    p = _merge_offsets(bodies, starts, layouts, rows_at, first + 1, out, p)
    _set_buffer(merged, first + 1, begin - base, p - begin)
    begin = p = _pad(p, out)
    p = _merge_data(bodies, starts, layouts, first + 2, out, p, apart)
    _set_buffer(merged, first + 2, begin - base, p - begin)
    return _pad(p, out)


@compiled()
def _merge_optional(
    bodies: Bytes,
    starts: Int64s,
    layouts: Int64s,
    nulls_at: int,
    first: int,
    wanted: int,
    out: Bytes,
    base: int,
    p: int,
    merged: Int64s,
    apart: bool,
) -> int:
    """Join a binary column with a value per row, or write three empty buffers if it is not wanted."""
    if wanted:
        return _merge_binary(bodies, starts, layouts, at.ROWS, merged[nulls_at], first, out, base, p, merged, apart)
    for buffer in range(first, first + 3):
        _set_buffer(merged, buffer, p - base, 0)
    return p


@compiled()
def _merge(
    bodies: Bytes,
    starts: Int64s,
    layouts: Int64s,
    headers: Int64s,
    columns: int,
    out: Bytes,
    base: int,
    merged: Int64s,
    apart: bool,
) -> int:
    merged[:] = 0
    for k in range(len(starts)):
        for field in range(at.FIRST_BUFFER):
            merged[field] += layouts[k, field]
    p = base
    for column in range(2):
        buffer = 2 * column + 1
        end = p
        if (columns >> column) & 1:
            end = _merge_fixed(bodies, starts, layouts, buffer, headers, out, p)
        _set_buffer(merged, buffer - 1, p - base, 0)
        _set_buffer(merged, buffer, p - base, end - p)
        p = end
    p = _merge_optional(
        bodies, starts, layouts, at.KEY_NULLS, at.KEY_VALIDITY, (columns >> 2) & 1, out, base, p, merged, False
    )
    p = _merge_optional(
        bodies, starts, layouts, at.VALUE_NULLS, at.VALUE_VALIDITY, (columns >> 3) & 1, out, base, p, merged, apart
    )
    if not (columns >> 4) & 1:
        for buffer in range(at.HEADERS_OFFSETS - 1, at.BUFFERS):
            _set_buffer(merged, buffer, p - base, 0)
        return p - base
    _set_buffer(merged, at.HEADERS_OFFSETS - 1, p - base, 0)
    begin = p
    p = _merge_offsets(bodies, starts, layouts, at.ROWS, at.HEADERS_OFFSETS, out, p)
    _set_buffer(merged, at.HEADERS_OFFSETS, begin - base, p - begin)
    p = _pad(p, out)
    _set_buffer(merged, at.HEADERS_OFFSETS + 1, p - base, 0)
    first, rows_at = at.HEADER_KEY_OFFSETS - 1, at.HEADER_ROWS
    p = _merge_binary(bodies, starts, layouts, rows_at, 0, first, out, base, p, merged, False)
    first, nulls = at.HEADER_VALUE_VALIDITY, merged[at.HEADER_VALUE_NULLS]
    p = _merge_binary(bodies, starts, layouts, rows_at, nulls, first, out, base, p, merged, False)
    return p - base


@compiled("int64(view, int64[::1], int64[:,::1], int64[:,::1], uint8[::1], int64, int64[::1], boolean)")
def merge_bodies(
    bodies: Bytes, starts: Int64s, layouts: Int64s, headers: Int64s, out: Bytes, base: int, merged: Int64s, apart: bool
) -> int:
    """Join batch bodies into one Arrow body at `out[base:]`, with absolute offsets, and return its length in bytes.

    bodies uint8, starts int64[K] (start of each body), layouts int64[K, LAYOUT_SIZE], headers int64[K, HEADER_FIELDS] with
    the base offsets assigned. `out` must have room (`merged_bound`). Fills `merged` int64[LAYOUT_SIZE]. apart: the bodies may lack
    the bytes of values (`ProducerBatch.values`), for which room is left.
    """
    return _merge(bodies, starts, layouts, headers, 31, out, base, merged, apart)


@compiled("int64(view, int64[::1], int64[:,::1], int64, uint8[::1], int64[::1])", allocates=True)
def merge_columns(bodies: Bytes, starts: Int64s, layouts: Int64s, columns: int, out: Bytes, merged: Int64s) -> int:
    """Join the columns of bit mask `columns` of messages from the log (absolute offsets) at `out[0:]`.

    Arguments as in `merge_bodies`. The other columns become empty buffers. Return the length in bytes.
    """
    headers = np.zeros((len(starts), at.HEADER_FIELDS), dtype=np.int64)
    return _merge(bodies, starts, layouts, headers, columns, out, 0, merged, False)


@compiled("int64(int64[:,::1], int64)")
def merged_bound(layouts: Int64s, columns: int) -> int:
    """Return an upper bound in bytes for `merge_bodies` (columns 31) or `merge_columns` of bodies with these layouts."""
    rows = 0
    inner = 0
    data = 0
    for k in range(len(layouts)):
        rows += layouts[k, at.ROWS]
        inner += layouts[k, at.HEADER_ROWS]
        if (columns >> 2) & 1:
            data += layouts[k, at.FIRST_BUFFER + 2 * at.KEY_DATA + 1]
        if (columns >> 3) & 1:
            data += layouts[k, at.FIRST_BUFFER + 2 * at.VALUE_DATA + 1]
        if (columns >> 4) & 1:
            data += layouts[k, at.FIRST_BUFFER + 2 * at.HEADER_KEY_DATA + 1]
            data += layouts[k, at.FIRST_BUFFER + 2 * at.HEADER_VALUE_DATA + 1]
    return data + 16 * rows + 3 * (4 * rows + 4) + 2 * (4 * inner + 4) + rows // 4 + inner // 8 + 8 * at.BUFFERS + 64
