"""Segments have two readers: Python's (`slice_reader`) and, for Spark, the jar's (`jvm/.../SegmentReader.java`). They agree."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lake_catalog import with_catalog
from long_runs import ALL, first_of
from pyspark.sql import DataFrame, SparkSession
from record_batches import record_batch
from written_lake import ABORT, COMMIT, WrittenLake

from kafkalake.errors import KafkaError
from kafkalake.reader.bounds import begin_read
from kafkalake.reader.columns import KAFKA_SCHEMA, project
from kafkalake.reader.plan import plan_slices
from kafkalake.reader.predicate import Selection
from kafkalake.reader.read_options import parse_options
from kafkalake.reader.slice_reader import SliceReader

TOPICS: dict[str, dict[str, Any]] = {
    "plain": {},
    "lz4": {"segment_compression": "lz4"},
    "zstd": {"segment_compression": "zstd"},
    "append-time": {"message_timestamp_type": "LogAppendTime"},
}
TIMES = (-(2**63), -1, 0, 1_700_000_000_000, 2**63 - 1)
HEADERS: tuple[list[tuple[str, bytes | None]], ...] = ([], [], [("", None)], [("a", b"1"), ("ä", b""), ("a", None)])


def random_rows(randomness: random.Random, count: int) -> list[Any]:
    """Records with all that a record may have or lack."""
    sizes = (0, 1, 7, 100) if count > 1 else (0, 100, 6 << 20)
    return [
        (
            randomness.choice(TIMES),
            randomness.choice((None, b"", b"key-%d" % number)),
            randomness.choice((None, randomness.randbytes(randomness.choice(sizes)))),
            randomness.choice(HEADERS),
        )
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WrittenLake]:
    """`TOPICS`, of 2 partitions each: messages of 1 to 4 batches, transactions of two producers among them, segments rolled."""
    lake = WrittenLake(tmp_path_factory.mktemp("readers") / "lake")
    randomness = random.Random(7)
    for topic, config in TOPICS.items():
        lake.create(topic, 2, index_interval_bytes=512, **config)
        for partition in range(2):
            write(lake, topic, partition, randomness)
    lake.publish()
    yield lake
    lake.close()


def large_rows() -> list[Any]:
    """More rows, and a longer value, than a block of a compressed buffer holds; both become much smaller."""
    rows: list[Any] = [(0, b"key-%d" % (number % 7), b"value-%d" % (number % 11), []) for number in range(9_000)]
    return [*rows, (0, None, b"abc" * 100_000, [])]


def write(lake: WrittenLake, topic: str, partition: int, randomness: random.Random) -> None:
    log = lake.logs[topic, partition]
    sequences = {1: 0, 2: 0}
    open_producers: set[int] = set()
    for step in range(30):
        batches = []
        for _ in range(randomness.randint(1, 4)):
            rows = random_rows(randomness, randomness.choice((1, 2, 9, 40)) if step != 15 else 1)
            producer = randomness.choice((None, 1, 2))
            if producer is None:
                batches.append(record_batch(rows))
                continue
            sequence = sequences[producer]
            sequences[producer] += len(rows)
            open_producers.add(producer)
            batches.append(
                record_batch(
                    rows,
                    producer_id=producer,
                    epoch=0,
                    sequence=sequence,
                    transactional=True,
                )
            )
        if step == 10:
            batches.append(record_batch(large_rows()))
        assert not any(isinstance(answer, KafkaError) for answer in log.append(batches, 0))
        log.advance_high_watermark(log.log_end_offset)
        if open_producers and randomness.random() < 0.4:
            producer = open_producers.pop()
            lake.end_transaction(topic, partition, producer, randomness.choice((ABORT, COMMIT)))
        if step % 12 == 11:
            log.roll()
    for producer in open_producers:
        lake.end_transaction(topic, partition, producer, ABORT)


def read(spark: SparkSession, lake: WrittenLake, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("kafkalake").option("lake", str(lake.path)).options(**options)
    return reader.option("includeHeaders", "true").load(topic)


def as_rows(table: pa.Table) -> list[dict[str, Any]]:
    plain = pa.schema([field.with_type(pa.int64()) if field.name == "timestamp" else field for field in KAFKA_SCHEMA])
    return (
        table.select(KAFKA_SCHEMA.names)
        .cast(plain)
        .sort_by([("partition", "ascending"), ("offset", "ascending")])
        .to_pylist()
    )


def in_spark(frame: DataFrame) -> list[dict[str, Any]]:
    """What Spark has, with timestamps as microseconds: Python's cannot hold all that a producer may send."""
    return as_rows(frame.selectExpr("* EXCEPT (timestamp)", "unix_micros(timestamp) AS timestamp").toArrow())


