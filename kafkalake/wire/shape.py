"""Checks that bytes have the shape of a Kafka message before kio decodes them.

kio 0.6.5 trusts the lengths in a message: it allocates the claimed length of a compact array at once and **aborts the
process** if that fails, ignores the length of tagged fields, and raises on unknown tags, which the protocol says to skip
(KIP-482). The broker decodes requests itself (`requests.py`). The client decodes responses with kio, after this walk:
every length stays in its frame, null occurs only where the schema allows it, tagged fields have their stated length, and
the number of elements is bounded. One compiled call, about 1.3 µs for a message of one topic and partition.

The walk follows a program compiled once per message type from kio's dataclasses, five int64 per instruction:

    SKIP bytes                            a number, a uuid
    STRING, BYTES or COMPACT nullable     a length (int16, int32, varint of length + 1) and that many bytes
    ARRAY nullable compact smallest at    a count and that many elements of at least `smallest` bytes, with program `at`
    MARKER target                         a nullable struct (KIP-893); null continues at `target`
    TAGS first known                      tagged fields; `known` pairs (tag, program) at `first`
    END                                   the end of an element, of a tagged field, or of the message

Example: a Metadata request of version 0, an array of strings: `ARRAY 0 0 2 10 | END | STRING 0 | END`.
"""

from __future__ import annotations

from dataclasses import Field, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import numpy as np
import numpy.typing as npt

from kafkalake.errors import InvalidRequestError
from kafkalake.record.compiled import compiled
from kafkalake.record.memory import load_u8
from kafkalake.wire.varint import big_i16, big_i32

_END, _SKIP, _STRING, _BYTES, _COMPACT, _ARRAY, _MARKER, _TAGS = range(8)
_WIDTH = 5
"""Numbers per instruction: operation and up to four operands."""

MAXIMUM_ELEMENTS = 1_000_000
"""Most elements of all arrays of a message: bounds kio's memory for a frame of only empty strings (about 60 MB)."""
_DEPTH = 16
_EDITS = 64

_SIZES = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "error_code": 2, "uuid": 16}
_SIZES |= dict.fromkeys(("int32", "uint32", "timedelta_i32"), 4)
_SIZES |= dict.fromkeys(("int64", "uint64", "float64", "timedelta_i64", "datetime_i64"), 8)

# Error codes that `_walk` returns instead of a position.
_OUT_OF_BOUNDS, _NULL, _BAD_LENGTH, _TOO_MANY, _BAD_TAG, _BAD_VARINT, _TOO_MANY_UNKNOWN, _UNKNOWN_TAGS = range(
    -1, -9, -1
)
_REASONS = {
    _OUT_OF_BOUNDS: "a field runs past its end",
    _NULL: "null in a field that cannot be null",
    _BAD_LENGTH: "a length is negative or larger than the rest of the message",
    _TOO_MANY: f"more than {MAXIMUM_ELEMENTS} elements",
    _BAD_TAG: "a tagged field is not as long as it says",
    _BAD_VARINT: "a varint is too long",
    _TOO_MANY_UNKNOWN: "too many unknown tagged fields",
}

Int64s = npt.NDArray[np.int64]
_NO_EDITS = np.empty((1, 3), dtype=np.int64)


@compiled()
def _unsigned_varint(data: Any, position: Any, end: Any) -> Any:
    """Return (value below 2**31, next position). A negative position is an error."""
    value = 0
    for k in range(5):
        if position >= end:
            return 0, _OUT_OF_BOUNDS
        byte = load_u8(data, position)
        position += 1
        value |= (byte & 127) << (7 * k)
        if byte < 128:
            return (value, position) if value <= 0x7FFFFFFF else (0, _BAD_LENGTH)
    return 0, _BAD_VARINT


@compiled()
def _length(data: Any, position: Any, end: Any, operation: Any, nullable: Any) -> Any:
    """Return (length or -1 for null, next position or error) of a string, bytes or an array."""
    if operation == _COMPACT:
        length, position = _unsigned_varint(data, position, end)
        if position < 0:
            return 0, position
        length -= 1
    else:
        size = 2 if operation == _STRING else 4
        if end - position < size:
            return 0, _OUT_OF_BOUNDS
        length = big_i16(data, position) if operation == _STRING else big_i32(data, position)
        position += size
    if length < -1:
        return 0, _BAD_LENGTH
    if length == -1 and not nullable:
        return 0, _NULL
    return length, position


@compiled()
def _tag_program(program: Any, first: Any, known: Any, tag: Any) -> Any:
    for k in range(known):
        if program[first + 2 * k] == tag:
            return program[first + 2 * k + 1]
    return -1


