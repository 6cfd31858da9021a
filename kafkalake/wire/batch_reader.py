"""Kernels that turn a record batch v2 into the Arrow body of a `record.ProducerBatch`.

`check_batch` validates the header and the checksum. `read_records` walks the records twice: first to validate every length
and add up the column sizes, then to copy. In between it lays out the body. If `out` is too small, it returns the size
needed and writes nothing. `read_batch` does both in one call for an uncompressed batch. Memory is never allocated from a
count in a header: the caller bounds the number of records by the bytes received.

Measured: see `record_batch.py`. More than 400 lines: both walks must agree on each byte of a record.
"""

from __future__ import annotations

import numpy as np

from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.bitmap import bitmap_bytes, set_bit
from kafkalake.record.compiled import compiled
from kafkalake.record.crc32c import START, extend, finish
from kafkalake.record.memory import copy, load_u8, store_i32, store_i64, store_u8
from kafkalake.record.timestamps import NO_TIMESTAMP
from kafkalake.timestamp_range import EARLIEST_TIMESTAMP_MS, LATEST_TIMESTAMP_MS
from kafkalake.wire import batch_header as wire
from kafkalake.wire.header_key import store_key, stored_bytes
from kafkalake.wire.varint import big_i16, big_i32, big_i64, big_u32, read_varint, read_varlong

# Status returned by a kernel. Messages and error classes: `record_batch.FAULTS`.
OK = 0
NEEDS_ROOM = 1
CORRUPT_LENGTH, BAD_CHECKSUM, BAD_MAGIC = 2, 3, 4
BASE_OFFSET_NOT_ZERO, BAD_COUNT, BAD_OFFSET_RANGE, CONTROL_FROM_CLIENT, BAD_SEQUENCE, BAD_PRODUCER = 5, 6, 7, 8, 9, 10
BAD_TIMESTAMP_TYPE = 11
BAD_RECORD_LENGTH, BAD_RECORD, BAD_OFFSET_DELTA, BAD_HEADER_COUNT, BAD_HEADER_KEY, TRAILING_BYTES = (
    12,
    13,
    14,
    15,
    16,
    17,
)
TIMESTAMP_OUT_OF_RANGE, BODY_TOO_LARGE, BAD_CONTROL_RECORD = 18, 19, 20
BAD_COLUMNS, BAD_COLUMN_ENDS, BAD_COLUMN_NULLS = 21, 22, 23
"""Of a batch of columns, see `column_batch`."""

# `numbers`: int64[NUMBERS], filled by a kernel: a layout, a header, and a few results.
FIRST_HEADER_FIELD = at.LAYOUT_SIZE
ROOM = FIRST_HEADER_FIELD + at.HEADER_FIELDS
"""Bytes of the body: used, or needed if `out` was too small."""
RECORD_INDEX = ROOM + 1
"""Index of the invalid record."""
MIN_TIMESTAMP = ROOM + 2
"""Smallest timestamp of the records that have one, -1 if none has."""
CLAIMED = ROOM + 3
"""Number of records stated in the batch header."""
KEY_BYTES, VALUE_BYTES, HEADER_KEY_BYTES, HEADER_VALUE_BYTES = ROOM + 4, ROOM + 5, ROOM + 6, ROOM + 7
NUMBERS = ROOM + 8

_ROW, _KEY, _VALUE, _HEADER_ROW, _HEADER_KEY, _HEADER_VALUE = range(6)
CURSOR = 6
"""`cursor`: int64[CURSOR], how far the columns of a body are filled: rows, and bytes of their data."""

LARGEST_BODY = 0x7FFF0000
"""Largest body in bytes of an Arrow message, with room for padding."""
KNOWN_ATTRIBUTES = (
    at.ATTRIBUTE_COMPRESSION_MASK | at.ATTRIBUTE_LOG_APPEND_TIME | at.ATTRIBUTE_TRANSACTIONAL | at.ATTRIBUTE_CONTROL
)


