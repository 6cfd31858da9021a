"""The columns that a read yields: those of Spark's Kafka source, and fields of JSON values.

The schema given by the user is the projection, because Spark does not pass the columns used by a query to a Python source.
Columns outside the schema are not read, verified or sent.

Columns are named in one of two ways. With the option `valueSchema`, Kafka's columns have Kafka's names, and a field with such a
name is called `value_<name>`. The table of a topic with a `value.schema` (a typed one) has the fields under their names, and
Kafka's columns as metadata columns, `_key`, `_offset` and so on; a field of such a name hides that column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from kafkalake.close_names import did_you_mean
from kafkalake.config.avro_schema import is_avro
from kafkalake.config.topic_values import AvroFormat
from kafkalake.config.value_schema import ValueField, parse_value_schema
from kafkalake.errors import ConfigurationError
from kafkalake.reader.read_options import ReadOptions
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
_METADATA_PREFIX = "_"
_SPARK_TYPES = {kind: _TYPES[name][0] for name, kind in DDL.items()}
"""Arrow types by Spark types, in SQL and nullable."""

KAFKA_SCHEMA = pa.schema([pa.field(name, _TYPES[name][0]) for name in DDL])


@dataclass(frozen=True)
class Projection:
    """The columns to yield, in order, each with its source.

    fields: names in the value, by column, for the columns that are fields of values. kafka_columns: Kafka's columns, by column, for
    the others. time_zone: for times in JSON that have no zone. avro: how values are read that are not JSON.
    """

    schema: pa.Schema
    fields: Mapping[str, str]
    kafka_columns: Mapping[str, str]
    time_zone: str = "UTC"
    avro: AvroFormat | None = None

    @property
    def record_columns(self) -> int:
        """The bit mask of the segment's columns to read."""
        mask = at.VALUE_COLUMN if self.fields else 0
        for name in self.kafka_columns.values():
            mask |= _BITS.get(name, 0)
        return mask


def projection_of(schema: pa.Schema, options: ReadOptions, time_zone: str | None) -> Projection:
    """Return the projection for an Arrow schema and the options of its read. Raise as `project` and `project_typed`."""
    zone = time_zone or "UTC"
    if options.typed is not None:
        names = [field.name for field in options.typed.fields]
        return replace(project_typed(schema, names, time_zone=zone), avro=options.typed.avro)
    return project(schema, json_values=options.value_schema is not None, time_zone=zone)


def project(schema: pa.Schema, *, json_values: bool, time_zone: str = "UTC") -> Projection:
    """Return the projection for an Arrow schema.

    With `json_values` a column that is none of Kafka's is a field of the JSON. A field with the name of a Kafka column is
    called `value_<name>`. Without it there are metadata columns. Raise `ConfigurationError` if a column does not exist or cannot
    have the given type.
    """
    metadata = {} if json_values else metadata_columns(DDL)
    json_fields = value_fields([name for name in schema.names if name not in metadata])
    if json_fields and not json_values:
        raise ConfigurationError(_unknown(next(iter(json_fields))))
    kafka_columns = {name: metadata.get(name, name) for name in schema.names if name not in json_fields}
    return _checked(Projection(schema, json_fields, kafka_columns, time_zone))


def project_typed(schema: pa.Schema, fields: Collection[str], *, time_zone: str = "UTC") -> Projection:
    """Return the projection for columns of a typed topic: some of `fields`, and metadata columns.

    Raise `ConfigurationError` if a column does not exist or cannot have the given type.
    """
    metadata = metadata_columns(fields)
    unknown = next((name for name in schema.names if name not in fields and name not in metadata), None)
    if unknown is not None:
        raise ConfigurationError(f"the topic has no column {unknown!r} but {', '.join((*fields, *metadata))}")
    json_fields = {name: name for name in schema.names if name in fields}
    kafka_columns = {name: metadata[name] for name in schema.names if name not in json_fields}
    return _checked(Projection(schema, json_fields, kafka_columns, time_zone))


def metadata_columns(columns: Iterable[str]) -> dict[str, str]:
    """Return the metadata columns beside `columns`, with Kafka's columns that they are. A column hides the one of its name."""
    taken = {name.lower() for name in columns}
    named = {_METADATA_PREFIX + name: name for name in DDL}
    return {name: source for name, source in named.items() if name.lower() not in taken}


def arrow_schema(columns: Mapping[str, str]) -> pa.Schema:
    """Return the Arrow schema of columns with these Spark types (in SQL). Raise `ConfigurationError` for another type."""
    for name, kind in columns.items():
        if kind not in _SPARK_TYPES:
            raise ConfigurationError(f"column {name} cannot be {kind}: it is {DDL.get(name, 'no column of a topic')}")
    return pa.schema([pa.field(name, _SPARK_TYPES[kind]) for name, kind in columns.items()])


def _checked(projection: Projection) -> Projection:
    """Return the projection. Raise `ConfigurationError` if one of Kafka's columns cannot have its type."""
    for column, source in projection.kafka_columns.items():
        kind, allowed = projection.schema.field(column).type, _TYPES[source]
        if not any(same_type(kind, candidate) for candidate in allowed):
            names = " or ".join(str(candidate) for candidate in allowed)
            spark = DDL.get(source, "STRING")
            raise ConfigurationError(f"column {column} cannot be {kind}: it is {names} (Spark: {spark})")
    return projection


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
    for field in option_fields(value_schema or ""):
        columns.append(replace(field, name=_VALUE_PREFIX + field.name if field.name in _TYPES else field.name).sql)
    return ", ".join(columns)


def option_fields(text: str) -> tuple[ValueField, ...]:
    """Return the fields of the option `valueSchema`, none if the text is empty. Raise `ConfigurationError` if it is malformed."""
    if is_avro(text):
        raise ConfigurationError(
            "valueSchema is the schema of JSON values; a topic with value.format=avro has its fields as columns in a catalogue "
            "(io.kafkalake.spark.LakeCatalog), and here its value, for from_avro"
        )
    try:
        return parse_value_schema(text) if text.strip() else ()
    except ConfigurationError as error:
        raise ConfigurationError(f"valueSchema: {error}") from None
