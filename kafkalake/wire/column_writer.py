"""Encodes rows of Arrow columns as a record batch v2, or as a batch of columns, in one compiled call.

For producers: keys, values and timestamps as they are in Arrow's buffers, no headers (`arrow_batch` takes those). As many rows are
written as fit into the limit, so that nobody has to know their sizes before. The checksum is computed as rows are written, while
they are in the processor's nearest cache; `producer_stamp` keeps it up to date.

Measured, one core of a slow machine: 100-byte values 33 M rows/s as records, 45 M as columns, with the checksum.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.bitmap import bitmap_bytes, load_bit, set_bit
from kafkalake.record.compiled import compiled
from kafkalake.record.crc32c import START, advance, extend, finish
from kafkalake.record.memory import copy, load_i32, load_i64, store_i32, store_u8
from kafkalake.wire import batch_header as wire
from kafkalake.wire.batch_writer import binary_bytes, small_varint_bytes, write_binary, write_fields
from kafkalake.wire.column_batch import (
    FIXED_BYTES,
    HAS_TIMESTAMPS,
    KEY_NULLS,
    RESERVED,
    SMALLEST_ROW,
    VALUE_NULLS,
)
from kafkalake.wire.compression import NONE
from kafkalake.wire.record_batch import compressed_batch
from kafkalake.wire.varint import store_big_i32, varint_bytes, write_varint

_END, _ROW = 0, 1
_NO_VIEW = np.empty(0, dtype=np.uint8)
_OFFSET = struct.Struct("<i")
_OVERHEAD = 5 + 1 + 10 + 5 + 5 + 5 + 1
"""Largest size of a record without its key and value."""
_CHECKED_BYTES = 12_288
"""Bytes of rows after which their checksum is computed."""
_WRITE = "void(view, view, view, view, view, view, view, int64[::1], int64, int64, int64, int64[:,::1], uint8[::1], int64[::1])"
"""The signature of both kernels, so that a writer has one of them."""


@compiled()
def _present(bits: Bytes, row: int) -> int:
    return len(bits) == 0 or load_bit(bits, 0, row) != 0


@compiled()
def _length(offsets: Bytes, row: int) -> int:
    if len(offsets) == 0:
        return 0
    return load_i32(offsets, 4 * row + 4) - load_i32(offsets, 4 * row)


@compiled()
def _begin(offsets: Bytes, row: int) -> int:
    return load_i32(offsets, 4 * row) if len(offsets) else 0


@compiled()
def _write_header(header: Int64s, rows: int, base: int, newest: int, out: Bytes, end: int) -> None:
    """Write the header before the rows at `out[61:end]`. base, newest: their first and their largest timestamp."""
    header[0, at.RECORDS] = rows
    header[0, at.LAST_OFFSET_DELTA] = rows - 1
    header[0, at.BASE_TIMESTAMP] = base
    header[0, at.MAX_TIMESTAMP] = newest
    write_fields(header, 0, rows, out, 0, end)


@compiled()
def _is_final(header: Int64s) -> bool:
    """Return whether the batch stays as it is written: what is compressed gets its checksum then."""
    codec: int = header[0, at.ATTRIBUTES] & at.ATTRIBUTE_COMPRESSION_MASK
    return codec == 0


@compiled()
def _write_checksum(out: Bytes, crc: np.uint64, checked: int, end: int) -> None:
    """Write the checksum of the batch `out[:end]`. crc: the register of the bytes before `checked` behind the header, from 0."""
    crc = extend(crc, out, checked, end)
    header = extend(START, out, wire.ATTRIBUTES, wire.RECORDS)
    store_big_i32(out, wire.CRC, int(np.int64(finish(advance(header, end - wire.RECORDS) ^ crc))))


@compiled(_WRITE)
def _write_rows(
    key_bits: Bytes,
    key_offsets: Bytes,
    key_data: Bytes,
    value_bits: Bytes,
    value_offsets: Bytes,
    value_data: Bytes,
    timestamps: Bytes,
    shifts: Int64s,
    row: int,
    rows: int,
    timestamp_ms: int,
    header: Int64s,
    out: Bytes,
    result: Int64s,
) -> None:
    """Write rows [row, rows) while they fit into `out`. result: the end of the batch (-1 if no row fits) and the next row.

    shifts: the first row in the buffers of keys, values and timestamps.
    """
    first = row
    p = checked = wire.RECORDS
    crc = np.uint64(0)
    is_final = _is_final(header)
    base = load_i64(timestamps, 8 * (row + shifts[2])) if len(timestamps) else timestamp_ms
    newest = base
    while row < rows:
        key, value = row + shifts[0], row + shifts[1]
        timestamp = load_i64(timestamps, 8 * (row + shifts[2])) if len(timestamps) else timestamp_ms
        has_key = len(key_offsets) != 0 and _present(key_bits, key)
        has_value = len(value_offsets) != 0 and _present(value_bits, value)
        key_length = _length(key_offsets, key) if has_key else 0
        value_length = _length(value_offsets, value) if has_value else 0
        size = 1 + varint_bytes(timestamp - base) + small_varint_bytes(row - first) + 1
        size += binary_bytes(key_length, has_key) + binary_bytes(value_length, has_value)
        if p + small_varint_bytes(size) + size > len(out):
            break
        p = write_varint(out, p, size)
        store_u8(out, p, 0)
        p = write_varint(out, p + 1, timestamp - base)
        p = write_varint(out, p, row - first)
        p = write_binary(key_data, _begin(key_offsets, key), key_length, has_key, out, p)
        p = write_binary(value_data, _begin(value_offsets, value), value_length, has_value, out, p)
        p = write_varint(out, p, 0)
        newest = max(newest, timestamp)
        row += 1
        if is_final and p >= checked + _CHECKED_BYTES:
            crc = extend(crc, out, checked, checked + _CHECKED_BYTES)
            checked += _CHECKED_BYTES
    result[_ROW] = row
    if row == first:
        result[_END] = -1
        return
    _write_header(header, row - first, base, newest, out, p)
    if is_final:
        _write_checksum(out, crc, checked, p)
    result[_END] = p


@compiled()
def _rows_that_fit(
    key_bits: Bytes,
    key_offsets: Bytes,
    value_bits: Bytes,
    value_offsets: Bytes,
    timestamps: Bytes,
    shifts: Int64s,
    row: int,
    end: int,
    room: int,
) -> int:
    """Return the end of the rows from `row` on that fit into a batch of columns, and about as many bytes of records."""
    first = row
    has_key = 1 if len(key_offsets) else 0
    fixed = max(SMALLEST_ROW * (1 + has_key) + (8 if len(timestamps) else 0), wire.SMALLEST_RECORD)
    size = wire.RECORDS + FIXED_BYTES
    while row < end:
        key, value = row + shifts[0], row + shifts[1]
        size += fixed + (_length(value_offsets, value) if _present(value_bits, value) else 0)
        if has_key and _present(key_bits, key):
            size += _length(key_offsets, key)
        if size + 2 * bitmap_bytes(row + 1 - first, 1) > room:
            break
        row += 1
    return row


@compiled()
def _nulls(bits: Bytes, first: int, rows: int) -> int:
    found = 0
    if len(bits):
        for i in range(first, first + rows):
            found += 1 - load_bit(bits, 0, i)
    return found


@compiled()
def _write_column(
    bits: Bytes, offsets: Bytes, data: Bytes, first: int, rows: int, nulls: int, out: Bytes, position: int
) -> int:
    """Write a column of a batch: bitmap, ends, bytes. Return the position after it."""
    bitmap = position
    position += bitmap_bytes(rows, nulls)
    for i in range(bitmap, position):
        store_u8(out, i, 0)
    ends = position
    position += 4 * rows
    start = position
    if not nulls and len(offsets):
        begin = load_i32(offsets, 4 * first)
        for i in range(rows):
            store_i32(out, ends + 4 * i, load_i32(offsets, 4 * (first + i) + 4) - begin)
        length = load_i32(offsets, 4 * (first + rows)) - begin
        copy(out, start, data, begin, length)
        return start + length
    for i in range(rows):
        if _present(bits, first + i) and len(offsets):
            length = _length(offsets, first + i)
            copy(out, position, data, _begin(offsets, first + i), length)
            position += length
            set_bit(out, bitmap, i)
        store_i32(out, ends + 4 * i, position - start)
    return position


@compiled(_WRITE)
def _write_columns(
    key_bits: Bytes,
    key_offsets: Bytes,
    key_data: Bytes,
    value_bits: Bytes,
    value_offsets: Bytes,
    value_data: Bytes,
    timestamps: Bytes,
    shifts: Int64s,
    row: int,
    rows: int,
    timestamp_ms: int,
    header: Int64s,
    out: Bytes,
    result: Int64s,
) -> None:
    """Write a batch of columns (`column_batch`). Arguments as of `_write_rows`."""
    has_key = 1 if len(key_offsets) else 0
    end = _rows_that_fit(key_bits, key_offsets, value_bits, value_offsets, timestamps, shifts, row, rows, len(out))
    count = end - row
    result[_ROW] = end
    result[_END] = -1
    if not count:
        return
    key_nulls = _nulls(key_bits, row + shifts[0], count) if has_key else count
    value_nulls = _nulls(value_bits, row + shifts[1], count) if len(value_offsets) else count
    p = wire.RECORDS
    store_i32(out, p + KEY_NULLS, key_nulls)
    store_i32(out, p + VALUE_NULLS, value_nulls)
    store_i32(out, p + HAS_TIMESTAMPS, 1 if len(timestamps) else 0)
    store_i32(out, p + RESERVED, 0)
    p += FIXED_BYTES
    base = newest = timestamp_ms
    if len(timestamps):
        base = newest = load_i64(timestamps, 8 * (row + shifts[2]))
        for i in range(row + shifts[2], end + shifts[2]):
            newest = max(newest, load_i64(timestamps, 8 * i))
        copy(out, p, timestamps, 8 * (row + shifts[2]), 8 * count)
        p += 8 * count
    if key_nulls < count:
        p = _write_column(key_bits, key_offsets, key_data, row + shifts[0], count, key_nulls, out, p)
    p = _write_column(value_bits, value_offsets, value_data, row + shifts[1], count, value_nulls, out, p)
    _write_header(header, count, base, newest, out, p)
    if _is_final(header):
        _write_checksum(out, np.uint64(0), wire.RECORDS, p)
    store_u8(out, wire.MAGIC, wire.MAGIC_COLUMNS)
    result[_END] = p


class _Binary(NamedTuple):
    """The buffers of a binary column, and its first row in them. Without a column all are empty: nulls."""

    bits: Bytes = _NO_VIEW
    offsets: Bytes = _NO_VIEW
    data: Bytes = _NO_VIEW
    shift: int = 0

    def bytes_between(self, row: int, end: int) -> int:
        """Return the bytes of the values of rows [row, end)."""
        if not len(self.offsets):
            return 0
        first, last = 4 * (self.shift + row), 4 * (self.shift + end)
        return int(_OFFSET.unpack_from(self.offsets.data, last)[0] - _OFFSET.unpack_from(self.offsets.data, first)[0])


class ColumnWriter:
    """Writes the rows of columns, batch after batch. All have as many rows; without keys or timestamps those are None."""

    def __init__(
        self,
        values: pa.BinaryArray,
        keys: pa.BinaryArray | None,
        timestamps: pa.TimestampArray | None,
        *,
        timestamp_ms: int,
        codec: int = NONE,
        transactional: bool = False,
        as_columns: bool = False,
    ) -> None:
        """timestamps: of unit ms, without nulls; `timestamp_ms` without them. codec: a number of `codecs.NAMES`.

        as_columns: write batches of columns, for brokers that take them.
        """
        self._rows = len(values)
        self._row = 0
        self._values = _binary(values)
        self._keys = _Binary() if keys is None else _binary(keys)
        self._timestamps = _NO_VIEW if timestamps is None else _view(timestamps.buffers()[1])
        shift = 0 if timestamps is None else timestamps.offset
        self._shifts = np.array([self._keys.shift, self._values.shift, shift], dtype=np.int64)
        self._timestamp_ms = timestamp_ms
        self._codec = codec
        header = np.zeros((1, at.HEADER_FIELDS), dtype=np.int64)
        header[0, [at.LEADER_EPOCH, at.PRODUCER_ID, at.PRODUCER_EPOCH, at.BASE_SEQUENCE]] = -1
        header[0, at.ATTRIBUTES] = codec | (at.ATTRIBUTE_TRANSACTIONAL if transactional else 0)
        self._header = header
        self._kernel = _write_columns if as_columns else _write_rows

    @property
    def rows_left(self) -> int:
        """The number of rows that are not written yet."""
        return self._rows - self._row

    def write(self, largest: int, largest_record: int) -> tuple[memoryview, int]:
        """Return the next batch, of at most `largest` bytes before compression, and its number of rows.

        A row that does not fit is a batch of its own, up to `largest_record` bytes. Raise `ValueError` if it has more.
        """
        result = np.empty(2, dtype=np.int64)
        out = np.empty(max(min(largest, self._bytes_left()), wire.RECORDS), dtype=np.uint8)
        self._write(self._rows, out, result)
        if result[_END] < 0:
            out = np.empty(wire.RECORDS + _OVERHEAD + largest_record, dtype=np.uint8)
            self._write(self._row + 1, out, result)
        if result[_END] < 0:
            raise ValueError(f"row {self._row} is larger than {largest_record} bytes")
        end, row = result.tolist()
        count = row - self._row
        self._row = row
        if self._codec:
            return memoryview(bytearray(compressed_batch(out[:end]))), count
        # A batch that needs less than it has keeps no more than it needs.
        return out.data[:end] if 2 * end > len(out) else out[:end].copy().data, count

    def _bytes_left(self) -> int:
        """Return an upper bound on the bytes of one batch with all rows that are left."""
        data = sum(column.bytes_between(self._row, self._rows) for column in (self._keys, self._values))
        return wire.RECORDS + FIXED_BYTES + _OVERHEAD * self.rows_left + data

    def _write(self, end: int, out: Bytes, result: Int64s) -> None:
        keys, values = self._keys, self._values
        self._kernel(
            keys.bits,
            keys.offsets,
            keys.data,
            values.bits,
            values.offsets,
            values.data,
            self._timestamps,
            self._shifts,
            self._row,
            end,
            self._timestamp_ms,
            self._header,
            out,
            result,
        )


def _binary(column: pa.BinaryArray) -> _Binary:
    bits, offsets, data = column.buffers()
    has_nulls = bits is not None and column.null_count
    return _Binary(_view(bits) if has_nulls else _NO_VIEW, _view(offsets), _view(data), column.offset)


def _view(buffer: pa.Buffer | None) -> Bytes:
    if buffer is None or not buffer.size:
        return _NO_VIEW
    return np.frombuffer(buffer, dtype=np.uint8)
