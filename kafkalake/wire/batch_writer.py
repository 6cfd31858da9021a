"""Kernels that rebuild record batches v2 from Arrow bodies: any number of messages and producer batches in one call.

`select` walks the batch headers (not the rows), finds the batches of an offset range and bounds their encoded size.
`write_batches` writes them one after the other with their checksums, and drops the one that would exceed `max_bytes`. The
rows of a batch are located by adding up the headers' `records`. After compaction a batch may have fewer rows than offsets,
or none, and keeps its offset range. A control batch has no row: its one record is rebuilt from control type and
coordinator epoch.
"""

from __future__ import annotations

import numpy as np

from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.bitmap import bitmap_bytes, load_bit
from kafkalake.record.compiled import compiled
from kafkalake.record.crc32c import START, extend, finish
from kafkalake.record.memory import copy, load_i32, load_i64, store_u8
from kafkalake.wire import batch_header as wire
from kafkalake.wire.header_key import restore_key, wire_bytes
from kafkalake.wire.varint import store_big_i16, store_big_i32, store_big_i64, varint_bytes, write_varint

# `plan`: int64[PLAN], set by `select` and used by `write_batches`.
FIRST_MESSAGE, FIRST_BATCH, FIRST_ROW, END_BATCH, ROOM, COMPRESSED, WRITTEN = 0, 1, 2, 3, 4, 5, 6
PLAN = 7

OK = 0
UNSOUND = 1
"""Rows, buffers and batch headers of a message are inconsistent: not a body written by kafkalake, or a projection of one."""

_RECORD_OVERHEAD = 5 + 1 + 10 + 5 + 5 + 5 + 5
"""Largest size of a record without its key, value and headers."""
_HEADER_OVERHEAD = 5 + 5
_CONTROL_BATCH_BYTES = wire.RECORDS + 40


@compiled()
def _start(layouts: Int64s, m: int, buffer: int) -> int:
    found: int = layouts[m, at.FIRST_BUFFER + 2 * buffer]
    return found


@compiled()
def _length(layouts: Int64s, m: int, buffer: int) -> int:
    found: int = layouts[m, at.FIRST_BUFFER + 2 * buffer + 1]
    return found


@compiled()
def _sound_binary(data: Bytes, body: int, layouts: Int64s, m: int, rows: int, nulls: int, first: int) -> bool:
    if nulls and _length(layouts, m, first) < bitmap_bytes(rows, nulls):
        return False
    if _length(layouts, m, first + 1) < 4 * (rows + 1):
        return False
    return load_i32(data, body + _start(layouts, m, first + 1) + 4 * rows) <= _length(layouts, m, first + 2)


@compiled()
def _sound(data: Bytes, body: int, layouts: Int64s, m: int) -> bool:
    """Return whether the buffers of message `m` are large enough for its rows and lie in `data`."""
    rows, inner = layouts[m, at.ROWS], layouts[m, at.HEADER_ROWS]
    if rows < 0 or inner < 0 or body < 0:
        return False
    for buffer in range(at.BUFFERS):
        start, length = _start(layouts, m, buffer), _length(layouts, m, buffer)
        if start < 0 or length < 0 or body + start + length > len(data):
            return False
    if _length(layouts, m, at.OFFSET_DATA) < 8 * rows or _length(layouts, m, at.TIMESTAMP_DATA) < 8 * rows:
        return False
    if _length(layouts, m, at.HEADERS_OFFSETS) < 4 * (rows + 1):
        return False
    if load_i32(data, body + _start(layouts, m, at.HEADERS_OFFSETS) + 4 * rows) > inner:
        return False
    return (
        _sound_binary(data, body, layouts, m, rows, layouts[m, at.KEY_NULLS], at.KEY_VALIDITY)
        and _sound_binary(data, body, layouts, m, rows, layouts[m, at.VALUE_NULLS], at.VALUE_VALIDITY)
        and _sound_binary(data, body, layouts, m, inner, 0, at.HEADER_KEY_OFFSETS - 1)
        and _sound_binary(data, body, layouts, m, inner, layouts[m, at.HEADER_VALUE_NULLS], at.HEADER_VALUE_VALIDITY)
    )


