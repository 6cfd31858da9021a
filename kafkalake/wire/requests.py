"""Decodes the header and body of a request from the bytes of one frame.

kio's schemas define each version's fields. The decoder is our own: kio's native reader allocates a claimed count before it checks
the bytes, so that one hostile frame would end the process. Here counts are bounded by the bytes left in the frame, and a
request may hold at most `ELEMENTS_MAX` array elements, which bounds its memory.

A body is a `Message`: one attribute for each field of that version, named as in kio. Times are milliseconds, errors are codes,
the null uuid is None. A field added by a later version is absent: handlers read it by `getattr` with a default.

All malformed input raises `InvalidRequestError`, upon which the server closes the connection. Source: Kafka protocol guide,
"Headers", "Messages"; KIP-482 (flexible versions).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import Field, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin
from uuid import UUID

from kio.index import load_request_schema

from kafkalake.errors import InvalidRequestError

ELEMENTS_MAX = 50_000
"""Most array elements in one request, over all its arrays."""

TAGGED_FIELDS_MAX = 64
"""Most tagged fields in one section. Over all sections they count as array elements. No version of Kafka's messages has ten."""


class Message:
    """A struct of a request. Subclasses have one slot for each field of an entity and version."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name, None) == getattr(other, name, None) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__ if hasattr(self, name))
        return f"{type(self).__name__}({shown})"


Reader = Callable[[Any, int, list[int]], tuple[Any, int]]
"""(frame, position, [array elements left]) -> (value, position after it)"""

_FIXED = struct.Struct(">hhi")
_CLIENT_ID_LENGTH = struct.Struct(">h")
_NUMBERS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}


class RequestHeader(NamedTuple):
    """A request header. `body` is the body's position in the frame."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: int


def read_fixed_header(frame: Any) -> tuple[int, int, int]:
    """Return (api key, version, correlation id), the part common to all versions. Raise `InvalidRequestError` if too short."""
    if len(frame) < _FIXED.size:
        raise InvalidRequestError("the request is shorter than its header")
    return _FIXED.unpack_from(frame, 0)


def read_header(frame: Any) -> RequestHeader:
    """Decode the header of a request in a supported version. Raise `InvalidRequestError` if it is malformed.

    The client id is a string with a 16-bit length in all versions. Flexible versions have tagged fields after it.
    """
    try:
        api_key, version, correlation_id = _FIXED.unpack_from(frame, 0)
        (length,) = _CLIENT_ID_LENGTH.unpack_from(frame, 8)
        position = 10
        client_id = None
        if length >= 0:
            position += length
            _check_room(frame, 10, length)
            client_id = str(frame[10:position], "utf-8")
        if _schema(api_key, version)[1]:
            position = skip_unknown_tagged_fields(frame, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"malformed request header: {error}") from None
    return RequestHeader(api_key, version, correlation_id, client_id, position)


def decode_request(header: RequestHeader, frame: Any) -> Any:
    """Decode the body, a `Message`. `bytes` fields are views of `frame`. Raise `InvalidRequestError` if it is malformed.

    Bytes after its end are ignored, as in Kafka: librdkafka appends three when it requests all topics.
    """
    read = _schema(header.api_key, header.version)[0]
    try:
        body, end = read(frame, header.body, [ELEMENTS_MAX])
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidRequestError(
            f"malformed request (api {header.api_key}, version {header.version}): {error}"
        ) from None
    if end > len(frame):
        raise InvalidRequestError(
            f"malformed request (api {header.api_key}, version {header.version}): {end - len(frame)} bytes are missing"
        )
    return body


def _check_room(frame: Any, position: int, length: int) -> None:
    if length > len(frame) - position:
        raise InvalidRequestError(f"{length} bytes are announced at byte {position} of {len(frame)}")


