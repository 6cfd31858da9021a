"""Real-Time Mode: tasks that follow the partitions of a topic while a batch lasts, and what may happen to these meanwhile."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import Consumer, TopicPartition
from group_offsets import produce
from kafka_reference import Kafkalake, create_topic, topic_name
from pyspark.sql import DataFrame, SparkSession
from record_batches import record_batch
from replicated_lake import ReplicatedLake
from waiting import wait_until
from written_lake import ABORT, COMMIT, WrittenLake

from kafkalake.metadata.paths import partition_path
from kafkalake.storage.partition_metadata import PARTITION_METADATA_FILE, encode_partition_metadata

Start = Callable[..., "Query"]
LONG = "5 minutes"
"""A batch that outlives its test."""


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[WrittenLake]:
    lake = WrittenLake(tmp_path / "lake")
    yield lake
    lake.close()


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.sql.streaming.realTimeMode.minBatchDuration", "200")
    return session


@pytest.fixture(scope="module")
def sink() -> Iterator[Kafkalake]:
    """The broker that queries write to, with Spark's Kafka connector: a sink that has a record as soon as it is written."""
    with Kafkalake() as broker:
        yield broker


class Query:
    """A query over `clicks` in batches of the duration `of`, and what its sink has."""

    def __init__(self, session: SparkSession, sink: Kafkalake, frame: DataFrame, checkpoint: Path, of: str):
        out = topic_name("out")
        create_topic(sink, out)
        writer = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", sink.bootstrap_servers)
        writer = writer.option("topic", out).option("checkpointLocation", str(checkpoint)).outputMode("update")
        self.running = writer.trigger(realTime=of).start()
        self._consumer = Consumer({"bootstrap.servers": sink.bootstrap_servers, "group.id": out})
        self._consumer.assign([TopicPartition(out, 0, 0)])
        self._rows: list[str] = []

    def rows(self) -> list[str]:
        """The records that the sink has, as "partition offset value"."""
        assert self.running.exception() is None, str(self.running.exception())
        self._rows += [message.value().decode() for message in self._consumer.consume(1000, 0.02)]
        return self._rows

    def ends(self) -> dict[str, int]:
        """The offsets at the end of the last batch."""
        if self.running.lastProgress is None:
            return {}
        found: dict[str, int] = json.loads(self.running.lastProgress.json)["sources"][0]["endOffset"]["clicks"]
        return found

    def error(self) -> str:
        """What the query ends with."""
        wait_until(lambda: not self.running.isActive)
        return str(self.running.exception())

    def close(self) -> None:
        self.running.stop()
        self._consumer.close()


@pytest.fixture
def start(session: SparkSession, sink: Kafkalake, tmp_path: Path) -> Iterator[Start]:
    """`start(lake, of=LONG, **options)`: all queries of a test share a checkpoint. is_table: of a catalogue, with the field n."""
    queries: list[Query] = []

    def start(lake: Path, of: str = LONG, is_table: bool = False, **options: str) -> Query:
        reader = session.readStream.option("startingOffsets", "earliest").options(**options)
        if is_table:
            session.conf.set("spark.sql.catalog.real", "io.kafkalake.spark.LakeCatalog")
            session.conf.set("spark.sql.catalog.real.path", str(lake))
            read, columns = reader.table("real.clicks"), "_partition, _offset, n"
        else:
            read = reader.format("kafkalake").option("lake", str(lake)).load("clicks")
            columns = "partition, offset, value" + (", n" if "valueSchema" in options else "")
        frame = read.selectExpr(f"CONCAT_WS(' ', {columns}) AS value")
        queries.append(Query(session, sink, frame, tmp_path / "checkpoint", of))
        return queries[-1]

    yield start
    for query in queries:
        query.close()


def transactional(lake: WrittenLake, producer: int, values: list[bytes], sequence: int = 0) -> None:
    records = [(1_000, None, value, []) for value in values]
    lake.append("clicks", 0, records, producer_id=producer, epoch=0, sequence=sequence, transactional=True)