@compiled()
def _check_produced(data: Bytes, position: int) -> int:
    """Apply Kafka's checks of a client's batch (LogValidator, UnifiedLog.analyzeAndValidateRecords)."""
    attributes = big_i16(data, position + wire.ATTRIBUTES)
    count = big_i32(data, position + wire.RECORD_COUNT)
    if attributes & at.ATTRIBUTE_CONTROL:
        return CONTROL_FROM_CLIENT
    if attributes & at.ATTRIBUTE_LOG_APPEND_TIME:
        return BAD_TIMESTAMP_TYPE
    if count <= 0:
        return BAD_COUNT
    if big_i32(data, position + wire.LAST_OFFSET_DELTA) != count - 1:
        return BAD_OFFSET_RANGE
    if big_i64(data, position + wire.PRODUCER_ID) >= 0:
        if big_i32(data, position + wire.BASE_SEQUENCE) < 0:
            return BAD_SEQUENCE
        if big_i16(data, position + wire.PRODUCER_EPOCH) < 0:
            return BAD_PRODUCER
    elif attributes & at.ATTRIBUTE_TRANSACTIONAL or big_i64(data, position + wire.PRODUCER_ID) != wire.NO_PRODUCER_ID:
        return BAD_PRODUCER
    return OK


@compiled()
def _check_batch(data: Bytes, position: int, end: int, produced: int, magic: int) -> int:
    if end - position < wire.RECORDS:
        return CORRUPT_LENGTH
    if load_u8(data, position + wire.MAGIC) != magic:
        return BAD_MAGIC
    if big_i32(data, position + wire.BATCH_LENGTH) != end - position - wire.BEFORE_BATCH_LENGTH:
        return CORRUPT_LENGTH
    if produced and big_i64(data, position) != 0:
        return BASE_OFFSET_NOT_ZERO
    if np.int64(finish(extend(START, data, position + wire.ATTRIBUTES, end))) != big_u32(data, position + wire.CRC):
        return BAD_CHECKSUM
    if produced:
        return _check_produced(data, position)
    if big_i32(data, position + wire.RECORD_COUNT) < 0 or big_i32(data, position + wire.LAST_OFFSET_DELTA) < 0:
        return BAD_COUNT
    return OK


@compiled()
def _read_header(data: Bytes, position: int, numbers: Int64s) -> None:
    first = FIRST_HEADER_FIELD
    numbers[first + at.BASE_OFFSET] = big_i64(data, position)
    numbers[first + at.LAST_OFFSET_DELTA] = big_i32(data, position + wire.LAST_OFFSET_DELTA)
    numbers[first + at.LEADER_EPOCH] = big_i32(data, position + wire.PARTITION_LEADER_EPOCH)
    numbers[first + at.PRODUCER_ID] = big_i64(data, position + wire.PRODUCER_ID)
    numbers[first + at.PRODUCER_EPOCH] = big_i16(data, position + wire.PRODUCER_EPOCH)
    numbers[first + at.ATTRIBUTES] = big_i16(data, position + wire.ATTRIBUTES) & KNOWN_ATTRIBUTES
    numbers[first + at.BASE_SEQUENCE] = big_i32(data, position + wire.BASE_SEQUENCE)
    numbers[first + at.BASE_TIMESTAMP] = big_i64(data, position + wire.BASE_TIMESTAMP)
    numbers[first + at.MAX_TIMESTAMP] = big_i64(data, position + wire.MAX_TIMESTAMP)
    numbers[first + at.RECORDS] = big_i32(data, position + wire.RECORD_COUNT)
    numbers[first + at.CONTROL_TYPE] = -1
    numbers[first + at.FLAGS] = 0
    numbers[first + at.COORDINATOR_EPOCH] = 0
    numbers[CLAIMED] = big_i32(data, position + wire.RECORD_COUNT)