@compiled()
def _span(data: Bytes, body: int, layouts: Int64s, m: int, buffer: int, first: int, rows: int) -> int:
    """Return the data bytes that rows [first, first + rows) of an offsets buffer cover, -1 if they run out of bounds."""
    start = body + _start(layouts, m, buffer) + 4 * first
    begin, end = load_i32(data, start), load_i32(data, start + 4 * rows)
    if begin < 0 or begin > end or end > _length(layouts, m, buffer + 1):
        return -1
    return end - begin


@compiled()
def _bounds(data: Bytes, body: int, layouts: Int64s, m: int, row: int, rows: int) -> tuple[int, int]:
    """Return (min, max) encoded bytes of a batch of rows [row, row + rows) of message `m`, (-1, -1) if the offsets are invalid."""
    if rows == 0:
        return wire.RECORDS, _CONTROL_BATCH_BYTES
    offsets = body + _start(layouts, m, at.HEADERS_OFFSETS) + 4 * row
    first, last = load_i32(data, offsets), load_i32(data, offsets + 4 * rows)
    if first < 0 or first > last or last > layouts[m, at.HEADER_ROWS]:
        return -1, -1
    keys = _span(data, body, layouts, m, at.KEY_OFFSETS, row, rows)
    values = _span(data, body, layouts, m, at.VALUE_OFFSETS, row, rows)
    header_keys = _span(data, body, layouts, m, at.HEADER_KEY_OFFSETS, first, last - first)
    header_values = _span(data, body, layouts, m, at.HEADER_VALUE_OFFSETS, first, last - first)
    if keys < 0 or values < 0 or header_keys < 0 or header_values < 0:
        return -1, -1
    payload = keys + values + header_values
    fewest = wire.RECORDS + payload + wire.SMALLEST_RECORD * rows
    return fewest, wire.RECORDS + payload + header_keys + _RECORD_OVERHEAD * rows + _HEADER_OVERHEAD * (last - first)


@compiled("int64(view, int64[::1], int64[:,::1], int64[:,::1], int64[::1], int64, int64, int64, int64[::1])")
def select(
    data: Bytes,
    starts: Int64s,
    layouts: Int64s,
    headers: Int64s,
    first_batch: Int64s,
    start_offset: int,
    end_offset: int,
    max_bytes: int,
    plan: Int64s,
) -> int:
    """Find the batches that overlap offsets [start_offset, end_offset), at most as many as may fit in `max_bytes`. Fills `plan`.

    The arrays are those of a `record.message_set.MessageSet`. The candidates are batches [plan[FIRST_BATCH], plan[END_BATCH]).
    The first one starts at row plan[FIRST_ROW] of message plan[FIRST_MESSAGE]. plan[ROOM] bytes are enough for all of them.
    """
    plan[:] = 0
    fewest = 0
    for m in range(len(starts)):
        body = starts[m]
        if not _sound(data, body, layouts, m):
            return UNSOUND
        row = 0
        for b in range(first_batch[m], first_batch[m + 1]):
            if headers[b, at.BASE_OFFSET] >= end_offset:
                return OK
            rows = headers[b, at.RECORDS]
            if rows < 0 or row + rows > layouts[m, at.ROWS]:
                return UNSOUND
            if headers[b, at.BASE_OFFSET] + headers[b, at.LAST_OFFSET_DELTA] >= start_offset:
                if plan[END_BATCH] == 0:
                    plan[FIRST_MESSAGE], plan[FIRST_BATCH], plan[FIRST_ROW] = m, b, row
                least, most = _bounds(data, body, layouts, m, row, rows)
                if least < 0:
                    return UNSOUND
                fewest += least
                if fewest > max_bytes and plan[END_BATCH] != 0:
                    return OK
                plan[END_BATCH] = b + 1
                plan[ROOM] += most
                plan[COMPRESSED] |= headers[b, at.ATTRIBUTES] & at.ATTRIBUTE_COMPRESSION_MASK
            row += rows
    return OK


