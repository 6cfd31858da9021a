"""Converts JSON values to typed columns, fast for good values and tolerant of bad ones.

Every value is wrapped as `{"v":<value>}`, one per line, and all lines are parsed by pyarrow in one call. A wrapper cannot be
swallowed by the preceding value (a string cannot hold a bare line feed, and only at the top level may an object follow
a `}`), so equal numbers of rows and values mean that each value was exactly one document. Anything else (a malformed value,
one that is not an object, a number instead of a string) fails the call. The values are then parsed again in smaller and
smaller parts, finally one by one.

Times without a zone are in the session's zone, as in Spark's `from_json`.

A record that is not a JSON object yields nulls. A field that does not fit its type yields null, and the other fields are kept.
The raw value remains available as the column `value`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from kafkalake.errors import ConfigurationError
from kafkalake.reader.columns import Projection
from kafkalake.reader.session_time import zone_named

_WHOLE = 8192
"""Number of values parsed in one call."""
_FEW = 32
"""Number of values parsed one by one if one of them is bad."""


@dataclass(frozen=True)
class JsonColumns:
    """Types and positions of the JSON fields in a projection. positions: column index by field index."""

    positions: tuple[int, ...]
    fields: pa.Schema
    time_zone: str = "UTC"

    @staticmethod
    def of(projection: Projection) -> JsonColumns | None:
        """Return the JSON fields of a projection, or None. Raise `ConfigurationError` for a type that JSON cannot hold."""
        names = projection.json_fields
        if not names:
            return None
        schema = projection.schema
        fields = []
        for column, name in names.items():
            kind = schema.field(column).type
            check_json_type(column, kind)
            fields.append(pa.field(name, kind))
        return JsonColumns(
            tuple(schema.get_field_index(column) for column in names), pa.schema(fields), projection.time_zone
        )

    def filled(self, arrays: Sequence[Any], values: pa.Array) -> list[Any]:
        """Return `arrays` with the fields of `values` (binary, JSON) filled in."""
        parsed = parse_values(values, self.fields, self.time_zone)
        filled = list(arrays)
        for position, column in zip(self.positions, parsed, strict=True):
            filled[position] = column
        return filled


def parse_values(values: pa.Array, fields: pa.Schema, time_zone: str = "UTC") -> list[pa.Array]:
    """Return one array per field, as long as `values` (binary), with null if the value or the field does not fit.

    `time_zone`: for times without a zone.
    """
    struct, zone = pa.struct(list(fields)), zone_named(time_zone)
    parts = [_parse(values.slice(start, _WHOLE), struct, zone) for start in range(0, max(1, len(values)), _WHOLE)]
    whole = pa.concat_arrays(parts) if len(parts) != 1 else parts[0]
    return list(whole.flatten())


def _parse(values: pa.Array, struct: pa.StructType, zone: tzinfo) -> pa.StructArray:
    parsed = _parse_together(values, struct, zone, exact=True)
    if parsed is None and len(values) > _FEW:
        # Whole numbers written as 517.0, as pandas does, occur in every record or in none.
        parsed = _parse_together(values, struct, zone, exact=False)
    if parsed is not None:
        return parsed
    if len(values) <= _FEW:
        return pa.array([_document(value, struct, zone) for value in values.to_pylist()], struct)
    step = max(_FEW, len(values) // 16)
    return pa.concat_arrays([_parse(values.slice(start, step), struct, zone) for start in range(0, len(values), step)])


def _parse_together(values: pa.Array, struct: pa.StructType, zone: tzinfo, *, exact: bool) -> pa.StructArray | None:
    """Parse all values in one call. Return None if any of them does not fit."""
    lines = pc.binary_join_element_wise(b'{"v":', pc.fill_null(values, b"null"), b"}\n", b"")
    try:
        lines.cast(pa.string())  # JSON is UTF-8, which the parser does not check
        table = pyarrow.json.read_json(
            pa.BufferReader(_text(lines)),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=_text(lines).size + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema([pa.field("v", _readable(struct, exact=exact, utc=zone is UTC))]),
                unexpected_field_behavior="ignore",
            ),
        )
        if table.num_rows != len(values) or table.num_columns != 1:
            return None
        column = table.column("v").combine_chunks()
        return column if column.type == struct else column.cast(struct)
    except (pa.ArrowException, ValueError):
        return None


def _text(lines: pa.Array) -> pa.Buffer:
    """Return the bytes of all lines, concatenated."""
    offsets, data = lines.buffers()[1:]
    return data.slice(0, int.from_bytes(offsets.slice(4 * len(lines), 4).to_pybytes(), "little"))


def _readable(kind: pa.DataType, *, exact: bool, utc: bool) -> pa.DataType:
    """Return the type to parse if pyarrow's JSON reader cannot parse `kind` as written in JSON. Dates are read as strings.

    Not `exact`: integers are read as doubles, and the later cast refuses lossy values. Not `utc`: times are read as strings too,
    because pyarrow assumes UTC for times without a zone. The cast refuses those.
    """
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, _readable(part.type, exact=exact, utc=utc)) for part in kind])
    if pa.types.is_list(kind):
        return pa.list_(_readable(kind.value_type, exact=exact, utc=utc))
    if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is not None and not utc):
        return pa.string()
    if pa.types.is_integer(kind) and not exact:
        return pa.float64()
    return kind


def check_json_type(column: str, kind: pa.DataType) -> None:
    """Raise `ConfigurationError` if JSON cannot represent this type."""
    if pa.types.is_struct(kind):
        for part in kind:
            check_json_type(f"{column}.{part.name}", part.type)
    elif pa.types.is_list(kind):
        check_json_type(f"{column}[]", kind.value_type)
    elif pa.types.is_map(kind):
        if not pa.types.is_string(kind.key_type):
            raise ConfigurationError(f"column {column}: the keys of a JSON object are strings, not {kind.key_type}")
        check_json_type(f"{column}[]", kind.item_type)
    elif not any(is_it(kind) for is_it in _CONVERSIONS):
        raise ConfigurationError(f"column {column} cannot be {kind}: JSON has no such type")


def _document(value: bytes | None, struct: pa.StructType, zone: tzinfo) -> dict[str, Any] | None:
    """Return the fields of one value, or None if it is not a JSON object."""
    try:
        parsed = json.loads(value, parse_float=_Digits) if value is not None else None
    except (ValueError, RecursionError):
        return None
    return _convert(parsed, struct, zone) if isinstance(parsed, dict) else None


def _convert(value: Any, kind: pa.DataType, zone: tzinfo) -> Any:
    """Convert `value` of a JSON document for pyarrow's `kind`. Return None if it does not fit."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return (
            {part.name: _convert(value.get(part.name), part.type, zone) for part in kind}
            if isinstance(value, dict)
            else None
        )
    if pa.types.is_list(kind):
        return [_convert(item, kind.value_type, zone) for item in value] if isinstance(value, list) else None
    if pa.types.is_map(kind):
        return (
            [(key, _convert(item, kind.item_type, zone)) for key, item in value.items()]
            if isinstance(value, dict)
            else None
        )
    for is_it, convert in _CONVERSIONS.items():
        if is_it(kind):
            try:
                converted = convert(value, kind)
                if isinstance(converted, datetime) and kind.tz is not None and converted.tzinfo is None:
                    converted = converted.replace(tzinfo=zone)
                pa.scalar(converted, kind)
            except (ValueError, TypeError, ArithmeticError, pa.ArrowException):
                return None
            return converted
    return None


