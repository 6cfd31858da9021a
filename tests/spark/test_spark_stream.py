"""`spark.readStream.format("kafkalake")`: what each micro-batch holds, after restarts, losses and changes of the topics."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest
from kafka_reference import Kafkalake, create_topic, topic_name
from planning_process import kill_planner
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from written_lake import ABORT, COMMIT, WrittenLake

from kafkalake.uuid_text import encode_uuid

TIMEOUT_S = 90


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[WrittenLake]:
    lake = WrittenLake(tmp_path / "lake")
    yield lake
    lake.close()


def append(lake: WrittenLake, topic: str, partition: int, count: int, timestamp: int = 1_000) -> None:
    lake.append_values(topic, partition, [b"value"] * count, timestamp)


@dataclass
class Stream:
    """A query whose batches are kept; the batch `fail_batch` fails after it was kept, and `in_batch` is called with each id."""

    spark: SparkSession
    lake: WrittenLake
    checkpoint: Path
    options: dict[str, str]
    batches: list[tuple[int, list[tuple[str, int, int]]]] = field(default_factory=list)
    fail_batch: int = -1
    in_batch: Callable[[int], None] = lambda batch_id: None

    def _keep(self, frame: DataFrame, batch_id: int) -> None:
        rows = frame.select("topic", "partition", "offset").collect()
        self.batches.append((batch_id, sorted(tuple(row) for row in rows)))
        self.in_batch(batch_id)
        if batch_id == self.fail_batch:
            raise RuntimeError(f"batch {batch_id} fails on purpose")

    def start(self, **trigger: object) -> StreamingQuery:
        reader = self.spark.readStream.format("kafkalake").option("lake", str(self.lake.path)).options(**self.options)
        writer = reader.schema("topic string, partition int, offset long").load().writeStream.foreachBatch(self._keep)
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(**trigger).start()

    def run(self) -> list[tuple[int, list[tuple[str, int, int]]]]:
        """The batches of a run with `Trigger.AvailableNow`."""
        before = len(self.batches)
        query = self.start(availableNow=True)
        try:
            assert query.awaitTermination(TIMEOUT_S), "the query did not end"
        finally:
            query.stop()
        return self.batches[before:]

    def sizes(self) -> list[tuple[int, int]]:
        """(batch id, rows) of a run."""
        return [(batch_id, len(rows)) for batch_id, rows in self.run()]

    def checkpointed(self, batch_id: int) -> dict[str, dict[str, int]]:
        """The offsets of a batch, without the topic's id, which stands beside them."""
        found: dict[str, dict[str, int]] = json.loads(
            (self.checkpoint / "offsets" / str(batch_id)).read_text().splitlines()[-1]
        )
        topic = self.options["subscribe"]
        assert found.pop(f"{topic}#{encode_uuid(UUID(self.lake.topics[topic].topic_id))}") == {}
        return found


@pytest.fixture
def stream(spark: SparkSession, lake: WrittenLake, tmp_path: Path) -> Callable[..., Stream]:
    """`stream(topic, **options)`: from the earliest offsets, unless told otherwise."""

    def make(topic: str | None = "clicks", **options: str) -> Stream:
        named = {} if topic is None else {"subscribe": topic}
        return Stream(spark, lake, tmp_path / "a checkpoint", {**named, "startingOffsets": "earliest", **options})

    return make


def until(what: str, holds: Callable[[], bool], query: StreamingQuery | None = None) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert query is None or query.exception() is None, str(query.exception())
        assert time.monotonic() < deadline, f"not within {TIMEOUT_S} s: {what}"
        time.sleep(0.05)


