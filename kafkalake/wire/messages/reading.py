"""Readers of messages. Counts are bounded by the bytes left in the frame, and a frame's array elements by a budget.

A reader is one function for each (message, version), compiled from its fields. That of a Heartbeat request begins like this:

    size = len(frame)
    m0 = new(HeartbeatRequest)
    m0.group_instance_id = None
    length = frame[position] - 1
    position += 1
    if length > 126:
     length, position = read_compact_length(frame, position - 1)
    if length < 0:
     m0.group_id = null(length, False, position)
    else:
     end = position + length
     if end > size:
      check_room(frame, position, length)
     m0.group_id = str(frame[position:end], "utf-8")
     position = end
    m0.generation_id, = unpack_from_i(frame, position)
    position += 4
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any
from uuid import UUID

from kafkalake.buffers import Buffer
from kafkalake.errors import InvalidRequestError
from kafkalake.unsigned_varint import read_unsigned_varint
from kafkalake.wire.messages.message import Message
from kafkalake.wire.messages.shapes import NUMBERS, Shape, check_fields, shapes, structs
from kafkalake.wire.messages.source import Source

ELEMENTS_MAX = 50_000
"""Most array elements in one request, over all its arrays."""

RESPONSE_ELEMENTS_MAX = 1_000_000
"""Most array elements in one response."""

TAGGED_FIELDS_MAX = 64
"""Most tagged fields in one section. Over all sections they count as array elements. No version of Kafka's messages has ten."""

_UUIDS_KEPT = 4096

Reader = Callable[[Buffer, int, int], tuple[Any, int]]
"""(frame, position, most array elements) -> (message, position after it)"""


def check_room(frame: Buffer, position: int, length: int) -> None:
    """Raise `InvalidRequestError` unless `length` bytes follow `position`."""
    if length > len(frame) - position:
        raise InvalidRequestError(f"{length} bytes are announced at byte {position} of {len(frame)}")


def skip_unknown_tagged_fields(frame: Buffer, position: int) -> int:
    """Return the position after a section of unknown tagged fields. Raise `InvalidRequestError` or `IndexError`."""
    return _tagged_fields(frame, position, TAGGED_FIELDS_MAX)[1]


@cache
def reader(message: type[Message], schema: Any) -> Reader:
    """Return the reader of `message` in the version of kio's dataclass `schema`. Raise `TypeError` if a field is missing."""
    source = Source("read(frame, position, budget)", dict(_NAMES))
    source.line("size = len(frame)")
    _read_struct(source, message, schema, 0)
    source.line("return m0, position")
    read: Reader = source.compiled(f"reader of {schema.__qualname__} {schema.__version__}")
    return read


def _read_struct(source: Source, message: type[Message], schema: Any, depth: int) -> None:
    """Read a struct into the variable m<depth>."""
    check_fields(message, schema)
    plain = [each for each in shapes(schema) if each.tag is None]
    made = f"m{depth}"
    source.line(f"{made} = new({source.name(message.__name__, message)})")
    for name, default in message.defaults.items():
        if name not in {each.name for each in plain}:
            source.line(f"{made}.{name} = {default!r}")
    for is_number, run in groupby(plain, attrgetter("is_number")):
        fields = list(run)
        if is_number:
            kinds = "".join(NUMBERS[each.kind] for each in fields)
            _read_numbers(source, kinds, ", ".join(f"{made}.{each.name}" for each in fields))
            continue
        for each in fields:
            _read_field(source, each, message, schema.__flexible__, depth)
    if schema.__flexible__:
        with source.block("if frame[position] == 0"):
            source.line("position += 1")
        with source.block("else"):
            tagged = [each for each in shapes(schema) if each.tag is not None]
            _read_tagged_fields(source, tagged, message, depth)


def _read_tagged_fields(source: Source, tagged: list[Shape], message: type[Message], depth: int) -> None:
    """Read a section of tagged fields, of which all unknown ones are skipped."""
    source.line(f"fields{depth}, after{depth}, budget = tagged_fields(frame, position, budget)")
    if tagged:
        with source.block(f"for tag{depth}, position, end{depth} in fields{depth}"):
            for each in tagged:
                with source.block(f"if tag{depth} == {each.tag}"):
                    _read_field(source, each, message, True, depth)
                    with source.block(f"if position != end{depth}"):
                        source.line(f"refuse_tagged_field(tag{depth}, position)")
    source.line(f"position = after{depth}")


