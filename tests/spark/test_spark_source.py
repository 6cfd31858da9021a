"""`spark.read.format("kafkalake")` against a plain Python reading of the same files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from written_lake import ABORT, COMMIT, WrittenLake

from kafkalake.errors import LakeError
from kafkalake.reader.bounds import begin_read
from kafkalake.reader.plan import plan_slices
from kafkalake.reader.predicate import Selection
from kafkalake.reader.read_options import ReadOptions, parse_options
from kafkalake.reader.snapshot import take_snapshot
from kafkalake.uuid_text import encode_uuid

T0 = 1_700_000_000_000
"""Timestamp (ms) of the first record; every record is a second later than the one before it in its partition."""
PER_SEGMENT = 200

SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


def rows(first: int, count: int) -> list[Any]:
    """Records with and without keys, values and headers; the value says the offset."""
    return [
        (
            T0 + 1000 * offset,
            None if offset % 5 == 0 else b"key-%d" % (offset % 10),
            None if offset % 11 == 0 else b"value-%d" % offset,
            [("trace", b"\x00\xff"), ("none", None)] if offset % 3 == 0 else [],
        )
        for offset in range(first, first + count)
    ]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WrittenLake]:
    """`clicks`: 3 partitions of 4 segments each: two published, one sealed, one active. Nobody changes it."""
    lake = WrittenLake(tmp_path_factory.mktemp("shared") / "lake")
    lake.create("clicks", 3)
    for partition in range(3):
        for segment in range(4):
            for start in range(0, PER_SEGMENT, 10):
                lake.append("clicks", partition, rows(PER_SEGMENT * segment + start, 10))
            if segment < 3:
                lake.roll("clicks", partition)
            if segment == 1:
                lake.publish()
    lake.create("clacks", 1)
    lake.append("clacks", 0, rows(0, 7))
    lake.create("empty", 2)
    yield lake
    lake.close()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[WrittenLake]:
    """An empty lake of the test's own."""
    lake = WrittenLake(tmp_path / "lake")
    yield lake
    lake.close()


def read(
    spark: SparkSession, lake: WrittenLake, topic: str | None, schema: str | None = None, **options: str
) -> DataFrame:
    reader = spark.read.format("kafkalake").option("lake", str(lake.path)).options(**options)
    if schema is not None:
        reader = reader.schema(schema)
    return reader.load(topic) if topic is not None else reader.load()


def offsets(frame: DataFrame) -> list[tuple[int, int]]:
    """(partition, offset) of every row."""
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def expect(lake: WrittenLake, topic: str, wanted: Callable[[dict[str, Any]], bool]) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in lake.plain_rows(topic) if wanted(row)]


# What comes out.


def test_a_topic_is_what_its_files_hold(spark: SparkSession, shared: WrittenLake) -> None:
    frame = read(spark, shared, "clicks")
    plain = [tuple(row.values()) for row in shared.plain_rows("clicks")]
    expected = spark.createDataFrame(plain, SCHEMA)
    assert frame.schema == expected.schema
    assert_df_equality(frame, expected, ignore_row_order=True)
    assert frame.count() == 3 * 4 * PER_SEGMENT


@pytest.mark.parametrize(
    "columns",
    [["offset", "key"], ["value"], ["partition"], ["timestampType", "topic"], ["headers", "timestamp", "offset"]],
)
def test_the_schema_given_is_the_projection(spark: SparkSession, shared: WrittenLake, columns: list[str]) -> None:
    whole = read(spark, shared, "clicks")
    schema = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in whole.select(*columns).schema)
    frame = read(spark, shared, "clicks", schema)
    assert frame.columns == columns
    assert_df_equality(frame, whole.select(*columns), ignore_row_order=True)


