"""Finds the records of a produced batch that are to be delivered later, by their headers: one compiled call a batch."""

from __future__ import annotations

import numpy as np

from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.bitmap import load_bit
from kafkalake.record.compiled import compiled
from kafkalake.record.memory import load_i16, load_i32, load_i64, load_u8

NOW, CANCELS = -1, -2
"""Not delayed; cancels what waits under its id."""
NOT_A_NUMBER, SEVERAL, BAD_ID, NOT_HERE = -3, -4, -5, -6
"""Faults of a record's headers."""

ID_BYTES_MAX = 255
"""The longest delay id. The ids of all records that wait are in memory."""
FAR_FUTURE_MS = 1 << 60
"""Any number of more than 18 digits."""
NO_ID = -1
_DIGITS_MAX = 18


def _word(text: bytes) -> int:
    return int.from_bytes(text, "little")


_PREFIX, _AT_1, _AT_2 = _word(b"kafkalak"), _word(b"e-delive"), _word(b"r-at")
_DELAY, _MS, _ID = _word(b"e-delay-"), _word(b"ms"), _word(b"id")
_NONE, _IS_AT, _IS_DELAY, _IS_ID = 0, 1, 2, 3


@compiled()
def _kind(body: Bytes, position: int, length: int) -> int:
    """Return which header of ours the key `body[position:position + length]` is."""
    if (length != 18 and length != 20) or load_i64(body, position) != _PREFIX:
        return _NONE
    second = load_i64(body, position + 8)
    if length == 20:
        return _IS_AT if second == _AT_1 and load_i32(body, position + 16) == _AT_2 else _NONE
    if second != _DELAY:
        return _NONE
    last = load_i16(body, position + 16)
    if last == _MS:
        return _IS_DELAY
    return _IS_ID if last == _ID else _NONE


@compiled()
def _number(body: Bytes, begin: int, end: int) -> int:
    """Return the decimal number `body[begin:end]`, `NOT_A_NUMBER` if it is none."""
    if begin == end:
        return NOT_A_NUMBER
    value = 0
    for position in range(begin, end):
        digit = load_u8(body, position) - 48
        if digit < 0 or digit > 9:
            return NOT_A_NUMBER
        value = value * 10 + digit if position - begin < _DIGITS_MAX else FAR_FUTURE_MS
    return value


@compiled()
def _is_null(body: Bytes, layout: Int64s, buffer: int, nulls_at: int, row: int) -> bool:
    """Return whether a value is null, by the validity buffer of its column."""
    if layout[nulls_at] == 0:
        return False
    return load_bit(body, layout[at.FIRST_BUFFER + 2 * buffer], row) == 0


@compiled("int64(view, int64[::1], int64, int64, int64[::1], int64[::1])")
def find_delays(body: Bytes, layout: Int64s, now_ms: int, level_ms: int, due: Int64s, ids: Int64s) -> int:
    """Fill due int64[rows] with when each record of a batch is due (ms since 1970), or one of the codes above.

    body, layout: of a `ProducerBatch`. level_ms: the delay of all records that do not cancel, -1 if their headers say it. Which
    records are `NOW` does not depend on the time, so that a batch that is sent again has the same ones: a time that has passed
    is a due time. Fill ids int64[rows] with the numbers of the headers that are delay ids, among those of all records, or
    `NO_ID`. Return how many records are not `NOW`.
    """
    ids[:] = NO_ID
    if level_ms < 0 and layout[at.HEADER_ROWS] == 0:
        due[:] = NOW
        return 0
    lists = layout[at.FIRST_BUFFER + 2 * at.HEADERS_OFFSETS]
    keys = layout[at.FIRST_BUFFER + 2 * at.HEADER_KEY_OFFSETS]
    key_data = layout[at.FIRST_BUFFER + 2 * at.HEADER_KEY_DATA]
    values = layout[at.FIRST_BUFFER + 2 * at.HEADER_VALUE_OFFSETS]
    value_data = layout[at.FIRST_BUFFER + 2 * at.HEADER_VALUE_DATA]
    found = 0
    for row in range(layout[at.ROWS]):
        when = np.int64(NOW) if level_ms < 0 else now_ms + level_ms
        times = 0
        names = 0
        for header in range(load_i32(body, lists + 4 * row), load_i32(body, lists + 4 * row + 4)):
            key = load_i32(body, keys + 4 * header)
            kind = _kind(body, key_data + key, load_i32(body, keys + 4 * header + 4) - key)
            if kind == _NONE:
                continue
            begin = value_data + load_i32(body, values + 4 * header)
            end = value_data + load_i32(body, values + 4 * header + 4)
            if _is_null(body, layout, at.HEADER_VALUE_VALIDITY, at.HEADER_VALUE_NULLS, header):
                end = begin
            if kind == _IS_ID:
                names += 1 if 0 < end - begin <= ID_BYTES_MAX else 2
                ids[row] = header
                continue
            times += 1
            when = np.int64(_number(body, begin, end))
            if kind == _IS_DELAY and when == 0:
                when = np.int64(NOW)
            elif kind == _IS_DELAY and when > 0:
                when += now_ms
        if times and level_ms >= 0:
            when = np.int64(NOT_HERE)
        elif times > 1:
            when = np.int64(SEVERAL)
        elif when >= NOW and names > 1:
            when = np.int64(BAD_ID)
        elif when >= NOW and names and _is_null(body, layout, at.VALUE_VALIDITY, at.VALUE_NULLS, row):
            when = np.int64(CANCELS)
        due[row] = when
        found += when != NOW
    return found
