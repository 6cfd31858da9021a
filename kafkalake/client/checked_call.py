"""Arguments of an operation, checked by its annotations before it begins: one place for all operations, instead of code in each.

What no annotation says, as the range of a number that only the broker knows, is left to the broker. A number that does not fit into
its request is refused where the request is encoded.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from functools import cache, wraps
from operator import index
from reprlib import repr as short
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Concatenate,
    ParamSpec,
    SupportsIndex,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from kafkalake.client.arguments import checked_partition
from kafkalake.topic_partition import TopicPartition

P = ParamSpec("P")
T = TypeVar("T")
First = TypeVar("First")


def checked(operation: Callable[Concatenate[First, P], T]) -> Callable[Concatenate[First, P], T]:
    """Return an operation that raises `TypeError` or `ValueError` for arguments that its annotations do not allow.

    Its first parameter is not checked. Iterators become lists, and values of an enumeration its members.
    """
    anyhow: Callable[..., T] = operation

    @wraps(operation)
    def call(first: First, /, *args: P.args, **kwargs: P.kwargs) -> T:
        signature, kinds = _parameters(operation)
        name = operation.__name__
        try:
            given = signature.bind(first, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        for parameter, value in list(given.arguments.items())[1:]:
            given.arguments[parameter] = checked_value(value, kinds[parameter], f"{name}: {parameter}")
        return anyhow(*given.args, **given.kwargs)

    return call


@cache
def _parameters(operation: Callable[..., object]) -> tuple[inspect.Signature, dict[str, object]]:
    return inspect.signature(operation), get_type_hints(operation, include_extras=True)


def checked_value(value: object, kind: Any, subject: str) -> object:
    """Return a value of an annotation's kind. Raise `TypeError`, `ValueError`, which name the `subject`."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind == TopicPartition:
        return checked_partition(value)
    if origin is Annotated:
        return parts[1](value, subject)
    if origin in (Union, UnionType):
        return _one_of(value, parts, subject)
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return _dictionary(value, parts, subject)
    if inspect.isclass(origin) and issubclass(origin, Iterable):
        return _several(value, parts[0], subject)
    return _plain(value, kind, subject)


def _plain(value: object, kind: type, subject: str) -> object:
    if type(value) is kind:
        return value
    if kind is int and isinstance(value, SupportsIndex):
        return index(value)
    if issubclass(kind, Enum) and not isinstance(value, kind):
        return _member(value, kind, subject)
    if not isinstance(value, kind):
        raise _wrong(subject, f"of type {kind.__name__}", value)
    return value


def _member(value: object, kind: type[Enum], subject: str) -> Enum:
    try:
        return kind(value)
    except ValueError:
        choices = ", ".join(repr(each.value) for each in kind)
        raise ValueError(f"{subject} is one of {choices}, not {short(value)}") from None


def _one_of(value: object, kinds: tuple[object, ...], subject: str) -> object:
    if value is None and NoneType in kinds:
        return None
    *others, last = (each for each in kinds if each is not NoneType)
    for kind in others:
        if inspect.isclass(kind) and isinstance(value, kind):
            return value
    return checked_value(value, last, subject)


def _dictionary(value: object, kinds: tuple[object, ...], subject: str) -> Mapping[object, object]:
    key_kind, value_kind = kinds
    if not isinstance(value, Mapping):
        raise _wrong(subject, "a dictionary", value)
    return {
        checked_value(key, key_kind, f"a key of {subject}"): of
        if type(of) is value_kind  # of hundreds of thousands no texts are made
        else checked_value(of, value_kind, f"{subject}[{short(key)}]")
        for key, of in value.items()
    }


def _several(value: object, kind: object, subject: str) -> Collection[object]:
    """Refuse a single text, which would be its letters."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise _wrong(subject, "a list or another collection", value)
    return [checked_value(each, kind, f"each of {subject}") for each in value]


def _wrong(subject: str, wanted: str, value: object) -> TypeError:
    return TypeError(f"{subject} is {wanted}, not {short(value)}")
