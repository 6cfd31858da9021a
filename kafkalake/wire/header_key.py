"""Keys of record headers as valid UTF-8, without losing a byte.

To Kafka a header key is bytes: a broker passes it through, and clients decode it as UTF-8, mostly leniently. In Arrow it
is a `utf8` column, and readers (arrow-rs: Polars, DataFusion, delta-rs) refuse or misbehave on invalid UTF-8. Rejecting
such a record would break Kafka's contract, and replacing bytes would change the consumer's data. So a byte b outside of
valid UTF-8 is stored as the code point U+10FF00 + b, from the end of the private use area. Code points U+10FF80 to
U+10FFFF in a key are escaped byte by byte as well, so that the mapping is reversible. Every other key, that is every key
seen in practice, is stored as it is.

Example: `61 FF` ("a", then invalid UTF-8) is stored as `61 F4 8F BF BF` ("a", U+10FFFF), and is restored as `61 FF`.
"""

from __future__ import annotations

from kafkalake.record.arrays import Bytes
from kafkalake.record.compiled import compiled
from kafkalake.record.memory import copy, load_u8, store_u8

ESCAPED_BYTES = 4
"""Bytes of an escaped byte: F4 8F BE|BF 80..BF."""
_FIRST_ESCAPE = b"\xf4\x8f"


@compiled()
def _continues(data: Bytes, position: int) -> bool:
    return load_u8(data, position) & 0xC0 == 0x80


@compiled()
def _sequence(data: Bytes, position: int, end: int) -> int:
    """Return the length (1 to 4) of the UTF-8 sequence at `position`, 0 if it is invalid or needs escaping.

    Overlong forms, surrogates and values above U+10FFFF are not UTF-8 (RFC 3629).
    """
    first = load_u8(data, position)
    if first < 0x80:
        return 1
    left = end - position
    if first < 0xC2 or first > 0xF4:
        return 0
    if left < 2:
        return 0
    second = load_u8(data, position + 1)
    if second & 0xC0 != 0x80:
        return 0
    if first < 0xE0:
        return 2
    if left < 3 or not _continues(data, position + 2):
        return 0
    if first < 0xF0:
        if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):
            return 0
        return 3
    if left < 4 or not _continues(data, position + 3):
        return 0
    if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
        return 0
    if first == 0xF4 and second == 0x8F and load_u8(data, position + 2) >= 0xBE:
        return 0
    return 4


@compiled()
def stored_bytes(data: Bytes, position: int, length: int) -> int:
    """Return the size of the key `data[position:position + length]` stored as UTF-8."""
    end = position + length
    total = 0
    while position < end:
        step = _sequence(data, position, end)
        total += step if step else ESCAPED_BYTES
        position += step if step else 1
    return total


@compiled()
def store_key(data: Bytes, position: int, length: int, out: Bytes, target: int) -> int:
    """Write the key as UTF-8 to `out[target:]` and return the position after it."""
    end = position + length
    while position < end:
        step = _sequence(data, position, end)
        if step:
            copy(out, target, data, position, step)
            target += step
            position += step
        else:
            byte = load_u8(data, position)
            store_u8(out, target, 0xF4)
            store_u8(out, target + 1, 0x8F)
            store_u8(out, target + 2, 0xBC | (byte >> 6))
            store_u8(out, target + 3, 0x80 | (byte & 0x3F))
            target += ESCAPED_BYTES
            position += 1
    return target


@compiled()
def _escaped(data: Bytes, position: int, end: int) -> int:
    return (
        load_u8(data, position) == 0xF4
        and position + ESCAPED_BYTES <= end
        and load_u8(data, position + 1) == 0x8F
        and load_u8(data, position + 2) >= 0xBE
    )


@compiled()
def wire_bytes(data: Bytes, position: int, length: int) -> int:
    """Return the size on the wire of the stored key `data[position:position + length]`."""
    end = position + length
    total = length
    while position < end:
        if _escaped(data, position, end):
            total -= ESCAPED_BYTES - 1
            position += ESCAPED_BYTES
        else:
            position += 1
    return total


@compiled()
def restore_key(data: Bytes, position: int, length: int, out: Bytes, target: int) -> int:
    """Write the stored key's original bytes to `out[target:]` and return the position after them."""
    end = position + length
    while position < end:
        if _escaped(data, position, end):
            store_u8(out, target, ((load_u8(data, position + 2) & 3) << 6) | (load_u8(data, position + 3) & 0x3F))
            position += ESCAPED_BYTES
        else:
            store_u8(out, target, load_u8(data, position))
            position += 1
        target += 1
    return target


def stored_key(key: bytes) -> bytes:
    """Return a header key that is valid UTF-8 as segments store it: see the module."""
    if _FIRST_ESCAPE not in key:
        return key
    return "".join(
        each if each < "\U0010ff80" else "".join(chr(0x10FF00 + byte) for byte in each.encode())
        for each in key.decode()
    ).encode()
