"""Converts JSON values to typed columns, fast for good values and tolerant of bad ones.

All values are parsed together (`json_lines`). Where one is bad they are parsed again in smaller parts, finally one by one.

Times without a zone are in the session's zone, as in Spark's `from_json`.

A record that is not a JSON object yields nulls. A field that does not fit its type yields null, and the other fields are kept.
The raw value remains available as the column `value`.

In Spark the jar reads fields, with these same results (`spark/jvm/io/kafkalake/spark/JsonFields.java`; compared in
`tests/spark/test_spark_json_fields.py`):

- JSON is UTF-8, perhaps with a byte order mark. Beside RFC 8259 there are the numbers NaN, Infinity and -Infinity.
- All of a value counts. One that is broken behind the fields asked for has none, and of members of one name the last counts.
- Objects and arrays are nested at most `json_lines.DEPTH_MAX` deep.
- A string field takes other values as their JSON, character by character.
- A whole number may be written with a point or an exponent. Decimals are rounded half up, as Spark does, and may be strings.
- Times and dates are those of ISO 8601 that are written in full, also those of years that have a sign and up to seven digits, as
  Spark writes years beyond 9999. Times may be whole numbers: seconds since 1970.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import pyarrow as pa

from kafkalake.errors import ConfigurationError
from kafkalake.reader.columns import Projection
from kafkalake.reader.json_lines import is_deep, parse_lines
from kafkalake.reader.session_time import EPOCH, zone_named

_WHOLE = 8192
"""Number of values parsed in one call."""
_FEW = 32
"""Number of values parsed one by one if one of them is bad."""

_NUMBER_CHARACTERS_MAX = 1000
"""Longer numbers are none of a whole or decimal type. The time to convert them grows with the square of their length."""

_DECODER = json.JSONDecoder(parse_int=float)  # int() refuses numbers of more than 4300 digits
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?0*([0-9]*))?")
_DATE = r"(?:[0-9]{4}|[+-][0-9]{4,7})-[0-9]{2}-[0-9]{2}"
_TIME = re.compile(
    rf"{_DATE}(?:[T ][0-9]{{2}}(?::[0-9]{{2}}(?::[0-9]{{2}}(?:\.[0-9]+)?)?)?"
    r"(?:Z|[+-][0-9]{2}(?:[0-9]{2}|:[0-9]{2}(?::[0-9]{2})?)?)?)?"
)
_SECONDS = re.compile(r"-?[0-9]{1,12}")
_SPECIAL = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE | re.ASCII)
_YEAR = re.compile(r"[+-][0-9]{4,7}|0000")
_FAR_YEARS = 9000
DAYS_PER_CYCLE = 146_097
"""Of 400 years, in each of which days of the week, leap years and daylight saving are the same."""
VARIANT = pa.struct([pa.field(name, pa.binary(), nullable=False) for name in ("value", "metadata")])
"""A VARIANT in the Arrow schema that Spark sends."""


@dataclass(frozen=True)
class JsonColumns:
    """Types and positions of the JSON fields in a projection. positions: column index by field index."""

    positions: tuple[int, ...]
    fields: pa.Schema
    time_zone: str = "UTC"

    @staticmethod
    def of(projection: Projection) -> JsonColumns | None:
        """Return the JSON fields of a projection, or None. Raise `ConfigurationError` for a type that JSON cannot hold."""
        names = projection.fields
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
    parsed = parse_lines(values, struct, zone, exact=True)
    if parsed is None and len(values) > _FEW:
        # Whole numbers written as 517.0, as pandas does, occur in every record or in none.
        parsed = parse_lines(values, struct, zone, exact=False)
    if parsed is not None:
        return parsed
    if len(values) <= _FEW:
        return pa.array([_document(value, struct, zone) for value in values.to_pylist()], struct)
    step = max(_FEW, len(values) // 16)
    return pa.concat_arrays([_parse(values.slice(start, step), struct, zone) for start in range(0, len(values), step)])


def check_json_type(column: str, kind: pa.DataType) -> None:
    """Raise `ConfigurationError` if JSON cannot represent this type."""
    if kind == VARIANT:
        raise ConfigurationError(
            f"column {column} cannot be VARIANT: only Spark with kafkalake-spark.jar has such columns"
        )
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
    text = None if value is None else json_document(value)
    found: dict[str, Any] | None = None if text is None else value_of(text, struct, zone)
    return found


def json_document(value: bytes) -> str | None:
    """Return the text of a JSON value without the spaces around it, or None if it is no JSON."""
    if is_deep(value):
        return None
    try:
        text = value.decode("utf-8-sig")
        _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return text.strip(" \t\n\r")


def value_of(text: str, kind: pa.DataType, zone: tzinfo) -> Any:
    """Convert a JSON value, which is whole and has no spaces around it, for pyarrow's `kind`. Return None if it does not fit."""
    if text == "null":
        return None
    if pa.types.is_struct(kind):
        members = members_of(text)
        if members is None:
            return None
        return {
            part.name: value_of(members[part.name], part.type, zone) if part.name in members else None for part in kind
        }
    if pa.types.is_list(kind):
        return [value_of(item, kind.value_type, zone) for item in items_of(text)] if text[0] == "[" else None
    if pa.types.is_map(kind):
        members = members_of(text)
        if members is None or not all(map(_is_unicode, members)):
            return None
        return [(name, value_of(item, kind.item_type, zone)) for name, item in members.items()]
    for is_it, convert in _CONVERSIONS.items():
        if is_it(kind):
            try:
                near, cycles = _near(text) if pa.types.is_temporal(kind) else (text, 0)
                converted = convert(near, kind)
                if isinstance(converted, datetime) and kind.tz is not None and converted.tzinfo is None:
                    converted = converted.replace(tzinfo=zone)
                converted = _cycles_later(converted, cycles) if cycles else converted
                pa.scalar(converted, kind)
            except (ValueError, TypeError, ArithmeticError, pa.ArrowException):
                return None
            return converted
    return None


