"""The fields of kio's dataclasses, as readers and writers need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import Field, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeAlias, Union, get_args, get_origin, get_type_hints

from kafkalake.wire.messages.message import Message

NUMBERS = {
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
"""Kafka's numbers, with their layout."""


Schema: TypeAlias = Any
"""One of kio's dataclasses, with its class variables."""


class Shape(NamedTuple):
    """A field's type: `kind` is a name of `NUMBERS`, `string`, `bytes`, `records`, `uuid`, or kio's dataclass of a struct."""

    name: str
    kind: Any
    is_array: bool
    nullable: bool
    tag: int | None

    @property
    def is_struct(self) -> bool:
        return not isinstance(self.kind, str)

    @property
    def is_number(self) -> bool:
        return not self.is_array and self.kind in NUMBERS


def _without_none(kind: Any) -> tuple[Any, bool]:
    if get_origin(kind) in (Union, UnionType):
        return next(each for each in get_args(kind) if each is not NoneType), True
    return kind, False


def _shape(field: Field[Any]) -> Shape:
    kind, nullable = _without_none(field.type)
    is_array = get_origin(kind) is tuple
    inner, inner_nullable = _without_none(get_args(kind)[0]) if is_array else (kind, False)
    is_struct = hasattr(inner, "__dataclass_fields__")
    return Shape(
        field.name,
        inner if is_struct else field.metadata["kafka_type"],
        is_array,
        nullable or inner_nullable,
        field.metadata.get("tag"),
    )


@cache
def shapes(schema: Schema) -> tuple[Shape, ...]:
    """Return the fields of one of kio's dataclasses, in their order."""
    return tuple(_shape(field) for field in fields(schema))


@cache
def structs(message: type[Message]) -> dict[str, type[Message]]:
    """Return the classes of the fields that are structs, or arrays of them. Raise `TypeError` if `message` has unresolved types."""
    found = {}
    for name, hint in get_type_hints(message).items():
        kind, _ = _without_none(hint)
        inner = get_args(kind)[0] if get_origin(kind) is Sequence else kind
        if isinstance(inner, type) and issubclass(inner, Message):
            found[name] = inner
    return found


def check_fields(message: type[Message], schema: Schema) -> None:
    """Raise `TypeError` if `message` lacks a field of kio's dataclass `schema`."""
    missing = {each.name for each in shapes(schema)} - message.defaults.keys()
    if missing:
        raise TypeError(f"{message.__name__} has no {', '.join(sorted(missing))} of {schema.__qualname__}")
