"""Fields of JSON values in Spark, read in the JVM: the same as the reader of datasets finds, on good and on broken values."""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from json_documents import DDL, FIELDS, deep_values, is_json_object, value
from pyspark.sql import DataFrame, SparkSession
from written_lake import WrittenLake

from kafkalake.reader.json_values import parse_values

ZONE = "America/New_York"


def read(spark: SparkSession, lake: WrittenLake, schema: str, columns: str | None = None) -> DataFrame:
    reader = spark.read.format("kafkalake").option("lake", str(lake.path)).option("valueSchema", schema)
    return (reader.schema(columns) if columns else reader).load("t")


def written(directory: Path, values: list[bytes | None], **config: Any) -> WrittenLake:
    lake = WrittenLake(directory)
    lake.create("t", **config)
    for start in range(0, len(values), 500):
        lake.append_values("t", 0, values[start : start + 500])
    return lake


def rows(columns: list[pa.Array]) -> list[tuple[Any, ...]]:
    """Rows that can be compared: times as numbers, as not all are datetimes of Python, and NaN equals itself."""
    return list(zip(*([plain(item) for item in numbers(column).to_pylist()] for column in columns), strict=True))


def numbers(column: pa.Array) -> pa.Array:
    if pa.types.is_date(column.type):
        return column.cast(pa.int32())
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def plain(item: Any) -> Any:
    if isinstance(item, float) and math.isnan(item):
        return "NaN"
    if isinstance(item, dict):
        return {key: plain(part) for key, part in item.items()}
    if isinstance(item, list | tuple):
        return [plain(part) for part in item]
    return (item, math.copysign(1, item)) if isinstance(item, float) else item


def test_fields_are_those_that_python_reads(spark: SparkSession, tmp_path: Path) -> None:
    values: list[bytes | None] = list(deep_values())

    @examples(150)
    @given(st.randoms(use_true_random=True))
    def gather(randomness: Random) -> None:
        values.extend(value(randomness) for _ in range(20))

    gather()
    values += [b'{"h": %d.005}' % number for number in range(10)]
    lake = written(tmp_path, values)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    try:
        table = read(spark, lake, DDL).orderBy("offset").select(*(f"`{name}`" for name in FIELDS.names)).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert table.schema.types == FIELDS.types
    found = rows([table.column(name) for name in FIELDS.names])
    expected = rows(parse_values(pa.array(values, pa.binary()), FIELDS, ZONE))
    different = [
        (value, name, one, other)
        for value, row, model in zip(values, found, expected, strict=True)
        for name, one, other in zip(FIELDS.names, row, model, strict=True)
        if one != other
    ]
    assert not different, f"{len(different)}: {different[:8]}"
    for given_value, row in zip(values, found, strict=True):
        assert is_json_object(given_value) or set(row) == {None}, given_value


def test_a_field_may_have_any_name_and_be_a_variant(spark: SparkSession, tmp_path: Path) -> None:
    documents = [
        '{"v": {"a": [1, "x", null, 1.5], "ä": {"b": true}}, "key": 1, "value_of": 2, "value": "inner", "s": {"v": [1]}}',
        '{"v": null, "l": [{"deep": 1}, null, 2], "m": {"a": {"x": 1}, "b": 2}}',
        '{"v": 12345678901234567890123, "v": "last"}',
        '{"key": 3',
        '{"v": NaN}',
    ]
    schema = (
        "v VARIANT, key INT, value_of INT, value STRING, s STRUCT<v: VARIANT>, l ARRAY<VARIANT>, m MAP<STRING, VARIANT>"
    )
    lake = written(tmp_path, [document.encode() for document in documents])
    frame = read(spark, lake, schema)
    texts = ["v", "s.v", "l", "m"]
    found = [
        [None if text is None else json.loads(text) for text in row]
        for row in frame.orderBy("offset").selectExpr(*(f"to_json({text})" for text in texts)).collect()
    ]
    assert found == [
        [{"a": [1, "x", None, 1.5], "ä": {"b": True}}, [1], None, None],
        [None, None, [{"deep": 1}, None, 2], {"a": {"x": 1}, "b": 2}],
        ["last", None, None, None],
        [None, None, None, None],
        ["NaN", None, None, None],
    ]
    assert [tuple(row) for row in frame.orderBy("offset").select("value_key", "value_of", "value_value").head(2)] == [
        (1, 2, "inner"),
        (None, None, None),
    ]
    assert frame.selectExpr("variant_get(v, '$.a[1]', 'string')").first()[0] == "x"
    assert [row[0] for row in frame.orderBy("offset").selectExpr("is_variant_null(v)").collect()] == [
        False,
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("v BINARY", "column v cannot be BINARY: JSON has no such type"),
        ("v STRUCT<x: ARRAY<BINARY>>", r"column v.x\[\] cannot be BINARY"),
        ("v ARRAY<MAP<INT, INT>>", r"column v\[\]: the keys of a JSON object are strings, not INT"),
    ],
)
def test_types_that_json_does_not_have_are_refused(
    spark: SparkSession, tmp_path: Path, schema: str, message: str
) -> None:
    lake = written(tmp_path, [b"{}"])
    with pytest.raises(Exception, match=message):
        read(spark, lake, "v STRING", schema).collect()
    with pytest.raises(Exception, match=r"valueSchema: column . cannot be BINARY|STRING, not INT"):
        read(spark, lake, schema)
    stream = (
        spark.readStream.format("kafkalake")
        .option("lake", str(lake.path))
        .option("valueSchema", "v STRING")
        .schema(schema)
    )
    with pytest.raises(Exception, match=message):
        stream.load("t").writeStream.format("noop").trigger(availableNow=True).start().awaitTermination(60)


def test_streams_read_fields_in_the_jvm(spark: SparkSession, tmp_path: Path) -> None:
    lake = written(
        tmp_path / "größe", [b'{"a": %d, "v": {"x": %d}}' % (number, number) for number in range(10)] + [b"bad"]
    )
    stream = spark.readStream.format("kafkalake").option("lake", str(lake.path)).option("startingOffsets", "earliest")
    stream = stream.option("valueSchema", "a BIGINT, v VARIANT").option("maxOffsetsPerTrigger", 4)
    query = stream.load("t").selectExpr("offset", "a", "variant_get(v, '$.x', 'int') x").writeStream
    started = query.format("memory").queryName("fields").trigger(availableNow=True).start()
    assert started.awaitTermination(120)
    assert "Python" not in started._jsq.lastProgress().json()
    found = spark.table("fields").orderBy("offset").collect()
    assert [tuple(row) for row in found] == [(number, number, number) for number in range(10)] + [(10, None, None)]
    spark.catalog.dropTempView("fields")


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_fields_of_a_range_of_offsets(spark: SparkSession, tmp_path: Path, compression: str | None) -> None:
    config = {} if compression is None else {"segment_compression": compression}
    values: list[bytes | None] = [
        None if number % 7 == 0 else b'{"a": %d, "b": "x%d"}' % (number, number) for number in range(1500)
    ]
    frame = read(
        spark, written(tmp_path, values, **config), "a INT, b STRING", "b STRING, offset BIGINT, a INT, topic STRING"
    )
    found = [tuple(row) for row in frame.where("offset BETWEEN 100 AND 1200").orderBy("offset").collect()]
    assert found == [
        (None, number, None, "t") if number % 7 == 0 else (f"x{number}", number, number, "t")
        for number in range(100, 1201)
    ]