def test_a_batch_follows_a_partition_through_rolled_segments_and_transactions(lake: WrittenLake, start: Start) -> None:
    lake.create("clicks")
    lake.append_values("clicks", 0, [b"a"])
    lake.roll("clicks")
    lake.publish()
    lake.append_values("clicks", 0, [b"b", b"c"])
    query = start(lake.path)
    wait_until(lambda: query.rows() == ["0 0 a", "0 1 b", "0 2 c"])
    lake.append_values("clicks", 0, [b"d"])
    wait_until(lambda: query.rows()[3:] == ["0 3 d"])
    transactional(lake, 1, [b"e"])
    transactional(lake, 2, [b"not this", b"nor this"])
    for number in range(2):  # held back by the open transactions, over two segments
        lake.roll("clicks")
        transactional(lake, 1, [b"f%d" % number], sequence=1 + number)
    lake.end_transaction("clicks", 0, 2, ABORT)
    lake.append_values("clicks", 0, [b"g"])
    assert len(query.rows()) == 4
    lake.end_transaction("clicks", 0, 1, COMMIT)
    wait_until(lambda: query.rows()[4:] == ["0 4 e", "0 7 f0", "0 8 f1", "0 10 g"], query.rows)
    assert query.ends() == {}, "all in the first batch"


def test_fields_of_values_are_read_as_they_come(lake: WrittenLake, start: Start) -> None:
    lake.create("clicks")
    lake.append_values("clicks", 0, [b'{"n": 1}', b"bad"])
    query = start(lake.path, valueSchema="n INT")
    wait_until(lambda: query.rows() == ['0 0 {"n": 1} 1', "0 1 bad"])
    lake.append_values("clicks", 0, [b'{"n": 2}'])
    wait_until(lambda: query.rows()[2:] == ['0 2 {"n": 2} 2'])


def test_a_table_of_fields_is_followed_as_a_stream(lake: WrittenLake, start: Start) -> None:
    lake.create("clicks", 2, {"value.schema": "n INT, text STRING"})
    lake.append_values("clicks", 1, [b'{"n": 1}', b"bad"])
    query = start(lake.path, is_table=True)
    wait_until(lambda: query.rows() == ["1 0 1", "1 1"])
    lake.append_values("clicks", 0, [b'{"n": 2, "text": "later"}'])
    wait_until(lambda: query.rows()[2:] == ["0 0 2"])


def test_batches_of_real_time_mode_and_micro_batches_continue_each_other(
    session: SparkSession, lake: WrittenLake, start: Start, tmp_path: Path
) -> None:
    lake.create("clicks", 2)
    seen: list[str] = []

    def add() -> None:
        for partition in range(2):
            lake.append_values("clicks", partition, [b"v"] * 3)

    def in_real_time(end: int) -> None:
        add()
        query = start(lake.path, "300 milliseconds")
        wait_until(lambda: len(query.rows()) == 6)
        add()
        wait_until(lambda: query.ends() == {"0": end, "1": end})
        query.running.stop()
        seen.extend(query.rows())

    def in_micro_batches() -> None:
        def keep(frame: DataFrame, batch_id: int) -> None:
            seen.extend(f"{row.partition} {row.offset} v" for row in frame.collect())

        add()
        reader = session.readStream.format("kafkalake").option("lake", str(lake.path))
        writer = reader.load("clicks").select("partition", "offset").writeStream.foreachBatch(keep)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).outputMode("update")
        assert writer.trigger(availableNow=True).start().awaitTermination(90)

    in_real_time(6)
    in_micro_batches()
    in_real_time(15)
    assert sorted(seen) == sorted(f"{partition} {offset} v" for partition in range(2) for offset in range(15))


def test_a_broker_that_is_killed_and_started_again_is_followed_on(
    kafkalake_broker: Callable[..., Kafkalake], start: Start
) -> None:
    broker = kafkalake_broker()
    create_topic(broker, "clicks")
    produce(broker, "clicks", 0, [b"v"])
    query = start(broker.lake)
    wait_until(lambda: len(query.rows()) == 1)
    for number, end in enumerate((broker.kill, broker.stop), 1):
        end()
        broker.start()
        produce(broker, "clicks", 0, [b"v"])
        wait_until(lambda number=number: query.rows()[number:] == [f"0 {number} v"])
    assert query.ends() == {}


def test_the_next_batch_follows_the_leader_where_a_replica_was_removed(tmp_path: Path, start: Start) -> None:
    lake = ReplicatedLake(tmp_path / "replicated")
    lake.create("clicks")
    lake.append_values("clicks", 0, [b"a"])
    lake.replicate("clicks")
    query = start(lake.path, "1 second")
    wait_until(lambda: query.rows() == ["0 0 a"])
    log = lake.open_replica(1, "clicks")
    log.take_over(lake.elect("clicks", 1, isr=(1, 2)))
    lake.close()
    shutil.rmtree(lake.directory("clicks"))
    log.append([record_batch([(1_000, None, b"b", [])])], 1)
    log.advance_high_watermark(2)
    wait_until(lambda: query.rows()[1:] == ["0 1 b"], query.rows)
    log.close()


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_topic_that_is_deleted_ends_the_query(lake: WrittenLake, start: Start, is_created_again: bool) -> None:
    lake.create("clicks")
    lake.append_values("clicks", 0, [b"old"])
    query = start(lake.path)
    wait_until(lambda: query.rows() == ["0 0 old"])
    lake.delete_topic("clicks")
    if is_created_again:
        lake.create("clicks")
        lake.append_values("clicks", 0, [b"new", b"new"])
    found = query.error()
    assert any(text in found for text in ("clicks-0: it was deleted", "belongs to another topic")), found


