"""Parses many JSON values in one call of pyarrow's reader, if all of them are good.

Every value is wrapped as `{"v":<value>}`, one per line. A wrapper cannot be swallowed by the preceding value (a string cannot hold
a bare line feed, and only at the top level may an object follow a `}`), so equal numbers of rows and values mean that each value
was exactly one document. Anything else (a malformed value, one that is not an object, a number instead of a string) fails the call,
and so does what pyarrow's reader takes and `json_values`, value by value, does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, tzinfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

DEPTH_MAX = 500
"""Python's parser recurses."""
_EXACT_MAX = 2**53
"""Whole numbers below it are exact as doubles."""
_FIRST_DAY = -719_162
"""0001-01-01, in days since 1970."""
_MICROSECONDS_PER_DAY = 86_400_000_000

_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_FOREIGN = re.compile(rb"[:,\[]\s*(?:-NaN|-?Inf)\s*[,\]}]")


def parse_lines(values: pa.Array, struct: pa.StructType, zone: tzinfo, *, exact: bool) -> pa.StructArray | None:
    """Return the fields of `struct` of all values. Return None if any value is no JSON object, or any field does not fit.

    zone: of times that name none. exact: integers must be written without a point; they are parsed fastest.
    """
    if _has(pa.types.is_map, struct) or _has_deep(values):
        return None  # for maps pyarrow's JSON reader takes arrays of keys and values, not objects
    lines = pc.binary_join_element_wise(b'{"v":', pc.fill_null(values, b"null"), b"}\n", b"")
    try:
        lines.cast(pa.string())  # JSON is UTF-8, which the parser does not check
        text = _text(lines)
        if _has_foreign_numbers(text):
            return None
        table = pyarrow.json.read_json(
            pa.BufferReader(text),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema([pa.field("v", _readable(struct, exact=exact, utc=zone is UTC))]),
                unexpected_field_behavior="ignore",
            ),
        )
        if table.num_rows != len(values) or table.num_columns != 1:
            return None
        column = table.column("v").combine_chunks()
        if not exact and not all(_is_exact(*leaf) for leaf in _leaves(column, struct)):
            return None
        column = column if column.type == struct else column.cast(struct)
        return column if all(_is_sound(*leaf) for leaf in _leaves(column, struct)) else None
    except (pa.ArrowException, ValueError):
        return None


def _text(lines: pa.Array) -> bytes:
    """Return the bytes of all lines, concatenated."""
    offsets, data = lines.buffers()[1:]
    text: bytes = data.slice(0, int.from_bytes(offsets.slice(4 * len(lines), 4).to_pybytes(), "little")).to_pybytes()
    return text


def _has_foreign_numbers(text: bytes) -> bool:
    """Return whether there seem to be words that only pyarrow's JSON reader takes for numbers."""
    return (b"Inf" in text or b"-NaN" in text) and _FOREIGN.search(text) is not None


def _readable(kind: pa.DataType, *, exact: bool, utc: bool) -> pa.DataType:
    """Return the type to parse if pyarrow's JSON reader cannot parse `kind` as written in JSON. Dates are read as strings.

    Not `exact`: integers are read as doubles, and the later cast refuses lossy values. Not `utc`: times are read as strings too,
    because pyarrow assumes UTC for times without a zone. The cast refuses those. So are local times, which pyarrow
    would move to UTC.
    """
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, _readable(part.type, exact=exact, utc=utc)) for part in kind])
    if pa.types.is_list(kind):
        return pa.list_(_readable(kind.value_type, exact=exact, utc=utc))
    if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and (kind.tz is None or not utc)):
        return pa.string()
    if pa.types.is_integer(kind) and not exact:
        return pa.float64()
    return kind


def _has(is_it: Callable[[pa.DataType], bool], kind: pa.DataType) -> bool:
    """Return whether such a type is part of `kind`."""
    if pa.types.is_struct(kind):
        return any(_has(is_it, part.type) for part in kind)
    return is_it(kind) or (pa.types.is_list(kind) and _has(is_it, kind.value_type))


def _has_deep(values: pa.Array) -> bool:
    """Return whether some value is nested too deep. pyarrow's JSON reader has no limit."""
    lengths = pc.binary_length(values)
    if not (pc.max(lengths).as_py() or 0) > 2 * DEPTH_MAX:
        return False
    return any(map(is_deep, values.filter(pc.greater(lengths, 2 * DEPTH_MAX)).to_pylist()))


def is_deep(value: bytes) -> bool:
    """Return whether objects and arrays are nested more than `DEPTH_MAX` deep."""
    if value.count(b"[") + value.count(b"{") <= DEPTH_MAX:
        return False
    depth = 0
    for found in _BRACKETS.finditer(value):
        depth += 1 if found[0] in (b"[", b"{") else -1 if found[0] in (b"]", b"}") else 0
        if depth > DEPTH_MAX:
            return True
    return False


def _leaves(array: pa.Array, kind: pa.DataType) -> Iterator[tuple[pa.Array, pa.DataType]]:
    """Yield the arrays within `array` that have no parts, each with its type in `kind`."""
    if pa.types.is_struct(kind):
        for number, part in enumerate(kind):
            yield from _leaves(array.field(number), part.type)
    elif pa.types.is_list(kind):
        yield from _leaves(array.values, kind.value_type)
    else:
        yield array, kind


def _is_exact(array: pa.Array, kind: pa.DataType) -> bool:
    """Return whether integers, which the array has as doubles, are all exact there."""
    largest = pc.max(pc.abs(array)).as_py() if pa.types.is_integer(kind) else None
    return largest is None or largest < _EXACT_MAX


def _is_sound(array: pa.Array, kind: pa.DataType) -> bool:
    """Return False if the parser may have let pass what does not fit: decimals with too many digits, and the year 0."""
    if pa.types.is_decimal(kind):
        array.validate(full=True)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        first = pc.min(array.cast(pa.int64() if pa.types.is_timestamp(kind) else pa.int32())).as_py()
        return first is None or first >= _FIRST_DAY * (_MICROSECONDS_PER_DAY if pa.types.is_timestamp(kind) else 1)
    return True
