"""Converts typed columns to JSON values, the inverse of `json_values`: fields written to a table end up in the record.

The JSON is that of Spark's `to_json(struct(...))`: null fields are omitted, NaN and the infinities are strings. Times
keep all their digits, and a zone if their type has one, so that a round trip is lossless.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.errors import InvalidRecordError
from kafkalake.reader.json_values import DAYS_PER_CYCLE, parse_values

NULL = "null"
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def with_values(rows: pa.RecordBatch, fields: Mapping[str, str], time_zone: str = "UTC") -> pa.RecordBatch:
    """Return the rows with `value` built from `fields` (column -> JSON name) in rows where it is null and a field is not.

    A row of nulls keeps a null value. Raise `InvalidRecordError` if a row has both and they differ.
    """
    columns = {name: rows.column(name) for name in fields if name in rows.schema.names}
    if not columns:
        return rows
    has_field = _any_valid(list(columns.values()))
    if "value" not in rows.schema.names:
        values = json_objects({fields[name]: column for name, column in columns.items()}, has_field)
        return rows.append_column("value", values)
    position = rows.schema.get_field_index("value")
    given = rows.column(position)
    if given.type != pa.binary():
        given = given.cast(pa.binary())
    has_both = pc.and_(has_field, pc.is_valid(given))
    if pc.any(has_both).as_py():
        both = {name: column.filter(has_both) for name, column in columns.items()}
        _check_same(given.filter(has_both), both, fields, time_zone)
    lacking = pc.and_(has_field, pc.is_null(given))
    if not pc.any(lacking).as_py():
        return rows
    made = json_objects({fields[name]: column for name, column in columns.items()}, lacking)
    return rows.set_column(position, "value", pc.coalesce(given, made))


def typed_records(
    rows: pa.RecordBatch, key: str | None, texts: Mapping[str, Sequence[str | None]] | None = None
) -> pa.RecordBatch:
    """Return the records (binary `key` and `value`) of rows of a typed topic.

    Each value is a JSON object of the row's fields, each key the text of the field `key` (None: no record has one), as Kafka's
    StringSerializer writes it, and null where the field is. texts: the JSON of columns whose type Arrow has not.
    """
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    given = texts or {}
    fields = [given[name] if name in given else texts_of(column) for name, column in columns.items()]
    names = [_quoted(name) for name in columns]
    values = pa.array([_object(names, row).encode() for row in zip(*fields, strict=True)], pa.binary())
    keys = key_texts(columns[key]) if key in columns else pa.nulls(rows.num_rows, pa.string())
    return pa.RecordBatch.from_arrays([keys.cast(pa.binary()), values], names=["key", "value"])


def key_texts(column: pa.Array) -> pa.Array:
    """Return the texts that are the keys of records whose field `key` this is."""
    if pa.types.is_decimal(column.type):
        return pa.array(texts_of(column), pa.string())
    return column.cast(pa.string())


def json_objects(fields: Mapping[str, pa.Array], wanted: pa.BooleanArray) -> pa.Array:
    """Return one JSON object (binary) for each row that is `wanted`, and null for the others."""
    names = [_quoted(name) for name in fields]
    objects: list[bytes | None] = [
        _object(names, texts).encode() if is_wanted else None
        for is_wanted, *texts in zip(wanted.to_pylist(), *map(texts_of, fields.values()), strict=True)
    ]
    return pa.array(objects, pa.binary())


def _any_valid(columns: Sequence[pa.Array]) -> pa.BooleanArray:
    found = pc.is_valid(columns[0])
    for column in columns[1:]:
        found = pc.or_(found, pc.is_valid(column))
    return found


def _check_same(values: pa.Array, columns: Mapping[str, pa.Array], fields: Mapping[str, str], time_zone: str) -> None:
    """Raise `InvalidRecordError` if fields differ from those of the row's value. Null fields are not compared."""
    schema = pa.schema([pa.field(fields[name], column.type) for name, column in columns.items()])
    for (name, column), parsed in zip(columns.items(), parse_values(values, schema, time_zone), strict=True):
        if column.equals(parsed):
            continue
        for there, said in zip(texts_of(column), texts_of(parsed), strict=True):
            if there is not None and there != said:
                raise InvalidRecordError(
                    f"a row has a value, and column {name} is {there}, where the value has {said or 'nothing'}: "
                    "give the value, or the fields of valueSchema"
                )