@compiled("int64(view, int64, int64, int64[::1], int64[:,::1])")
def _walk(data: Any, position: Any, end: Any, program: Any, edits: Any) -> Any:
    """Follow `program` over `data[position:end]`. Return the position after the message, or an error code (negative).

    edits: int64[_EDITS, 3]. edits[0, 0] is set to the number of unknown tagged fields. A row for each follows (position of
    its section's count, its start, its end).
    """
    # Stack of open arrays and tagged sections. Arrays: elements left, the element's first instruction, where to continue. Tagged
    # fields: -1 - (fields left), where the field must end, the TAGS instruction, position of the section's count.
    stack = np.empty((_DEPTH, 4), dtype=np.int64)
    depth = 0
    elements = 0
    unknown = 0
    pc = 0
    while True:
        operation = program[pc]
        if operation == _SKIP:
            position += program[pc + 1]
            if position > end:
                return _OUT_OF_BOUNDS
            pc += _WIDTH
        elif operation in (_STRING, _BYTES, _COMPACT):
            length, position = _length(data, position, end, operation, program[pc + 1])
            if position < 0:
                return position
            if length > end - position:
                return _BAD_LENGTH
            position += max(length, 0)
            pc += _WIDTH
        elif operation == _ARRAY:
            length, position = _length(data, position, end, _COMPACT if program[pc + 2] else _BYTES, program[pc + 1])
            if position < 0:
                return position
            if length > (end - position) // program[pc + 3]:
                return _BAD_LENGTH
            pc += _WIDTH
            if length > 0:
                elements += length
                if elements > MAXIMUM_ELEMENTS:
                    return _TOO_MANY
                if depth == _DEPTH:
                    return _TOO_MANY
                element = program[pc - _WIDTH + 4]
                stack[depth, 0], stack[depth, 1], stack[depth, 2] = length, element, pc
                depth += 1
                pc = element
        elif operation == _MARKER:
            if position >= end:
                return _OUT_OF_BOUNDS
            marker = load_u8(data, position)
            position += 1
            if marker != 1 and marker != 255:
                return _NULL
            pc = program[pc + 1] if marker == 255 else pc + _WIDTH
        elif operation == _TAGS:
            section = position
            fields_left, position = _unsigned_varint(data, position, end)
            if position < 0:
                return position
            if depth == _DEPTH:
                return _TOO_MANY
            stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = -1 - fields_left, position, pc, section
            depth += 1
            pc = -1
        else:
            if depth == 0:
                edits[0, 0] = unknown
                return position
            if stack[depth - 1, 0] < 0:
                pc = -1
            else:
                stack[depth - 1, 0] -= 1
                pc = stack[depth - 1, 1]
                if stack[depth - 1, 0] == 0:
                    depth -= 1
                    pc = stack[depth, 2]
        while pc < 0:  # the next tagged field of the innermost section
            if position != stack[depth - 1, 1]:
                return _BAD_TAG
            tags = stack[depth - 1, 2]
            if stack[depth - 1, 0] == -1:
                depth -= 1
                pc = tags + _WIDTH
                break
            stack[depth - 1, 0] += 1
            start = position
            tag, position = _unsigned_varint(data, position, end)
            if position < 0:
                return position
            size, position = _unsigned_varint(data, position, end)
            if position < 0:
                return position
            if size > end - position:
                return _BAD_LENGTH
            stack[depth - 1, 1] = position + size
            pc = _tag_program(program, program[tags + 1], program[tags + 2], tag)
            if pc < 0:
                position += size
                unknown += 1
                if unknown >= len(edits):
                    return _UNKNOWN_TAGS if len(edits) == 1 else _TOO_MANY_UNKNOWN
                edits[unknown, 0], edits[unknown, 1], edits[unknown, 2] = stack[depth - 1, 3], start, position