def _string(value: Any, kind: pa.DataType) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    text.encode()  # refuses half a surrogate pair
    return text


def _whole(value: Any, kind: pa.DataType) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise ValueError(value)
    return int(value)


def _float(value: Any, kind: pa.DataType) -> float:
    if isinstance(value, bool) or (isinstance(value, str) and math.isfinite(float(value))):
        raise ValueError(value)
    return float(value)


def _boolean(value: Any, kind: pa.DataType) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


class _Digits(float):
    """A parsed number that keeps the digits beyond a double's precision."""

    def __new__(cls, text: str) -> _Digits:
        number = super().__new__(cls, text)
        number.digits = text
        return number

    digits: str


def _decimal(value: Any, kind: pa.DataType) -> Decimal:
    if isinstance(value, bool):
        raise ValueError(value)
    return Decimal(value.digits if isinstance(value, _Digits) else str(value)).quantize(Decimal(1).scaleb(-kind.scale))


def _timestamp(value: Any, kind: pa.DataType) -> datetime:
    """Parse an ISO 8601 time, or seconds since 1970, as Spark's `from_json` does. The result is naive if no zone is given."""
    if isinstance(value, int) and not isinstance(value, bool):
        parsed = datetime.fromtimestamp(value, UTC)
    else:
        parsed = datetime.fromisoformat(value)
    if kind.tz is None:
        return parsed.replace(tzinfo=None)
    return parsed


def _date(value: Any, kind: pa.DataType) -> date:
    return date.fromisoformat(value)


_CONVERSIONS: dict[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType], Any]] = {
    pa.types.is_string: _string,
    pa.types.is_integer: _whole,
    pa.types.is_floating: _float,
    pa.types.is_boolean: _boolean,
    pa.types.is_decimal: _decimal,
    pa.types.is_timestamp: _timestamp,
    pa.types.is_date: _date,
}