def test_available_now_reads_in_steps_and_a_restart_goes_on(stream: Callable[..., Stream], lake: WrittenLake) -> None:
    lake.create("clicks", 2)
    append(lake, "clicks", 0, 300)
    append(lake, "clicks", 1, 100)
    query = stream(maxOffsetsPerTrigger="200")
    assert query.sizes() == [(0, 200), (1, 200)]
    assert query.checkpointed(0) == {"clicks": {"0": 150, "1": 50}}
    assert query.checkpointed(1) == {"clicks": {"0": 300, "1": 100}}
    assert query.run() == []  # nothing is new: no batch
    append(lake, "clicks", 1, 10)
    assert query.run() == [(2, [("clicks", 1, offset) for offset in range(100, 110)])]
    rows = [row for _, batch in query.batches for row in batch]
    assert sorted(rows) == [("clicks", p, offset) for p, end in ((0, 300), (1, 110)) for offset in range(end)]


def test_a_batch_that_failed_is_the_same_when_it_is_asked_for_again(
    stream: Callable[..., Stream], lake: WrittenLake
) -> None:
    lake.create("clicks")
    append(lake, "clicks", 0, 50)
    query = stream(minPartitions="3")
    query.fail_batch = 0
    with pytest.raises(StreamingQueryException, match="batch 0 fails on purpose"):
        query.run()
    append(lake, "clicks", 0, 50)
    query.fail_batch = -1
    assert [(batch_id, len(rows)) for batch_id, rows in query.run()] == [(0, 50), (1, 50)]
    assert query.batches[0] == query.batches[1]


def test_a_planning_process_that_dies_between_batches_takes_no_record_with_it(
    stream: Callable[..., Stream], lake: WrittenLake, spark: SparkSession
) -> None:
    lake.create("clicks", 2)
    for partition in range(2):
        append(lake, "clicks", partition, 50)
    query = stream(maxOffsetsPerTrigger="40")

    def kill_and_append(batch_id: int) -> None:
        kill_planner(spark)
        append(lake, "clicks", 0, 5)  # after the target of Trigger.AvailableNow, which the planner had found

    query.in_batch = kill_and_append
    assert query.sizes() == [(0, 40), (1, 40), (2, 20)]
    kill_planner(spark)
    query.in_batch = lambda batch_id: None
    assert query.sizes() == [(3, 15)]
    rows = [row for _, batch in query.batches for row in batch]
    assert sorted(rows) == [("clicks", p, offset) for p, end in ((0, 65), (1, 50)) for offset in range(end)]


def test_the_progress_of_a_stream_says_what_it_reads_and_how_far_it_is_behind(
    stream: Callable[..., Stream], lake: WrittenLake
) -> None:
    lake.create("clicks", 2)
    append(lake, "clicks", 0, 30)
    append(lake, "clicks", 1, 10)
    query = stream(maxOffsetsPerTrigger="20")
    running = query.start(availableNow=True)
    assert running.awaitTermination(TIMEOUT_S)
    sources = [
        json.loads(progress.json)["sources"][0] for progress in running.recentProgress if progress["numInputRows"]
    ]
    assert {source["description"] for source in sources} == {f"KafkaLake[Subscribe[clicks], {lake.path}]"}
    assert [source["latestOffset"]["clicks"] for source in sources] == [{"0": 30, "1": 10}] * 2
    behind = [
        {name: source["metrics"][f"{name}OffsetsBehindLatest"] for name in ("min", "max", "avg")} for source in sources
    ]
    assert behind == [{"min": "5", "max": "15", "avg": "10.0"}, {"min": "0", "max": "0", "avg": "0.0"}]
    waited = [float(source["metrics"]["estimatedSecondsBehind"]) for source in sources]
    assert waited[0] == pytest.approx(
        time.time() - 1.015, abs=TIMEOUT_S
    )  # of the first record that was left, at 1.015 s of 1970
    assert waited[1] == 0


