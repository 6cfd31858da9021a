"""Comparisons of Kafka's columns with constants, and the `Selection` that a conjunction of them is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafkalake.reader.predicate import INT64_MAX, INT64_MIN, Selection

NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")

_RANGES: dict[str, Callable[[Selection, int, int], Selection]] = {
    "partition": Selection.with_partition_range,
    "offset": Selection.with_offset_range,
    "timestamp": Selection.with_time_range,
}
_SETS: dict[str, Callable[[Selection, Sequence[Any]], Selection]] = {
    "topic": Selection.with_topics,
    "partition": Selection.with_partitions,
    "offset": Selection.with_offsets,
}


def narrow(selection: Selection, column: str, operator: str, values: Sequence[Any]) -> Selection | None:
    """Return `selection` narrowed to the records for which the comparison is true, or None if it cannot say so exactly.

    operator: one of Spark's names, =, <=>, <, <=, >, >=, IN, IS_NOT_NULL. values: texts, or integers (timestamps in microseconds
    since 1970); nulls are equal to nothing.
    """
    if operator == "IS_NOT_NULL":
        return selection if column in NEVER_NULL else None
    known = [value for value in values if value is not None]
    if operator == "IN" or (operator in ("=", "<=>") and column == "topic" and known):
        return _SETS[column](selection, known) if column in _SETS else None
    if column not in _RANGES or len(known) != 1 or not isinstance(known[0], int):
        return None
    bounds = _bounds(operator, known[0])
    return None if bounds is None else _RANGES[column](selection, *bounds)


def _bounds(operator: str, number: int) -> tuple[int, int] | None:
    """Return the integer range [first, end) of what compares so with `number`."""
    return {
        "=": (number, number + 1),
        "<=>": (number, number + 1),
        ">": (number + 1, INT64_MAX),
        ">=": (number, INT64_MAX),
        "<": (INT64_MIN, number),
        "<=": (INT64_MIN, number + 1),
    }.get(operator)
