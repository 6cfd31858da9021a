"""Encodes responses from plain values: one dictionary for all versions of an API.

A handler fills a dictionary with the field names of Kafka's message definitions in snake case, as in kio (times in milliseconds,
errors as codes). Encoding writes the fields of the requested version and ignores the rest, so no handler builds one response per
version. kio's dataclasses define each version's fields. Their writers are built once per version and cached.

Source: Kafka protocol guide, "Messages"; tagged fields: KIP-482.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin
from uuid import UUID

from kio.index import load_response_schema

from kafkalake.errors import InvalidRequestError

BYTES_MAX = 2**31 - 1
"""Largest response: the size prefix is an int32."""


class _Answer(bytearray):
    """A response under construction. Encoding fails once it exceeds `bytes_max`."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.bytes_max = bytes_max


Writer = Callable[[_Answer, Any], None]

_NUMBERS = {
    "bool": ">?",
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "int64": ">q",
    "float64": ">d",
    "error_code": ">h",
    "timedelta_i32": ">i",
    "timedelta_i64": ">q",
    "datetime_i64": ">q",
}


def append_varint(out: bytearray, value: int) -> None:
    """Append an unsigned varint (KIP-482)."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _number(layout: str) -> Writer:
    pack = struct.Struct(layout).pack

    def write(out: _Answer, value: Any) -> None:
        out += pack(value)

    return write


def _write_uuid(out: _Answer, value: UUID | None) -> None:
    out += bytes(16) if value is None else value.bytes


def _bytes_like(*, flexible: bool, text: bool) -> Writer:
    """Return the writer of nullable strings or bytes: null is length -1, or 0 if the length is a varint of length + 1."""
    pack = struct.Struct(">h" if text else ">i").pack

    def write(out: _Answer, value: Any) -> None:
        data = value.encode() if text and value is not None else value
        if flexible:
            append_varint(out, 0 if data is None else len(data) + 1)
        else:
            out += pack(-1 if data is None else len(data))
        if data is not None:
            out += data

    return write


def _array(item: Writer, *, flexible: bool) -> Writer:
    pack = struct.Struct(">i").pack

    def write(out: _Answer, value: Any) -> None:
        if value is None:
            out += b"\x00" if flexible else b"\xff\xff\xff\xff"
            return
        if flexible:
            append_varint(out, len(value) + 1)
        else:
            out += pack(len(value))
        for each in value:
            item(out, each)
        if len(out) > out.bytes_max:
            raise InvalidRequestError(f"its answer would be larger than max.request.response.bytes, {out.bytes_max}")

    return write


def _nullable_struct(item: Writer) -> Writer:
    """Return the writer of a nullable struct: a signed byte before it is 1, or -1 for null (KIP-893)."""

    def write(out: _Answer, value: Any) -> None:
        if value is None:
            out += b"\xff"
        else:
            out += b"\x01"
            item(out, value)

    return write


def _without_none(kind: Any) -> tuple[Any, bool]:
    if get_origin(kind) in (Union, UnionType):
        return next(each for each in get_args(kind) if each is not NoneType), True
    return kind, False


def _default(field: Field[Any], *, is_array: bool, optional: bool, is_struct: bool) -> Any:
    """Return the value of a field missing from the response."""
    kafka_type = field.metadata.get("kafka_type")
    if is_array:
        return None if optional and field.default is None else ()
    if optional or is_struct:
        return None if optional else {}
    if kafka_type in ("string", "bytes", "records"):
        return field.default if isinstance(field.default, (str, bytes)) else "" if kafka_type == "string" else b""
    if kafka_type == "datetime_i64":
        return -1
    if kafka_type in ("timedelta_i32", "timedelta_i64", "error_code"):
        return 0
    if kafka_type == "uuid":
        return None
    return 0 if field.default is MISSING else field.default


def _differs(value: Any, default: Any) -> bool:
    """Return whether a tagged field must be written. Any empty sequence equals the empty default, whatever its type."""
    return len(value) > 0 if default == () else bool(value != default)


def _field(field: Field[Any], *, flexible: bool) -> tuple[str, Writer, Any]:
    kind, optional = _without_none(field.type)
    is_array = get_origin(kind) is tuple
    inner, inner_optional = _without_none(get_args(kind)[0]) if is_array else (kind, False)
    is_struct = hasattr(inner, "__dataclass_fields__")
    kafka_type = field.metadata.get("kafka_type")
    writer: Writer
    if is_struct:
        writer = _struct(inner)
        if optional and not is_array:
            writer = _nullable_struct(writer)
    elif kafka_type in _NUMBERS:
        writer = _number(_NUMBERS[kafka_type])
    elif kafka_type == "uuid":
        writer = _write_uuid
    else:
        writer = _bytes_like(flexible=flexible, text=kafka_type == "string")
    if is_array:
        writer = _array(writer, flexible=flexible)
    optional = optional or inner_optional
    return field.name, writer, _default(field, is_array=is_array, optional=optional, is_struct=is_struct)


@cache
def _struct(entity: Any) -> Writer:
    """Return the writer of one kio dataclass. Tagged fields are written only if they differ from their default."""
    flexible = entity.__flexible__
    plain = [_field(each, flexible=flexible) for each in fields(entity) if "tag" not in each.metadata]
    tagged = sorted(
        (each.metadata["tag"], *_field(each, flexible=flexible)) for each in fields(entity) if "tag" in each.metadata
    )

    def write(out: _Answer, value: Mapping[str, Any]) -> None:
        get = value.get
        for name, write_field, default in plain:
            write_field(out, get(name, default))
        if flexible:
            present = [each for each in tagged if each[1] in value and _differs(value[each[1]], each[3])]
            append_varint(out, len(present))
            for tag, name, write_field, _ in present:
                content = _Answer()
                write_field(content, value[name])
                append_varint(out, tag)
                append_varint(out, len(content))
                out += content

    return write


@cache
def _response(api_key: int, version: int) -> tuple[Writer, bool]:
    schema: Any = load_response_schema(api_key, version)
    return _struct(schema), bool(schema.__header_schema__.__flexible__)


def encode_response(
    api_key: int, version: int, correlation_id: int, values: Mapping[str, Any], bytes_max: int = BYTES_MAX
) -> bytearray:
    """Encode a response with its size prefix. `values`: see the module. Raise `InvalidRequestError` beyond `bytes_max`."""
    write, flexible_header = _response(api_key, version)
    out = _Answer(bytes_max)
    out += b"\0\0\0\0"
    out += correlation_id.to_bytes(4, "big", signed=True)
    if flexible_header:
        out.append(0)
    write(out, values)
    out[:4] = (len(out) - 4).to_bytes(4, "big")
    return out