@compiled()
def _present(data: Bytes, bits: int, row: int) -> int:
    """Return whether a row is not null. `bits` is -1 if the column has no null."""
    return bits < 0 or load_bit(data, bits, row) != 0


@compiled()
def _bits(body: int, layouts: Int64s, m: int, nulls: int, buffer: int) -> int:
    return body + _start(layouts, m, buffer) if layouts[m, nulls] else -1


@compiled()
def small_varint_bytes(value: int) -> int:
    if -64 <= value < 64:
        return 1
    return varint_bytes(value)


@compiled()
def binary_bytes(length: int, present: int) -> int:
    return small_varint_bytes(length) + length if present else 1


@compiled()
def write_binary(data: Bytes, start: int, length: int, present: int, out: Bytes, p: int) -> int:
    if not present:
        return write_varint(out, p, -1)
    p = write_varint(out, p, length)
    copy(out, p, data, start, length)
    return p + length


@compiled()
def _header_bytes(data: Bytes, body: int, layouts: Int64s, m: int, first: int, end: int, last: int) -> int:
    """Return the encoded bytes of header rows [first, end), -1 if their offsets decrease or exceed those of row `last`."""
    key_offsets, key_data = (
        body + _start(layouts, m, at.HEADER_KEY_OFFSETS),
        body + _start(layouts, m, at.HEADER_KEY_DATA),
    )
    value_offsets = body + _start(layouts, m, at.HEADER_VALUE_OFFSETS)
    key_end, value_end = load_i32(data, key_offsets + 4 * last), load_i32(data, value_offsets + 4 * last)
    bits = _bits(body, layouts, m, at.HEADER_VALUE_NULLS, at.HEADER_VALUE_VALIDITY)
    total = 0
    for row in range(first, end):
        start = load_i32(data, key_offsets + 4 * row)
        length = load_i32(data, key_offsets + 4 * row + 4) - start
        value_start = load_i32(data, value_offsets + 4 * row)
        value_length = load_i32(data, value_offsets + 4 * row + 4) - value_start
        if length < 0 or value_length < 0 or length > key_end - start or value_length > value_end - value_start:
            return -1
        length = wire_bytes(data, key_data + start, length)
        total += small_varint_bytes(length) + length + binary_bytes(value_length, _present(data, bits, row))
    return total


@compiled()
def _write_headers(data: Bytes, body: int, layouts: Int64s, m: int, first: int, end: int, out: Bytes, p: int) -> int:
    key_offsets, key_data = (
        body + _start(layouts, m, at.HEADER_KEY_OFFSETS),
        body + _start(layouts, m, at.HEADER_KEY_DATA),
    )
    value_offsets, value_data = (
        body + _start(layouts, m, at.HEADER_VALUE_OFFSETS),
        body + _start(layouts, m, at.HEADER_VALUE_DATA),
    )
    bits = _bits(body, layouts, m, at.HEADER_VALUE_NULLS, at.HEADER_VALUE_VALIDITY)
    for row in range(first, end):
        start = load_i32(data, key_offsets + 4 * row)
        length = load_i32(data, key_offsets + 4 * row + 4) - start
        p = write_varint(out, p, wire_bytes(data, key_data + start, length))
        p = restore_key(data, key_data + start, length, out, p)
        start = load_i32(data, value_offsets + 4 * row)
        length = load_i32(data, value_offsets + 4 * row + 4) - start
        p = write_binary(data, value_data + start, length, _present(data, bits, row), out, p)
    return p


