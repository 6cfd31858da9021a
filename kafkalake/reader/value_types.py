"""The Arrow types of the fields of a topic's values."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from kafkalake.config.value_schema import ValueField, ValueType

_SCALARS = {
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "BINARY": pa.binary(),
    "VARIANT": pa.string(),
}
"""Only Spark has VARIANT: elsewhere it is the text of a string, and the JSON of any other value."""


def value_arrow_schema(fields: Iterable[ValueField]) -> pa.Schema:
    """Return the Arrow schema of the fields, with Spark's types for times (microseconds, UTC or none)."""
    return pa.schema([pa.field(field.name, arrow_type(field.type)) for field in fields])


def arrow_type(kind: ValueType) -> pa.DataType:
    """Return the Arrow type of a field's type."""
    if kind.name == "DECIMAL":
        return pa.decimal128(kind.precision, kind.scale)
    if kind.name == "STRUCT":
        return pa.struct([pa.field(field.name, arrow_type(field.type)) for field in kind.fields])
    if kind.element is None:
        return _SCALARS[kind.name]
    element = arrow_type(kind.element)
    return pa.map_(pa.string(), element) if kind.name == "MAP" else pa.list_(pa.field("element", element))
