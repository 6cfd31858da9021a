"""Zigzag varints of Kafka's records, and big-endian numbers of its batch header, for the kernels.

A varint is the value v, zigzag-encoded so that small negatives stay short (`v >= 0 -> 2 v`, `v < 0 -> -2 v - 1`), in groups
of seven bits, the lowest first, with the top bit set in each byte but the last. Example: 300 -> 600 = 0b100_1011000 ->
D8 04. Source: Kafka's message format, "Varints"; Protocol Buffers encoding. Readers return the position after the
number, or -1 if it runs past `end` or is too long.
"""

from __future__ import annotations

from kafkalake.record.arrays import Bytes
from kafkalake.record.compiled import compiled
from kafkalake.record.memory import load_i32, load_i64, load_u8, load_u32, store_i16, store_i32, store_i64, store_u8

VARINT_BYTES = 5
VARLONG_BYTES = 10


@compiled()
def _read_long_form(data: Bytes, position: int, end: int, most: int) -> tuple[int, int]:
    raw = 0
    for k in range(most):
        if position >= end:
            return 0, -1
        byte = load_u8(data, position)
        position += 1
        raw |= (byte & 127) << (7 * k)
        if byte < 128:
            return ((raw >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(raw & 1), position
    return 0, -1


@compiled()
def read_varint(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """Read an int32 in 1 to 5 bytes at `data[position:end]`. Return (value, next position or -1)."""
    if position < end:
        byte = load_u8(data, position)
        if byte < 128:
            return (byte >> 1) ^ -(byte & 1), position + 1
    value, position = _read_long_form(data, position, end, VARINT_BYTES)
    if value < -0x80000000 or value > 0x7FFFFFFF:
        return 0, -1
    return value, position


@compiled()
def read_varlong(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """Read an int64 in 1 to 10 bytes at `data[position:end]`. Return (value, next position or -1)."""
    if position < end:
        byte = load_u8(data, position)
        if byte < 128:
            return (byte >> 1) ^ -(byte & 1), position + 1
    return _read_long_form(data, position, end, VARLONG_BYTES)


@compiled()
def varint_bytes(value: int) -> int:
    """Return the number of bytes `write_varint` writes for an int64."""
    raw = (value << 1) ^ (value >> 63)
    size = 1
    while raw < 0 or raw > 127:
        raw = (raw >> 7) & 0x01FFFFFFFFFFFFFF
        size += 1
    return size


@compiled()
def write_varint(out: Bytes, position: int, value: int) -> int:
    """Write an int64 and return the next position. An int32 is encoded as a 32-bit varint would be."""
    raw = (value << 1) ^ (value >> 63)
    while raw < 0 or raw > 127:
        store_u8(out, position, (raw & 127) | 128)
        raw = (raw >> 7) & 0x01FFFFFFFFFFFFFF
        position += 1
    store_u8(out, position, raw)
    return position + 1


@compiled()
def _swap16(value: int) -> int:
    return ((value & 0xFF) << 8) | ((value >> 8) & 0xFF)


@compiled()
def _swap32(value: int) -> int:
    return ((value & 0xFF) << 24) | ((value & 0xFF00) << 8) | ((value >> 8) & 0xFF00) | ((value >> 24) & 0xFF)


@compiled()
def _swap64(value: int) -> int:
    return (_swap32(value) << 32) | _swap32(value >> 32)


@compiled()
def big_i16(data: Bytes, position: int) -> int:
    """Read a big-endian int16."""
    return (load_u8(data, position) << 8 | load_u8(data, position + 1)) - ((load_u8(data, position) >> 7) << 16)


@compiled()
def big_i32(data: Bytes, position: int) -> int:
    """Read a big-endian int32."""
    value = _swap32(load_i32(data, position))
    return value - ((value >> 31) << 32)


@compiled()
def big_u32(data: Bytes, position: int) -> int:
    """Read a big-endian uint32."""
    return _swap32(load_u32(data, position))


@compiled()
def big_i64(data: Bytes, position: int) -> int:
    """Read a big-endian int64."""
    return _swap64(load_i64(data, position))


@compiled()
def store_big_i16(out: Bytes, position: int, value: int) -> None:
    """Store the low 16 bits of `value`, big-endian."""
    store_i16(out, position, _swap16(value))


@compiled()
def store_big_i32(out: Bytes, position: int, value: int) -> None:
    """Store the low 32 bits of `value`, big-endian."""
    store_i32(out, position, _swap32(value))


@compiled()
def store_big_i64(out: Bytes, position: int, value: int) -> None:
    """Store `value`, big-endian."""
    store_i64(out, position, _swap64(value))
