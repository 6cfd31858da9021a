"""Topics as tables of a catalogue that streams read and write: `readStream.table("lake.clicks")`, `toTable("lake.out")`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from group_offsets import produce
from kafka_reference import Kafkalake, create_topic, topic_name
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, StructType

from kafkalake.jobs.error_sentence import one_line_message
from kafkalake.spark.sink.sink import Sink

TIMEOUT_S = 90
Rows = list[tuple[int, bytes]]


@pytest.fixture
def clicks(broker: Kafkalake) -> str:
    """A topic with the values 0 to 4."""
    name = topic_name("clicks").replace("-", "_")
    create_topic(broker, name)
    produce(broker, name, 0, [b"%d" % number for number in range(5)])
    return name


@pytest.fixture
def run(tmp_path: Path) -> Callable[[DataFrame], Rows]:
    """The offsets and values of a run with `Trigger.AvailableNow`; all runs of a test share a checkpoint."""

    def run(frame: DataFrame) -> Rows:
        rows: Rows = []

        def keep(batch: DataFrame, batch_id: int) -> None:
            rows.extend((row.offset, bytes(row.value)) for row in batch.select("offset", "value").collect())

        writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(TIMEOUT_S)
        return rows

    return run


def test_a_table_and_a_data_frame_of_one_topic_share_a_checkpoint(
    session: SparkSession, broker: Kafkalake, clicks: str, run: Callable[[DataFrame], Rows]
) -> None:
    reader = session.readStream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 2)
    assert run(reader.table(f"lake.{clicks}")) == [(number, b"%d" % number) for number in range(5)]
    produce(broker, clicks, 0, [b"5"])
    assert run(session.readStream.format("kafkalake").option("lake", str(broker.lake)).load(clicks)) == [(5, b"5")]
    produce(broker, clicks, 0, [b"6"])
    assert run(session.readStream.table(f"lake.{clicks}")) == [(6, b"6")]


def test_a_stream_over_a_table_starts_at_its_end(
    session: SparkSession, clicks: str, run: Callable[[DataFrame], Rows]
) -> None:
    assert run(session.readStream.table(f"lake.{clicks}")) == []


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("subscribe", "other", "the option subscribe is not for a table of a catalogue, which is one topic"),
        ("endingOffsets", "latest", "endingOffsets is no option of a stream"),
        ("versionAsOf", "3", None),
        ("startingOffset", "latest", "unknown option 'startingOffset'; did you mean startingOffsets"),
    ],
)
def test_what_is_no_option_of_a_stream_over_a_table_is_refused(
    session: SparkSession, clicks: str, run: Callable[[DataFrame], Rows], option: str, value: str, message: str | None
) -> None:
    with pytest.raises(Exception) as error:
        run(session.readStream.option(option, value).table(f"lake.{clicks}"))
    assert message is None or message in one_line_message(error.value)


def test_a_continuous_trigger_is_refused_with_what_takes_its_place(
    session: SparkSession, clicks: str, tmp_path: Path
) -> None:
    writer = session.readStream.table(f"lake.{clicks}").writeStream.format("noop")
    with pytest.raises(Exception) as error:
        writer.option("checkpointLocation", str(tmp_path)).trigger(continuous="1 second").start()
    assert "Real-Time Mode" in one_line_message(error.value)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_stream_is_written_to_a_table(
    session: SparkSession, broker: Kafkalake, clicks: str, tmp_path: Path, is_there: bool
) -> None:
    out = f"lake.{clicks}_out"
    if is_there:
        session.sql(f"CREATE TABLE {out} TBLPROPERTIES ('partitions' = '3')")

    def write() -> None:
        frame = session.readStream.option("startingOffsets", "earliest").table(f"lake.{clicks}").select("key", "value")
        writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer = writer if is_there else writer.format("kafkalake")
        assert writer.trigger(availableNow=True).toTable(out).awaitTermination(TIMEOUT_S)

    write()
    produce(broker, clicks, 0, [b"5"])
    write()
    assert sorted(bytes(row.value) for row in session.table(out).collect()) == [b"%d" % number for number in range(6)]


def test_a_batch_that_pythons_writer_has_written_is_not_written_again(
    session: SparkSession, broker: Kafkalake, clicks: str, tmp_path: Path
) -> None:
    """As by a driver without the jar, or of an earlier version, that ended before Spark had noted the batch."""
    out, checkpoint = f"{clicks}_out", tmp_path / "checkpoint"
    session.sql(f"CREATE TABLE lake.{out}")

    def write() -> None:
        frame = session.readStream.option("startingOffsets", "earliest").table(f"lake.{clicks}").select("key", "value")
        writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        assert writer.toTable(f"lake.{out}").awaitTermination(TIMEOUT_S)

    write()
    produce(broker, clicks, 0, [b"5"])
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    columns = StructType().add("key", BinaryType()).add("value", BinaryType())
    rows = pa.RecordBatch.from_pylist([{"value": b"5"}], pa.schema([("key", pa.binary()), ("value", pa.binary())]))
    sink = Sink({"lake": str(broker.lake), "topic": out}, columns, overwrite=False, is_stream=True)
    sink.commit(query, 1, [sink.stage(iter([rows]), f"query-{query}-1", query)])
    for last in (b"5", b"6"):
        write()
        found = sorted(bytes(row.value) for row in session.table(f"lake.{out}").collect())
        assert found == [b"%d" % number for number in range(int(last) + 1)]
        produce(broker, clicks, 0, [b"6"])


def test_a_stream_that_would_create_a_table_of_files_is_told_what_to_say(
    session: SparkSession, clicks: str, tmp_path: Path
) -> None:
    """Spark asks for a table of its default format where `toTable` creates one."""
    frame = session.readStream.table(f"lake.{clicks}")
    with pytest.raises(Exception, match=r'cannot be one of parquet; .*writeStream\.format\("kafkalake"\)'):
        frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).toTable("lake.none_yet")


def test_a_stream_over_a_table_of_fields_has_these_and_the_metadata_columns(
    session: SparkSession, clicks: str, tmp_path: Path
) -> None:
    for name in (f"{clicks}_in", f"{clicks}_out"):
        session.sql(f"CREATE TABLE lake.{name} (user STRING, ms BIGINT) TBLPROPERTIES ('key' = 'user')")
    session.sql(f"INSERT INTO lake.{clicks}_in VALUES ('ann', 1), ('bob', 2)")
    frame = session.readStream.option("startingOffsets", "earliest").table(f"lake.{clicks}_in")
    writer = frame.selectExpr("user", "ms + 10 * _offset AS ms").writeStream
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    assert writer.toTable(f"lake.{clicks}_out").awaitTermination(TIMEOUT_S)
    found = session.sql(f"SELECT CAST(_key AS STRING), user, ms FROM lake.{clicks}_out ORDER BY user").collect()
    assert [tuple(row) for row in found] == [("ann", "ann", 1), ("bob", "bob", 12)]
