"""Writing topics from Spark: what arrives, and that it arrives once, whatever fails, is repeated or dies."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import pytest
from append_door import Door
from kafka_reference import PROJECT, Kafkalake, create_topic, topic_name
from pyspark.sql import DataFrame, SparkSession
from staged_jobs import consumed
from waiting import wait_until

from kafkalake.dataset import topic_dataset
from kafkalake.jobs.error_sentence import one_line_message
from kafkalake.storage.staging import remove_staged, staging_path, stale_staging

TIMEOUT_S = 120.0


@pytest.fixture
def clicks(broker: Kafkalake) -> str:
    """A topic with 4 partitions."""
    name = topic_name("clicks")
    create_topic(broker, name, partitions=4)
    return name


def write(rows: DataFrame, lake: Path, topic: str | None = None, **options: str) -> None:
    writer = rows.write.format("kafkalake").option("lake", str(lake)).options(**options).mode("append")
    writer.save(topic) if topic else writer.save()


def count(lake: Path, topic: str) -> int:
    return int(topic_dataset(str(lake), topic).count_rows())


def staged(lake: Path) -> list[str]:
    directory = staging_path(lake)
    return sorted(path.name for path in directory.glob("[!.]*")) if directory.exists() else []


def test_rows_are_there_for_kafka_clients_spark_and_arrow_in_javas_partitions(
    spark: SparkSession, broker: Kafkalake, clicks: str
) -> None:
    rows = spark.range(0, 3_000, 1, 3).selectExpr("CAST(id AS STRING) AS key", "CONCAT('value ', id) AS value")
    write(rows, broker.lake, clicks)
    found = consumed(broker.bootstrap_servers, clicks, "read_committed")
    assert sorted(int(key or b"") for _, _, key in found) == list(range(3_000))
    assert len(consumed(broker.bootstrap_servers, clicks, "read_uncommitted")) == 3_000
    read = spark.read.format("kafkalake").option("lake", str(broker.lake)).load(clicks)
    assert {(row.partition, row.offset, bytes(row.key)) for row in read.collect()} == set(found)
    assert read.filter("CAST(value AS STRING) = CONCAT('value ', CAST(key AS STRING))").count() == 3_000
    assert count(broker.lake, clicks) == 3_000
    assert staged(broker.lake) == []

    other = topic_name("produced")
    create_topic(broker, other, partitions=4)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"}
    )
    for number in range(3_000):
        producer.produce(other, key=b"%d" % number)
    assert producer.flush(30) == 0
    produced = consumed(broker.bootstrap_servers, other, "read_committed")
    assert {(partition, key) for partition, _, key in produced} == {(partition, key) for partition, _, key in found}


def test_columns_are_those_of_sparks_kafka_sink(spark: SparkSession, broker: Kafkalake, clicks: str) -> None:
    rows = spark.sql(
        f"""SELECT 'a' AS key, CAST('1' AS BINARY) AS value, '{clicks}' AS topic, 3 AS partition,
                   TIMESTAMP '2024-05-01 12:00:00.123' AS timestamp,
                   ARRAY(NAMED_STRUCT('key', 'h', 'value', CAST('x' AS BINARY))) AS headers
            UNION ALL SELECT NULL, NULL, '{clicks}', 1, TIMESTAMP '2024-05-01 12:00:01', NULL"""
    )
    write(rows, broker.lake)
    read = spark.read.format("kafkalake").option("lake", str(broker.lake)).load(clicks)
    found = read.selectExpr(
        "CAST(key AS STRING)", "CAST(value AS STRING)", "partition", "UNIX_MILLIS(timestamp)", "SIZE(headers)"
    )
    assert sorted(tuple(row) for row in found.collect() if row[0]) == [("a", "1", 3, 1_714_564_800_123, 1)]
    assert [tuple(row) for row in found.collect() if not row[0]] == [(None, None, 1, 1_714_564_801_000, None)]


def test_what_cannot_be_written_is_one_sentence_and_nothing_is(
    spark: SparkSession, broker: Kafkalake, clicks: str, tmp_path: Path
) -> None:
    compacted = topic_name("compacted")
    create_topic(broker, compacted, config={"cleanup.policy": "compact"})
    # One task: another one that is still writing when the job is given up leaves a file to the maintenance job.
    good = spark.range(0, 100, 1, 1).selectExpr("CAST(id AS STRING) AS key", "'x' AS value")
    cases: list[tuple[DataFrame, str | None, dict[str, str], str]] = [
        (good, "cliks", {}, "there is no topic 'cliks' that could be written to"),
        (good.select("key"), clicks, {}, "the data has no column `value`; it has key"),
        (good, None, {}, 'no topic: name one with save("clicks")'),
        (good, clicks, {"tpoic": "x"}, "unknown option 'tpoic'; did you mean topic?"),
        (good.selectExpr("*", "IF(key = 77, 4, 0) AS partition"), clicks, {}, "a row is for partition 4 of topic"),
        (good.selectExpr("key", "REPEAT('x', IF(key = 77, 2000000, 1)) AS value"), clicks, {}, "a record of 2000"),
        (good.selectExpr("NULLIF(key, '77') AS key", "value"), compacted, {}, f"topic {compacted} is compacted"),
    ]
    for rows, topic, options, expected in cases:
        with pytest.raises(Exception) as error:
            write(rows, broker.lake, topic, **options)
        assert one_line_message(error.value).startswith(expected)
        assert "kafkalake/spark/sink/sink.py" not in str(error.value)  # no traceback of ours
    with pytest.raises(Exception) as error:
        good.write.format("kafkalake").option("lake", str(broker.lake)).mode("overwrite").save(clicks)
    assert one_line_message(error.value).startswith("a topic cannot be overwritten, only added to")
    assert (count(broker.lake, clicks), count(broker.lake, compacted)) == (0, 0)
    assert staged(broker.lake) == []


def test_without_a_broker_the_error_says_how_to_start_one(spark: SparkSession, tmp_path: Path) -> None:
    with Kafkalake(tmp_path / "lake", directory=tmp_path / "broker") as broker:
        lake = broker.lake
    with pytest.raises(Exception) as error:
        write(spark.range(1).selectExpr("'x' AS value"), lake, "clicks")
    assert one_line_message(error.value).startswith("writing needs a running broker, and none answers for the lake")
    assert f"kafkalake broker start --lake {lake}" in str(error.value)


def test_the_same_version_of_an_application_is_written_once(
    spark: SparkSession, broker: Kafkalake, clicks: str
) -> None:
    rows = spark.range(0, 50, 1, 2).selectExpr("CAST(id AS STRING) AS key", "'x' AS value")
    application = f"etl-{clicks}"
    for version in ("4", "4", "3", "5", "5"):
        write(rows, broker.lake, clicks, txnAppId=application, txnVersion=version)
    assert count(broker.lake, clicks) == 100
    other = topic_name("views")
    create_topic(broker, other)
    for _ in range(2):
        write(rows, broker.lake, other, txnAppId=application, txnVersion="5")
        assert (count(broker.lake, clicks), count(broker.lake, other)) == (100, 50)
    both = rows.selectExpr("*", f"IF(CAST(key AS INT) < 20, '{clicks}', '{other}') AS topic")
    for _ in range(2):
        write(both, broker.lake, txnAppId=application, txnVersion="6")
        assert (count(broker.lake, clicks), count(broker.lake, other)) == (120, 80)
    write(rows, broker.lake, clicks, txnAppId=application, txnVersion="6")
    write(rows, broker.lake, clicks)
    write(rows, broker.lake, clicks)
    assert count(broker.lake, clicks) == 220


def test_a_stream_writes_two_topics_by_batch_id_once_each(
    spark: SparkSession, broker: Kafkalake, clicks: str, tmp_path: Path
) -> None:
    """As Delta's documentation shows for two tables; the second write fails once, and the batch is repeated."""
    views, failures = topic_name("views"), ["the second write fails"]
    create_topic(broker, views)
    write(spark.range(30).selectExpr("CAST(id AS STRING) AS key", "'x' AS value"), broker.lake, clicks)
    totals = topic_name("totals")
    create_topic(broker, totals)

    def write_both(rows: DataFrame, batch: int) -> None:
        out = rows.select("key", "value")
        write(out, broker.lake, views, txnAppId=f"app-{clicks}", txnVersion=str(batch))
        if failures:
            raise RuntimeError(failures.pop())
        write(out, broker.lake, totals, txnAppId=f"app-{clicks}", txnVersion=str(batch))

    for repeated in (False, True):
        stream = spark.readStream.format("kafkalake").options(lake=str(broker.lake), startingOffsets="earliest")
        writer = stream.load(clicks).writeStream.foreachBatch(write_both).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        with contextlib.nullcontext() if repeated else pytest.raises(Exception, match="the second write fails"):
            query.awaitTermination(TIMEOUT_S)
    assert (count(broker.lake, views), count(broker.lake, totals)) == (30, 30)


