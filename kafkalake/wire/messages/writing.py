"""Writers of messages: one function for each (message, version), compiled from its fields. See `reading`.

A response with many elements takes long to write, and pure Python in a thread takes the interpreter from the event loop at each of
its calls. So a response is written at once only up to a number of elements, otherwise by a generator that yields after each.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Generator, Sequence
from enum import Enum, auto
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import Any

from kafkalake.errors import InvalidRequestError, UnsupportedVersionError
from kafkalake.unsigned_varint import append_unsigned_varint
from kafkalake.wire.messages.message import Message
from kafkalake.wire.messages.shapes import NUMBERS, Schema, Shape, check_fields, shapes, structs
from kafkalake.wire.messages.source import Source

BYTES_MAX = 2**31 - 1
"""Largest response: the size prefix is an int32."""

UNLIMITED = sys.maxsize
"""As the most elements of a response."""

_BYTES_AS_ELEMENT = 4096
"""So many bytes of a field that is bytes are copied while an element is written."""

_NO_INFORMATION: tuple[object, ...] = (None, 0, -1, "", (), [], False)

RequestWriter = Callable[[bytearray, Message, int], None]
"""(frame under construction, message, the most bytes it may have)"""
ResponseWriter = Callable[[bytearray, Message, int, int], None]
"""(frame under construction, message, the most bytes, the most elements it may have)"""
ResponseSteps = Callable[[bytearray, Message, int], Generator[None, None, None]]
"""As `RequestWriter`, in steps: one for each element."""


class ManyElementsError(Exception):
    """A response has more elements than are written at once."""


class _Mode(Enum):
    """The kinds of writers."""

    REQUEST = auto()
    RESPONSE = auto()
    RESPONSE_IN_STEPS = auto()


@cache
def request_writer(message: type[Message], schema: Schema) -> RequestWriter:
    """Return the writer of `message` in the version of kio's dataclass `schema`. Raise `TypeError` if a field is missing.

    The writer raises `UnsupportedVersionError` for a field with information that the version lacks. Tagged fields are written only
    if they differ from their default.
    """
    write: RequestWriter = _compiled(message, schema, _Mode.REQUEST)
    return write


@cache
def response_writer(message: type[Message], schema: Schema) -> ResponseWriter:
    """Return the writer of `message` as `request_writer`. Fields that the version lacks are left out.

    The writer raises `ManyElementsError` before the first array of structs or strings that exceeds the limit on elements. Long
    bytes count as several.
    """
    write: ResponseWriter = _compiled(message, schema, _Mode.RESPONSE)
    return write


@cache
def response_steps(message: type[Message], schema: Schema) -> ResponseSteps:
    """Return the writer of `message` as `response_writer`, in steps and without a limit on elements."""
    write: ResponseSteps = _compiled(message, schema, _Mode.RESPONSE_IN_STEPS)
    return write


def _compiled(message: type[Message], schema: Schema, mode: _Mode) -> Any:
    limits = "bytes_max, left" if mode is _Mode.RESPONSE else "bytes_max"
    source = Source(f"write(out0, m0, {limits})", dict(_NAMES))
    _write_struct(source, message, schema, mode, 0, "out0")
    if mode is _Mode.RESPONSE_IN_STEPS:
        source.line("yield")  # a message without arrays is one step
    return source.compiled(f"writer of {schema.__qualname__} {schema.__version__}")


def _write_struct(source: Source, message: type[Message], schema: Schema, mode: _Mode, depth: int, out: str) -> None:
    """Write the struct in the variable m<depth> to the variable `out`."""
    check_fields(message, schema)
    known = shapes(schema)
    flexible: bool = schema.__flexible__
    lost = message.defaults.keys() - {each.name for each in known} if mode is _Mode.REQUEST else ()
    if lost:
        source.line(f"check_lost(m{depth}, {sorted(lost)})")

    def write_field(shape: Shape, out: str) -> None:
        _write_field(source, shape, message, flexible, mode, depth, out)

    for is_number, run in groupby((each for each in known if each.tag is None), attrgetter("is_number")):
        fields = list(run)
        if is_number:
            kinds = "".join(NUMBERS[each.kind] for each in fields)
            values = ", ".join(f"m{depth}.{each.name}" for each in fields)
            source.line(f"{out} += {source.layout('pack', kinds)}({values})")
            continue
        for each in fields:
            write_field(each, out)
    if not flexible:
        return
    tagged = sorted((each for each in known if each.tag is not None), key=attrgetter("tag"))
    if not tagged:
        source.line(f"{out}.append(0)")
        return
    source.line(f"tagged{depth} = []")
    for each in tagged:
        default = message.defaults[each.name]
        value = f"m{depth}.{each.name}"
        with source.block(f"if {value}" if default == () else f"if {value} != {default!r}"):
            source.line(f"out{depth + 1} = bytearray()")
            write_field(each, f"out{depth + 1}")
            source.line(f"tagged{depth}.append(({each.tag}, out{depth + 1}))")
    source.line(f"write_tagged_fields({out}, tagged{depth})")


def _write_field(
    source: Source, shape: Shape, message: type[Message], flexible: bool, mode: _Mode, depth: int, out: str
) -> None:
    """Write a field of m<depth>."""
    value = f"m{depth}.{shape.name}"
    if not shape.is_array:
        _write_value(source, shape, message, flexible, mode, depth, out, value)
        return
    source.line(f"values{depth} = {value}")
    with source.block(f"if values{depth} is None"):
        source.line(f"{out} += {_null('i', flexible)!r}")
    with source.block("else"):
        _write_length(source, f"len(values{depth})", "i", flexible, out)
        if shape.kind in NUMBERS:
            source.line(f"{out} += pack(f'>{{len(values{depth})}}{NUMBERS[shape.kind]}', *values{depth})")
        else:
            if mode is _Mode.RESPONSE:
                _count(source, f"len(values{depth})")
            each = f"m{depth + 1}" if shape.is_struct else "value"
            with source.block(f"for {each} in values{depth}"):
                element = shape._replace(nullable=False)
                _write_value(source, element, message, flexible, mode, depth, out, each)
                if mode is _Mode.RESPONSE_IN_STEPS:
                    source.line("yield")
        with source.block(f"if len({out}) > bytes_max"):
            source.line("refuse_size(bytes_max)")


def _write_value(
    source: Source,
    shape: Shape,
    message: type[Message],
    flexible: bool,
    mode: _Mode,
    depth: int,
    out: str,
    value: str,
) -> None:
    """Write a value that is no array."""
    if shape.is_struct:
        if value != f"m{depth + 1}":
            source.line(f"m{depth + 1} = {value}")
        if shape.nullable:  # a signed byte before it is 1, or -1 for null (KIP-893)
            with source.block(f"if m{depth + 1} is None"):
                source.line(f"{out}.append(0xff)")
            with source.block("else"):
                source.line(f"{out}.append(1)")
                _write_struct(source, structs(message)[shape.name], shape.kind, mode, depth + 1, out)
        else:
            _write_struct(source, structs(message)[shape.name], shape.kind, mode, depth + 1, out)
    elif shape.kind in NUMBERS:  # in a tagged field
        source.line(f"{out} += {source.layout('pack', NUMBERS[shape.kind])}({value})")
    elif shape.kind == "uuid":
        source.line(f"{out} += bytes(16) if {value} is None else {value}.bytes")
    else:
        is_text = shape.kind == "string"
        kind = "h" if is_text else "i"
        source.line(f"value = {value}")
        with source.block("if value is None"):
            length = _null(kind, flexible) if shape.nullable else _empty(kind, flexible)
            source.line(f"{out} += {length!r}")
        with source.block("else"):
            if is_text:
                source.line("value = value.encode()")
            elif mode is _Mode.RESPONSE:
                _count(source, f"len(value) // {_BYTES_AS_ELEMENT}")
            _write_length(source, "len(value)", kind, flexible, out)
            source.line(f"{out} += value")


def _count(source: Source, elements: str) -> None:
    """Count elements of a response that is written at once."""
    source.line(f"left -= {elements}")
    with source.block("if left < 0"):
        source.line("refuse_elements()")


def _null(kind: str, flexible: bool) -> bytes:
    """Return the length of null: -1, or 0 if the length is a varint of length + 1."""
    return b"\0" if flexible else struct.pack(">" + kind, -1)


def _empty(kind: str, flexible: bool) -> bytes:
    return b"\1" if flexible else struct.pack(">" + kind, 0)


def _write_length(source: Source, length: str, kind: str, flexible: bool, out: str) -> None:
    if flexible:
        source.line(f"length = {length} + 1")
        with source.block("if length < 0x80"):
            source.line(f"{out}.append(length)")
        with source.block("else"):
            source.line(f"append_unsigned_varint({out}, length)")
    else:
        source.line(f"{out} += {source.layout('pack', kind)}({length})")


def _write_tagged_fields(out: bytearray, fields: list[tuple[int, bytearray]]) -> None:
    append_unsigned_varint(out, len(fields))
    for tag, content in fields:
        append_unsigned_varint(out, tag)
        append_unsigned_varint(out, len(content))
        out += content


def _check_lost(message: Message, names: Sequence[str]) -> None:
    """Raise `UnsupportedVersionError` if one of the fields, which the version lacks, has information."""
    for name in names:
        if getattr(message, name) not in (*_NO_INFORMATION, message.defaults[name]):
            raise UnsupportedVersionError(f"the broker's version has no {name.replace('_', ' ')}")


def _refuse_elements() -> None:
    raise ManyElementsError


def _refuse_size(bytes_max: int) -> None:
    raise InvalidRequestError(f"its answer would be larger than max.request.response.bytes, {bytes_max}")


_NAMES: dict[str, object] = {
    "pack": struct.pack,
    "append_unsigned_varint": append_unsigned_varint,
    "write_tagged_fields": _write_tagged_fields,
    "check_lost": _check_lost,
    "refuse_size": _refuse_size,
    "refuse_elements": _refuse_elements,
}
"""What the writers call."""
