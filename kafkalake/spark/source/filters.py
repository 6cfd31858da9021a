"""Converts Spark's filters to a `Selection`, and returns those that Spark must apply itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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

from kafkalake.reader.predicate import INT64_MAX, INT64_MIN, Selection

_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")
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
    name = attribute[0] if len(attribute) == 1 else ""
    if isinstance(pushed, IsNotNull):
        return selection if name in _NEVER_NULL else None
    value = getattr(pushed, "value", None)
    if isinstance(pushed, In):
        values = [item for item in pushed.value if item is not None]
        if name == "topic":
            return selection.with_topics(values)
        if name == "partition":
            return selection.with_partitions(values)
        if name == "offset":
            return selection.with_offsets(values)
        return None
    if value is None:
        return None
    if name == "topic":
        return selection.with_topics([value]) if isinstance(pushed, EqualTo | EqualNullSafe) else None
    bounds = _bounds(pushed, _number(name, value))
    return None if bounds is None else _RANGES[name](selection, *bounds)


def _number(name: str, value: Any) -> int | None:
    if name in ("partition", "offset"):
        return int(value) if isinstance(value, int) else None
    if name == "timestamp" and isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.astimezone(UTC)
        return (aware - _EPOCH) // timedelta(microseconds=1)
    return None


def _bounds(pushed: Filter, number: int | None) -> tuple[int, int] | None:
    """Return the integer range [first, end) selected by a comparison with `number`."""
    if number is None:
        return None
    if isinstance(pushed, EqualTo | EqualNullSafe):
        return number, number + 1
    if isinstance(pushed, GreaterThan):
        return number + 1, INT64_MAX
    if isinstance(pushed, GreaterThanOrEqual):
        return number, INT64_MAX
    if isinstance(pushed, LessThan):
        return INT64_MIN, number
    if isinstance(pushed, LessThanOrEqual):
        return INT64_MIN, number + 1
    return None


_RANGES: dict[str, Callable[[Selection, int, int], Selection]] = {
    "partition": Selection.with_partition_range,
    "offset": Selection.with_offset_range,
    "timestamp": Selection.with_time_range,
}