def test_sql_inserts_into_a_table_over_a_topic(spark: SparkSession, broker: Kafkalake, clicks: str) -> None:
    table = clicks.replace("-", "_")
    options = f"USING kafkalake OPTIONS (lake '{broker.lake}', subscribe '{clicks}')"
    spark.sql(f"CREATE TABLE {table} (key STRING, value STRING) {options}")
    spark.sql(f"CREATE TABLE {table}_all {options}")
    try:
        spark.sql(f"INSERT INTO {table} SELECT CAST(id AS STRING), CONCAT('v', id) FROM RANGE(10)")
        spark.sql(f"INSERT INTO {table}_all (key, value) SELECT CAST('k' AS BINARY), CAST('x' AS BINARY)")
        spark.sql(f"INSERT INTO {table}_all SELECT * FROM {table}_all WHERE CAST(key AS STRING) = '7'")
        assert sorted(tuple(row) for row in spark.table(table).collect()) == sorted(
            [(str(number), f"v{number}") for number in range(10)] + [("k", "x"), ("7", "v7")]
        )
        with pytest.raises(Exception) as error:
            spark.sql(f"INSERT OVERWRITE {table} SELECT 'a', 'b'")
        assert one_line_message(error.value).startswith("a topic cannot be overwritten")
    finally:
        for name in (table, f"{table}_all"):
            spark.sql(f"DROP TABLE {name}")