def texts_of(column: pa.Array) -> list[str | None]:
    """Return the JSON of each element, or None if it is null."""
    kind = column.type
    if pa.types.is_struct(kind):
        names = [_quoted(part.name) for part in kind]
        parts = zip(*map(texts_of, column.flatten()), strict=True) if len(names) else iter([()] * len(column))
        return [
            _object(names, texts) if is_there else None
            for is_there, texts in zip(column.is_valid().to_pylist(), parts, strict=True)
        ]
    if pa.types.is_list(kind):
        items = iter(texts_of(column.flatten()))
        lengths = column.value_lengths().to_pylist()
        return [
            None if length is None else f"[{','.join(next(items) or NULL for _ in range(length))}]"
            for length in lengths
        ]
    if pa.types.is_map(kind):
        maps = column.to_pylist()
        items = iter(texts_of(pa.array([value for pairs in maps for _, value in pairs or ()], kind.item_type)))
        return [
            None if pairs is None else f"{{{','.join([f'{_quoted(key)}:{next(items) or NULL}' for key, _ in pairs])}}}"
            for pairs in maps
        ]
    if pa.types.is_string(kind):
        return [None if text is None else _quoted(text) for text in column.to_pylist()]
    if pa.types.is_binary(kind):
        return [None if value is None else _bytes_text(value) for value in column.to_pylist()]
    if pa.types.is_boolean(kind):
        return [None if value is None else str(value).lower() for value in column.to_pylist()]
    if pa.types.is_floating(kind):
        # Use the digits of the float, not those of the nearest double.
        shown = column.cast(pa.string()).to_pylist() if pa.types.is_float32(kind) else map(_repr, column.to_pylist())
        return [None if text is None else _number(text) for text in shown]
    if pa.types.is_integer(kind):
        return column.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_decimal(kind):
        return [None if text is None else _plain(text) for text in column.cast(pa.string()).to_pylist()]
    return [None if text is None else _quoted(text.replace(" ", "T")) for text in _times(column)]


def _times(column: pa.Array) -> list[str | None]:
    """Return the texts of dates or times.

    Arrow has no years beyond some 32,000, and takes them for others where there is a zone: those that are far from now are written
    as the same time in a near cycle of the calendar, of 400 years, and the year is put right.
    """
    kind, numbers = column.type, column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64()).to_pylist()
    day = 1 if pa.types.is_date32(kind) else 86_400 * _PER_SECOND[kind.unit]
    cycle = DAYS_PER_CYCLE * day
    cycles = [
        0 if number is None or -719_162 * day <= number < 2_932_897 * day else number // cycle for number in numbers
    ]
    if any(cycles):
        near = [None if number is None else number - far * cycle for number, far in zip(numbers, cycles, strict=True)]
        column = pa.array(near, pa.int32() if day == 1 else pa.int64()).cast(kind)
    has_zone = pa.types.is_timestamp(kind) and kind.tz is not None
    texts = (_moments(column) if has_zone else column.cast(pa.string())).to_pylist()
    return [
        text if text is None or not far else _later(text, 400 * far) for text, far in zip(texts, cycles, strict=True)
    ]


def _later(text: str, years: int) -> str:
    year = int(text[:4]) + years
    return (f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}") + text[4:]


def _bytes_text(value: bytes) -> str:
    """Return bytes, which JSON has not, as `kafkalake consume` shows them."""
    try:
        return _quoted(value.decode())
    except UnicodeDecodeError:
        return f'{{"base64":"{base64.b64encode(value).decode()}"}}'


def _moments(column: pa.Array) -> pa.Array:
    """Return the texts of times: in their zone; in UTC where the zone had an offset with seconds, which Arrow cuts off."""
    in_utc = column.cast(pa.timestamp(column.type.unit, tz="UTC"))
    offsets = pc.subtract(pc.local_timestamp(column), pc.local_timestamp(in_utc))
    offsets = offsets.cast(pa.duration("s")).cast(pa.int64())
    is_whole = pc.equal(offsets, pc.multiply(pc.divide(offsets, 60), 60))
    return pc.if_else(is_whole, column.cast(pa.string()), in_utc.cast(pa.string()))


def _object(names: Sequence[str], texts: Sequence[str | None]) -> str:
    return f"{{{','.join(f'{name}:{text}' for name, text in zip(names, texts, strict=True) if text is not None)}}}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _repr(value: float | None) -> str | None:
    return None if value is None else repr(value)


def _number(text: str) -> str:
    value = float(text)
    if math.isfinite(value):
        return text
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _plain(text: str) -> str:
    """Format a decimal without an exponent, which JSON parsers would read as a double."""
    return format(Decimal(text), "f")