def test_a_directory_of_another_topic_of_the_name_is_no_replica(lake: WrittenLake, start: Start) -> None:
    """As while a topic is deleted and created again, or where a broker has not deleted its directory yet."""
    lake.create("clicks")
    lake.append_values("clicks", 0, [b"old"])
    query = start(lake.path)
    wait_until(lambda: query.rows() == ["0 0 old"])
    other = partition_path(lake.path, 1, "clicks", 0)
    shutil.copytree(lake.directory("clicks"), other)
    (other / PARTITION_METADATA_FILE).write_bytes(encode_partition_metadata(UUID(int=1)))
    lake.delete_topic("clicks")
    assert "clicks-0: it was deleted" in query.error()


def test_a_topic_that_is_created_again_and_is_empty_is_told_from_one_that_has_lost_records(
    lake: WrittenLake, start: Start, tmp_path: Path
) -> None:
    lake.create("clicks")
    lake.append_values("clicks", 0, [b"old"])
    again = WrittenLake(tmp_path / "again")
    again.create("clicks")
    again.close()
    query = start(lake.path)
    wait_until(lambda: query.rows() == ["0 0 old"])
    lake.directory("clicks").rename(tmp_path / "deleted")
    again.directory("clicks").rename(lake.directory("clicks"))  # at once: no look in between
    assert "belongs to another topic" in query.error()


def test_a_topic_that_is_created_again_is_followed_by_the_next_batch_where_loss_is_allowed(
    lake: WrittenLake, start: Start
) -> None:
    lake.create("clicks")
    lake.append_values("clicks", 0, [b"old"])
    query = start(lake.path, "1 second", failOnDataLoss="false")
    wait_until(lambda: query.rows() == ["0 0 old"])
    lake.delete_topic("clicks")
    lake.create("clicks")
    lake.append_values("clicks", 0, [b"new", b"new"])
    wait_until(lambda: query.rows()[1:] == ["0 0 new", "0 1 new"], query.rows)


@pytest.mark.parametrize("may_lose", [False, True])
def test_records_that_are_removed_before_they_are_read(lake: WrittenLake, start: Start, may_lose: bool) -> None:
    lake.create("clicks")
    lake.append_values("clicks", 0, [b"a"])
    query = start(lake.path, failOnDataLoss=str(not may_lose))
    wait_until(lambda: query.rows() == ["0 0 a"])
    transactional(lake, 1, [b"b"])  # held back
    lake.append_values("clicks", 0, [b"c", b"d"])
    lake.logs["clicks", 0].delete_records_before(3)
    if may_lose:
        lake.end_transaction("clicks", 0, 1, COMMIT)
        wait_until(lambda: query.rows()[1:] == ["0 3 d"], query.rows)
    else:
        assert "clicks-0: offsets 1 to 2 were removed before they were read" in query.error()


def test_a_segment_that_is_gone_behind_one_that_is_there_ends_the_query(lake: WrittenLake, start: Start) -> None:
    lake.create("clicks")
    lake.append_values("clicks", 0, [b"a"])
    query = start(lake.path)
    wait_until(lambda: query.rows() == ["0 0 a"])
    transactional(lake, 1, [b"b"])  # held back, while compaction rewrites what comes behind it
    for value in (b"c", b"d"):
        lake.roll("clicks")
        lake.append_values("clicks", 0, [value])
    (gone,) = lake.path.rglob(f"{2:020d}.arrow")
    gone.unlink()
    lake.end_transaction("clicks", 0, 1, COMMIT)
    assert "holds offset 2: it was removed or rewritten since the batch began" in query.error()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger has no meaning in Real-Time Mode"),
        ({"minPartitions": "5"}, "minPartitions has no meaning in Real-Time Mode"),
    ],
)
def test_options_that_say_how_large_a_batch_is_are_refused(
    lake: WrittenLake, start: Start, options: dict[str, str], message: str
) -> None:
    lake.create("clicks")
    assert message in start(lake.path, **options).error()