def test_a_batch_that_a_stream_repeats_after_a_crash_is_not_written_again(
    spark: SparkSession, broker: Kafkalake, clicks: str, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"

    def add(first: int) -> None:
        rows = spark.range(first, first + 100, 1, 1).selectExpr("CAST(id AS STRING) AS key", "'x' AS value")
        rows.write.mode("append").parquet(str(source))

    def run() -> None:
        rows = spark.readStream.schema("key STRING, value STRING").option("maxFilesPerTrigger", 1).parquet(str(source))
        sink = rows.writeStream.format("kafkalake").option("lake", str(broker.lake)).option("topic", clicks)
        query = sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(int(TIMEOUT_S))

    add(0)
    add(100)
    run()
    assert count(broker.lake, clicks) == 200
    # As after a crash between the sink's commit and the checkpoint's: batch 1 is run again.
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    add(200)
    run()
    found = consumed(broker.bootstrap_servers, clicks, "read_committed")
    assert sorted(int(key or b"") for _, _, key in found) == list(range(300))
    assert staged(broker.lake) == []


DRIVER = """
    import sys, threading, time
    from pathlib import Path
    import local_spark
    from pyspark import TaskContext

    directory, lake, retried, *doors = Path(sys.argv[1]), *sys.argv[2:]
    settings = local_spark.settings(directory, driver_memory="1g") | local_spark.FEW_ROWS
    settings |= {"spark.speculation": "true", "spark.speculation.multiplier": "1.1", "spark.speculation.quantile": "0.1",
                 "spark.speculation.minTaskRuntime": "1ms", "spark.speculation.interval": "50ms",
                 "spark.sql.execution.arrow.maxRecordsPerBatch": "50"}
    spark = local_spark.session(master="local[3,4]", name="writes", of=settings)
    rows = spark.range(0, 400, 1, 4).selectExpr("CAST(id AS STRING) AS key", "'x' AS value")

    def write(rows, topic, **options):
        rows.write.format("kafkalake").option("lake", lake).options(**options).mode("append").save(topic)

    def fail_first(batches):
        context = TaskContext.get()
        for batch in batches:
            yield batch
            if context.attemptNumber() < 2 and context.partitionId() % 2:
                raise RuntimeError("this attempt is meant to fail")
            if context.attemptNumber() == 0 and context.partitionId() == 0:
                time.sleep(2)  # slow: another attempt is started beside it

    def fail(batches):
        for batch in batches:
            yield batch
            if TaskContext.get().partitionId() == 3:
                raise RuntimeError("this job is meant to fail")

    try:
        write(rows.mapInArrow(fail, rows.schema), retried)
        failed = "not at all"
    except Exception as error:
        failed = str(error)
    write(rows.mapInArrow(fail_first, rows.schema), retried)
    (directory / "failed").write_text(failed)
    (directory / "failed").rename(directory / "tasks-done")
    for topic, servers in zip(doors[::2], doors[1::2]):
        options = {"txnAppId": topic, "txnVersion": "0", "kafka.bootstrap.servers": servers}
        threading.Thread(target=write, args=(rows, topic), kwargs=options).start()
"""
"""Tasks that fail, are retried and run twice; then a write through each door, whose answer never comes."""


@dataclass(frozen=True)
class Driver:
    """A driver of its own. retried: the topic that its tasks write; before, after: of its writes that are never answered."""

    process: subprocess.Popen[bytes]
    directory: Path
    retried: str
    before: tuple[str, Door]
    after: tuple[str, Door]

    def wait_until(self, holds: Callable[[], bool]) -> None:
        wait_until(lambda: holds() or self.process.poll() is not None, self.said, TIMEOUT_S * 2)
        assert holds(), self.said()

    def said(self) -> str:
        return (self.directory / "driver.log").read_text()[-4000:]


@pytest.fixture(scope="module")
def driver(broker: Kafkalake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    directory = tmp_path_factory.mktemp("driver")
    topics = [topic_name("clicks") for _ in range(3)]
    for topic in topics:
        create_topic(broker, topic, partitions=4)
    with Door(broker, forwards_append=False) as before, Door(broker, forwards_append=True) as after:
        arguments = [topics[0], topics[1], before.address, topics[2], after.address]
        with (directory / "driver.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(DRIVER), str(directory), str(broker.lake), *arguments],
                env={**os.environ, "PYTHONPATH": f"{PROJECT}:{PROJECT / 'scripts'}:{PROJECT / 'tests'}"},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield Driver(process, directory, topics[0], (topics[1], before), (topics[2], after))
        finally:
            kill(process)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")  # where the driver is
def test_tasks_that_fail_are_retried_or_run_twice_leave_each_row_once(broker: Kafkalake, driver: Driver) -> None:
    done = driver.directory / "tasks-done"
    driver.wait_until(done.exists)
    assert "this job is meant to fail" in done.read_text()
    found = consumed(broker.bootstrap_servers, driver.retried, "read_committed")
    assert sorted(int(key or b"") for _, _, key in found) == list(range(400))


def test_a_driver_that_is_killed_has_written_nothing_or_everything(
    spark: SparkSession, broker: Kafkalake, driver: Driver
) -> None:
    for _, door in (driver.before, driver.after):
        driver.wait_until(door.asked.is_set)
    kill(driver.process)
    wait_until(lambda: count(broker.lake, driver.after[0]) == 400)
    assert count(broker.lake, driver.before[0]) == 0
    left = staged(broker.lake)
    assert len(left) == 2
    rows = spark.range(0, 400, 1, 4).selectExpr("CAST(id AS STRING) AS key", "'x' AS value")
    for topic, _ in (driver.before, driver.after):
        write(rows, broker.lake, topic, txnAppId=topic, txnVersion="0")
        found = consumed(broker.bootstrap_servers, topic, "read_committed")
        assert sorted(int(key or b"") for _, _, key in found) == list(range(400))
    assert staged(broker.lake) == left
    for job in stale_staging(broker.lake, time.time_ns() // 1_000_000, older_than_ms=0):
        remove_staged(job)
    assert staged(broker.lake) == []


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the driver, its JVM and its Python workers."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
