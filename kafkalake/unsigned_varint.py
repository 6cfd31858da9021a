"""Unsigned varints: seven bits a byte, lowest first, at most 32 bits. Lengths, counts and tags of Kafka's flexible messages.

Source: KIP-482. The varints inside record batches are signed, and read by compiled code (`wire/varint.py`).
"""

from __future__ import annotations

VARINT_BYTES_MAX = 5


def append_unsigned_varint(out: bytearray, value: int) -> None:
    """Append a varint to bytes under construction."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_unsigned_varint(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Return (value, position after it). Raise `IndexError` if the bytes end within it, or it has more than 5 bytes."""
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
    raise IndexError(f"a varint of more than {VARINT_BYTES_MAX} bytes ends at byte {position}")
