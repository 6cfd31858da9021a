"""Typed topics whose values are Avro: Spark reads and writes what Python does, and a Kafka client with fastavro."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from random import Random
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pytest
from avro_documents import ROWS, TEXT, damaged, decoded, encoded
from confluent_kafka.admin import AdminClient, NewTopic
from examples import examples
from hypothesis import Phase, given
from hypothesis import strategies as st
from kafka_reference import Kafkalake, topic_name
from lake_catalog import Statement, refused
from pyspark.sql import Row, SparkSession
from test_spark_catalog import read, setting
from test_spark_json_fields import plain
from test_spark_typed_topics import send

from kafkalake.config.topic_values import AvroFormat, topic_values
from kafkalake.dataset import topic_dataset
from kafkalake.errors import ConfigurationError
from kafkalake.reader.avro_records import avro_records
from kafkalake.reader.avro_values import parse_avro
from kafkalake.reader.value_types import value_arrow_schema
from kafkalake.spark.sink.write_target import check_fields

SETTINGS = {"value.format": "avro", "value.schema": TEXT}
COLUMNS = value_arrow_schema(topic_values(SETTINGS).fields)


def make(broker: Kafkalake, topic: str, **settings: str) -> None:
    config = SETTINGS | {name.replace("_", "."): value for name, value in settings.items()}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(30)


def numbers(kind: pa.DataType) -> pa.DataType:
    """Return the type with which rows can be compared: of times, not all of which are datetimes of Python, the number."""
    return pa.int64() if pa.types.is_timestamp(kind) else pa.int32() if pa.types.is_date(kind) else kind


def comparable(columns: list[pa.Array]) -> list[tuple[Any, ...]]:
    return list(
        zip(*([plain(item) for item in each.cast(numbers(each.type)).to_pylist()] for each in columns), strict=True)
    )


def test_fields_are_those_that_python_reads_of_good_and_of_broken_values(
    sql: Statement, session: SparkSession, broker: Kafkalake, clicks: str
) -> None:
    values: list[bytes | None] = [None, b"", b"text"]

    @examples(80, phases=[Phase.generate])
    @given(ROWS, st.randoms(use_true_random=True))
    def gather(row: dict[str, Any], randomness: Random) -> None:
        values.append(encoded(row))
        values.extend(damaged(encoded(row), randomness) for _ in range(20))

    gather()
    make(broker, clicks)
    send(broker, clicks, [(None, value) for value in values])
    for names in (COLUMNS.names, ["q", "b", "o"]):
        frame = session.table(f"lake.{clicks}").select(*names, "_offset").orderBy("_offset").drop("_offset")
        table = frame.toArrow().combine_chunks()
        fields = pa.schema([COLUMNS.field(name) for name in names])
        assert table.schema.types == fields.types
        found = comparable([column.combine_chunks() for column in table.columns])
        expected = comparable(parse_avro(pa.array(values, pa.binary()), fields, AvroFormat(TEXT)))
        different = [
            (value, one, other) for value, one, other in zip(values, found, expected, strict=True) if one != other
        ]
        assert not different, f"{len(different)}: {different[:3]}"


@examples(3, phases=[Phase.generate])  # a smaller example is not worth the time that each write takes
@given(rows=st.lists(ROWS, min_size=5, max_size=12))
def test_rows_are_the_bytes_of_python_and_come_back(
    rows: list[dict[str, Any]], sql: Statement, session: SparkSession, broker: Kafkalake
) -> None:
    topic = topic_name("rows")
    make(broker, topic, value_avro_schema_id="258", key="a")
    given_values = pa.array([encoded(row) for row in rows], pa.binary())
    batch = pa.RecordBatch.from_arrays(parse_avro(given_values, COLUMNS, AvroFormat(TEXT)), schema=COLUMNS)
    frame = session.createDataFrame(pa.Table.from_batches([batch]))
    frame.withColumn("j", frame.j.cast("TIMESTAMP_NTZ")).coalesce(1).writeTo(f"lake.`{topic}`").append()
    expected = avro_records(batch, AvroFormat(TEXT, 258), "a")
    by_client = read(broker, topic, 1, len(rows), by=repr)
    assert by_client == sorted(zip(*(column.to_pylist() for column in expected.columns), strict=True), key=repr)
    assert sorted(repr(decoded((value or b"")[5:])) for _, value in by_client) == sorted(
        repr(decoded(value)) for value in given_values.to_pylist()
    )


def test_a_table_of_avro_is_made_altered_and_read_by_every_statement(
    sql: Statement, session: SparkSession, broker: Kafkalake, clicks: str, tmp_path: object
) -> None:
    table = f"lake.{clicks}"
    columns = "(user STRING, ms BIGINT, raw BINARY, at TIMESTAMP, st STRUCT<x: INT, y: STRING>)"
    sql(f"CREATE TABLE {table} {columns} TBLPROPERTIES ('value.format' = 'avro', 'key' = 'user')")
    sql(f"INSERT INTO {table} VALUES ('ann', 12, X'FF00', NULL, named_struct('x', 1, 'y', NULL))")
    written = topic_values({"value.format": "avro", "value.schema": setting(broker, clicks, "value.schema")})
    assert written.avro is not None
    schema = fastavro.parse_schema(json.loads(written.avro.schema))
    ((key, value),) = read(broker, clicks, 1, 1)
    row = {"user": "ann", "ms": 12, "raw": b"\xff\0", "at": None, "st": {"x": 1, "y": None}}
    assert (key, decoded(value or b"", schema)) == (b"ann", row)
    send(broker, clicks, [(b"bob", encoded(row | {"user": "bob", "ms": None}, schema)), (b"ann", None), (b"x", b"bad")])
    sql(f"ALTER TABLE {table} ADD COLUMN (more ARRAY<BINARY> COMMENT 'new')")
    sql(f"INSERT INTO {table} (user, more) SELECT 'cid', array(X'01', NULL)")
    found = sql(f"SELECT user, ms, more, _key, _value IS NULL AS n FROM {table} ORDER BY _offset")
    assert found == [
        Row(user="ann", ms=12, more=None, _key=b"ann", n=False),
        Row(user="bob", ms=None, more=None, _key=b"bob", n=False),
        Row(user=None, ms=None, more=None, _key=b"ann", n=True),
        Row(user=None, ms=None, more=None, _key=b"x", n=False),
        Row(user="cid", ms=None, more=[b"\x01", None], _key=b"cid", n=False),
    ]
    assert topic_dataset(broker.lake, clicks).to_table(["user", "more"]).to_pylist() == [
        {"user": each.user, "more": each.more} for each in found
    ]
    relation = duckdb.arrow(topic_dataset(broker.lake, clicks))
    assert relation.filter("user = 'ann'").project("st.x, raw").fetchall() == [(1, b"\xff\0")]
    sql(f"CREATE TABLE {table}_2 TBLPROPERTIES ('value.format' = 'avro') AS SELECT user, ms FROM {table}")
    query = session.readStream.option("startingOffsets", "earliest").table(table).select("user", "ms").writeStream
    query = query.option("checkpointLocation", f"{tmp_path}/c").trigger(availableNow=True)
    assert query.toTable(f"{table}_2").awaitTermination(60)
    assert sql(f"SELECT user, ms, count(*) AS n FROM {table}_2 WHERE user < 'c' GROUP BY ALL ORDER BY user") == [
        Row(user="ann", ms=12, n=2),
        Row(user="bob", ms=None, n=2),
    ]
    for change, said in (
        ("ADD COLUMN v VARIANT", "cannot be VARIANT: Avro has no such type"),
        ("ADD COLUMN `p q` INT", "a name in Avro is made of"),
        ("SET TBLPROPERTIES ('value.format' = 'json')", "JSON has no bytes"),
        ("UNSET TBLPROPERTIES ('value.schema')", "the topic has none"),
    ):
        assert said in refused(sql, f"ALTER TABLE {table} {change}"), change


def test_an_avro_schema_in_json_makes_the_columns_and_refuses_what_it_does_not_take(
    sql: Statement, broker: Kafkalake, clicks: str
) -> None:
    table = f"lake.{clicks}"
    fields = [
        {"name": "id", "type": "int"},
        {"name": "kind", "type": {"type": "enum", "name": "k", "symbols": ["A", "B"]}},
    ]
    schema = {"type": "record", "name": "click", "fields": fields}
    properties = f"'value.format' = 'avro', 'value.schema' = '{json.dumps(schema)}', 'value.avro.schema.id' = '7'"
    assert "names others" in refused(sql, f"CREATE TABLE {table} (id INT) TBLPROPERTIES ({properties})")
    sql(f"CREATE TABLE {table} TBLPROPERTIES ({properties})")
    sql(f"INSERT INTO {table} VALUES (1, 'B')")
    assert read(broker, clicks, 1, 1) == [(None, b"\0\0\0\0\7\2\2")]
    for row, said in (("NULL, 'A'", "column id is null in a row"), ("1, 'C'", "in Avro one of A, B")):
        assert said in refused(sql, f"INSERT INTO {table} VALUES ({row})")
    sql(f"ALTER TABLE {table} ADD COLUMN (price DECIMAL(9, 2))")
    added = json.loads(setting(broker, clicks, "value.schema"))
    assert added["fields"][:2] == fields and added["fields"][2]["default"] is None
    sql(f"INSERT INTO {table} VALUES (2, 'A', 1.25)")
    assert sql(f"SELECT * FROM {table} ORDER BY id") == [
        Row(id=1, kind="B", price=None),
        Row(id=2, kind="A", price=Decimal("1.25")),
    ]
    shown = sql(f"SHOW CREATE TABLE {table}")[0][0]
    again = re.sub(r"USING kafkalake\nLOCATION '[^']*'\n|  'topic.id' = '[^']*',\n", "", shown)
    sql(again.replace(clicks, clicks + "_2"))
    assert setting(broker, clicks + "_2", "value.schema") == setting(broker, clicks, "value.schema")


def test_a_write_without_a_field_that_cannot_be_null_is_refused_before_its_tasks() -> None:
    columns = pa.schema([COLUMNS.field(name) for name in COLUMNS.names if name != "b"])
    check_fields(columns, AvroFormat(TEXT))
    with pytest.raises(ConfigurationError, match="no column a, which the Avro schema does not let be null"):
        check_fields(columns.remove(0), AvroFormat(TEXT))


def test_tombstones_of_keys_are_rows_of_nulls(sql: Statement, broker: Kafkalake, clicks: str) -> None:
    table = f"lake.{clicks}"
    properties = "'value.format' = 'avro', 'key' = 'user', 'cleanup.policy' = 'compact'"
    sql(f"CREATE TABLE {table} (user STRING, ms BIGINT) TBLPROPERTIES ({properties})")
    sql(f"INSERT INTO {table} VALUES ('ann', 1), ('bob', 2)")
    sql(f"INSERT INTO {table} VALUES ('ann', 3)")
    sql(f"DELETE FROM {table} WHERE user IN ('bob', NULL)")  # NULL equals no key
    assert sql(f"SELECT user, ms, CAST(_key AS STRING) AS k FROM {table} ORDER BY _offset") == [
        Row(user="ann", ms=1, k="ann"),
        Row(user="bob", ms=2, k="bob"),
        Row(user="ann", ms=3, k="ann"),
        Row(user=None, ms=None, k="bob"),
    ]
