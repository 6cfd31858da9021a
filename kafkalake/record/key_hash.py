"""A keyed 128-bit hash of record keys (SipHash-2-4-128), so that keys of any length group by two numbers.

A hash collision would lose a record in compaction. A random secret per run prevents prepared collisions, and accidental
ones happen once in 2^128 / n^2 runs: for 10^12 keys, less than once in 10^14 runs.
Source: J.-P. Aumasson, D. J. Bernstein, "SipHash: a fast short-input PRF"; the 128-bit variant of the authors' reference code.
"""

from __future__ import annotations

import numpy as np

from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.bitmap import load_bit
from kafkalake.record.compiled import compiled
from kafkalake.record.memory import load_i32, load_i64, load_u8

Registers = tuple[np.uint64, np.uint64, np.uint64, np.uint64]

_INITIAL = (
    np.uint64(0x736F6D6570736575),
    np.uint64(0x646F72616E646F6D),
    np.uint64(0x6C7967656E657261),
    np.uint64(0x7465646279746573),
)


@compiled()
def _rotated(value: np.uint64, bits: int) -> np.uint64:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@compiled()
def _round(v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64) -> Registers:
    v0 += v1
    v2 += v3
    v1 = _rotated(v1, 13) ^ v0
    v3 = _rotated(v3, 16) ^ v2
    v0 = _rotated(v0, 32) + v3
    v2 += v1
    v3 = _rotated(v3, 21) ^ v0
    v1 = _rotated(v1, 17) ^ v2
    return v0, v1, _rotated(v2, 32), v3


@compiled()
def _siphash(data: Bytes, start: int, length: int, first: np.uint64, second: np.uint64) -> tuple[np.uint64, np.uint64]:
    v0 = first ^ _INITIAL[0]
    v1 = second ^ _INITIAL[1] ^ np.uint64(0xEE)
    v2 = first ^ _INITIAL[2]
    v3 = second ^ _INITIAL[3]
    whole = length & ~7
    for position in range(start, start + whole, 8):
        word = np.uint64(load_i64(data, position))
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
    last = np.uint64(length & 255) << np.uint64(56)
    for index in range(length - whole):
        last |= np.uint64(load_u8(data, start + whole + index)) << np.uint64(8 * index)
    v3 ^= last
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 ^= last
    v2 ^= np.uint64(0xEE)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= np.uint64(0xDD)
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


@compiled("int64(view, int64[::1], int64[:,::1], int64[:,::1], int64[::1], uint8[::1], int64, int64, int64[:,::1])")
def hash_keys(
    data: Bytes,
    starts: Int64s,
    layouts: Int64s,
    headers: Int64s,
    first_batch: Int64s,
    skipped: Bytes,
    first: int,
    second: int,
    out: Int64s,
) -> int:
    """Hash the keys of messages with plain bodies and verified columns `offset` and `key`, and return their number.

    The arrays are those of a `MessageSet`. skipped: uint8[B], 1 for batches to skip. Rows without a key are skipped too.
    first, second: the secret. out int64[3, >= rows]: both halves of the hash, offset.
    """
    key0, key1 = np.uint64(first), np.uint64(second)
    count = 0
    for m in range(len(starts)):
        body = starts[m]
        offsets = body + layouts[m, at.FIRST_BUFFER + 2 * at.OFFSET_DATA]
        bits = body + layouts[m, at.FIRST_BUFFER + 2 * at.KEY_VALIDITY]
        ends = body + layouts[m, at.FIRST_BUFFER + 2 * at.KEY_OFFSETS]
        keys = body + layouts[m, at.FIRST_BUFFER + 2 * at.KEY_DATA]
        nulls = layouts[m, at.KEY_NULLS] > 0
        row = 0
        for b in range(first_batch[m], first_batch[m + 1]):
            rows = headers[b, at.RECORDS]
            if skipped[b]:
                row += rows
                continue
            for r in range(row, row + rows):
                if nulls and not load_bit(data, bits, r):
                    continue
                start = load_i32(data, ends + 4 * r)
                low, high = _siphash(data, keys + start, load_i32(data, ends + 4 * r + 4) - start, key0, key1)
                out[0, count] = np.int64(low)
                out[1, count] = np.int64(high)
                out[2, count] = load_i64(data, offsets + 8 * r)
                count += 1
            row += rows
    return count


@compiled("int64(int64[:,::1], int64, int64, int64[:,::1], int64)")
def keep_newest(keys: Int64s, begin: int, end: int, table: Int64s, room: int) -> int:
    """Insert columns [begin, end) of `hash_keys`' result into a hash table. An existing key gets the larger offset.

    table: int64[slots, 3], slots a power of two: both halves and the offset, -1 in free slots. room: maximum number of new keys.
    Return the number of new keys. If `room` is exhausted, continue with another table from the column in table[slots - 1, 0],
    a slot that is never used for a key.
    """
    last = len(table) - 1
    added = 0
    column = begin
    while column < end and added < room:
        first, second = keys[0, column], keys[1, column]
        slot = (first ^ (second >> 7)) & last
        while slot == last or (table[slot, 2] >= 0 and (table[slot, 0] != first or table[slot, 1] != second)):
            slot = (slot + 1) & last
        if table[slot, 2] < 0:
            table[slot, 0], table[slot, 1] = first, second
            added += 1
        table[slot, 2] = max(table[slot, 2], keys[2, column])
        column += 1
    table[last, 0] = column
    return added
