"""Converts Spark's filters to a `Selection`, and returns those that Spark must apply itself."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from kafkalake.reader.comparison import narrow
from kafkalake.reader.predicate import Selection

_OPERATORS: dict[type[Filter], str] = {
    EqualTo: "=",
    EqualNullSafe: "<=>",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    In: "IN",
    IsNotNull: "IS_NOT_NULL",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def push(filters: Iterable[Filter]) -> tuple[Selection, list[Filter]]:
    """Return the selection for `filters`, and the filters that it does not express exactly."""
    selection, left = Selection(), []
    for pushed in filters:
        narrowed = _narrowed(selection, pushed)
        if narrowed is None:
            left.append(pushed)
        else:
            selection = narrowed
    return selection, left


def _narrowed(selection: Selection, pushed: Filter) -> Selection | None:
    """Return `selection` narrowed by `pushed`, or None if it cannot be expressed."""
    attribute: tuple[str, ...] = getattr(pushed, "attribute", ())
    operator = _OPERATORS.get(type(pushed))
    if operator is None or len(attribute) != 1:
        return None
    values = pushed.value if isinstance(pushed, In) else [getattr(pushed, "value", None)]
    return narrow(selection, attribute[0], operator, [_constant(each) for each in values])


def _constant(value: Any) -> Any:
    """Return a time as microseconds since 1970, and other values as they are."""
    if not isinstance(value, datetime):
        return value
    aware = value if value.tzinfo is not None else value.astimezone(UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)