def members_of(text: str) -> dict[str, str] | None:
    """Return the JSON values of an object by their names, or None if it is no object."""
    if text[0] != "{":
        return None
    members: dict[str, str] = {}
    at = _behind_spaces(text, 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        at = _behind_spaces(text, _behind_spaces(text, at) + 1)
        members[name], at = _value_at(text, at)
    return members


def items_of(text: str) -> list[str]:
    """Return the JSON values of an array."""
    items: list[str] = []
    at = _behind_spaces(text, 1)
    while text[at] != "]":
        item, at = _value_at(text, at)
        items.append(item)
    return items


def _value_at(text: str, begin: int) -> tuple[str, int]:
    """Return the JSON value that begins here, and where the next part of its container begins."""
    _, end = _DECODER.raw_decode(text, begin)
    at = _behind_spaces(text, end)
    return text[begin:end], _behind_spaces(text, at + 1) if text[at] == "," else at


def _behind_spaces(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _is_unicode(text: str) -> bool:
    """Return whether the text has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _characters(text: str) -> str:
    """Return the string that a JSON value is, or the JSON of another value. Raise `ValueError` for half a surrogate pair."""
    if text[0] == '"':
        text, _ = _DECODER.raw_decode(text)
        text.encode()
    return text


def _string(text: str, kind: pa.DataType) -> str:
    return _characters(text)


def _exact(text: str) -> Decimal:
    """Return the number with all its digits. Raise `ValueError` or `ArithmeticError` if it is none, or too long."""
    found = _NUMBER.fullmatch(text)
    if found is None or len(text) > _NUMBER_CHARACTERS_MAX or len(found[1] or "") > 4:
        raise ValueError(text)
    return Decimal(text)


def _whole(text: str, kind: pa.DataType) -> int:
    number = _exact(text)
    if not abs(number) < 2**64 or number != int(number):
        raise ValueError(text)
    return int(number)


def _float(text: str, kind: pa.DataType) -> float:
    if text[0] == '"' and not _SPECIAL.fullmatch(_characters(text)):
        raise ValueError(text)
    return float(_characters(text))


def _boolean(text: str, kind: pa.DataType) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _decimal(text: str, kind: pa.DataType) -> Decimal:
    number = _exact(_characters(text))
    return number.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, Context(prec=2 * _NUMBER_CHARACTERS_MAX))


def _timestamp(text: str, kind: pa.DataType) -> datetime:
    """Parse an ISO 8601 time, or seconds since 1970, as Spark's `from_json` does. The result is naive if no zone is given."""
    if _SECONDS.fullmatch(text):
        parsed = EPOCH + timedelta(seconds=int(text))
    elif text[0] == '"' and _TIME.fullmatch(_characters(text)):
        parsed = datetime.fromisoformat(_characters(text))
    else:
        raise ValueError(text)
    if kind.tz is None:
        return parsed.replace(tzinfo=None)
    return parsed


def _date(text: str, kind: pa.DataType) -> date:
    if text[0] != '"' or not re.fullmatch(_DATE, _characters(text)):
        raise ValueError(text)
    return date.fromisoformat(_characters(text))


def _near(text: str) -> tuple[str, int]:
    """Return a time in a year that Python has, and how many cycles of the calendar it is earlier than `text`."""
    if text[0] != '"' or (found := _YEAR.match(_characters(text))) is None:
        return text, 0
    year = int(found[0])
    cycles = 0 if 0 < year <= 9999 else (year - _FAR_YEARS) // 400 if year > 0 else (year - 1) // 400 - 1
    return f'"{year - 400 * cycles:04d}{_characters(text)[found.end() :]}"', cycles


def _cycles_later(near: date, cycles: int) -> int:
    """Return days, or microseconds, since 1970."""
    days = DAYS_PER_CYCLE * cycles
    if not isinstance(near, datetime):
        return near.toordinal() - EPOCH.toordinal() + days
    since = near - (EPOCH if near.tzinfo is not None else EPOCH.replace(tzinfo=None))
    return since // timedelta(microseconds=1) + days * 86_400_000_000


_CONVERSIONS: dict[Callable[[pa.DataType], bool], Callable[[str, pa.DataType], Any]] = {
    pa.types.is_string: _string,
    pa.types.is_integer: _whole,
    pa.types.is_floating: _float,
    pa.types.is_boolean: _boolean,
    pa.types.is_decimal: _decimal,
    pa.types.is_timestamp: _timestamp,
    pa.types.is_date: _date,
}