def test_a_stream_that_starts_at_the_end_keeps_where_that_was(stream: Callable[..., Stream], lake: WrittenLake) -> None:
    lake.create("clicks")
    append(lake, "clicks", 0, 20)
    query = stream(startingOffsets="latest")
    query.fail_batch = 0
    running = query.start(processingTime="0 seconds")
    until("the first offsets are kept", (query.checkpoint / "sources" / "0" / "0").exists, running)
    append(lake, "clicks", 0, 5)
    until("the query fails", lambda: not running.isActive)
    append(lake, "clicks", 0, 5)
    query.fail_batch = -1
    rows = [row for _, batch in query.run() for row in batch]
    assert rows == [("clicks", 0, offset) for offset in range(20, 30)]


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"startingOffsets": '{"clicks": {"0": 7, "1": -1}}'}, {0: 7, 1: 20}),
        ({"startingTimestamp": "1_010".replace("_", "0")}, {0: 10, 1: 10}),
        ({"startingOffsetsByTimestamp": '{"clicks": {"0": 10005, "1": 10010}}'}, {0: 5, 1: 10}),
    ],
)
def test_a_stream_starts_where_it_is_told(
    stream: Callable[..., Stream], lake: WrittenLake, options: dict[str, str], first: dict[int, int]
) -> None:
    lake.create("clicks", 2)
    for partition in range(2):
        append(lake, "clicks", partition, 20, timestamp=10_000)
    rows = [row for _, batch in stream(**options).run() for row in batch]
    assert rows == [("clicks", partition, offset) for partition in range(2) for offset in range(first[partition], 20)]


def test_partitions_and_topics_that_come_are_read_from_their_beginning(
    stream: Callable[..., Stream], lake: WrittenLake
) -> None:
    lake.create("clicks-a")
    append(lake, "clicks-a", 0, 5)
    query = stream(topic=None, subscribePattern="clicks-.*", startingOffsets="latest")

    def rows() -> list[tuple[str, int, int]]:
        return sorted(row for _, batch in query.batches for row in batch)

    running = query.start(processingTime="0 seconds")
    try:
        until("the first offsets are kept", (query.checkpoint / "sources" / "0" / "0").exists, running)
        lake.add_partition("clicks-a")
        append(lake, "clicks-a", 1, 3)
        until("the new partition is read", lambda: len(rows()) == 3, running)
        lake.create("clicks-b")
        append(lake, "clicks-b", 0, 2)
        lake.create("other")
        append(lake, "other", 0, 2)
        append(lake, "clicks-a", 0, 1)
        until("the new topic is read", lambda: len(rows()) == 6, running)
    finally:
        running.stop()
    expected = [("clicks-a", 0, 5), *(("clicks-a", 1, i) for i in range(3)), ("clicks-b", 0, 0), ("clicks-b", 0, 1)]
    assert rows() == expected