def in_python(
    lake: WrittenLake, topic: str, selection: Selection | None = None, **options: str
) -> list[dict[str, Any]]:
    groups = plan_slices(
        begin_read(parse_options({"lake": str(lake.path), "subscribe": topic, **options})), selection or Selection()
    )
    reader = SliceReader(project(KAFKA_SCHEMA, json_values=False), selection or Selection())
    return as_rows(pa.Table.from_batches([batch for group in groups for batch in reader.read(group)], KAFKA_SCHEMA))


@pytest.mark.parametrize(
    ("topic", "isolation"),
    # What is committed is found in the same way in segments of every kind.
    first_of(
        [
            *((topic, "read_uncommitted") for topic in TOPICS),
            *((topic, "read_committed") for topic in sorted(TOPICS, key=lambda topic: topic != "plain")),
        ],
        len(TOPICS) + 1,
    ),
)
def test_both_readers_give_the_same_records(spark: SparkSession, lake: WrittenLake, topic: str, isolation: str) -> None:
    expected = in_python(lake, topic, isolation=isolation)
    assert {row["timestampType"] for row in expected} == {int(topic == "append-time")}
    for options in ({}, {"minPartitions": "7"}):
        assert in_spark(read(spark, lake, topic, isolation=isolation, **options)) == expected