def test_values_read_as_strings_are_sparks_cast(spark: SparkSession, shared: WrittenLake) -> None:
    cast = read(spark, shared, "clicks").selectExpr("CAST(key AS STRING) key", "CAST(value AS STRING) value")
    assert_df_equality(read(spark, shared, "clicks", "key string, value string"), cast, ignore_row_order=True)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("ofset long", "no column 'ofset'; did you mean offset"),
        ("offset int", "column offset cannot be int32: it is int64"),
        ("carrier string", "fields of JSON values are columns with the option valueSchema"),
    ],
)
def test_a_wrong_column_is_named(spark: SparkSession, shared: WrittenLake, schema: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        read(spark, shared, "clicks", schema).count()


def test_an_unknown_option_is_named_with_the_one_that_was_meant(spark: SparkSession, shared: WrittenLake) -> None:
    with pytest.raises(Exception, match="unknown option 'isolaton'; did you mean isolation"):
        read(spark, shared, "clicks", isolaton="read_committed")


def test_an_unknown_topic_and_a_path_without_a_lake_are_named(
    spark: SparkSession, shared: WrittenLake, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match=r"topic 'klicks' is not in .*; its topics: clacks, clicks, empty"):
        read(spark, shared, "klicks").count()
    with pytest.raises(Exception, match="no lake at"):
        spark.read.format("kafkalake").option("lake", str(tmp_path)).load("clicks").count()


def test_an_empty_topic_has_no_rows(spark: SparkSession, shared: WrittenLake) -> None:
    assert read(spark, shared, "empty").collect() == []


# Which topics and offsets.


def test_several_topics_by_list_pattern_and_assignment(spark: SparkSession, shared: WrittenLake) -> None:
    def counts(frame: DataFrame) -> dict[str, int]:
        return {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()}

    both = {"clicks": 12 * PER_SEGMENT, "clacks": 7}
    assert counts(read(spark, shared, "clicks,clacks")) == both
    assert counts(read(spark, shared, None, subscribe="clacks, clicks")) == both
    assert counts(read(spark, shared, None, subscribePattern="cl[ai]cks")) == both
    assert counts(read(spark, shared, None, subscribePattern="cla.*")) == {"clacks": 7}
    assert counts(read(spark, shared, None, assign='{"clicks": [2], "clacks": [0]}')) == {
        "clicks": 4 * PER_SEGMENT,
        "clacks": 7,
    }
    with pytest.raises(Exception, match=r"no topic of .* matches subscribePattern 'cl'"):
        read(spark, shared, None, subscribePattern="cl").count()


END = 4 * PER_SEGMENT


@pytest.mark.parametrize(
    ("options", "ranges"),
    [
        ({"startingOffsets": '{"clicks": {"0": 23, "1": -2, "2": 799}}'}, [(23, END), (0, END), (799, END)]),
        ({"endingOffsets": '{"clicks": {"0": 23, "1": -1, "2": 0}}'}, [(0, 23), (0, END), (0, 0)]),
        (
            {
                "startingOffsets": '{"clicks":{"0":195,"1":200,"2":201}}',
                "endingOffsets": '{"clicks":{"0":205,"1":400,"2":201}}',
            },
            [(195, 205), (200, 400), (201, 201)],
        ),
        ({"startingTimestamp": str(T0 + 1000 * 555)}, [(555, END)] * 3),
        ({"startingTimestamp": str(T0 + 1000 * 554 + 1), "endingTimestamp": str(T0 + 1000 * 700)}, [(555, 700)] * 3),
        ({"endingTimestamp": "2023-11-14T22:13:22Z"}, [(0, 2)] * 3),
        ({"endingTimestamp": "2033-01-01"}, [(0, END)] * 3),
        (
            {"startingOffsetsByTimestamp": f'{{"clicks": {{"0": {T0}, "1": {T0 + 10_500}, "2": {T0 + 799_000}}}}}'},
            [(0, END), (11, END), (799, END)],
        ),
        (
            {"startingTimestamp": "2033-01-01T00:00:00Z", "startingOffsetsByTimestampStrategy": "latest"},
            [(END, END)] * 3,
        ),
        (
            {"startingOffsets": '{"clicks":{"0":900,"1":-2,"2":-2}}', "failOnDataLoss": "false"},
            [(END, END), (0, END), (0, END)],
        ),
    ],
)
def test_starting_and_ending(
    spark: SparkSession, shared: WrittenLake, options: dict[str, str], ranges: list[tuple[int, int]]
) -> None:
    frame = read(spark, shared, "clicks", "partition int, offset long", **options)
    expected = [(partition, offset) for partition, (first, end) in enumerate(ranges) for offset in range(first, end)]
    assert offsets(frame) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": '{"clicks": {"0": 23}}'}, "startingOffsets does not name clicks-1"),
        (
            {"startingOffsets": '{"clicks": {"0":1,"1":1,"2":1,"3":1}}'},
            "startingOffsets names clicks-3, which is not read",
        ),
        ({"endingOffsets": '{"clicks": {"0":900,"1":1,"2":1}}'}, "900 of clicks-0 is not there: offsets 0 to 800 are"),
        ({"startingTimestamp": "2033-01-01"}, "clicks-0 has no record at or after timestamp 1988150400000"),
    ],
)
def test_offsets_that_cannot_be_are_named(
    spark: SparkSession, shared: WrittenLake, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        read(spark, shared, "clicks", **options).count()


def test_min_partitions_splits_and_many_segments_share_a_task(spark: SparkSession, shared: WrittenLake) -> None:
    frame = read(spark, shared, "clicks", "partition int, offset long")
    assert frame.rdd.getNumPartitions() <= 3
    split = read(spark, shared, "clicks", "partition int, offset long", minPartitions="17")
    assert split.rdd.getNumPartitions() >= 17
    assert offsets(split) == offsets(frame)
    limited = read(spark, shared, "clicks", "partition int, offset long", maxRecordsPerPartition="100")
    assert max(limited.rdd.glom().map(len).collect()) <= 100
    assert offsets(limited) == offsets(frame)


# Filters.

MOMENT = datetime(2023, 11, 14, 22, 20, 0, tzinfo=UTC)  # 400 seconds after T0

FILTERS: list[tuple[str, Callable[[dict[str, Any]], bool]]] = [
    ("offset = 399", lambda row: row["offset"] == 399),
    ("offset < 3", lambda row: row["offset"] < 3),
    ("offset <= 3 AND offset > 1", lambda row: 1 < row["offset"] <= 3),
    ("offset >= 795", lambda row: row["offset"] >= 795),
    ("offset IN (1, 2, 399, 400, 9999)", lambda row: row["offset"] in (1, 2, 399, 400)),
    ("offset <=> 5 AND partition <=> 1", lambda row: row["offset"] == 5 and row["partition"] == 1),
    ("offset BETWEEN 10 AND 12 AND offset IN (11, 12, 13)", lambda row: row["offset"] in (11, 12)),
    ("partition = 2 AND offset < 5", lambda row: row["partition"] == 2 and row["offset"] < 5),
    ("partition > 0 AND partition <= 1 AND offset = 7", lambda row: row["partition"] == 1 and row["offset"] == 7),
    ("partition IN (0, 2) AND offset = 7", lambda row: row["partition"] in (0, 2) and row["offset"] == 7),
    ("partition <> 1 AND offset = 7", lambda row: row["partition"] != 1 and row["offset"] == 7),
    ("topic = 'clicks' AND offset = 1", lambda row: row["offset"] == 1),
    ("topic = 'clacks'", lambda row: False),
    ("topic IN ('clacks', 'clicks') AND offset = 1", lambda row: row["offset"] == 1),
    ("timestamp = '2023-11-14 22:20:00'", lambda row: row["timestamp"] == MOMENT),
    (
        "timestamp > '2023-11-14 22:20:00' AND offset < 403",
        lambda row: row["timestamp"] > MOMENT and row["offset"] < 403,
    ),
    (
        "timestamp >= '2023-11-14 22:20:00' AND offset < 403",
        lambda row: row["timestamp"] >= MOMENT and row["offset"] < 403,
    ),
    (
        "timestamp < '2023-11-14 22:20:00.000001' AND offset > 398",
        lambda row: row["timestamp"] <= MOMENT and row["offset"] > 398,
    ),
    (
        "timestamp <= '2023-11-14 22:19:59.999999' AND offset > 398",
        lambda row: row["timestamp"] < MOMENT and row["offset"] > 398,
    ),
    (
        "timestamp IN ('2023-11-14 22:20:00', '2023-11-14 22:13:20')",
        lambda row: row["timestamp"] in (MOMENT, datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
    ),
    ("offset = 1 OR offset = 700", lambda row: row["offset"] in (1, 700)),
    ("offset % 200 = 7", lambda row: row["offset"] % 200 == 7),
    ("key IS NULL AND offset < 11", lambda row: row["key"] is None and row["offset"] < 11),
    ("value = X'76616C75652D37'", lambda row: row["value"] == b"value-7"),
    ("headers IS NULL AND offset < 5", lambda row: row["headers"] is None and row["offset"] < 5),
    ("offset IS NULL", lambda row: False),
    ("offset > 9223372036854775806", lambda row: False),
]


@pytest.mark.parametrize(("condition", "wanted"), FILTERS, ids=[condition for condition, _ in FILTERS])
def test_a_filter_leaves_what_it_says(
    spark: SparkSession, shared: WrittenLake, condition: str, wanted: Callable[[dict[str, Any]], bool]
) -> None:
    assert offsets(read(spark, shared, "clicks").filter(condition)) == expect(shared, "clicks", wanted)


@pytest.mark.parametrize(
    "condition",
    [
        "offset >= 600 AND partition < 2",
        "offset IN (650, 700) AND partition <> 2 AND partition IN (0, 1)",
        "timestamp >= '2023-11-14 22:23:20' AND partition <= 1",  # 600 seconds after T0
    ],
)
def test_segments_that_a_filter_rules_out_are_not_opened(
    spark: SparkSession, lake: WrittenLake, condition: str
) -> None:
    lake.create("clicks", 3)
    for partition in range(3):
        for segment in range(4):
            lake.append("clicks", partition, rows(PER_SEGMENT * segment, PER_SEGMENT))
            lake.roll("clicks", partition)
    lake.publish()
    expected = offsets(read(spark, lake, "clicks").filter(condition))
    for partition in range(3):
        for segment in sorted(lake.directory("clicks", partition).glob("*.arrow")):
            if partition == 2 or int(segment.stem) < 600:
                segment.write_bytes(b"not a segment")
    assert offsets(read(spark, lake, "clicks").filter(condition)) == expected
    assert len(expected) > 0
    with pytest.raises(Exception, match=r"not a segment|no message starts here|cut short|file ends"):
        offsets(read(spark, lake, "clicks"))
    assert read(spark, lake, "clicks").count() == 3 * 4 * PER_SEGMENT, "which the metadata has"


# The live edge.

WRITER = """
    import sys, time
    from kafkalake.clock import SystemClock
    from kafkalake.storage.config import LogConfig
    from kafkalake.storage.log import Log
    from record_batches import simple_batch

    log = Log.open(sys.argv[1], LogConfig(), SystemClock())
    def append(number):
        log.append([simple_batch([b"%d-%d" % (number, i) for i in range(10)])], 0)
        log.advance_high_watermark(log.log_end_offset)

    for number in range(int(sys.argv[2])):
        append(number)
    print(log.log_end_offset, flush=True)
    while sys.argv[3] == "endless" and log.log_end_offset < 1_000_000:
        append(0)
    time.sleep(600)
"""


def writer(lake: WrittenLake, topic: str, batches: int, *, endless: bool = False) -> subprocess.Popen[str]:
    """A process that has appended `batches` of 10 records when this returns, and holds the log open (or goes on)."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(WRITER),
            str(lake.directory(topic)),
            str(batches),
            "endless" if endless else "done",
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip().isdigit()
    return process


def test_a_query_sees_every_acknowledged_record_while_the_writer_runs_and_after_it_was_killed(
    spark: SparkSession, lake: WrittenLake
) -> None:
    lake.create("clicks")
    lake.close()
    process = writer(lake, "clicks", 57)
    try:
        frame = read(spark, lake, "clicks", "offset long, value string")
        assert frame.count() == 570
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
        assert [row.value for row in frame.orderBy("offset").collect()] == [
            f"{number}-{i}" for number in range(57) for i in range(10)
        ]
    finally:
        process.kill()
        process.wait(timeout=30)


def test_a_query_sees_records_the_moment_they_are_appended(spark: SparkSession, lake: WrittenLake) -> None:
    lake.create("clicks", 2)
    frame = read(spark, lake, "clicks")
    for number in range(1, 4):
        lake.append_values("clicks", number % 2, [b"x"] * number)
        assert frame.count() == sum(range(number + 1))
        lake.roll("clicks", number % 2)
        assert frame.count() == sum(range(number + 1))
        lake.publish()
        assert frame.count() == sum(range(number + 1))


def test_what_is_not_below_the_high_watermark_is_not_seen(spark: SparkSession, lake: WrittenLake) -> None:
    from record_batches import simple_batch

    lake.create("clicks")
    lake.append_values("clicks", 0, [b"seen"])
    log = lake.logs["clicks", 0]
    log.append([simple_batch([b"not yet"])], 0)
    assert read(spark, lake, "clicks").count() == 1
    assert read(spark, lake, "clicks", isolation="read_uncommitted").count() == 1
    log.advance_high_watermark(log.log_end_offset)
    assert read(spark, lake, "clicks").count() == 2


@pytest.mark.exhaustive
def test_a_snapshot_is_fixed_when_it_is_planned(lake: WrittenLake) -> None:
    from kafkalake.reader.columns import KAFKA_SCHEMA, project
    from kafkalake.reader.slice_reader import SliceReader

    lake.create("clicks", 2)
    for partition in range(2):
        lake.append("clicks", partition, rows(0, 30))
    groups = plan_slices(begin_read(parse_options({"lake": str(lake.path), "subscribe": "clicks"})), Selection())
    for partition in range(2):
        lake.append("clicks", partition, rows(30, 30))
        lake.roll("clicks", partition)
    reader = SliceReader(project(KAFKA_SCHEMA, json_values=False), Selection())
    found = [
        offset for group in groups for batch in reader.read(group) for offset in batch.column("offset").to_pylist()
    ]
    assert sorted(found) == sorted([*range(30)] * 2)


def test_a_planned_query_never_reads_the_next_topic_of_the_name(spark: SparkSession, lake: WrittenLake) -> None:
    lake.create("clicks")
    lake.append("clicks", 0, rows(0, 10))
    planned = read(spark, lake, "clicks")._jdf.queryExecution().toRdd()
    assert planned.getNumPartitions() == 1
    assert planned.count() == 10
    lake.delete_topic("clicks")
    lake.create("clicks")
    lake.append("clicks", 0, rows(0, 10))
    with pytest.raises(
        Exception, match=f"{lake.directory('clicks')} belongs to another topic since the query was planned"
    ):
        planned.count()
    ids = read(spark, lake, "clicks", includeTopicId="true").select("_topic_id").distinct().collect()
    assert [row[0] for row in ids] == [encode_uuid(UUID(lake.topics["clicks"].topic_id))]


def test_records_below_the_log_start_are_gone(spark: SparkSession, lake: WrittenLake) -> None:
    lake.create("clicks")
    for segment in range(3):
        lake.append("clicks", 0, rows(100 * segment, 100))
        lake.roll("clicks")
    lake.publish()
    lake.logs["clicks", 0].delete_records_before(150)
    assert offsets(read(spark, lake, "clicks")) == [(0, offset) for offset in range(150, 300)]
    with pytest.raises(Exception, match="3 of clicks-0 is not there: offsets 150 to 300 are"):
        read(spark, lake, "clicks", startingOffsets='{"clicks": {"0": 3}}').count()


FRESH: list[tuple[str, Callable[[DataFrame], Any], Any]] = [
    (
        "unfiltered after filtered",
        lambda frame: (frame.filter("offset = 1").count(), frame.count()),
        (3, 12 * PER_SEGMENT),
    ),
    (
        "two filters in one query",
        lambda frame: sorted(
            row.offset for row in frame.filter("offset = 1").union(frame.filter("offset = 2")).collect()
        ),
        [1, 1, 1, 2, 2, 2],
    ),
    (
        "filtered and unfiltered in one query",
        lambda frame: (
            frame.filter("offset = 7").join(frame.select("partition", "offset"), ["partition", "offset"]).count()
        ),
        3,
    ),
]


def test_queries_get_batches_as_columns(spark: SparkSession, shared: WrittenLake) -> None:
    frame = read(spark, shared, "clicks").selectExpr("sum(offset)")
    frame.collect()
    assert "ColumnarToRow" in frame._jdf.queryExecution().executedPlan().toString()


@pytest.mark.parametrize(("query", "expected"), [case[1:] for case in FRESH], ids=[case[0] for case in FRESH])
def test_one_frame_in_many_queries(
    spark: SparkSession, shared: WrittenLake, query: Callable[[DataFrame], Any], expected: Any
) -> None:
    assert query(read(spark, shared, "clicks")) == expected


def test_only_the_columns_that_a_query_uses_are_read(spark: SparkSession, lake: WrittenLake) -> None:
    lake.create("clicks")
    lake.append("clicks", 0, rows(0, 100))
    lake.roll("clicks")
    segment = next(lake.directory("clicks").glob("*.arrow"))
    data = bytearray(segment.read_bytes())
    data[data.index(b"value-57")] ^= 4
    segment.write_bytes(data)
    frame = read(spark, lake, "clicks")
    assert frame.count() == 100
    assert (
        frame.filter("offset < 50").selectExpr("max(timestamp)", "count(key)", "max(headers.key)").first() is not None
    )
    with pytest.raises(Exception, match="the checksum of a column does not match"):
        frame.agg({"value": "max"}).first()


@pytest.mark.exhaustive
def test_all_scans_of_a_query_read_one_snapshot(lake: WrittenLake) -> None:
    from kafkalake.spark.planner.query_snapshot import QuerySnapshots

    lake.create("clicks", 2)
    lake.create("clacks")
    options = parse_options({"lake": str(lake.path), "subscribe": "clicks"})
    both = parse_options({"lake": str(lake.path), "subscribe": "clacks,clicks"})
    lake.append("clicks", 0, rows(0, 30))

    def ends(query: str, asked: Any, of: QuerySnapshots) -> list[tuple[str, int, int]]:
        seen = of.as_first_seen(begin_read(asked), query).partitions
        return [(snapshot.topic, snapshot.partition, snapshot.end_offset) for snapshot in seen]

    few, two, one = QuerySnapshots(ends_max=3), QuerySnapshots(queries_max=2), QuerySnapshots(queries_max=1)
    for snapshots in (few, two, one):
        assert ends("q1", options, snapshots) == [("clicks", 0, 30), ("clicks", 1, 0)]
    lake.append("clicks", 0, rows(30, 5))
    lake.append("clicks", 1, rows(0, 5))
    lake.append("clacks", 0, rows(0, 5))
    for snapshots in (few, two, one):
        assert ends("q1", options, snapshots) == [("clicks", 0, 30), ("clicks", 1, 0)]
        assert ends("q1", both, snapshots) == [("clacks", 0, 5), ("clicks", 0, 30), ("clicks", 1, 0)]
        assert ends("q2", options, snapshots) == [("clicks", 0, 35), ("clicks", 1, 5)]
        assert ends("", options, snapshots) == [("clicks", 0, 35), ("clicks", 1, 5)]
    assert ends("q1", options, two) == [("clicks", 0, 30), ("clicks", 1, 0)]
    for snapshots in (few, one):
        assert ends("q1", options, snapshots) == [("clicks", 0, 35), ("clicks", 1, 5)], "the oldest query is forgotten"
    assigned = parse_options({"lake": str(lake.path), "assign": '{"clicks": [1]}'})
    of_parts = QuerySnapshots()
    assert ends("q3", assigned, of_parts) == [("clicks", 1, 5)]
    lake.append("clicks", 1, rows(5, 5))
    assert ends("q3", options, of_parts) == [("clicks", 0, 35), ("clicks", 1, 5)], (
        "a scan of some partitions hides none"
    )
    lake.append("clicks", 0, rows(35, 5))
    assert ends("q3", options, of_parts) == [("clicks", 0, 35), ("clicks", 1, 5)]


def test_a_topic_joined_with_itself_while_it_grows_is_one_topic(spark: SparkSession, lake: WrittenLake) -> None:
    lake.create("clicks")
    lake.close()
    process = writer(lake, "clicks", 3, endless=True)
    try:
        frame = read(spark, lake, "clicks")
        for _ in range(5):
            both = frame.filter("offset >= 0").groupBy().count().union(frame.groupBy().count())
            cached = both.select("count").cache()
            for counts in (both.collect(), cached.collect()):
                assert counts[0] == counts[1]
            cached.unpersist()
    finally:
        process.kill()
        process.wait(timeout=30)


# Time travel.


def test_a_version_is_read_as_it_was_published(spark: SparkSession, lake: WrittenLake) -> None:
    lake.create("clicks", 2)
    versions = []
    for step in range(4):
        for partition in range(2):
            lake.append("clicks", partition, rows(20 * step, 20))
        if step == 2:
            lake.roll("clicks", 0)
        versions.append((lake.publish(), time.time()))
        time.sleep(0.02)  # Delta's times are whole milliseconds
    lake.append("clicks", 0, rows(80, 5))
    for step, (version, moment) in enumerate(versions):
        expected = [(partition, offset) for partition in range(2) for offset in range(20 * (step + 1))]
        assert offsets(read(spark, lake, "clicks", versionAsOf=str(version))) == expected
        text = datetime.fromtimestamp(moment + 0.005, UTC).isoformat()
        assert offsets(read(spark, lake, "clicks", timestampAsOf=text)) == expected
    assert read(spark, lake, "clicks").count() == 165


def test_a_version_that_is_not_there_or_needs_what_is_gone_is_an_error(spark: SparkSession, lake: WrittenLake) -> None:
    lake.create("clicks")
    lake.append("clicks", 0, rows(0, 20))
    lake.roll("clicks")
    version = lake.publish()
    with pytest.raises(Exception, match=r"LakeError|version"):
        read(spark, lake, "clicks", versionAsOf="4711").count()
    segment = next(lake.directory("clicks").glob("*.arrow"))
    segment.unlink()
    with pytest.raises(Exception, match=f"the version asked for needs {segment}"):
        read(spark, lake, "clicks", versionAsOf=str(version)).count()


@pytest.mark.parametrize("moment_ms", [2**63 - 1, -(2**63), 253_402_300_800_000, -62_135_596_800_001, 10**30])
def test_a_time_that_no_year_has_is_refused_in_a_sentence(lake: WrittenLake, moment_ms: int) -> None:
    options = parse_options({"lake": str(lake.path), "subscribe": "clicks", "timestampAsOf": str(moment_ms)})
    lake.create("clicks")
    with pytest.raises(LakeError, match=f"timestampAsOf is {moment_ms} ms since 1970, .* years 1 to 9999"):
        begin_read(options)


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_version_of_which_records_were_deleted_since_says_so(tmp_path: Path, is_sealed: bool) -> None:
    lake = WrittenLake(tmp_path / "lake")
    lake.create("clicks")
    lake.append("clicks", 0, rows(0, 20))
    if is_sealed:
        lake.roll("clicks")
    version = lake.publish()
    if not is_sealed:
        lake.roll("clicks")
    lake.append("clicks", 0, rows(20, 40))
    lake.logs["clicks", 0].delete_records_before(25)
    lake.publish()
    for path in lake.directory("clicks").glob("*.arrow*"):
        if not path.name.startswith("00000000000000000020"):
            path.unlink()
    said = (
        "removed since" if is_sealed else "offsets 0 to 19, which were deleted since: the partition begins at offset 25"
    )
    with pytest.raises(LakeError, match=said):
        take_snapshot(ReadOptions(str(lake.path), topics=("clicks",), version=version), lake.store)
    lake.close()


# Transactions.


def test_aborted_and_open_transactions_are_seen_by_read_uncommitted_only(
    spark: SparkSession, lake: WrittenLake
) -> None:
    lake.create("orders")

    def send(producer: int, count: int, sequence: int, transactional: bool = True) -> None:
        start = lake.logs["orders", 0].log_end_offset
        lake.append(
            "orders",
            0,
            rows(start, count),
            producer_id=producer,
            epoch=0,
            sequence=sequence,
            transactional=transactional,
        )

    send(1, 5, 0)  # 0-4, aborted after the roll
    send(2, 5, 0)  # 5-9, committed
    lake.append("orders", 0, rows(10, 5))  # 10-14, no transaction
    lake.roll("orders")
    lake.publish()
    send(1, 5, 5)  # 15-19, aborted with 0-4
    lake.end_transaction("orders", 0, 1, ABORT)  # 20
    lake.end_transaction("orders", 0, 2, COMMIT)  # 21
    send(1, 5, 10)  # 22-26, the same producer, committed
    lake.end_transaction("orders", 0, 1, COMMIT)  # 27
    committed = [*range(5, 15), *range(22, 27)]
    written = [*range(20), *range(22, 27)]

    def found(**options: str) -> list[int]:
        return [offset for _, offset in offsets(read(spark, lake, "orders", "partition int, offset long", **options))]

    assert found() == committed
    assert found(isolation="read_uncommitted") == written
    assert found(minPartitions="6") == committed
    send(2, 5, 5)  # 28-32, open: the last stable offset stays before it
    lake.append("orders", 0, rows(33, 2))
    assert found() == committed
    assert found(isolation="read_uncommitted") == [*written, *range(28, 35)]
    assert found(**{"kafka.isolation.level": "read_uncommitted"}) == [*written, *range(28, 35)]
    assert offsets(read(spark, lake, "orders").filter("offset BETWEEN 3 AND 16")) == [
        (0, o) for o in committed if 3 <= o <= 16
    ]


def test_a_transaction_aborted_behind_the_last_stable_offset_stays_hidden(
    spark: SparkSession, lake: WrittenLake
) -> None:
    lake.create("orders")
    lake.append("orders", 0, rows(0, 5), producer_id=1, epoch=0, sequence=0, transactional=True)
    lake.append("orders", 0, rows(5, 5))
    lake.roll("orders")
    lake.append("orders", 0, rows(10, 5), producer_id=2, epoch=0, sequence=0, transactional=True)  # stays open
    lake.roll("orders")
    lake.publish()
    lake.end_transaction("orders", 0, 1, ABORT)
    assert offsets(read(spark, lake, "orders")) == [(0, offset) for offset in range(5, 10)]


# Values as JSON.


def test_json_values_become_typed_columns_and_a_bad_record_fails_nothing(
    spark: SparkSession, lake: WrittenLake
) -> None:
    lake.create("flights")
    values = [
        b'{"carrier": "UA", "delay": 2.5, "legs": [{"to": "IAH"}], "timestamp": "x"}',
        b'{"carrier": "AA", "delay": "late"}',
        b"broken {",
        b'{"delay": -3}',
    ]
    lake.append_values("flights", 0, values)
    lake.append("flights", 0, [(5, None, None, [])])
    value_schema = "carrier STRING, delay DOUBLE, legs ARRAY<STRUCT<to: STRING>>, timestamp STRING"
    frame = read(spark, lake, "flights", valueSchema=value_schema)
    assert frame.columns[-4:] == ["carrier", "delay", "legs", "value_timestamp"]
    found = frame.orderBy("offset").select("carrier", "delay", "legs.to", "value_timestamp", "value").collect()
    assert [tuple(row) for row in found] == [
        ("UA", 2.5, ["IAH"], "x", values[0]),
        ("AA", None, None, None, values[1]),
        (None, None, None, None, values[2]),
        (None, -3.0, None, None, values[3]),
        (None, None, None, None, None),
    ]
    only = read(spark, lake, "flights", "delay double, offset long", valueSchema=value_schema)
    assert [tuple(row) for row in only.orderBy("offset").collect()] == [
        (2.5, 0),
        (None, 1),
        (None, 2),
        (-3.0, 3),
        (None, 4),
    ]
    assert frame.filter("carrier = 'UA' AND offset < 3").count() == 1


# Files.


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_segments_are_read(spark: SparkSession, lake: WrittenLake, codec: str) -> None:
    lake.create("clicks", 1, segment_compression=codec)
    for start in range(0, 500, 50):
        lake.append("clicks", 0, rows(start, 50))
    lake.roll("clicks")
    lake.append("clicks", 0, rows(500, 50))
    plain = [tuple(row.values()) for row in lake.plain_rows("clicks")]
    assert_df_equality(read(spark, lake, "clicks"), spark.createDataFrame(plain, SCHEMA), ignore_row_order=True)


def test_a_flipped_bit_fails_the_query_with_file_and_position(spark: SparkSession, lake: WrittenLake) -> None:
    lake.create("clicks")
    lake.append("clicks", 0, rows(0, 100))
    lake.roll("clicks")
    segment = next(lake.directory("clicks").glob("*.arrow"))
    data = bytearray(segment.read_bytes())
    data[data.index(b"value-57")] ^= 4
    segment.write_bytes(data)
    with pytest.raises(Exception, match=rf"CorruptSegmentError: {segment}: at byte \d+: the checksum of a column"):
        read(spark, lake, "clicks").collect()


@pytest.mark.exhaustive
def test_a_segment_that_an_executor_cannot_see_is_named_with_its_host(lake: WrittenLake) -> None:
    import socket

    from kafkalake.errors import LakeError
    from kafkalake.reader.columns import KAFKA_SCHEMA, project
    from kafkalake.reader.slice_reader import SliceReader

    lake.create("clicks")
    lake.append("clicks", 0, rows(0, 100))
    groups = plan_slices(begin_read(parse_options({"lake": str(lake.path), "subscribe": "clicks"})), Selection())
    segment = next(lake.directory("clicks").glob("*.arrow"))
    segment.rename(segment.with_suffix(".elsewhere"))
    reader = SliceReader(project(KAFKA_SCHEMA, json_values=False), Selection())
    with pytest.raises(LakeError, match=f"{segment} cannot be read on host {socket.gethostname()}"):
        list(reader.read(groups[0]))


# SQL.


def test_a_table_in_sql(spark: SparkSession, shared: WrittenLake) -> None:
    spark.sql(f"CREATE TABLE clicks_sql USING kafkalake OPTIONS (lake '{shared.path}', subscribe 'clicks')")
    spark.sql(
        f"CREATE TABLE clicks_few (offset BIGINT, key STRING) USING kafkalake OPTIONS (lake '{shared.path}', subscribe 'clicks')"
    )
    try:
        assert spark.sql("SELECT count(*) FROM clicks_sql").first()[0] == 12 * PER_SEGMENT
        assert spark.sql("SELECT count(*) FROM clicks_sql WHERE partition = 1 AND offset >= 790").first()[0] == 10
        joined = spark.sql(
            "SELECT count(*) FROM clicks_sql a JOIN clicks_few b ON a.offset = b.offset AND b.key IS NULL"
        )
        assert joined.first()[0] == 3 * 3 * 160
        assert spark.table("clicks_few").columns == ["offset", "key"]
    finally:
        spark.sql("DROP TABLE clicks_sql")
        spark.sql("DROP TABLE clicks_few")