@compiled()
def _measure_headers(data: Bytes, position: int, end: int, count: int, numbers: Int64s) -> tuple[int, int]:
    """Validate and count the headers of one record. Return (status, position after them)."""
    for _ in range(count):
        length, position = read_varint(data, position, end)
        if position < 0:
            return BAD_RECORD, 0
        if length < 0:
            return BAD_HEADER_KEY, 0
        if length > end - position:
            return BAD_RECORD, 0
        numbers[HEADER_KEY_BYTES] += stored_bytes(data, position, length)
        position += length
        length, position = read_varint(data, position, end)
        if position < 0 or length < -1 or length > end - position:
            return BAD_RECORD, 0
        if length < 0:
            numbers[at.HEADER_VALUE_NULLS] += 1
        else:
            numbers[HEADER_VALUE_BYTES] += length
            position += length
    numbers[at.HEADER_ROWS] += count
    return OK, position


@compiled()
def _measure(data: Bytes, position: int, end: int, produced: int, numbers: Int64s) -> int:
    """Validate every record of `data[position:end]` and add up its columns in `numbers` (first pass)."""
    count = numbers[CLAIMED]
    base_timestamp = numbers[FIRST_HEADER_FIELD + at.BASE_TIMESTAMP]
    last_delta = numbers[FIRST_HEADER_FIELD + at.LAST_OFFSET_DELTA]
    for field in range(at.FIRST_BUFFER):
        numbers[field] = 0
    key_bytes = value_bytes = key_nulls = value_nulls = 0
    numbers[HEADER_KEY_BYTES] = numbers[HEADER_VALUE_BYTES] = 0
    smallest, largest = 0x7FFFFFFFFFFFFFFF, -0x8000000000000000
    previous = -1
    for i in range(count):
        numbers[RECORD_INDEX] = i
        length, position = read_varint(data, position, end)
        if position < 0 or length < 0 or length > end - position:
            return BAD_RECORD_LENGTH
        record_end = position + length
        delta, position = read_varlong(data, position + 1, record_end)  # after the attributes, which are unused
        if position < 0:
            return BAD_RECORD
        timestamp = base_timestamp + delta
        if timestamp != NO_TIMESTAMP:
            smallest = min(smallest, timestamp)
        largest = max(largest, timestamp)
        delta, position = read_varint(data, position, record_end)
        if position < 0:
            return BAD_RECORD
        if (produced and delta != i) or delta <= previous or delta > last_delta:
            return BAD_OFFSET_DELTA
        previous = delta
        length, position = read_varint(data, position, record_end)
        if position < 0 or length < -1 or length > record_end - position:
            return BAD_RECORD
        if length < 0:
            key_nulls += 1
        else:
            key_bytes += length
            position += length
        length, position = read_varint(data, position, record_end)
        if position < 0 or length < -1 or length > record_end - position:
            return BAD_RECORD
        if length < 0:
            value_nulls += 1
        else:
            value_bytes += length
            position += length
        headers, position = read_varint(data, position, record_end)
        if position < 0:
            return BAD_RECORD
        if headers != 0:
            if headers < 0 or headers > (record_end - position) // 2:
                return BAD_HEADER_COUNT
            status, position = _measure_headers(data, position, record_end, headers, numbers)
            if status != OK:
                return status
        if position != record_end:
            return BAD_RECORD_LENGTH
    if position != end:
        return TRAILING_BYTES
    numbers[at.ROWS] = count
    numbers[at.KEY_NULLS], numbers[at.VALUE_NULLS] = key_nulls, value_nulls
    numbers[KEY_BYTES], numbers[VALUE_BYTES] = key_bytes, value_bytes
    if count:
        numbers[MIN_TIMESTAMP] = min(smallest, max(largest, NO_TIMESTAMP))
        if produced:  # the caller checks both timestamps and lists the records out of range
            numbers[FIRST_HEADER_FIELD + at.MAX_TIMESTAMP] = largest
        elif smallest < EARLIEST_TIMESTAMP_MS or largest > LATEST_TIMESTAMP_MS:
            return TIMESTAMP_OUT_OF_RANGE
    return OK


@compiled()
def _place(numbers: Int64s, buffer: int, position: int, length: int) -> int:
    numbers[at.FIRST_BUFFER + 2 * buffer] = position
    numbers[at.FIRST_BUFFER + 2 * buffer + 1] = length
    return (position + length + 7) & ~7