@compiled()
def _write_rows(
    data: Bytes,
    body: int,
    layouts: Int64s,
    m: int,
    row: int,
    rows: int,
    base_offset: int,
    base_timestamp: int,
    out: Bytes,
    p: int,
) -> int:
    """Write rows [row, row + rows) of message `m` as records. Return the position after them, -1 if offsets decrease."""
    offsets, timestamps = body + _start(layouts, m, at.OFFSET_DATA), body + _start(layouts, m, at.TIMESTAMP_DATA)
    key_offsets, key_data = body + _start(layouts, m, at.KEY_OFFSETS), body + _start(layouts, m, at.KEY_DATA)
    value_offsets, value_data = body + _start(layouts, m, at.VALUE_OFFSETS), body + _start(layouts, m, at.VALUE_DATA)
    headers_offsets = body + _start(layouts, m, at.HEADERS_OFFSETS)
    key_bits = _bits(body, layouts, m, at.KEY_NULLS, at.KEY_VALIDITY)
    value_bits = _bits(body, layouts, m, at.VALUE_NULLS, at.VALUE_VALIDITY)
    key, value = load_i32(data, key_offsets + 4 * row), load_i32(data, value_offsets + 4 * row)
    header = load_i32(data, headers_offsets + 4 * row)
    end = row + rows
    key_end, value_end = load_i32(data, key_offsets + 4 * end), load_i32(data, value_offsets + 4 * end)
    header_end = load_i32(data, headers_offsets + 4 * end)
    for r in range(row, end):
        offset_delta = load_i64(data, offsets + 8 * r) - base_offset
        timestamp_delta = load_i64(data, timestamps + 8 * r) - base_timestamp
        key_length = load_i32(data, key_offsets + 4 * r + 4) - key
        value_length = load_i32(data, value_offsets + 4 * r + 4) - value
        headers = load_i32(data, headers_offsets + 4 * r + 4) - header
        if key_length < 0 or value_length < 0 or headers < 0:
            return -1
        if key_length > key_end - key or value_length > value_end - value or headers > header_end - header:
            return -1
        key_present, value_present = _present(data, key_bits, r), _present(data, value_bits, r)
        size = 1 + small_varint_bytes(timestamp_delta) + small_varint_bytes(offset_delta)
        size += binary_bytes(key_length, key_present) + binary_bytes(value_length, value_present)
        size += small_varint_bytes(headers)
        if headers:
            header_bytes = _header_bytes(data, body, layouts, m, header, header + headers, header_end)
            if header_bytes < 0:
                return -1
            size += header_bytes
        p = write_varint(out, p, size)
        store_u8(out, p, 0)
        p = write_varint(out, p + 1, timestamp_delta)
        p = write_varint(out, p, offset_delta)
        p = write_binary(data, key_data + key, key_length, key_present, out, p)
        p = write_binary(data, value_data + value, value_length, value_present, out, p)
        p = write_varint(out, p, headers)
        if headers:
            p = _write_headers(data, body, layouts, m, header, header + headers, out, p)
        key += key_length
        value += value_length
        header += headers
    return p


@compiled()
def _write_control(headers: Int64s, b: int, out: Bytes, p: int) -> int:
    """Write the record of a control batch: key (version 0, type), value (version 0, coordinator epoch). Source: KIP-98."""
    timestamp_delta = headers[b, at.MAX_TIMESTAMP] - headers[b, at.BASE_TIMESTAMP]
    content = 1 + wire.CONTROL_KEY_BYTES + 1 + wire.CONTROL_VALUE_BYTES + 1
    p = write_varint(out, p, 1 + varint_bytes(timestamp_delta) + 1 + content)
    store_u8(out, p, 0)
    p = write_varint(out, p + 1, timestamp_delta)
    p = write_varint(out, p, 0)
    p = write_varint(out, p, wire.CONTROL_KEY_BYTES)
    store_big_i16(out, p, 0)
    store_big_i16(out, p + 2, headers[b, at.CONTROL_TYPE])
    p = write_varint(out, p + wire.CONTROL_KEY_BYTES, wire.CONTROL_VALUE_BYTES)
    store_big_i16(out, p, 0)
    store_big_i32(out, p + 2, headers[b, at.COORDINATOR_EPOCH])
    return write_varint(out, p + wire.CONTROL_VALUE_BYTES, 0)