class _Program:
    """Instructions under construction. Programs of elements and tagged fields follow the instructions that refer to them."""

    def __init__(self, entity: Any) -> None:
        self._numbers: list[int] = []
        self._later: list[tuple[int, Any, bool]] = []
        self._struct(entity)
        self._emit(_END)
        while self._later:
            slot, part, flexible = self._later.pop()
            self._numbers[slot] = len(self._numbers)
            if isinstance(part, list):
                self._tag_table(part, flexible)
            elif isinstance(part, Field):
                self._field(part, flexible)
                self._emit(_END)
            else:
                kind, kafka_type = part
                self._value(kind, kafka_type, False, flexible)
                self._emit(_END)
        self.instructions = np.array(self._numbers, dtype=np.int64)

    def _emit(self, operation: int, *operands: int) -> int:
        """Append an instruction and return its position."""
        at = len(self._numbers)
        self._numbers += [operation, *operands, *[0] * (_WIDTH - 1 - len(operands))]
        return at

    def _struct(self, entity: Any) -> None:
        """Emit the fields of a struct in order, then its tagged fields."""
        flexible = bool(entity.__flexible__)
        tagged = [field for field in fields(entity) if "tag" in field.metadata]
        for field in fields(entity):
            if field not in tagged:
                self._field(field, flexible)
        if flexible:
            at = self._emit(_TAGS, 0, len(tagged))
            self._later.append((at + 1, tagged, flexible))

    def _tag_table(self, tagged: list[Field[Any]], flexible: bool) -> None:
        for field in tagged:
            self._later.append((len(self._numbers) + 1, field, flexible))
            self._numbers += [int(field.metadata["tag"]), 0]

    def _field(self, field: Field[Any], flexible: bool) -> None:
        kind, nullable = _without_none(field.type)
        kafka_type = field.metadata.get("kafka_type")
        if get_origin(kind) is tuple:
            inner, _ = _without_none(get_args(kind)[0])
            at = self._emit(_ARRAY, nullable, flexible, _smallest(inner, kafka_type, flexible), 0)
            self._later.append((at + 4, (inner, kafka_type), flexible))
        else:
            self._value(kind, kafka_type, nullable, flexible)

    def _value(self, kind: Any, kafka_type: str | None, nullable: bool, flexible: bool) -> None:
        if _is_struct(kind):
            at = self._emit(_MARKER, 0) if nullable else -1
            self._struct(kind)
            if nullable:
                self._numbers[at + 1] = len(self._numbers)
        elif kafka_type in _SIZES:
            self._emit(_SKIP, _SIZES[kafka_type])
        else:
            self._emit(_COMPACT if flexible else _STRING if kafka_type == "string" else _BYTES, nullable)


def _is_struct(kind: Any) -> bool:
    return hasattr(kind, "__dataclass_fields__")


def _without_none(kind: Any) -> tuple[Any, bool]:
    if get_origin(kind) in (Union, UnionType):
        return next(each for each in get_args(kind) if each is not NoneType), True
    return kind, False


def _smallest(kind: Any, kafka_type: str | None, flexible: bool) -> int:
    """Return the smallest size in bytes of a value that is not null."""
    if _is_struct(kind):
        total = int(flexible)
        for field in fields(kind):
            if "tag" in field.metadata:
                continue
            inner, nullable = _without_none(field.type)
            if get_origin(inner) is tuple:
                total += 1 if flexible else 4
            elif _is_struct(inner) and nullable:
                total += 1
            else:
                total += _smallest(inner, field.metadata.get("kafka_type"), flexible)
        return max(total, 1)
    if kafka_type in _SIZES:
        return _SIZES[kafka_type]
    return 1 if flexible else 2 if kafka_type == "string" else 4


@cache
def _instructions(entity: Any) -> Int64s:
    return _Program(entity).instructions


def checked_message(entity: Any, frame: Any, position: int) -> tuple[Any, int]:
    """Return the frame and position from which kio may decode a message of dataclass `entity` that fills `frame[position:]`.

    The same frame (read-only bytes-like), or a copy without its unknown tagged fields. Raise `InvalidRequestError` if the bytes
    are not such a message or bytes are left over.
    """
    data = np.frombuffer(frame, dtype=np.uint8)
    end = _walk(data, position, len(frame), _instructions(entity), _NO_EDITS)
    if end == len(frame):
        return frame, position
    edits = np.empty((_EDITS, 3), dtype=np.int64)
    if end == _UNKNOWN_TAGS:
        end = _walk(data, position, len(frame), _instructions(entity), edits)
    if end != len(frame):
        reason = _REASONS.get(end, f"{len(frame) - end} bytes too many")
        raise InvalidRequestError(f"malformed {entity.__name__} (version {entity.__version__}): {reason}")
    return _without_tags(bytes(frame), edits[1 : int(edits[0, 0]) + 1].tolist()), position


def _without_tags(frame: bytes, unknown: list[list[int]]) -> bytes:
    """Return the frame without the tagged fields `unknown` (position of their section's count, start, end)."""
    removed: dict[int, int] = {}
    for section, _, _ in unknown:
        removed[section] = removed.get(section, 0) + 1
    replacements = [(start, end, b"") for _, start, end in unknown]
    for section, count in removed.items():
        end = section
        known = 0
        while True:
            known |= (frame[end] & 0x7F) << (7 * (end - section))
            end += 1
            if frame[end - 1] < 0x80:
                break
        known -= count
        encoded = bytearray()
        while known > 0x7F:
            encoded.append(known & 0x7F | 0x80)
            known >>= 7
        encoded.append(known)
        replacements.append((section, end, bytes(encoded)))
    parts = []
    position = 0
    for start, end, replacement in sorted(replacements):
        parts += [frame[position:start], replacement]
        position = end
    return b"".join([*parts, frame[position:]])
