"""Counts, and extremes of offsets and timestamps, come from the metadata where it has them, and are those of the records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import local_compaction
import pytest
from compacted_lake import compact
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from kafka_clients import TIMEOUT_S, create_topic
from kafka_reference import Kafkalake, topic_name
from pyspark.sql import DataFrame, SparkSession
from transactional_clients import ConfluentTransactions
from waiting import wait_until
from written_lake import ABORT, COMMIT, WrittenLake

from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.reader.plan import SegmentSlice
from kafkalake.reader.read import SegmentFile
from kafkalake.spark.planner.aggregates import Facts, known_and_unknown

# What is known without reading.


@dataclass(frozen=True)
class Stored:
    """A segment of partition 0: the offsets of its records, with a timestamp each, among offsets [base, end)."""

    base: int
    end: int
    records: tuple[tuple[int, int], ...]
    is_sealed: bool

    def slice(self, first: int, end: int) -> SegmentSlice:
        times = [timestamp for _, timestamp in self.records]
        has_times = self.is_sealed and bool(times)
        known = SegmentFile(
            self.base,
            self.end,
            "",
            0,
            min(times) if has_times else None,
            max(times) if has_times else None,
            sealed=self.is_sealed,
            records=len(times) if self.is_sealed else None,
        )
        count = known.records_between(first, end)
        is_whole = count is not None and (first, end) == (self.base, self.end)
        return SegmentSlice(
            "",
            "clicks",
            "",
            0,
            first,
            end,
            -1,
            1,
            known.min_timestamp_ms,
            known.max_timestamp_ms,
            records=count,
            has_exact_times=is_whole,
        )


@st.composite
def partitions(draw: st.DrawFn) -> list[Stored]:
    edges = sorted(draw(st.sets(st.integers(0, 40), min_size=2, max_size=6)))
    found = []
    for base, end in pairwise(edges):
        gaps = draw(st.sets(st.integers(base, end - 1), max_size=end - base))
        kept = [offset for offset in range(base, end) if offset not in gaps or draw(st.booleans())]
        records = tuple((offset, draw(st.integers(-5, 5))) for offset in kept)
        found.append(Stored(base, end, records, draw(st.booleans())))
    return found


def facts(records: Sequence[tuple[int, int]], *, offsets: bool, times: bool) -> tuple[int | None, ...]:
    by_offset = [offset for offset, _ in records] if offsets else []
    by_time = [timestamp for _, timestamp in records] if times else []
    return (
        len(records),
        min(by_offset, default=None),
        max(by_offset, default=None),
        min(by_time, default=None),
        max(by_time, default=None),
    )


def together(one: Sequence[int | None], other: Sequence[int | None]) -> tuple[int | None, ...]:
    pairs = [[each for each in pair if each is not None] for pair in zip(one, other, strict=True)]
    extremes = [choose(pair, default=None) for choose, pair in zip((min, max, min, max), pairs[1:], strict=True)]
    return (sum(pairs[0]), *extremes)


@examples(300)
@given(partitions(), st.booleans(), st.booleans(), st.integers(0, 40), st.integers(0, 40))
def test_what_is_known_and_what_is_read_are_all_records(
    stored: list[Stored], offsets: bool, times: bool, start: int, stop: int
) -> None:
    slices, of_slice = [], {}
    for segment in stored:
        first, end = max(segment.base, start), min(segment.end, stop)
        if first < end:
            slices.append(segment.slice(first, end))
            of_slice[first] = [each for each in segment.records if first <= each[0] < end]
    known, unknown = known_and_unknown(slices, offsets=offsets, times=times)
    every = [each for records in of_slice.values() for each in records]
    read = [each for piece in unknown for each in of_slice[piece.from_offset]]
    told = known[0][2:] if known else (0, None, None, None, None)
    assert together(told, facts(read, offsets=offsets, times=times)) == facts(every, offsets=offsets, times=times)
    if not offsets and not times and all(segment.is_sealed for segment in stored):
        assert all(piece.records is None for piece in unknown), "counts of whole segments are known"


def test_dense_segments_are_not_read() -> None:
    stored = [Stored(base, base + 10, tuple((base + i, base) for i in range(10)), True) for base in (0, 10, 20)]
    slices = [segment.slice(max(segment.base, 5), segment.end) for segment in stored]
    assert known_and_unknown(slices, offsets=True, times=False) == ([Facts("clicks", 0, 25, 5, 29, None, None)], [])
    assert known_and_unknown(slices, offsets=True, times=True) == (
        [Facts("clicks", 0, 20, None, 29, 10, 20)],
        slices[:1],
    )


# In queries.


class Found(NamedTuple):
    """A record: where it is, and its timestamp in microseconds."""

    partition: int
    offset: int
    timestamp: int


FUNCTIONS = (
    "count(*) AS records, count(1) AS ones, count(offset) AS offsets, min(offset) AS first, max(offset) AS last,"
    " unix_micros(min(timestamp)) AS earliest, unix_micros(max(timestamp)) AS latest"
)


def expected(records: Sequence[Found]) -> tuple[int | None, ...]:
    offsets, times = [each.offset for each in records], [each.timestamp for each in records]
    extremes = [choose(of, default=None) for of in (offsets, times) for choose in (min, max)]
    return (len(records),) * 3 + tuple(extremes)


def check(table: str, spark: SparkSession, records: Sequence[Found]) -> None:
    """Ask for aggregates in many ways; they are those of the records, and not one of them takes the records."""
    offsets = sorted({each.offset for each in records}) or [0]
    middle, last = offsets[len(offsets) // 2], offsets[-1]
    conditions: dict[str, Callable[[Found], bool]] = {
        "true": lambda _: True,
        "partition = 0": lambda each: each.partition == 0,
        f"`offset` > 3 AND `offset` <= {middle} AND partition < 2": lambda each: 3 < each.offset <= middle,
        f"`offset` > {last}": lambda _: False,
    }
    for number, (condition, holds) in enumerate(conditions.items()):
        wanted = [each for each in records if holds(each)]
        if number != 2:
            of_all = spark.sql(f"SELECT {FUNCTIONS} FROM {table} WHERE {condition}")
            assert [tuple(row) for row in of_all.collect()] == [expected(wanted)], condition
            assert_pushed(of_all)
        if number != 1:
            grouped = spark.sql(f"SELECT partition, {FUNCTIONS} FROM {table} WHERE {condition} GROUP BY partition")
            numbers = sorted({each.partition for each in wanted})
            assert sorted(tuple(row) for row in grouped.collect()) == [
                (number, *expected([each for each in wanted if each.partition == number])) for number in numbers
            ], condition
            assert_pushed(grouped)


def assert_pushed(frame: DataFrame) -> None:
    assert ", aggregates: " in plan_of(frame)


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def records_of(frame: DataFrame) -> list[Found]:
    rows = frame.selectExpr("partition", "offset", "unix_micros(timestamp) AS timestamp")
    assert ", aggregates: " not in plan_of(rows)
    return [Found(*row) for row in rows.collect()]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WrittenLake]:
    lake = WrittenLake(tmp_path_factory.mktemp("aggregates") / "lake")
    yield lake
    lake.close()


def test_segments_of_every_kind(spark: SparkSession, lake: WrittenLake) -> None:
    """Sealed, with transactions, with timestamps that are unset or beyond what Spark has, and an active one."""
    lake.create("kinds", 2)
    times = (-(2**63), -1, 0, 1_700_000_000_000, 2**63 - 1)
    for partition in range(2):
        lake.append_values("kinds", partition, [b"dense"] * 10)
        lake.roll("kinds", partition)
        for number, ending in enumerate((COMMIT, ABORT)):
            rows: list[Any] = [(times[i % 5], None, b"x", []) for i in range(7)]
            lake.append(
                "kinds",
                partition,
                rows,
                producer_id=number,
                epoch=0,
                sequence=0,
                transactional=True,
            )
            if ending == ABORT:
                lake.roll("kinds", partition)
            lake.end_transaction("kinds", partition, number, ending)
        lake.append("kinds", partition, [(-1, None, b"x", [])] * 3)
        lake.roll("kinds", partition)
    lake.append_values("kinds", 1, [b"tail"] * 5)
    lake.publish()
    for isolation in ("read_committed", "read_uncommitted"):
        frame = spark.read.format("kafkalake").options(lake=str(lake.path), isolation=isolation).load("kinds")
        records = records_of(frame)
        assert len(records) == (45 if isolation == "read_committed" else 59)
        frame.createOrReplaceTempView("kinds")
        check("kinds", spark, records)


def test_several_topics_are_grouped_as_the_query_says(spark: SparkSession, lake: WrittenLake) -> None:
    for topic, count in (("one", 3), ("two", 4)):
        lake.create(topic, 2)
        for partition in range(2):
            lake.append_values(topic, partition, [b"x"] * (count + partition))
    lake.publish()
    frame = spark.read.format("kafkalake").options(lake=str(lake.path)).load("one,two")
    both = frame.groupBy("partition", "topic").count()
    assert sorted(tuple(row) for row in both.collect()) == [(0, "one", 3), (0, "two", 4), (1, "one", 4), (1, "two", 5)]
    by_topic = frame.groupBy("topic").agg({"offset": "max"})
    assert sorted(tuple(row) for row in by_topic.collect()) == [("one", 3), ("two", 4)]
    one = frame.filter("topic = 'one'").groupBy("partition").count()
    assert sorted(tuple(row) for row in one.collect()) == [(0, 3), (1, 4)]
    for pushed in (both, by_topic, one):
        assert_pushed(pushed)


def test_a_result_that_the_driver_has_needs_no_job(spark: SparkSession, lake: WrittenLake) -> None:
    lake.create("small", 2)
    for partition in range(2):
        lake.append_values("small", partition, [b"x"] * 10)
    spark.read.format("kafkalake").options(lake=str(lake.path)).load("small").createOrReplaceTempView("small")
    of_all = spark.sql("SELECT count(*) + 1 AS n, CAST(max(offset) AS STRING) AS last FROM small")
    grouped = spark.sql("SELECT partition, count(*) AS n FROM small GROUP BY partition")
    assert plan_of(of_all).startswith("LocalTableScan kafkalake [n#")
    context, group = spark.sparkContext, "no jobs"
    context.setJobGroup(group, "")
    try:
        for _ in range(2):
            assert [tuple(row) for row in of_all.collect()] == [(21, "9")]
            assert sorted(tuple(row) for row in grouped.collect()) == [(0, 10), (1, 10)]
        assert len({row.partition for row in (grouped.take(1) + grouped.tail(1))}) == 2
        assert len(context.statusTracker().getJobIdsForGroup(group)) == 0
        assert sorted(row.n for row in grouped.toLocalIterator()) == [10, 10]
        assert len(context.statusTracker().getJobIdsForGroup(group)) > 0, "jobs are counted"
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    # Within larger plans.
    assert sorted(tuple(row) for row in grouped.union(grouped).distinct().collect()) == [(0, 10), (1, 10)]
    last = "(SELECT max(offset) FROM small)"
    assert spark.sql(f"SELECT count(value), {last} FROM small WHERE offset = {last}").collect() == [(2, 9)]
    assert (
        spark.sql("SELECT n FROM (SELECT partition, count(*) AS n FROM small GROUP BY 1) WHERE n > 10").collect() == []
    )
    assert spark.sql("SELECT uuid(), count(*) FROM small").first()[1] == 20
    assert grouped.cache().filter("partition = 1").collect() == [(1, 10)]
    grouped.unpersist()


def test_what_the_metadata_cannot_tell_is_counted(spark: SparkSession, lake: WrittenLake) -> None:
    lake.create("others")
    rows: list[Any] = [(number, None if number % 2 else b"k", b"v", []) for number in range(20)]
    lake.append("others", 0, rows)
    lake.roll("others")
    lake.publish()
    frame = spark.read.format("kafkalake").options(lake=str(lake.path)).load("others")
    frame.createOrReplaceTempView("others")
    for query, result in {
        "SELECT count(key) FROM others": 10,
        "SELECT count(DISTINCT partition) FROM others": 1,
        "SELECT count(*) FROM others WHERE key IS NULL": 10,
        "SELECT count(*) FROM others WHERE timestamp >= timestamp_millis(15)": 5,
        "SELECT count(*) FROM others WHERE `offset` IN (1, 3, 100)": 2,
        "SELECT count(*) FROM others WHERE `offset` = 1 OR partition = 5": 1,
        "SELECT sum(offset) FROM others": 190,
        "SELECT count(*) FILTER (WHERE offset < 4) FROM others": 4,
    }.items():
        counted = spark.sql(query)
        assert counted.collect()[0][0] == result, query
        assert ", aggregates: " not in plan_of(counted), query


def test_what_several_tasks_read_is_added_up_by_spark(spark: SparkSession, lake: WrittenLake) -> None:
    lake.create("many", 2)
    for partition in range(2):
        lake.append_values("many", partition, [b"x"] * 10 * (partition + 1))
    frame = spark.read.format("kafkalake").options(lake=str(lake.path), minPartitions="5").load("many")
    frame.createOrReplaceTempView("many")
    check("many", spark, records_of(frame))


def consumed(broker: Kafkalake, topic: str, count: int) -> list[Found]:
    """What a Kafka client reads that sees committed records only."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "aggregates",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(count)])
    found, ended = [], 0
    while ended < count:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found.append(Found(message.partition(), message.offset(), message.timestamp()[1] * 1000))
    consumer.close()
    return found