def read_varint(frame: Any, position: int) -> tuple[int, int]:
    """Return (value, position after it) of an unsigned varint of at most 5 bytes. Raise `InvalidRequestError` or `IndexError`."""
    byte = frame[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = frame[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
    raise InvalidRequestError(f"a varint is too long at byte {position}")


def _length_reader(*, flexible: bool, wide: bool) -> Callable[[Any, int], tuple[int, int]]:
    """Return a reader of the length before a string (`wide` False), bytes or an array. -1 means null."""
    if flexible:

        def read_compact(frame: Any, position: int) -> tuple[int, int]:
            value, position = read_varint(frame, position)
            return value - 1, position

        return read_compact
    layout = struct.Struct(">i" if wide else ">h")

    def read_plain(frame: Any, position: int) -> tuple[int, int]:
        (value,) = layout.unpack_from(frame, position)
        if value < -1:
            raise InvalidRequestError(f"a length of {value} at byte {position}")
        return value, position + layout.size

    return read_plain


def _number_reader(layout: str) -> Reader:
    number = struct.Struct(">" + layout)

    def read(frame: Any, position: int, budget: list[int]) -> tuple[Any, int]:
        return number.unpack_from(frame, position)[0], position + number.size

    return read


def _read_uuid(frame: Any, position: int, budget: list[int]) -> tuple[UUID | None, int]:
    _check_room(frame, position, 16)
    data = bytes(frame[position : position + 16])
    return (UUID(bytes=data) if any(data) else None), position + 16


def _bytes_reader(*, flexible: bool, text: bool, nullable: bool) -> Reader:
    read_length = _length_reader(flexible=flexible, wide=not text)

    def read(frame: Any, position: int, budget: list[int]) -> tuple[Any, int]:
        length, start = read_length(frame, position)
        if length < 0:
            if not nullable:
                raise InvalidRequestError(f"a null where none is allowed at byte {position}")
            return None, start
        end = start + length
        if end > len(frame):
            _check_room(frame, start, length)
        data = frame[start:end]
        return (str(data, "utf-8") if text else data), end

    return read


def _array_reader(item: Reader, *, flexible: bool, nullable: bool) -> Reader:
    read_length = _length_reader(flexible=flexible, wide=True)

    def read(frame: Any, position: int, budget: list[int]) -> tuple[Any, int]:
        count, start = read_length(frame, position)
        if count < 0:
            if not nullable:
                raise InvalidRequestError(f"a null array where none is allowed at byte {position}")
            return None, start
        _check_room(frame, start, count)  # each element has at least one byte
        budget[0] -= count
        if budget[0] < 0:
            raise InvalidRequestError(f"more than {ELEMENTS_MAX} array elements")
        values = []
        for _ in range(count):
            value, start = item(frame, start, budget)
            values.append(value)
        return values, start

    return read


def _nullable_struct(item: Reader) -> Reader:
    def read(frame: Any, position: int, budget: list[int]) -> tuple[Any, int]:
        # As in Kafka, a negative marker is null, and any other one begins a struct.
        return item(frame, position + 1, budget) if frame[position] < 0x80 else (None, position + 1)

    return read


def _without_none(kind: Any) -> tuple[Any, bool]:
    if get_origin(kind) in (Union, UnionType):
        return next(each for each in get_args(kind) if each is not NoneType), True
    return kind, False


def _field_reader(field: Field[Any], *, flexible: bool) -> Reader:
    kind, nullable = _without_none(field.type)
    is_array = get_origin(kind) is tuple
    inner, inner_nullable = _without_none(get_args(kind)[0]) if is_array else (kind, False)
    kafka_type = field.metadata.get("kafka_type")
    reader: Reader
    if hasattr(inner, "__dataclass_fields__"):
        reader = _struct_reader(inner)
        if nullable and not is_array:
            reader = _nullable_struct(reader)
    elif kafka_type in _NUMBERS:
        reader = _number_reader(_NUMBERS[kafka_type])
    elif kafka_type == "uuid":
        reader = _read_uuid
    else:
        reader = _bytes_reader(flexible=flexible, text=kafka_type == "string", nullable=nullable and not is_array)
    return _array_reader(reader, flexible=flexible, nullable=nullable or inner_nullable) if is_array else reader


def _is_number(field: Field[Any]) -> bool:
    return get_origin(_without_none(field.type)[0]) is not tuple and field.metadata.get("kafka_type") in _NUMBERS


def _steps(plain: list[Field[Any]], *, flexible: bool) -> list[tuple[tuple[str, ...], Any]]:
    """Return the steps that read the fields in order: neighbouring numbers at once (a `Struct`), others by their reader."""
    steps: list[tuple[tuple[str, ...], Any]] = []
    numbers: list[Field[Any]] = []
    for field in [*plain, None]:
        if field is not None and _is_number(field):
            numbers.append(field)
            continue
        if numbers:
            layout = struct.Struct(">" + "".join(_NUMBERS[each.metadata["kafka_type"]] for each in numbers))
            steps.append((tuple(each.name for each in numbers), layout))
            numbers = []
        if field is not None:
            steps.append(((field.name,), _field_reader(field, flexible=flexible)))
    return steps


@cache
def _struct_reader(entity: Any) -> Reader:
    flexible = entity.__flexible__
    plain = [each for each in fields(entity) if "tag" not in each.metadata]
    steps = _steps(plain, flexible=flexible)
    tagged = {
        each.metadata["tag"]: (each.name, _field_reader(each, flexible=flexible))
        for each in fields(entity)
        if "tag" in each.metadata
    }

    new = type(entity.__name__, (Message,), {"__slots__": tuple(each.name for each in fields(entity))})

    def read(frame: Any, position: int, budget: list[int]) -> tuple[Any, int]:
        message = new()
        for names, step in steps:
            if type(step) is struct.Struct:
                for name, value in zip(names, step.unpack_from(frame, position), strict=True):
                    setattr(message, name, value)
                position += step.size
            else:
                value, position = step(frame, position, budget)
                setattr(message, names[0], value)
        if flexible:
            if frame[position] == 0:
                position += 1
            else:
                position = _skip_tagged_fields(frame, position, tagged, message, budget)
        return message, position

    return read


def skip_unknown_tagged_fields(frame: Any, position: int) -> int:
    """Return the position after a section of unknown tagged fields. Raise `InvalidRequestError` or `IndexError`."""
    return _skip_tagged_fields(frame, position, {}, None, [TAGGED_FIELDS_MAX])


def _skip_tagged_fields(
    frame: Any, position: int, known: dict[int, tuple[str, Reader]], message: Message | None, budget: list[int]
) -> int:
    """Read known tagged fields into `message` and skip the others. Return the position after the section."""
    count, position = read_varint(frame, position)
    budget[0] -= count
    if count > TAGGED_FIELDS_MAX or budget[0] < 0:
        raise InvalidRequestError(f"{count} tagged fields at byte {position}")
    for _ in range(count):
        tag, position = read_varint(frame, position)
        size, position = read_varint(frame, position)
        _check_room(frame, position, size)
        if tag in known and message is not None:
            name, reader = known[tag]
            value, end = reader(frame, position, budget)
            setattr(message, name, value)
            if end != position + size:
                raise InvalidRequestError(f"tagged field {tag} is not as long as announced, at byte {position}")
        position += size
    return position


@cache
def _schema(api_key: int, version: int) -> tuple[Reader, bool]:
    schema: Any = load_request_schema(api_key, version)
    return _struct_reader(schema), bool(schema.__flexible__)
