"""The columns that a read yields: those of Spark's Kafka source, and fields of JSON values.

The schema given by the user is the projection, because Spark does not pass the columns used by a query to a Python source.
Columns outside the schema are not read, verified or sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from kafkalake.close_names import did_you_mean
from kafkalake.errors import ConfigurationError
from kafkalake.record import layout as at

TIMESTAMP_US = pa.timestamp("us", tz="UTC")
HEADERS_TYPE = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))

DDL = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
"""Kafka's columns in the order of Spark's Kafka source, with their Spark types."""

TOPIC_ID = "_topic_id"
"""Optional column: the topic's id, which distinguishes records of two topics with the same name."""

_TYPES: dict[str, tuple[pa.DataType, ...]] = {
    "key": (pa.binary(), pa.string()),
    "value": (pa.binary(), pa.string()),
    "topic": (pa.string(),),
    "partition": (pa.int32(),),
    "offset": (pa.int64(),),
    "timestamp": (TIMESTAMP_US,),
    "timestampType": (pa.int32(),),
    "headers": (HEADERS_TYPE,),
    TOPIC_ID: (pa.string(),),
}
_BITS = {
    "key": at.KEY_COLUMN,
    "value": at.VALUE_COLUMN,
    "offset": at.OFFSET_COLUMN,
    "timestamp": at.TIMESTAMP_COLUMN,
    "headers": at.HEADERS_COLUMN,
}
_VALUE_PREFIX = "value_"
_SPARK_TYPES = {kind: _TYPES[name][0] for name, kind in DDL.items()}
"""Arrow types by Spark types, in SQL and nullable."""

KAFKA_SCHEMA = pa.schema([pa.field(name, _TYPES[name][0]) for name in DDL])


@dataclass(frozen=True)
class Projection:
    """The columns to yield, in order. json_fields: names in the JSON, by column, for the columns that are fields of JSON values.

    time_zone: for times in these fields that have no zone.
    """

    schema: pa.Schema
    json_fields: dict[str, str]
    time_zone: str = "UTC"

    @property
    def record_columns(self) -> int:
        """The bit mask of the segment's columns to read."""
        mask = at.VALUE_COLUMN if self.json_fields else 0
        for name in self.schema.names:
            if name not in self.json_fields:
                mask |= _BITS.get(name, 0)
        return mask


def project(schema: pa.Schema, *, json_values: bool, time_zone: str = "UTC") -> Projection:
    """Return the projection for an Arrow schema.

    With `json_values` a column that is none of Kafka's is a field of the JSON. A field with the name of a Kafka column is
    called `value_<name>`. Raise `ConfigurationError` if a column does not exist or cannot have the given type.
    """
    json_fields = value_fields(schema.names)
    if json_fields and not json_values:
        raise ConfigurationError(_unknown(next(iter(json_fields))))
    for field in schema:
        if field.name in _TYPES:
            _check_type(field)
    return Projection(schema, json_fields, time_zone)


def arrow_schema(columns: Mapping[str, str]) -> pa.Schema:
    """Return the Arrow schema of columns with these Spark types (in SQL). Raise `ConfigurationError` for another type."""
    for name, kind in columns.items():
        if kind not in _SPARK_TYPES:
            raise ConfigurationError(f"column {name} cannot be {kind}: it is {DDL.get(name, 'no column of a topic')}")
    return pa.schema([pa.field(name, _SPARK_TYPES[kind]) for name, kind in columns.items()])


def _check_type(field: pa.Field) -> None:
    allowed = _TYPES[field.name]
    if not any(same_type(field.type, candidate) for candidate in allowed):
        names = " or ".join(str(candidate) for candidate in allowed)
        spark = DDL.get(field.name, "STRING")
        raise ConfigurationError(f"column {field.name} cannot be {field.type}: it is {names} (Spark: {spark})")


def same_type(first: pa.DataType, second: pa.DataType) -> bool:
    """Return whether the types are equal except for nullability."""
    if pa.types.is_list(first) and pa.types.is_list(second):
        return same_type(first.value_type, second.value_type)
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        return first.num_fields == second.num_fields and all(
            first.field(i).name == second.field(i).name and same_type(first.field(i).type, second.field(i).type)
            for i in range(first.num_fields)
        )
    return bool(first == second)


def _unknown(name: str) -> str:
    columns = {column.lower(): column for column in _TYPES}
    if hint := did_you_mean(name.lower(), columns, most=1, show=columns.__getitem__):
        return f"a topic has no column {name!r}; {hint}"
    return (
        f"a topic has no column {name!r} but {', '.join(DDL)}; "
        "fields of JSON values are columns with the option valueSchema"
    )


def json_name(column: str) -> str:
    """Return the JSON name of a typed column: its own, or without the prefix `value_` if the rest names a Kafka column."""
    stripped = column.removeprefix(_VALUE_PREFIX)
    return stripped if column != stripped and stripped in _TYPES else column


def value_fields(columns: Sequence[str]) -> dict[str, str]:
    """Return the columns that are fields of JSON values (given a `valueSchema`), with their names in the JSON."""
    return {column: json_name(column) for column in columns if column not in _TYPES}


def kafka_ddl(*, headers: bool, value_schema: str | None, topic_id: bool = False) -> str:
    """Return the full schema as Spark DDL: Kafka's columns, the topic id if requested, the fields of `value_schema` (DDL)."""
    columns = [f"{name} {kind}" for name, kind in DDL.items() if headers or name != "headers"]
    if topic_id:
        columns.append(f"{TOPIC_ID} STRING")
    for name, rest in split_ddl(value_schema or ""):
        column = _VALUE_PREFIX + name if name in _TYPES else name
        columns.append(f"`{column.replace('`', '``')}`{rest}")
    return ", ".join(columns)


def split_ddl(text: str) -> Sequence[tuple[str, str]]:
    """Return (name, rest) of each field of a DDL schema: `"a INT, b ARRAY<INT>"`. Types are left for Spark to check."""
    fields: list[tuple[str, str]] = []
    for part in _top_level(text):
        part = part.strip()
        if not part:
            raise ConfigurationError(
                f'valueSchema is {text!r}: give columns and types, such as "carrier string, delay double"'
            )
        if part.startswith("`"):
            name, _, rest = part[1:].partition("`")
        else:
            stop = next((i for i, character in enumerate(part) if character in " :\t\n"), len(part))
            name, rest = part[:stop], part[stop:]
        if not name or not rest.strip(" :"):
            raise ConfigurationError(f"valueSchema: {part!r} is no column: give a name and a type")
        fields.append((name, rest))
    return fields


def _top_level(text: str) -> list[str]:
    """Split at commas outside brackets and quotes."""
    if not text.strip():
        return []
    parts, depth, quoted, begin = [], 0, "", 0
    for position, character in enumerate(text):
        if quoted:
            quoted = "" if character == quoted else quoted
        elif character in "`'\"":
            quoted = character
        elif character in "<(":
            depth += 1
        elif character in ">)":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[begin:position])
            begin = position + 1
    return [*parts, text[begin:]]