def test_small_batches_of_records_without_a_key_spread_over_the_partitions(
    spark: SparkSession, broker: Kafkalake, tmp_path: Path
) -> None:
    source, views = topic_name("clicks"), topic_name("views")
    create_topic(broker, source)
    create_topic(broker, views, partitions=4)
    lake = str(broker.lake)
    spark.range(8).selectExpr("'x' AS value").coalesce(1).write.format("kafkalake").option("lake", lake).mode(
        "append"
    ).save(source)
    options = {"lake": lake, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1"}
    rows = spark.readStream.format("kafkalake").options(**options).load(source).select("value")
    writer = rows.writeStream.format("kafkalake").option("lake", lake).option("topic", views)
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    assert query.awaitTermination(TIMEOUT_S)
    written = spark.read.format("kafkalake").option("lake", lake).load(views)
    assert sorted(row.partition for row in written.collect()) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_no_batch_passes_an_open_transaction(stream: Callable[..., Stream], lake: WrittenLake) -> None:
    lake.create("clicks")
    append(lake, "clicks", 0, 3)
    for producer, base in ((1, 3), (2, 5)):
        records = [(1_000, None, b"t", []), (1_000, None, b"t", [])]
        lake.append("clicks", 0, records, producer_id=producer, epoch=0, sequence=0, transactional=True)
        assert base == producer * 2 + 1
    append(lake, "clicks", 0, 1)
    query = stream()
    assert query.run() == [(0, [("clicks", 0, offset) for offset in (0, 1, 2)])]
    assert query.checkpointed(0) == {"clicks": {"0": 3}}
    lake.end_transaction("clicks", 0, 1, ABORT)
    assert query.run() == [(1, [])]  # offsets 3 and 4 are stable, and were aborted
    lake.end_transaction("clicks", 0, 2, COMMIT)
    assert query.run() == [(2, [("clicks", 0, offset) for offset in (5, 6, 7)])]


@pytest.mark.parametrize("fail_on_loss", ["true", "false"])
def test_a_batch_that_was_planned_beyond_an_open_transaction_waits_for_it_under_read_committed(
    stream: Callable[..., Stream], lake: WrittenLake, fail_on_loss: str
) -> None:
    lake.create("clicks")
    append(lake, "clicks", 0, 2)
    record = (1_000, None, b"t", [])
    lake.append("clicks", 0, [record], producer_id=1, epoch=0, sequence=0, transactional=True)
    append(lake, "clicks", 0, 2)
    query = stream(isolation="read_uncommitted", failOnDataLoss=fail_on_loss)
    query.fail_batch = 0
    with pytest.raises(StreamingQueryException, match="fails on purpose"):
        query.run()
    assert query.checkpointed(0) == {"clicks": {"0": 5}}
    query.fail_batch, query.options["isolation"] = -1, "read_committed"
    for _ in range(2):
        with pytest.raises(
            StreamingQueryException, match="clicks-0: the batch ends at offset 5, and read_committed reads"
        ):
            query.run()
    lake.end_transaction("clicks", 0, 1, COMMIT)
    append(lake, "clicks", 0, 1)
    assert [batch for _, batch in query.run()] == [[("clicks", 0, offset) for offset in range(5)], [("clicks", 0, 6)]]


def test_records_that_were_removed_before_they_were_read(stream: Callable[..., Stream], lake: WrittenLake) -> None:
    lake.create("clicks")
    append(lake, "clicks", 0, 10)
    query = stream()
    assert query.sizes() == [(0, 10)]
    append(lake, "clicks", 0, 10)
    append(lake, "clicks", 0, 10)
    lake.logs["clicks", 0].delete_records_before(20)
    with pytest.raises(StreamingQueryException, match="clicks-0: offsets 10 to 19 were removed before they were read"):
        query.run()
    query.options["failOnDataLoss"] = "false"
    assert query.run() == [(1, [("clicks", 0, offset) for offset in range(20, 30)])]


def test_a_topic_that_is_made_anew(stream: Callable[..., Stream], lake: WrittenLake) -> None:
    lake.create("clicks", 2)
    append(lake, "clicks", 0, 10)
    append(lake, "clicks", 1, 10)
    query = stream()
    assert query.sizes() == [(0, 20)]
    lake.delete_topic("clicks")
    lake.create("clicks", 1)
    append(lake, "clicks", 0, 14)  # more than were read of the one before
    with pytest.raises(StreamingQueryException, match=r"topic clicks was deleted and created again since it was read"):
        query.run()
    query.options["failOnDataLoss"] = "false"
    assert query.run() == [(1, [("clicks", 0, offset) for offset in range(14)])]
    assert query.run() == []


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is no option of a stream"),
        ({"versionAsOf": "1"}, "versionAsOf is no option of a stream"),
        ({"maxOffsetsPerTriger": "1"}, "did you mean maxOffsetsPerTrigger"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is '0'"),
        ({"startingOffsets": '{"clicks": {"0": 11}}'}, "11 of clicks-0 is not there: offsets 0 to 10 are"),
        ({"startingOffsets": '{"clicks": {"0": 1, "1": 1}}'}, "startingOffsets names clicks-1, which is not read"),
        ({"group": " "}, "group is empty"),
        ({"subscribe": "clicsk"}, "topic 'clicsk' is not in .*; its topics: clicks"),
    ],
)
def test_what_cannot_be_streamed_is_said(
    stream: Callable[..., Stream], lake: WrittenLake, option: dict[str, str], message: str
) -> None:
    lake.create("clicks")
    append(lake, "clicks", 0, 10)
    with pytest.raises(Exception, match=message) as error:
        stream(**option).run()
    assert "Traceback" not in str(error.value)