def test_they_are_what_a_kafka_client_counts_at_every_stage_of_a_compacted_topic(
    spark: SparkSession, kafkalake_broker: Callable[..., Kafkalake], monkeypatch: pytest.MonkeyPatch
) -> None:
    local_compaction.install(monkeypatch)
    broker = kafkalake_broker(settings={"metadata.publish.interval.ms": "100"})
    topic = topic_name("states").replace("-", "_")
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "internal.segment.bytes": "3000"}
    create_topic(broker.bootstrap_servers, topic, partitions=2, config=config)
    plain = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.lake", "io.kafkalake.spark.LakeCatalog")
    session.conf.set("spark.sql.catalog.lake.path", str(broker.lake))
    store = DeltaMetadataStore(broker.lake)

    def write(count: int) -> None:
        for number in range(count):
            plain.produce(topic, "." * 200, f"key-{number % 5}", number % 2)
        assert plain.flush(TIMEOUT_S) == 0

    def check_now() -> None:
        check(f"lake.{topic}", session, consumed(broker, topic, 2))

    def sealed() -> bool:
        end = max(row.next_offset for row in store.load_segments(topic)) if store.load_segments(topic) else 0
        return end >= 20

    def published() -> bool:
        """Whether the newest version has all: later ones would have more than what is compacted."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "ends"})
        partitions = [confluent_kafka.TopicPartition(topic, number) for number in range(2)]
        ends = {each.partition: consumer.get_watermark_offsets(each, TIMEOUT_S)[1] for each in partitions}
        consumer.close()
        return {row.partition: row.high_watermark for row in store.load_partitions() if row.topic == topic} == ends

    write(40)
    producer = ConfluentTransactions(broker.bootstrap_servers, "txn")
    for number in range(6):
        producer.begin()
        for partition in range(2):
            producer.send(topic, partition, b"." * 300, b"key-%d" % number)
        (producer.abort if number % 3 == 1 else producer.commit)()
    check_now()  # most of it is in active segments
    write(40)
    wait_until(sealed, lambda: store.load_segments(topic))
    wait_until(published, store.load_partitions)
    check_now()
    version = store.partitions_at(None, None)[0]
    compact(broker.lake, "here")
    table = f"lake.{topic} VERSION AS OF {version}"
    check(table, session, records_of(session.sql(f"SELECT * FROM {table}")))

    def compacted() -> int | None:
        """The first version that has the new segments of both partitions: the broker publishes it."""
        newest = store.partitions_at(None, None)[0]
        rewritten = {row.partition for row in store.load_segments(topic, newest) if row.generation}
        return newest if rewritten == {0, 1} else None

    wait_until(compacted)
    table = f"lake.{topic} VERSION AS OF {compacted()}"
    after = records_of(session.sql(f"SELECT * FROM {table}"))
    check(table, session, after)

    def difference() -> list[Found]:
        """What only one of both has: if the broker goes on with the old segments, what was compacted."""
        return sorted({*consumed(broker, topic, 2)} ^ {*after})

    wait_until(lambda: not difference(), difference)
    producer.begin()
    producer.send(topic, 0, b"open", b"key-9")
    write(6)
    check_now()  # a transaction is open
    producer.commit()
    check_now()
    producer.close()


def test_a_plan_that_fails_is_the_querys_error(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.read.format("kafkalake").options(lake=str(tmp_path)).load("clicks")
    with pytest.raises(Exception, match="no lake at"):
        frame.count()
