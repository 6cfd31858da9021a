"""Columns: the projection that a schema asks for."""

from __future__ import annotations

import pyarrow as pa
import pytest
from avro_documents import TEXT

from kafkalake.errors import ConfigurationError
from kafkalake.reader.columns import KAFKA_SCHEMA, kafka_ddl, project, project_typed
from kafkalake.record import layout as at


def test_only_the_columns_of_the_schema_are_read() -> None:
    schema = pa.schema([("offset", pa.int64()), ("topic", pa.string()), ("key", pa.binary())])
    assert project(schema, json_values=False).record_columns == at.OFFSET_COLUMN | at.KEY_COLUMN
    assert project(pa.schema([("partition", pa.int32())]), json_values=False).record_columns == 0
    assert project(pa.schema([("carrier", pa.string())]), json_values=True).record_columns == at.VALUE_COLUMN
    assert project(KAFKA_SCHEMA, json_values=False).record_columns == 0b11111


def test_key_and_value_may_be_strings() -> None:
    schema = pa.schema([("key", pa.string()), ("value", pa.string())])
    assert project(schema, json_values=False).schema == schema


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (pa.field("ofset", pa.int64()), "no column 'ofset'; did you mean offset"),
        (pa.field("Offset", pa.int64()), "no column 'Offset'; did you mean offset"),
        (pa.field("carrier", pa.string()), "no column 'carrier' but key, value.* option valueSchema"),
        (pa.field("offset", pa.int32()), r"column offset cannot be int32: it is int64 \(Spark: BIGINT\)"),
        (pa.field("value", pa.float64()), "column value cannot be double: it is binary or string"),
        (pa.field("timestamp", pa.timestamp("us")), "column timestamp cannot be"),
        (pa.field("headers", pa.list_(pa.string())), "column headers cannot be"),
    ],
)
def test_a_wrong_name_or_type_is_named(field: pa.Field, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        project(pa.schema([field]), json_values=False)


def test_ddl_has_kafkas_columns_then_the_values() -> None:
    ddl = kafka_ddl(
        headers=False, value_schema="carrier string, `odd,name` ARRAY<STRUCT<a: INT, b: INT>>, timestamp: long"
    )
    assert ddl == (
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
        "`carrier` STRING, `odd,name` ARRAY<STRUCT<`a` INT, `b` INT>>, `value_timestamp` BIGINT"
    )


def test_a_field_with_the_name_of_a_kafka_column_keeps_its_name_in_the_json() -> None:
    schema = pa.schema(
        [
            ("value_timestamp", pa.string()),
            ("value_of_time", pa.int64()),
            ("timestamp", KAFKA_SCHEMA.field("timestamp").type),
        ]
    )
    assert project(schema, json_values=True).fields == {
        "value_timestamp": "timestamp",
        "value_of_time": "value_of_time",
    }


@pytest.mark.parametrize("text", ["carrier", "a int,,b int", "a int,", ": int", "` int", TEXT])
def test_a_broken_value_schema_is_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match="valueSchema"):
        kafka_ddl(headers=True, value_schema=text)


def test_a_typed_topic_has_its_fields_and_metadata_columns_that_they_may_hide() -> None:
    schema = pa.schema(
        [("offset", pa.string()), ("_offset", pa.int64()), ("_key", pa.string()), ("_topic", pa.int32())]
    )
    projection = project_typed(schema, ["offset", "_topic", "value_key"])
    assert projection.fields == {"offset": "offset", "_topic": "_topic"}
    assert projection.kafka_columns == {"_offset": "offset", "_key": "key"}
    assert projection.record_columns == at.VALUE_COLUMN | at.OFFSET_COLUMN | at.KEY_COLUMN
    with pytest.raises(ConfigurationError, match="no column 'partition' but offset, _topic, value_key, _key, _value"):
        project_typed(pa.schema([("partition", pa.int32())]), ["offset", "_topic", "value_key"])
    with pytest.raises(ConfigurationError, match="column _offset cannot be string"):
        project_typed(pa.schema([("_offset", pa.string())]), ["offset"])


def test_a_raw_topic_has_metadata_columns_too() -> None:
    schema = pa.schema([("_offset", pa.int64()), ("key", pa.binary())])
    assert project(schema, json_values=False).kafka_columns == {"_offset": "offset", "key": "key"}