def _read_field(source: Source, shape: Shape, message: type[Message], flexible: bool, depth: int) -> None:
    """Read a field into the attribute of m<depth>."""
    target = f"m{depth}.{shape.name}"
    if not shape.is_array:
        _read_value(source, shape, message, flexible, depth, target)
        return
    _read_length(source, "i", flexible)
    with source.block("if length < 0"):
        source.line(f"{target} = null(length, {shape.nullable}, position)")
    with source.block("else"):
        source.line("budget -= length")
        with source.block("if budget < 0 or length > size - position"):  # each element has at least one byte
            source.line("refuse_count(frame, position, length)")
        if shape.kind in NUMBERS:
            kind = NUMBERS[shape.kind]
            source.line(f"{target} = list(unpack_from(f'>{{length}}{kind}', frame, position))")
            source.line(f"position += {struct.calcsize('>' + kind)} * length")
            return
        source.line(f"{target} = values{depth} = []")
        with source.block("for _ in range(length)"):
            element = shape._replace(nullable=False)
            _read_value(source, element, message, flexible, depth, f"value{depth}")
            source.line(f"values{depth}.append(value{depth})")


def _read_value(source: Source, shape: Shape, message: type[Message], flexible: bool, depth: int, target: str) -> None:
    """Read a value that is no array."""
    if shape.is_struct and shape.nullable:
        # As in Kafka, a negative marker is null, and any other one begins a struct.
        source.line("position += 1")
        with source.block("if frame[position - 1] > 0x7f"):
            source.line(f"{target} = None")
        with source.block("else"):
            _read_value(source, shape._replace(nullable=False), message, flexible, depth, target)
    elif shape.is_struct:
        _read_struct(source, structs(message)[shape.name], shape.kind, depth + 1)
        source.line(f"{target} = m{depth + 1}")
    elif shape.kind in NUMBERS:  # in a tagged field
        _read_numbers(source, NUMBERS[shape.kind], target)
    elif shape.kind == "uuid":
        source.line(f"{target} = read_uuid(frame, position)")
        source.line("position += 16")
    else:
        is_text = shape.kind == "string"
        _read_length(source, "h" if is_text else "i", flexible)
        with source.block("if length < 0"):
            source.line(f"{target} = null(length, {shape.nullable}, position)")
        with source.block("else"):
            source.line("end = position + length")
            with source.block("if end > size"):
                source.line("check_room(frame, position, length)")
            source.line(f"{target} = " + ('str(frame[position:end], "utf-8")' if is_text else "frame[position:end]"))
            source.line("position = end")


def _read_length(source: Source, kind: str, flexible: bool) -> None:
    """Read the length before a string, bytes or an array, -1 for null, into the variable `length`."""
    if flexible:
        source.line("length = frame[position] - 1")
        source.line("position += 1")
        with source.block("if length > 126"):
            source.line("length, position = read_compact_length(frame, position - 1)")
    else:
        _read_numbers(source, kind, "length")


def _read_numbers(source: Source, kinds: str, target: str) -> None:
    """Read neighbouring numbers into `target`."""
    source.line(f"{target}, = {source.layout('unpack_from', kinds)}(frame, position)")
    source.line(f"position += {struct.calcsize('>' + kinds)}")


def _read_compact_length(frame: Buffer, position: int) -> tuple[int, int]:
    value, position = read_unsigned_varint(frame, position)
    return value - 1, position


def _read_uuid(frame: Buffer, position: int) -> UUID | None:
    check_room(frame, position, 16)
    return uuid_of(bytes(frame[position : position + 16]))


@lru_cache(maxsize=_UUIDS_KEPT)
def uuid_of(data: bytes) -> UUID | None:
    """Return the UUID of 16 bytes, None for zeros. Kept, as each request names its topics: making one costs as much as the rest."""
    return UUID(bytes=data) if any(data) else None


def _null(length: int, nullable: bool, position: int) -> None:
    if length < -1:
        raise InvalidRequestError(f"a length of {length} at byte {position}")
    if not nullable:
        raise InvalidRequestError(f"a null where none is allowed at byte {position}")


def _refuse_count(frame: Buffer, position: int, count: int) -> None:
    check_room(frame, position, count)
    raise InvalidRequestError("too many array elements")


def _tagged_fields(frame: Buffer, position: int, budget: int) -> tuple[list[tuple[int, int, int]], int, int]:
    """Return ((tag, start, end) of each tagged field, position after the section, array elements left)."""
    count, position = read_unsigned_varint(frame, position)
    budget -= count
    if count > TAGGED_FIELDS_MAX or budget < 0:
        raise InvalidRequestError(f"{count} tagged fields at byte {position}")
    found = []
    for _ in range(count):
        tag, position = read_unsigned_varint(frame, position)
        length, position = read_unsigned_varint(frame, position)
        check_room(frame, position, length)
        found.append((tag, position, position + length))
        position += length
    return found, position, budget


def _refuse_tagged_field(tag: int, position: int) -> None:
    raise InvalidRequestError(f"tagged field {tag} is not as long as announced, at byte {position}")


_NAMES: dict[str, object] = {
    "new": object.__new__,
    "unpack_from": struct.unpack_from,
    "check_room": check_room,
    "read_compact_length": _read_compact_length,
    "read_uuid": _read_uuid,
    "null": _null,
    "refuse_count": _refuse_count,
    "tagged_fields": _tagged_fields,
    "refuse_tagged_field": _refuse_tagged_field,
}
"""What the readers call."""
