"""Avro's binary encoding: functions that read and write the values of a type, made once for a schema.

Values are read without their meaning: strings, decimals and fixeds are bytes, times and enums numbers, maps lists of pairs. So a
record with a string that is no UTF-8 is read nevertheless. Bytes that are no value of the type are those that the jar refuses
(`spark/jvm/io/kafkalake/spark/AvroScanner.java`).
Source: Apache Avro 1.12, "Specification", binary encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kafkalake.config.avro_schema import ARRAY, BYTES, ENUM, FIXED, MAP, NULL, RECORD, UNION, AvroType

_R = TypeVar("_R")
Read = Callable[[bytes, int], tuple[Any, int]]
"""Returns the value that begins at a place, and where it ends. Raises one of `BROKEN` if there is none."""
Skip = Callable[[bytes, int], int]
"""Returns where the value that begins at a place ends, like `Read`."""
Write = Callable[[bytearray, Any], None]
"""Adds a value to bytes."""


class NotAvroError(ValueError):
    """The bytes are no value of the type."""


BROKEN = (NotAvroError, IndexError, struct.error)
_VARINT_SHIFT_MAX = 63
_VARINT_MASK = (1 << 64) - 1
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


def not_null(kind: AvroType) -> AvroType:
    """Return the type of the values of a union that are not null, the wider of two numbers; any other type itself."""
    if kind.kind != UNION:
        return kind
    found = [branch for branch in kind.branches if branch.kind != NULL]
    return next((branch for branch in found if branch.kind in ("long", "double")), found[0])


def reader_of(kind: AvroType) -> Read:
    """Return the function that reads values of a type."""
    if kind.kind == UNION:
        return _of_union([reader_of(branch) for branch in kind.branches])
    if kind.kind == RECORD:
        return _record_reader([field.name for field in kind.fields], [reader_of(field.type) for field in kind.fields])
    if kind.kind in (ARRAY, MAP):
        assert kind.element is not None
        element = reader_of(kind.element)
        return _blocks_reader(element if kind.kind == ARRAY else _pair_reader(element))
    if kind.kind == FIXED:
        size = kind.size
        return lambda data, at: _sized(data, at, size)
    return _SCALAR_READERS[kind.kind]


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), at + 1
    number, shift = byte & 127, 0
    while byte >= 128:
        at += 1
        shift += 7
        if shift > _VARINT_SHIFT_MAX:
            raise NotAvroError
        byte = data[at]
        number |= (byte & 127) << shift
    number &= _VARINT_MASK
    return (number >> 1) ^ -(number & 1), at + 1


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _read_long(data, at)
    if size < 0:
        raise NotAvroError
    return _sized(data, at, size)


def _sized(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    end = at + size
    if end > len(data):
        raise NotAvroError
    return data[at:end], end


_SCALAR_READERS: dict[str, Read] = {
    NULL: lambda data, at: (None, at),
    "boolean": lambda data, at: (data[at] != 0, at + 1),
    "int": _read_long,
    "long": _read_long,
    ENUM: _read_long,
    "float": lambda data, at: (_FLOAT.unpack_from(data, at)[0], at + 4),
    "double": lambda data, at: (_DOUBLE.unpack_from(data, at)[0], at + 8),
    BYTES: _read_bytes,
    "string": _read_bytes,
}


def _of_union(branches: Sequence[Callable[[bytes, int], _R]]) -> Callable[[bytes, int], _R]:
    """Return what does to a value of a union what `branches` do to those of its branches."""
    count = len(branches)
    by_byte = {2 * number: branch for number, branch in enumerate(branches[:64])}

    def of_branch(data: bytes, at: int) -> _R:
        branch = by_byte.get(data[at])
        if branch is not None:
            return branch(data, at + 1)
        number, at = _read_long(data, at)
        if not 0 <= number < count:
            raise NotAvroError
        return branches[number](data, at)

    return of_branch


def skipper_of(kind: AvroType) -> Skip:
    """Return the function that passes over values of a type, and refuses the bytes that the reader refuses."""
    if kind.kind == UNION:
        skip = _of_union([skipper_of(branch) for branch in kind.branches])
        return _optional_skipper(kind, skip) if len(kind.branches) == 2 and kind.is_nullable else skip
    if kind.kind in _SIZES or kind.kind == FIXED:
        size = _SIZES.get(kind.kind, kind.size)
        return lambda data, at: _skip(data, at, size)
    if kind.kind in ("int", "long", ENUM):
        return _skip_long
    if kind.kind in (BYTES, "string"):
        return _skip_bytes
    read = reader_of(kind)
    return lambda data, at: read(data, at)[1]


_SIZES = {NULL: 0, "boolean": 1, "float": 4, "double": 8}


def _skip(data: bytes, at: int, size: int) -> int:
    at += size
    if at > len(data):
        raise NotAvroError
    return at


def _skip_long(data: bytes, at: int) -> int:
    return at + 1 if data[at] < 128 else _read_long(data, at)[1]


def _skip_bytes(data: bytes, at: int) -> int:
    size, at = _read_long(data, at)
    at += size
    if size < 0 or at > len(data):
        raise NotAvroError
    return at


def _optional_skipper(kind: AvroType, skip_any: Skip) -> Skip:
    """Return what passes over short values in one step, as most are, and leaves others, and those that are none, to `skip_any`."""
    of_value = 2 * kind.branches.index(not_null(kind))
    inner = not_null(kind)

    def skip_long(data: bytes, at: int) -> int:
        byte = data[at]
        if byte == of_value and data[at + 1] < 128:
            return at + 2
        return at + 1 if byte == 2 - of_value else skip_any(data, at)

    def skip_bytes(data: bytes, at: int) -> int:
        byte = data[at]
        if byte == of_value:
            size = data[at + 1]
            end = at + 2 + (size >> 1)
            if size < 128 and not size & 1 and end <= len(data):
                return end
        return at + 1 if byte == 2 - of_value else skip_any(data, at)

    size = 1 + _SIZES.get(inner.kind, inner.size)

    def skip_sized(data: bytes, at: int) -> int:
        byte = data[at]
        if byte == of_value and at + size <= len(data):
            return at + size
        return at + 1 if byte == 2 - of_value else skip_any(data, at)

    if inner.kind in ("int", "long", ENUM):
        return skip_long
    if inner.kind in (BYTES, "string"):
        return skip_bytes
    return skip_sized if inner.kind in _SIZES or inner.kind == FIXED else skip_any


def _record_reader(names: Sequence[str], fields: Sequence[Read]) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        found = {}
        for name, field in zip(names, fields, strict=True):
            found[name], at = field(data, at)
        return found, at

    return read


def _pair_reader(value: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        key, at = _read_bytes(data, at)
        found, at = value(data, at)
        return (key, found), at

    return read


def _blocks_reader(element: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        found: list[Any] = []
        while True:
            count, at = _read_long(data, at)
            if count < 0:
                count = -count
                _, at = _read_long(data, at)  # the bytes of the block
            if count > len(data) - at:  # each element has at least one
                raise NotAvroError
            if not count:
                return found, at
            for _ in range(count):
                item, at = element(data, at)
                found.append(item)

    return read


def writer_of(kind: AvroType) -> Write:
    """Return the function that writes values of a type, which it takes as they are read; null only where that is a branch."""
    if kind.kind == UNION:
        return _union_writer(kind)
    if kind.kind == RECORD:
        fields = [(field.name, writer_of(field.type)) for field in kind.fields]

        def write_record(out: bytearray, value: Any) -> None:
            for name, write in fields:
                write(out, value[name])

        return write_record
    if kind.kind in (ARRAY, MAP):
        assert kind.element is not None
        return _blocks_writer(writer_of(kind.element), is_map=kind.kind == MAP)
    if kind.kind == FIXED:
        return bytearray.extend
    return _SCALAR_WRITERS[kind.kind]


def _write_long(out: bytearray, number: int) -> None:
    number = (number << 1) ^ (number >> 63)
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def _write_bytes(out: bytearray, value: bytes) -> None:
    _write_long(out, len(value))
    out += value


_SCALAR_WRITERS: dict[str, Write] = {
    "boolean": lambda out, value: out.append(value),
    "int": _write_long,
    "long": _write_long,
    ENUM: _write_long,
    "float": lambda out, value: out.extend(_FLOAT.pack(value)),
    "double": lambda out, value: out.extend(_DOUBLE.pack(value)),
    BYTES: _write_bytes,
    "string": _write_bytes,
}


def _union_writer(kind: AvroType) -> Write:
    of_values = kind.branches.index(not_null(kind))
    of_null = next((number for number, branch in enumerate(kind.branches) if branch.kind == NULL), -1)
    write_value = writer_of(kind.branches[of_values])

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            _write_long(out, of_null)
        else:
            _write_long(out, of_values)
            write_value(out, value)

    return write


def _blocks_writer(write_element: Write, *, is_map: bool) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if value:
            _write_long(out, len(value))
        for element in value:
            if is_map:
                _write_bytes(out, element[0])
                write_element(out, element[1])
            else:
                write_element(out, element)
        out.append(0)

    return write
