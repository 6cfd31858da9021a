"""Kernels that write the metadata of one Arrow message and check it. See `layout.py` for the bytes.

`frame` writes the metadata before a body (`merge.py`). `read_metadata` and `check_columns` verify a message. Each is a single
compiled call for any number of batches.
"""

from __future__ import annotations

import numpy as np

from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.compiled import compiled
from kafkalake.record.crc32c import START, extend, finish
from kafkalake.record.memory import copy, load_i32, load_i64, load_u32, store_i16, store_i32, store_i64

_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", dtype=np.uint8)
_VALUES = np.full(256, 255, dtype=np.uint8)
_VALUES[_ALPHABET] = np.arange(64, dtype=np.uint8)
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)

IN_BODY = -1
"""In place of a checksum: to be computed of the body."""

OK = 0
TORN = -1
"""The bytes end before the message does, as after a crash."""
BAD_MARKER = -2
BAD_LENGTH = -3
BAD_METADATA_CHECKSUM = -4
BAD_METADATA = -5
BAD_BODY_CHECKSUM = -6
REASONS = {
    TORN: "the message is cut short",
    BAD_MARKER: "no message starts here",
    BAD_LENGTH: "a length is out of its range",
    BAD_METADATA_CHECKSUM: "the checksum of the metadata does not match",
    BAD_METADATA: "the metadata is not what kafkalake writes",
    BAD_BODY_CHECKSUM: "the checksum of a column does not match",
}


@compiled()
def _encode_base64(source: Bytes, length: int, target: Bytes, position: int) -> None:
    for i in range(0, length, 3):
        word = (np.int64(source[i]) << 16) | (np.int64(source[i + 1]) << 8) | np.int64(source[i + 2])
        target[position] = _ALPHABET[(word >> 18) & 63]
        target[position + 1] = _ALPHABET[(word >> 12) & 63]
        target[position + 2] = _ALPHABET[(word >> 6) & 63]
        target[position + 3] = _ALPHABET[word & 63]
        position += 4


@compiled()
def _decode_base64(source: Bytes, position: int, target: Bytes, length: int) -> bool:
    """Decode `length` bytes (a multiple of 3). Return False if a character is not base64."""
    bad = np.uint8(0)
    for i in range(0, length, 3):
        a = _VALUES[source[position]]
        b = _VALUES[source[position + 1]]
        c = _VALUES[source[position + 2]]
        d = _VALUES[source[position + 3]]
        bad |= a | b | c | d
        word = (np.int64(a) << 18) | (np.int64(b) << 12) | (np.int64(c) << 6) | np.int64(d)
        target[i] = np.uint8((word >> 16) & 255)
        target[i + 1] = np.uint8((word >> 8) & 255)
        target[i + 2] = np.uint8(word & 255)
        position += 4
    return bool(bad < 64)


@compiled()
def _metadata_crc(message: Bytes, end: int) -> np.uint64:
    crc = extend(START, message, 0, at.VALUE)
    return finish(extend(crc, message, at.METADATA_CRC_END, end))