@compiled()
def lay_out(numbers: Int64s) -> int:
    """Set the position of each buffer of the body and return the body's length."""
    rows = numbers[at.ROWS]
    inner = numbers[at.HEADER_ROWS]
    p = _place(numbers, at.OFFSET_DATA - 1, 0, 0)
    p = _place(numbers, at.OFFSET_DATA, p, 8 * rows)
    p = _place(numbers, at.TIMESTAMP_DATA - 1, p, 0)
    p = _place(numbers, at.TIMESTAMP_DATA, p, 8 * rows)
    p = _place(numbers, at.KEY_VALIDITY, p, bitmap_bytes(rows, numbers[at.KEY_NULLS]))
    p = _place(numbers, at.KEY_OFFSETS, p, 4 * (rows + 1))
    p = _place(numbers, at.KEY_DATA, p, numbers[KEY_BYTES])
    p = _place(numbers, at.VALUE_VALIDITY, p, bitmap_bytes(rows, numbers[at.VALUE_NULLS]))
    p = _place(numbers, at.VALUE_OFFSETS, p, 4 * (rows + 1))
    p = _place(numbers, at.VALUE_DATA, p, numbers[VALUE_BYTES])
    p = _place(numbers, at.HEADERS_OFFSETS - 1, p, 0)
    p = _place(numbers, at.HEADERS_OFFSETS, p, 4 * (rows + 1))
    p = _place(numbers, at.HEADERS_OFFSETS + 1, p, 0)
    p = _place(numbers, at.HEADER_KEY_OFFSETS - 1, p, 0)
    p = _place(numbers, at.HEADER_KEY_OFFSETS, p, 4 * (inner + 1))
    p = _place(numbers, at.HEADER_KEY_DATA, p, numbers[HEADER_KEY_BYTES])
    p = _place(numbers, at.HEADER_VALUE_VALIDITY, p, bitmap_bytes(inner, numbers[at.HEADER_VALUE_NULLS]))
    p = _place(numbers, at.HEADER_VALUE_OFFSETS, p, 4 * (inner + 1))
    return _place(numbers, at.HEADER_VALUE_DATA, p, numbers[HEADER_VALUE_BYTES])


@compiled()
def start_of(numbers: Int64s, buffer: int) -> int:
    found: int = numbers[at.FIRST_BUFFER + 2 * buffer]
    return found


@compiled()
def _clear_bits(numbers: Int64s, buffer: int, out: Bytes) -> None:
    for i in range(start_of(numbers, buffer), start_of(numbers, buffer) + numbers[at.FIRST_BUFFER + 2 * buffer + 1]):
        store_u8(out, i, 0)


@compiled()
def _pad(numbers: Int64s, out: Bytes, end: int) -> None:
    """Zero the padding between the buffers."""
    for buffer in range(at.BUFFERS):
        position = start_of(numbers, buffer) + numbers[at.FIRST_BUFFER + 2 * buffer + 1]
        stop = start_of(numbers, buffer + 1) if buffer + 1 < at.BUFFERS else end
        while position < stop:
            store_u8(out, position, 0)
            position += 1


@compiled()
def _fill_headers(data: Bytes, position: int, end: int, count: int, layout: Int64s, out: Bytes, cursor: Int64s) -> int:
    """Copy the headers of one record to the rows from the cursor on. Return the position after them."""
    key_offsets, key_data = start_of(layout, at.HEADER_KEY_OFFSETS), start_of(layout, at.HEADER_KEY_DATA)
    value_offsets, value_data = start_of(layout, at.HEADER_VALUE_OFFSETS), start_of(layout, at.HEADER_VALUE_DATA)
    bits, nulls = start_of(layout, at.HEADER_VALUE_VALIDITY), layout[at.HEADER_VALUE_NULLS]
    first = cursor[_HEADER_ROW]
    k, v = key_data + cursor[_HEADER_KEY], value_data + cursor[_HEADER_VALUE]
    for row in range(first, first + count):
        length, position = read_varint(data, position, end)
        k = store_key(data, position, length, out, k)
        position += length
        store_i32(out, key_offsets + 4 * (row + 1), k - key_data)
        length, position = read_varint(data, position, end)
        if length >= 0:
            copy(out, v, data, position, length)
            position += length
            v += length
            if nulls:
                set_bit(out, bits, row)
        store_i32(out, value_offsets + 4 * (row + 1), v - value_data)
    cursor[_HEADER_ROW] = first + count
    cursor[_HEADER_KEY], cursor[_HEADER_VALUE] = k - key_data, v - value_data
    return position


