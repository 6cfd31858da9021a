"""What Spark's UI shows of a scan: segments, bytes, records that were read for nothing, times; and the bytes of its stages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from written_lake import WrittenLake

HOUR_MS = 3_600_000
SEGMENTS_AN_HOUR = 4


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WrittenLake]:
    """`day`: 24 hours of records, some seconds apart, each hour in four segments, and an active one."""
    lake = WrittenLake(tmp_path_factory.mktemp("metrics") / "lake")
    lake.create("day", index_interval_bytes=1024)
    for number in range(24 * SEGMENTS_AN_HOUR):
        quarter_ms = HOUR_MS // SEGMENTS_AN_HOUR
        for part in range(10):
            start_ms = number * quarter_ms + part * (quarter_ms // 10)
            lake.append("day", 0, [(start_ms + 1000 * i, b"k", b"v" * 100, []) for i in range(20)])
        if number != 24 * SEGMENTS_AN_HOUR - 1:
            lake.roll("day")
    lake.publish()
    yield lake
    lake.close()


def metrics_of(spark: SparkSession, frame: DataFrame) -> tuple[list[Any], dict[str, int]]:
    """The rows of a frame, and what the SQL status store, which the UI and its REST API show, has of the scan."""
    rows = frame.collect()
    jvm: Any = spark._jvm
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    store = spark._jsparkSession.sharedState().statusStore()
    executions = jvm.scala.jdk.javaapi.CollectionConverters.asJava(store.executionsList())
    execution = max(executions, key=lambda each: each.executionId())
    values = jvm.scala.jdk.javaapi.CollectionConverters.asJava(store.executionMetrics(execution.executionId()))
    found: dict[str, int] = {}
    for metric in jvm.scala.jdk.javaapi.CollectionConverters.asJava(execution.metrics()):
        text = values.get(metric.accumulatorId())
        if text is not None and text.replace(",", "").isdigit():
            found[metric.name()] = int(text.replace(",", ""))
    stages = jvm.scala.jdk.javaapi.CollectionConverters.asJava(execution.stages())
    of_stages = spark.sparkContext._jsc.sc().statusStore()
    found["stage bytes"] = sum(of_stages.lastStageAttempt(stage).inputBytes() for stage in stages)
    found["stage records"] = sum(of_stages.lastStageAttempt(stage).inputRecords() for stage in stages)
    return rows, found


def test_an_hour_of_a_day_reads_the_hour(spark: SparkSession, lake: WrittenLake) -> None:
    sizes = sorted(path.stat().st_size for path in lake.directory("day").glob("*.arrow"))
    frame = spark.read.format("kafkalake").options(lake=str(lake.path)).load("day")
    _, day = metrics_of(spark, frame.selectExpr("sum(length(value))"))
    assert (day["segments read"], day["segments skipped"]) == (24 * SEGMENTS_AN_HOUR, 0)
    begin_s = 10 * 3600 + 17
    hour = frame.filter(
        f"timestamp >= timestamp_seconds({begin_s}) AND timestamp < timestamp_seconds({begin_s + 3600})"
    )
    rows, found = metrics_of(spark, hour.selectExpr("count(value)", "sum(length(value))"))
    assert rows[0][0] == 20 * 10 * SEGMENTS_AN_HOUR
    assert found["bytes read"] <= SEGMENTS_AN_HOUR * sizes[-1] + 2 * sizes[-1]
    assert found["segments read"] <= SEGMENTS_AN_HOUR + 2
    assert found["segments read"] + found["segments skipped"] == 24 * SEGMENTS_AN_HOUR
    assert day["bytes read"] > 15 * found["bytes read"]
    assert found["stage bytes"] == found["bytes read"]
    assert found["stage records"] >= rows[0][0]
    assert "time to plan (ms)" in found
    assert "time to verify and decompress (ms)" in found


def test_records_that_are_read_and_left_out_are_counted(spark: SparkSession, lake: WrittenLake) -> None:
    frame = spark.read.format("kafkalake").options(lake=str(lake.path)).load("day")
    rows, found = metrics_of(spark, frame.filter("offset >= 105 AND offset < 107").select("offset"))
    assert len(rows) == 2
    assert 0 < found["records read and left out"] < 200


def test_a_count_from_metadata_reads_no_segment(spark: SparkSession, lake: WrittenLake) -> None:
    frame = spark.read.format("kafkalake").options(lake=str(lake.path)).load("day")
    rows, found = metrics_of(spark, frame.filter("offset < 300").groupBy().count())
    assert rows[0][0] == 300
    assert (found["segments read"], found["bytes read"]) == (0, 0)
    _, all_of_it = metrics_of(spark, frame.groupBy().count())
    assert all_of_it["segments read"] == 1, "the active one"


def test_a_limit_reads_what_it_needs(spark: SparkSession, lake: WrittenLake) -> None:
    frame = spark.read.format("kafkalake").options(lake=str(lake.path)).load("day")
    rows, found = metrics_of(spark, frame.select("offset").limit(5))
    assert len(rows) == 5
    assert found["segments read"] == 1
    _, more = metrics_of(spark, frame.select("offset").limit(250))
    assert more["segments read"] == 2
    filtered, _ = metrics_of(spark, frame.filter("length(value) = 100 AND key = 'k'").limit(300))
    assert len(filtered) == 300


def test_a_disjunction_over_columns_narrows(spark: SparkSession, lake: WrittenLake) -> None:
    frame = spark.read.format("kafkalake").options(lake=str(lake.path)).load("day")
    last_s = 23 * 3600 + 45 * 60
    either = frame.filter(
        f"offset < 50 OR (timestamp >= timestamp_seconds({last_s}) AND timestampType = 0) OR partition = 7"
    )
    rows, found = metrics_of(spark, either.select("offset"))
    assert sorted(row.offset for row in rows) == [*range(50), *range(19_000, 19_200)]
    assert found["segments read"] == 2
    beyond = frame.filter("offset < 50 OR timestampType = 0").select("offset")
    rows, found = metrics_of(spark, beyond)
    assert (len(rows), found["segments skipped"]) == (19_200, 0)


def test_a_join_leaves_out_partitions_that_the_other_side_has_not(spark: SparkSession, lake: WrittenLake) -> None:
    lake.create("wide", 4)
    for partition in range(4):
        lake.append_values("wide", partition, [b"v" * 100] * 100)
    lake.publish()
    spark.range(4).selectExpr("CAST(id AS INT) AS number", "concat('p', id) AS name").createOrReplaceTempView("names")
    frame = spark.read.format("kafkalake").options(lake=str(lake.path)).load("wide")
    frame.createOrReplaceTempView("wide")
    _, whole = metrics_of(spark, spark.sql("SELECT sum(length(value)) FROM wide"))
    query = "SELECT partition, length(value) FROM wide JOIN {} ON partition = number WHERE name = 'p2'"
    rows, found = metrics_of(spark, spark.sql(query.format("(SELECT /*+ BROADCAST */ * FROM names)")))
    assert [row.partition for row in rows] == [2] * 100
    assert found["bytes read"] * 3 < whole["bytes read"]


def test_extremes_of_offsets_are_found_without_the_records(spark: SparkSession, lake: WrittenLake) -> None:
    lake.create("large")
    for _ in range(2):
        lake.append_values("large", 0, [b"v" * 50_000] * 10)
    frame = spark.read.format("kafkalake").options(lake=str(lake.path)).load("large")
    rows, found = metrics_of(spark, frame.filter("offset >= 3").selectExpr("count(*)", "min(offset)", "max(offset)"))
    assert tuple(rows[0]) == (17, 3, 19)
    assert 0 < found["bytes read"] < 50_000, "of the message of which the filter leaves out some, the offsets"
    rows, found = metrics_of(spark, frame.selectExpr("count(*)", "min(offset)", "max(offset)"))
    assert tuple(rows[0]) == (20, 0, 19)
    assert found["bytes read"] < 50_000


def test_the_size_that_joins_go_by_is_that_of_the_records(spark: SparkSession, lake: WrittenLake) -> None:
    """A topic of few records is broadcast, however many partitions they are in."""
    lake.create("spread", 60)
    for partition in range(60):
        lake.append_values("spread", partition, [b"v" * 100])
    lake.publish()
    frame = spark.read.format("kafkalake").options(lake=str(lake.path)).load("spread")
    size = int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    assert 60 * 100 < size < 60 * 2_000
    joined = frame.alias("a").join(frame.alias("b"), "value")
    assert "BroadcastHashJoin" in joined._jdf.queryExecution().executedPlan().toString()