@compiled("int64(int64)")
def metadata_bytes(batches: int) -> int:
    """Return the number of bytes before the body of a message with that many batches."""
    return ((at.FIRST_HEADER + at.HEADER_CHARACTERS * batches + 1 + 7) // 8) * 8


@compiled()
def _column_range(layout: Int64s, column: int, body_length: int) -> tuple[int, int]:
    """Return the byte range of a column in the body, from its first buffer to the next column's."""
    start = layout[at.FIRST_BUFFER + 2 * at.COLUMN_FIRST_BUFFER[column]]
    if column + 1 == at.COLUMNS:
        return start, body_length
    return start, layout[at.FIRST_BUFFER + 2 * at.COLUMN_FIRST_BUFFER[column + 1]]


@compiled()
def _pack_header(headers: Int64s, k: int, scratch: Bytes) -> None:
    store_i64(scratch, 0, headers[k, at.BASE_OFFSET])
    store_i32(scratch, 8, headers[k, at.LAST_OFFSET_DELTA])
    store_i32(scratch, 12, headers[k, at.LEADER_EPOCH])
    store_i64(scratch, 16, headers[k, at.PRODUCER_ID])
    store_i16(scratch, 24, headers[k, at.PRODUCER_EPOCH])
    store_i16(scratch, 26, headers[k, at.ATTRIBUTES])
    store_i32(scratch, 28, headers[k, at.BASE_SEQUENCE])
    store_i64(scratch, 32, headers[k, at.BASE_TIMESTAMP])
    store_i64(scratch, 40, headers[k, at.MAX_TIMESTAMP])
    store_i32(scratch, 48, headers[k, at.RECORDS])
    store_i16(scratch, 52, headers[k, at.CONTROL_TYPE])
    store_i16(scratch, 54, headers[k, at.FLAGS])
    store_i32(scratch, 56, headers[k, at.COORDINATOR_EPOCH])


@compiled("int64(uint8[::1], int64, int64[::1], int64[:,::1], int64, uint8[::1], int64)")
def frame(
    out: Bytes, body_length: int, layout: Int64s, headers: Int64s, codec: int, scratch: Bytes, value_sum: int
) -> int:
    """Write the metadata before a body that is already at `out[metadata_bytes(K):]` and return the message's length.

    `layout` is the stored body's (compressed lengths unless `codec` is NO_CODEC). scratch uint8[>= 60]. value_sum: the checksum of
    the column `value`, `IN_BODY` if its bytes are all in `out`.
    """
    batches = len(headers)
    body = metadata_bytes(batches)
    copy(out, 0, at.TEMPLATE, 0, at.VALUE)
    store_i32(out, at.METADATA_LENGTH, body - 8)
    store_i64(out, at.BODY_LENGTH, body_length)
    store_i64(out, at.MESSAGE_ROWS, layout[at.ROWS])
    if codec != at.NO_CODEC:
        store_i16(out, at.COMPRESSION_SLOT, at.COMPRESSION_SLOT_VALUE)
        out[at.CODEC] = codec
    for node in range(at.NODES):
        rows = layout[at.ROWS] if node < 5 else layout[at.HEADER_ROWS]
        store_i64(out, at.NODE_START + 16 * node, rows)
    store_i64(out, at.NODE_START + 16 * 2 + 8, layout[at.KEY_NULLS])
    store_i64(out, at.NODE_START + 16 * 3 + 8, layout[at.VALUE_NULLS])
    store_i64(out, at.NODE_START + 16 * 7 + 8, layout[at.HEADER_VALUE_NULLS])
    for i in range(2 * at.BUFFERS):
        store_i64(out, at.BUFFER_START + 8 * i, layout[at.FIRST_BUFFER + i])
    store_i32(out, at.VALUE_LENGTH, 48 + at.HEADER_CHARACTERS * batches)

    for column in range(at.COLUMNS):
        start, end = _column_range(layout, column, body_length)
        if 1 << column == at.VALUE_COLUMN and value_sum != IN_BODY:
            store_i32(scratch, 4 * column, value_sum)
        else:
            store_i32(scratch, 4 * column, np.int64(finish(extend(START, out, body + start, body + end))))
    store_i16(scratch, 20, codec)
    store_i32(scratch, 22, batches)
    store_i32(scratch, 26, 0)
    _encode_base64(scratch, at.TABLE_FIXED_BYTES, out, at.TABLE)
    position = at.FIRST_HEADER
    for k in range(batches):
        _pack_header(headers, k, scratch)
        _encode_base64(scratch, at.BATCH_HEADER_BYTES, out, position)
        position += at.HEADER_CHARACTERS
    while position < body:
        out[position] = 0
        position += 1
    crc = np.int64(_metadata_crc(out, body))
    for digit in range(8):
        out[at.VALUE + digit] = _HEX[(crc >> (28 - 4 * digit)) & 15]
    return body + body_length


@compiled("int64(view, int64, int64, int64[::1])")
def check_frame(data: Bytes, position: int, end: int, lengths: Int64s) -> int:
    """Read the lengths of the message at `data[position:end]`, checking their ranges but no checksum.

    Fills lengths int64[3]: metadata with prefix, body, batches. Return OK, TORN (prefix incomplete), BAD_MARKER or BAD_LENGTH.
    """
    if end - position < at.FIRST_HEADER:
        return TORN
    if load_u32(data, position) != 0xFFFFFFFF:
        return BAD_MARKER
    metadata = 8 + load_i32(data, position + at.METADATA_LENGTH)
    body = load_i64(data, position + at.BODY_LENGTH)
    characters = load_i32(data, position + at.VALUE_LENGTH) - 48
    batches = characters // at.HEADER_CHARACTERS
    if batches < 1 or batches > at.MAXIMUM_BATCHES or batches * at.HEADER_CHARACTERS != characters:
        return BAD_LENGTH
    if metadata != metadata_bytes(batches) or body < 0 or body > 0x7FFFFFFF or body & 7:
        return BAD_LENGTH
    lengths[0] = metadata
    lengths[1] = body
    lengths[2] = batches
    return OK


@compiled()
def _check_layout(layout: Int64s, body: int) -> bool:
    """Return whether the row counts are in range and the buffers are aligned, in order, and inside the body."""
    rows = layout[at.ROWS]
    inner = layout[at.HEADER_ROWS]
    if rows < 0 or inner < 0 or rows > 0x7FFFFFFF or inner > 0x7FFFFFFF:
        return False
    previous = 0
    for buffer in range(at.BUFFERS):
        offset = layout[at.FIRST_BUFFER + 2 * buffer]
        length = layout[at.FIRST_BUFFER + 2 * buffer + 1]
        if offset < previous or length < 0 or offset & 7 or offset + length > body:
            return False
        previous = offset + length
    return True


@compiled()
def _unpack_header(scratch: Bytes, headers: Int64s, k: int) -> None:
    headers[k, at.BASE_OFFSET] = load_i64(scratch, 0)
    headers[k, at.LAST_OFFSET_DELTA] = load_i32(scratch, 8)
    headers[k, at.LEADER_EPOCH] = load_i32(scratch, 12)
    headers[k, at.PRODUCER_ID] = load_i64(scratch, 16)
    headers[k, at.PRODUCER_EPOCH] = np.int16(scratch[24] | (np.int64(scratch[25]) << 8))
    headers[k, at.ATTRIBUTES] = np.int16(scratch[26] | (np.int64(scratch[27]) << 8))
    headers[k, at.BASE_SEQUENCE] = load_i32(scratch, 28)
    headers[k, at.BASE_TIMESTAMP] = load_i64(scratch, 32)
    headers[k, at.MAX_TIMESTAMP] = load_i64(scratch, 40)
    headers[k, at.RECORDS] = load_i32(scratch, 48)
    headers[k, at.CONTROL_TYPE] = np.int16(scratch[52] | (np.int64(scratch[53]) << 8))
    headers[k, at.FLAGS] = np.int16(scratch[54] | (np.int64(scratch[55]) << 8))
    headers[k, at.COORDINATOR_EPOCH] = load_i32(scratch, 56)


@compiled("int64(view, int64, int64[::1], int64[::1], int64[:,::1], int64[::1])", allocates=True)
def read_metadata(data: Bytes, position: int, lengths: Int64s, layout: Int64s, headers: Int64s, sums: Int64s) -> int:
    """Check and unpack the metadata at `position`, with the lengths from `check_frame`. All of it must be in `data`.

    Fills layout int64[LAYOUT_SIZE], headers int64[batches, HEADER_FIELDS], sums int64[6] (column checksums, codec).
    Return OK, BAD_METADATA_CHECKSUM or BAD_METADATA.
    """
    metadata = lengths[0]
    body = lengths[1]
    message = data[position : position + metadata]
    crc = np.int64(_metadata_crc(message, metadata))
    for digit in range(8):
        if message[at.VALUE + digit] != _HEX[(crc >> (28 - 4 * digit)) & 15]:
            return BAD_METADATA_CHECKSUM
    layout[at.ROWS] = load_i64(message, at.MESSAGE_ROWS)
    layout[at.HEADER_ROWS] = load_i64(message, at.NODE_START + 16 * 5)
    layout[at.KEY_NULLS] = load_i64(message, at.NODE_START + 16 * 2 + 8)
    layout[at.VALUE_NULLS] = load_i64(message, at.NODE_START + 16 * 3 + 8)
    layout[at.HEADER_VALUE_NULLS] = load_i64(message, at.NODE_START + 16 * 7 + 8)
    for i in range(2 * at.BUFFERS):
        layout[at.FIRST_BUFFER + i] = load_i64(message, at.BUFFER_START + 8 * i)
    scratch = np.empty(60, dtype=np.uint8)
    if not _decode_base64(message, at.TABLE, scratch, at.TABLE_FIXED_BYTES):
        return BAD_METADATA
    for column in range(at.COLUMNS):
        sums[column] = load_u32(scratch, 4 * column)
    sums[5] = np.int64(np.int16(scratch[20] | (np.int64(scratch[21]) << 8)))
    if load_i32(scratch, 22) != lengths[2] or not _check_layout(layout, body):
        return BAD_METADATA
    for k in range(lengths[2]):
        if not _decode_base64(message, at.FIRST_HEADER + at.HEADER_CHARACTERS * k, scratch, at.BATCH_HEADER_BYTES):
            return BAD_METADATA
        _unpack_header(scratch, headers, k)
    return OK


@compiled("int64(view, int64, int64, int64[::1], int64[::1], int64)")
def check_columns(data: Bytes, body_position: int, body_length: int, layout: Int64s, sums: Int64s, columns: int) -> int:
    """Verify the checksums of the columns in bit mask `columns` (bit c: column c) of a body. Return OK or BAD_BODY_CHECKSUM."""
    for column in range(at.COLUMNS):
        if (columns >> column) & 1:
            start, end = _column_range(layout, column, body_length)
            if np.int64(finish(extend(START, data, body_position + start, body_position + end))) != sums[column]:
                return BAD_BODY_CHECKSUM
    return OK
