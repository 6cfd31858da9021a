"""Byte fields of journal records, in Kafka's encodings.

Non-flexible: big-endian integers, strings with an int16 length, bytes with an int32 length, -1 for null. Flexible: lengths
as unsigned varints, one more than the length so that 0 is null, and tagged fields at the end of each structure. Only the types
of the journals' schemas are here. Source: Kafka protocol guide, "Protocol Primitive Types"; KIP-482.
"""

from __future__ import annotations

import struct
import uuid

from kafkalake.errors import LakeError
from kafkalake.unsigned_varint import append_unsigned_varint, read_unsigned_varint

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class JournalFormatError(LakeError):
    """A record of a coordinator's journal in no known format."""


def string(value: str) -> bytes:
    """Return an encoded string with an int16 length."""
    data = value.encode()
    return _INT16.pack(len(data)) + data


def nullable_string(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else string(value)


def sized_bytes(value: bytes) -> bytes:
    """Return encoded bytes with an int32 length."""
    return _INT32.pack(len(value)) + value


def unsigned_varint(value: int) -> bytes:
    """Return an encoded uint32."""
    out = bytearray()
    append_unsigned_varint(out, value)
    return bytes(out)


def compact_string(value: str) -> bytes:
    data = value.encode()
    return unsigned_varint(len(data) + 1) + data


def compact_nullable_string(value: str | None) -> bytes:
    return b"\x00" if value is None else compact_string(value)


def compact_bytes(value: bytes) -> bytes:
    return unsigned_varint(len(value) + 1) + value


def tagged(fields: dict[int, bytes]) -> bytes:
    """Return the tagged fields that end a flexible structure, from tag -> encoded value."""
    out = [unsigned_varint(len(fields))]
    for tag in sorted(fields):
        out += [unsigned_varint(tag), unsigned_varint(len(fields[tag])), fields[tag]]
    return b"".join(out)


class FieldReader:
    """Sequential reader of fields. Every method raises `JournalFormatError` if the bytes do not hold the field."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def raw(self, length: int) -> bytes:
        """Return the next `length` bytes."""
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise JournalFormatError(f"field of {length} bytes at {self._at} of {len(self._data)}")
        data = self._data[self._at : end]
        self._at = end
        return data

    def int8(self) -> int:
        return int.from_bytes(self.raw(1), "big", signed=True)

    def int16(self) -> int:
        return int(_INT16.unpack(self.raw(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self.raw(4))[0])

    def int64(self) -> int:
        return int(_INT64.unpack(self.raw(8))[0])

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.raw(16))

    def count(self) -> int:
        """Return the length of a non-flexible array. Null and more entries than bytes left are refused."""
        return self._checked_count(self.int32())

    def compact_count(self) -> int:
        return self._checked_count(self.unsigned_varint() - 1)

    def string(self) -> str:
        return self._text(self.int16())

    def nullable_string(self) -> str | None:
        length = self.int16()
        return None if length == -1 else self._text(length)

    def sized_bytes(self) -> bytes:
        return self.raw(self.int32())

    def unsigned_varint(self) -> int:
        try:
            value, self._at = read_unsigned_varint(self._data, self._at)
        except IndexError as error:
            raise JournalFormatError(f"no varint at {self._at}: {error}") from None
        return value

    def compact_string(self) -> str:
        return self._text(self.unsigned_varint() - 1)

    def compact_nullable_string(self) -> str | None:
        length = self.unsigned_varint() - 1
        return None if length == -1 else self._text(length)

    def compact_bytes(self) -> bytes:
        return self.raw(self.unsigned_varint() - 1)

    def tagged(self) -> dict[int, bytes]:
        """Return tag -> encoded value of a flexible structure's tagged fields."""
        return {self.unsigned_varint(): self.raw(self.unsigned_varint()) for _ in range(self.unsigned_varint())}

    def end(self) -> None:
        """Raise `JournalFormatError` if bytes are left."""
        if self._at != len(self._data):
            raise JournalFormatError(f"{len(self._data) - self._at} bytes too many at {self._at}")

    def _checked_count(self, count: int) -> int:
        if not 0 <= count <= len(self._data) - self._at:
            raise JournalFormatError(f"array of {count} entries in {len(self._data) - self._at} bytes")
        return count

    def _text(self, length: int) -> str:
        try:
            return self.raw(length).decode()
        except UnicodeDecodeError as error:
            raise JournalFormatError(f"string before {self._at} is not UTF-8") from error