@compiled()
def begin_fill(layout: Int64s, out: Bytes, end: int) -> None:
    """Write to a body what does not come from records: padding, clear bitmaps, the first of each column's offsets."""
    _clear_bits(layout, at.KEY_VALIDITY, out)
    _clear_bits(layout, at.VALUE_VALIDITY, out)
    _clear_bits(layout, at.HEADER_VALUE_VALIDITY, out)
    for buffer in (
        at.KEY_OFFSETS,
        at.VALUE_OFFSETS,
        at.HEADERS_OFFSETS,
        at.HEADER_KEY_OFFSETS,
        at.HEADER_VALUE_OFFSETS,
    ):
        store_i32(out, start_of(layout, buffer), 0)
    _pad(layout, out, end)


@compiled()
def fill(data: Bytes, position: int, end: int, numbers: Int64s, layout: Int64s, out: Bytes, cursor: Int64s) -> None:
    """Copy the records of a batch, which `measure_records` has validated, to the body of `layout` (second pass).

    layout: of the batch alone (`numbers` itself), or of several. cursor: int64[CURSOR], where they begin, and after that end.
    """
    header = FIRST_HEADER_FIELD
    base_offset = numbers[header + at.BASE_OFFSET]
    base_timestamp = numbers[header + at.BASE_TIMESTAMP]
    append_time = numbers[header + at.ATTRIBUTES] & at.ATTRIBUTE_LOG_APPEND_TIME != 0
    max_timestamp = numbers[header + at.MAX_TIMESTAMP]
    offsets, timestamps = start_of(layout, at.OFFSET_DATA), start_of(layout, at.TIMESTAMP_DATA)
    key_bits, key_offsets, key_data = (
        start_of(layout, at.KEY_VALIDITY),
        start_of(layout, at.KEY_OFFSETS),
        start_of(layout, at.KEY_DATA),
    )
    value_bits, value_offsets = start_of(layout, at.VALUE_VALIDITY), start_of(layout, at.VALUE_OFFSETS)
    value_data, headers_offsets = start_of(layout, at.VALUE_DATA), start_of(layout, at.HEADERS_OFFSETS)
    key_nulls, value_nulls = layout[at.KEY_NULLS], layout[at.VALUE_NULLS]
    first = cursor[_ROW]
    key, value = key_data + cursor[_KEY], value_data + cursor[_VALUE]
    header_row = cursor[_HEADER_ROW]
    for i in range(first, first + numbers[at.ROWS]):
        length, position = read_varint(data, position, end)
        delta, position = read_varlong(data, position + 1, end)
        store_i64(out, timestamps + 8 * i, max_timestamp if append_time else base_timestamp + delta)
        delta, position = read_varint(data, position, end)
        store_i64(out, offsets + 8 * i, base_offset + delta)
        length, position = read_varint(data, position, end)
        if length >= 0:
            copy(out, key, data, position, length)
            position += length
            key += length
            if key_nulls:
                set_bit(out, key_bits, i)
        store_i32(out, key_offsets + 4 * (i + 1), key - key_data)
        length, position = read_varint(data, position, end)
        if length >= 0:
            copy(out, value, data, position, length)
            position += length
            value += length
            if value_nulls:
                set_bit(out, value_bits, i)
        store_i32(out, value_offsets + 4 * (i + 1), value - value_data)
        headers, position = read_varint(data, position, end)
        if headers:
            position = _fill_headers(data, position, end, headers, layout, out, cursor)
            header_row += headers
        store_i32(out, headers_offsets + 4 * (i + 1), header_row)
    cursor[_ROW] = first + numbers[at.ROWS]
    cursor[_KEY], cursor[_VALUE] = key - key_data, value - value_data


