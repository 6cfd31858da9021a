"""Values that are JSON -> typed columns, at the speed of a parser and with the patience of a person.

Every value is wrapped as `{"v":<value>}`, one a line, and all lines are parsed by pyarrow in one call. A wrapper cannot be
swallowed by the value before it (a string cannot hold a bare line feed, and only at the top level may an object follow
a `}`), so as many rows as values means that each value was exactly one document. Anything else - a broken value, one that
is no object, a number where a string should be - fails the call, and the values are parsed again in smaller and smaller parts,
at last one by one.

Times without a zone are those of the session's zone, as Spark's `from_json` has them.

A record that is no JSON object gives nulls; a field that cannot be its type gives null, and the record's other fields are kept.
The raw value is there all the while: ask for `value` beside the fields.
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
"""Values that are parsed in one call."""
_FEW = 32
"""Values that are parsed one by one where one of them is bad."""


@dataclass(frozen=True)
class JsonColumns:
    """Where in a projection the fields stand, and what they are. positions: index of the column by index of the field."""

    positions: tuple[int, ...]
    fields: pa.Schema
    time_zone: str = "UTC"

    @staticmethod
    def of(projection: Projection) -> JsonColumns | None:
        """Of a projection; None where it asks for no field. Raises `ConfigurationError` for a type that JSON cannot give."""
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
        """`arrays` with the fields of `values` (binary, JSON) put in their places."""
        parsed = parse_values(values, self.fields, self.time_zone)
        filled = list(arrays)
        for position, column in zip(self.positions, parsed, strict=True):
            filled[position] = column
        return filled


def parse_values(values: pa.Array, fields: pa.Schema, time_zone: str = "UTC") -> list[pa.Array]:
    """One array a field, as long as `values` (binary); null where the value or the field is none of what was asked for.

    `time_zone`: of times that name none.
    """
    struct, zone = pa.struct(list(fields)), zone_named(time_zone)
    parts = [_parse(values.slice(start, _WHOLE), struct, zone) for start in range(0, max(1, len(values)), _WHOLE)]
    whole = pa.concat_arrays(parts) if len(parts) != 1 else parts[0]
    return list(whole.flatten())


def _parse(values: pa.Array, struct: pa.StructType, zone: tzinfo) -> pa.StructArray:
    parsed = _parse_together(values, struct, zone, exact=True)
    if parsed is None and len(values) > _FEW:
        # Whole numbers written as 517.0, as pandas does, are in every record or in none.
        parsed = _parse_together(values, struct, zone, exact=False)
    if parsed is not None:
        return parsed
    if len(values) <= _FEW:
        return pa.array([_document(value, struct, zone) for value in values.to_pylist()], struct)
    step = max(_FEW, len(values) // 16)
    return pa.concat_arrays([_parse(values.slice(start, step), struct, zone) for start in range(0, len(values), step)])


def _parse_together(values: pa.Array, struct: pa.StructType, zone: tzinfo, *, exact: bool) -> pa.StructArray | None:
    """All values in one call; None where any of them is not as it should be."""
    lines = pc.binary_join_element_wise(b'{"v":', pc.fill_null(values, b"null"), b"}\n", b"")
    try:
        lines.cast(pa.string())  # JSON is UTF-8, and the parser does not look
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
    """The bytes of all lines, one after the other."""
    offsets, data = lines.buffers()[1:]
    return data.slice(0, int.from_bytes(offsets.slice(4 * len(lines), 4).to_pybytes(), "little"))


def _readable(kind: pa.DataType, *, exact: bool, utc: bool) -> pa.DataType:
    """The type to read where pyarrow's JSON does not know `kind` as JSON has it: dates are strings.

    Not `exact`: whole numbers are read as doubles, and the cast that follows refuses what is lost by that. Not `utc`: so are times,
    which pyarrow takes for UTC's where they name no zone, and the cast refuses those.
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
    """Raise `ConfigurationError` where JSON has nothing that would be of this type."""
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
    """The fields of one value; None where it is no JSON object."""
    try:
        parsed = json.loads(value, parse_float=_Digits) if value is not None else None
    except (ValueError, RecursionError):
        return None
    return _convert(parsed, struct, zone) if isinstance(parsed, dict) else None


def _convert(value: Any, kind: pa.DataType, zone: tzinfo) -> Any:
    """`value` of a JSON document as pyarrow takes it for `kind`; None where it is nothing of that kind."""
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
    """A number of a document, which remembers the digits that a double has no room for."""

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
    """An ISO 8601 time, or seconds since 1970, as Spark's `from_json` has it; without a zone where it names none."""
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