@pytest.mark.parametrize("topic", TOPICS)
def test_both_readers_begin_and_end_at_any_offset(spark: SparkSession, lake: WrittenLake, topic: str) -> None:
    everything = in_python(lake, topic)
    last = max(row["offset"] for row in everything)
    for first, end in ((1, 2), (3, 4), (17, 90), (last // 2, last // 2 + 1), (last - 3, last + 1), (0, last)):
        wanted = [row for row in everything if first <= row["offset"] < end]
        found = read(spark, lake, topic).filter(f"offset >= {first} AND offset < {end}")
        assert in_spark(found) == wanted


def test_a_column_alone_is_the_same_as_among_others(spark: SparkSession, lake: WrittenLake) -> None:
    everything = in_python(lake, "plain")
    for name in ("key", "value", "timestampType", "partition"):
        found = read(spark, lake, "plain").orderBy("partition", "offset").select(name).toArrow().column(0).to_pylist()
        assert found == [row[name] for row in everything]
    keys = read(spark, lake, "plain").selectExpr("headers.key AS keys", "size(headers) AS size").toArrow().to_pylist()
    assert sum(row["size"] for row in keys if row["keys"] is not None) == sum(
        len(row["headers"] or []) for row in everything
    )


def test_a_column_is_the_same_by_both_of_its_names(spark: SparkSession, lake: WrittenLake) -> None:
    table = with_catalog(spark, lake.path).table("lake.`append-time`")
    names = [name for name in KAFKA_SCHEMA.names if name != "headers"]
    both = " AND ".join(f"{name} <=> _{name}" for name in names)
    assert table.selectExpr(both).distinct().collect() == [(True,)]


@pytest.mark.parametrize("kind", first_of(["active", "sealed", "zstd"], 1))
def test_damaged_segments_give_right_records_or_an_error(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    lake = WrittenLake(tmp_path / "lake")
    lake.create("clicks", segment_compression="zstd" if kind == "zstd" else "none", index_interval_bytes=1)
    for start in range(0, 12, 3):
        rows = [(start + i, b"k%d" % i, b"value-%d" % (start + i) * 5, [("h", b"x")]) for i in range(3)]
        lake.append("clicks", 0, rows)
    if kind != "active":
        lake.roll("clicks")
    lake.publish()
    segment = next(lake.directory("clicks").glob("*.arrow"))
    data = segment.read_bytes()
    expected = in_python(lake, "clicks")
    frame = read(spark, lake, "clicks")
    randomness = random.Random(3)
    positions = randomness.sample(range(len(data)), 20 if ALL else 10)
    damaged = [data[:i] + bytes([data[i] ^ 0x10]) + data[i + 1 :] for i in positions]
    failed = 0
    for content in [*damaged, *(data[:length] for length in randomness.sample(range(len(data)), 6 if ALL else 4))]:
        segment.write_bytes(content)
        try:
            found = in_spark(frame)
        except Exception as error:
            assert f"CorruptSegmentError: {segment}: at byte " in str(error), str(error)[:500]
            failed += 1
        else:
            assert found == expected
    assert failed > len(damaged) // 2
    segment.write_bytes(data)
    lake.close()


def test_a_damaged_beginning_of_a_file_costs_no_record(spark: SparkSession, tmp_path: Path) -> None:
    """No checksum covers the schema message: its length must not say where the first record message is."""
    lake = WrittenLake(tmp_path / "lake")
    lake.create("clicks", index_interval_bytes=1 << 20)
    for number in range(8):
        lake.append_values("clicks", 0, [b"value-%d" % number])
    lake.roll("clicks")
    lake.publish()
    segment = next(lake.directory("clicks").glob("*.arrow"))
    data = segment.read_bytes()
    message_bytes = data.index(b"value-1") - data.index(b"value-0")
    for position, bit in ((12, 3), (13, message_bytes.bit_length() - 9), (15, 7)):
        segment.write_bytes(data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :])
        assert [row["offset"] for row in in_spark(read(spark, lake, "clicks"))] == list(range(8))
    lake.close()


def test_a_lake_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    lake = WrittenLake(tmp_path / "Flüge")
    lake.create("clicks")
    lake.append_values("clicks", 0, [b"one", b"two"])
    assert read(spark, lake, "clicks").count() == 2
    lake.close()


def test_a_damaged_index_costs_time_and_not_records(spark: SparkSession, tmp_path: Path) -> None:
    lake = WrittenLake(tmp_path / "lake")
    lake.create("clicks", index_interval_bytes=1)
    for start in range(0, 40, 4):
        lake.append_values("clicks", 0, [b"value-%d" % (start + i) for i in range(4)])
    lake.roll("clicks")
    lake.publish()
    index = next(lake.directory("clicks").glob("*.index"))
    data = index.read_bytes()
    for content in (data[:40] + b"\1" + data[41:], b"", data[:7], data[16:], data[::-1], data[:12] + data[16:]):
        index.write_bytes(content)
        for first in (0, 5, 21, 36):
            found = read(spark, lake, "clicks").filter(f"offset >= {first}")
            assert [row["offset"] for row in in_spark(found)] == list(range(first, 40))
    lake.close()


def test_a_segment_that_is_gone_is_named_with_the_host(spark: SparkSession, tmp_path: Path) -> None:
    lake = WrittenLake(tmp_path / "lake")
    lake.create("clicks")
    lake.append_values("clicks", 0, [b"one", b"two"])
    segment = next(lake.directory("clicks").glob("*.arrow"))
    frame = read(spark, lake, "clicks")
    planned = frame._jdf.queryExecution().toRdd()  # its partitions are planned, and nothing is read yet
    assert planned.getNumPartitions() == 1
    segment.rename(segment.with_suffix(".elsewhere"))
    with pytest.raises(Exception, match=f"{segment} cannot be read on host .*: No such file or directory"):
        planned.count()
    lake.close()