@compiled()
def _read_control(data: Bytes, position: int, end: int, numbers: Int64s) -> int:
    """Read a control batch: one record with key (version, type) and value (version, coordinator epoch)."""
    if numbers[CLAIMED] != 1 or numbers[KEY_BYTES] < wire.CONTROL_KEY_BYTES:
        return BAD_CONTROL_RECORD
    _, position = read_varint(data, position, end)
    _, position = read_varlong(data, position + 1, end)
    _, position = read_varint(data, position, end)
    length, position = read_varint(data, position, end)
    numbers[FIRST_HEADER_FIELD + at.CONTROL_TYPE] = big_i16(data, position + 2)
    position += length
    length, position = read_varint(data, position, end)
    if length >= wire.CONTROL_VALUE_BYTES:
        numbers[FIRST_HEADER_FIELD + at.COORDINATOR_EPOCH] = big_i32(data, position + 2)
    for field in (at.ROWS, at.HEADER_ROWS, at.KEY_NULLS, at.VALUE_NULLS, at.HEADER_VALUE_NULLS):
        numbers[field] = 0
    for field in (KEY_BYTES, VALUE_BYTES, HEADER_KEY_BYTES, HEADER_VALUE_BYTES, FIRST_HEADER_FIELD + at.RECORDS):
        numbers[field] = 0
    return OK


@compiled()
def measure_records(records: Bytes, begin: int, end: int, produced: int, numbers: Int64s) -> int:
    """Validate uncompressed records and add up their columns. Set `ROOM` of `numbers` to the bytes of their body, lay it out."""
    status = _measure(records, begin, end, produced, numbers)
    if status != OK:
        return status
    if numbers[FIRST_HEADER_FIELD + at.ATTRIBUTES] & at.ATTRIBUTE_CONTROL:
        status = _read_control(records, begin, end, numbers)
        if status != OK:
            return status
    numbers[ROOM] = lay_out(numbers)
    return BODY_TOO_LARGE if numbers[ROOM] > LARGEST_BODY else OK


@compiled(allocates=True)
def _read_records(records: Bytes, begin: int, end: int, produced: int, numbers: Int64s, out: Bytes) -> int:
    status = measure_records(records, begin, end, produced, numbers)
    if status != OK:
        return status
    if numbers[ROOM] > len(out):
        return NEEDS_ROOM
    begin_fill(numbers, out, numbers[ROOM])
    fill(records, begin, end, numbers, numbers, out, np.zeros(CURSOR, dtype=np.int64))
    return OK


@compiled()
def check_header(data: Bytes, position: int, end: int, produced: bool, magic: int, numbers: Int64s) -> int:
    """Do what `check_batch` does, for a batch with this magic."""
    status = _check_batch(data, position, end, produced, magic)
    if status == OK:
        _read_header(data, position, numbers)
    return int(status)


@compiled("int64(view, int64, int64, boolean, int64[::1])")
def check_batch(data: Bytes, position: int, end: int, produced: bool, numbers: Int64s) -> int:
    """Check header and checksum of the batch `data[position:end]` (uint8) and unpack the header into `numbers`.

    `produced`: the batch comes from a client, which may not set offsets, write control batches or use log append time.
    """
    return check_header(data, position, end, produced, wire.MAGIC_2, numbers)


@compiled("int64(view, int64, int64, boolean, int64[::1], uint8[::1])")
def read_records(records: Bytes, begin: int, end: int, produced: bool, numbers: Int64s, out: Bytes) -> int:
    """Decode uncompressed records `records[begin:end]` into a body in `out`. `numbers` must be as `check_batch` left it."""
    return _read_records(records, begin, end, produced, numbers, out)


@compiled("int64(view, int64, int64, boolean, int64[::1], uint8[::1])")
def read_batch(data: Bytes, position: int, end: int, produced: bool, numbers: Int64s, out: Bytes) -> int:
    """Run `check_batch` and `read_records` on an uncompressed batch. Fills layout, header and `ROOM` of `numbers`."""
    status = check_header(data, position, end, produced, wire.MAGIC_2, numbers)
    if status != OK:
        return status
    return _read_records(data, position + wire.RECORDS, end, produced, numbers, out)