@compiled()
def write_header(headers: Int64s, b: int, records: int, out: Bytes, position: int, end: int) -> None:
    """Write the 61-byte header before the records at `out[position + 61:end]`."""
    write_fields(headers, b, records, out, position, end)
    crc = finish(extend(START, out, position + wire.ATTRIBUTES, end))
    store_big_i32(out, position + wire.CRC, int(np.int64(crc)))


@compiled()
def write_fields(headers: Int64s, b: int, records: int, out: Bytes, position: int, end: int) -> None:
    """Write the header without its checksum."""
    store_big_i64(out, position, headers[b, at.BASE_OFFSET])
    store_big_i32(out, position + wire.BATCH_LENGTH, end - position - wire.BEFORE_BATCH_LENGTH)
    store_big_i32(out, position + wire.PARTITION_LEADER_EPOCH, headers[b, at.LEADER_EPOCH])
    store_u8(out, position + wire.MAGIC, wire.MAGIC_2)
    store_big_i16(out, position + wire.ATTRIBUTES, headers[b, at.ATTRIBUTES])
    store_big_i32(out, position + wire.LAST_OFFSET_DELTA, headers[b, at.LAST_OFFSET_DELTA])
    store_big_i64(out, position + wire.BASE_TIMESTAMP, headers[b, at.BASE_TIMESTAMP])
    store_big_i64(out, position + wire.MAX_TIMESTAMP, headers[b, at.MAX_TIMESTAMP])
    store_big_i64(out, position + wire.PRODUCER_ID, headers[b, at.PRODUCER_ID])
    store_big_i16(out, position + wire.PRODUCER_EPOCH, headers[b, at.PRODUCER_EPOCH])
    store_big_i32(out, position + wire.BASE_SEQUENCE, headers[b, at.BASE_SEQUENCE])
    store_big_i32(out, position + wire.RECORD_COUNT, records)


@compiled(
    "int64(view, int64[::1], int64[:,::1], int64[:,::1], int64[::1], int64, int64[::1], uint8[::1], int64[::1])",
)
def write_batches(
    data: Bytes,
    starts: Int64s,
    layouts: Int64s,
    headers: Int64s,
    first_batch: Int64s,
    max_bytes: int,
    plan: Int64s,
    out: Bytes,
    ends: Int64s,
) -> int:
    """Write the batches of `plan` to `out` (uint8[plan[ROOM]]) until one would exceed `max_bytes`. The first is always written.

    Sets plan[WRITTEN] to the number of batches written and `ends` (int64, one per batch of the plan) to their end positions.
    Records are written uncompressed whatever the attributes say: the caller compresses. Return OK or UNSOUND.
    """
    m = plan[FIRST_MESSAGE]
    row = plan[FIRST_ROW]
    position = 0
    for b in range(plan[FIRST_BATCH], plan[END_BATCH]):
        while b >= first_batch[m + 1]:
            m += 1
            row = 0
        rows = headers[b, at.RECORDS]
        records = rows
        if rows == 0 and headers[b, at.CONTROL_TYPE] >= 0:
            end = _write_control(headers, b, out, position + wire.RECORDS)
            records = 1
        else:
            end = _write_rows(
                data,
                starts[m],
                layouts,
                m,
                row,
                rows,
                headers[b, at.BASE_OFFSET],
                headers[b, at.BASE_TIMESTAMP],
                out,
                position + wire.RECORDS,
            )
        if end < 0:
            return UNSOUND
        if end > max_bytes and plan[WRITTEN]:
            return OK
        write_header(headers, b, records, out, position, end)
        position = end
        ends[plan[WRITTEN]] = end
        plan[WRITTEN] += 1
        row += rows
    return OK
