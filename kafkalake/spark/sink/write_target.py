"""The target topics of a write and the checks that the driver makes before any task runs.

Separate from `staged_rows`, which loads compiled code, because Spark creates and commits each write in separate Python processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from kafkalake.config.avro_schema import parse_avro_schema
from kafkalake.config.topic_values import AvroFormat
from kafkalake.errors import ConfigurationError
from kafkalake.reader.columns import DDL, value_fields
from kafkalake.reader.json_values import VARIANT, check_json_type

_BINARY_LIKE = (pa.binary(), pa.string(), pa.large_binary(), pa.large_string())

BATCH_BYTES = 1 << 20
BATCH_OVERHEAD_BYTES = 61
"""Size of a record batch v2 header."""
HELD_BYTES = 64 << 20
"""Limit of buffered rows in bytes, at which all partial batches are written."""


@dataclass(frozen=True, slots=True)
class Target:
    """A topic that may be written to, as described by the broker. number: its number in staged files."""

    name: str
    number: int
    partitions: int
    message_bytes_max: int
    key_required: bool


def check_columns(schema: pa.Schema, topic: str | None, json_fields: bool = False) -> None:
    """Raise `ConfigurationError` with one sentence if rows of `schema` are not valid records.

    `json_fields`: columns that are none of Kafka's are fields of JSON values, and may replace `value`.
    """
    names = schema.names
    fields = value_fields(names) if json_fields else {}
    _check_once([name for name in names if name in DDL or name in fields])
    for name in fields:
        check_json_type(name, schema.field(name).type)
    if "value" not in names and not fields:
        raise ConfigurationError(f"the data has no column `value`; it has {', '.join(names) or 'no column at all'}")
    if topic is None and "topic" not in names:
        raise ConfigurationError(
            'no topic: name one with save("clicks") or option("topic", ...), or give a column `topic`'
        )
    for name in ("key", "value"):
        if name in names and schema.field(name).type not in _BINARY_LIKE:
            raise ConfigurationError(f"column {name} is {schema.field(name).type}: it must be a string or binary")
    if topic is None and schema.field("topic").type not in (pa.string(), pa.large_string()):
        raise ConfigurationError(f"column topic is {schema.field('topic').type}: it must be a string")
    if "partition" in names and not pa.types.is_integer(schema.field("partition").type):
        raise ConfigurationError(f"column partition is {schema.field('partition').type}: it must be an int")
    if "timestamp" in names and not pa.types.is_timestamp(schema.field("timestamp").type):
        raise ConfigurationError(f"column timestamp is {schema.field('timestamp').type}: it must be a timestamp")
    if "timestamp" in names and schema.field("timestamp").type.tz is None:
        raise ConfigurationError(
            "column timestamp is a TIMESTAMP_NTZ, no moment: CAST(timestamp AS TIMESTAMP) takes it in the session's zone"
        )
    if "headers" in names and not _are_headers(schema.field("headers").type):
        raise ConfigurationError("column headers must be ARRAY<STRUCT<key: STRING, value: BINARY>>")


def check_fields(schema: pa.Schema, avro: AvroFormat | None) -> None:
    """Raise `ConfigurationError` with one sentence if the columns of `schema` cannot be the fields of values.

    avro: of values that are not JSON. A table of a catalogue has its types, so there is only to see whether a field is lacking.
    """
    _check_once(schema.names)
    if avro is not None:
        for part in parse_avro_schema(avro.schema).fields:
            if part.name not in schema.names and not part.type.is_nullable:
                raise ConfigurationError(
                    f"the data has no column {part.name}, which the Avro schema does not let be null"
                )
        return
    for field in schema:
        if field.type != VARIANT:
            check_json_type(field.name, field.type)


def _check_once(names: Sequence[str]) -> None:
    """Raise `ConfigurationError` if a name is there twice, as Spark lets it be in a stream: one of the values would be lost."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigurationError(f"the data has two columns {twice}: drop one of them, or give it another name")


def _are_headers(kind: pa.DataType) -> bool:
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    inner = kind.value_type
    return (
        [inner.field(i).name for i in range(inner.num_fields)] == ["key", "value"]
        and inner.field(0).type in (pa.string(), pa.large_string())
        and inner.field(1).type in (pa.binary(), pa.large_binary())
    )
