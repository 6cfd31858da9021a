"""A job of Spark's Kafka source and sink changes the word `kafka` to `kafkalake`, and back, and does what it did."""

from __future__ import annotations

import importlib
import os
import queue
import re
import runpy
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import local_spark
import pyspark
import pytest
from group_offsets import produce
from kafka_reference import PROJECT, Kafkalake, create_topic, topic_name
from lake_catalog import with_catalog
from long_runs import first_of
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count, lit
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from pyspark.sql.types import StructType

import pyspark_kafkalake
from kafkalake.errors import BrokerUnavailableError, ConfigurationError
from kafkalake.jobs.error_sentence import one_line_message
from kafkalake.reader import lake_broker
from kafkalake.reader.lake_broker import located
from kafkalake.spark.source.source import KafkaLakeSource
from kafkalake.spark.spark_session import session
from kafkalake.spark.spark_version import SPARK, require_spark

TIMEOUT_S = 90


@pytest.fixture
def words(broker: Kafkalake) -> str:
    """A topic with 2 partitions, which holds `a b a`, `c` and `b c d`."""
    name = topic_name("words")
    create_topic(broker, name, partitions=2)
    produce(broker, name, 0, [b"a b a", b"c"])
    produce(broker, name, 1, [b"b c d"])
    return name


def read(spark: SparkSession, servers: str, topic: str, source: str = "kafkalake", **options: str) -> DataFrame:
    reader = spark.read.format(source).option("kafka.bootstrap.servers", servers)
    return reader.option("subscribe", topic).options(**options).load()


def counts(spark: SparkSession, servers: str, topic: str) -> list[tuple[str, int]]:
    rows = read(spark, servers, topic).selectExpr("CAST(key AS STRING)", "CAST(CAST(value AS STRING) AS INT)")
    return sorted((row[0], row[1]) for row in rows.collect())


@pytest.mark.parametrize("mode", first_of(["complete", "update"], 1))
def test_a_count_of_words_goes_to_a_topic_in_every_mode_and_from_one_sink_to_the_other(
    mode: str, spark: SparkSession, broker: Kafkalake, words: str, tmp_path: Path
) -> None:
    servers, out = broker.bootstrap_servers, topic_name("counts")
    create_topic(broker, out)

    def run(form: str) -> None:
        lines = spark.readStream.format(form).option("kafka.bootstrap.servers", servers)
        lines = (
            lines.option("SUBSCRIBE", words).option("startingOffsets", "earliest").option("groupIdPrefix", "etl").load()
        )
        each = lines.selectExpr("explode(split(CAST(value AS STRING), ' ')) AS key").groupBy("key").count()
        writer = each.selectExpr("key", "CAST(count AS STRING) AS value").writeStream.outputMode(mode).format(form)
        writer = writer.option("kafka.bootstrap.servers", servers).option("topic", out)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(TIMEOUT_S)
        assert query.exception() is None

    run("kafkalake")
    expected = [("a", 2), ("b", 2), ("c", 2), ("d", 1)]
    assert counts(spark, servers, out) == expected
    produce(broker, words, 0, [b"a e"])
    run("kafka")
    expected += [("a", 3), ("e", 1)] if mode == "update" else [("a", 3), ("b", 2), ("c", 2), ("d", 1), ("e", 1)]
    assert counts(spark, servers, out) == sorted(expected)
    produce(broker, words, 1, [b"a"])
    run("kafkalake")
    expected += [("a", 4)] if mode == "update" else [("a", 4), ("b", 2), ("c", 2), ("d", 1), ("e", 1)]
    assert counts(spark, servers, out) == sorted(expected)


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_a_count_of_words_is_a_table_of_the_lake(
    mode: str, spark: SparkSession, broker: Kafkalake, words: str, tmp_path: Path
) -> None:
    lake, out = with_catalog(spark, broker.lake), topic_name("counted")
    lake.sql(f"CREATE TABLE lake.`{out}` (word STRING, n BIGINT) TBLPROPERTIES ('key'='word')")
    lines = (
        lake.readStream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 1).table(f"lake.`{words}`")
    )
    counted = (
        lines.selectExpr("explode(split(CAST(value AS STRING), ' ')) AS word")
        .groupBy("word")
        .agg(count("*").alias("n"))
    )
    writer = counted.writeStream.outputMode(mode).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).toTable(f"lake.`{out}`")
    assert query.awaitTermination(TIMEOUT_S)
    assert query.exception() is None
    found = lake.sql(f"SELECT word, max(n) FROM lake.`{out}` WHERE CAST(_key AS STRING) = word GROUP BY word").collect()
    assert sorted(map(tuple, found)) == [("a", 2), ("b", 2), ("c", 2), ("d", 1)]


@pytest.mark.process
def test_the_lake_is_found_without_the_jar(broker: Kafkalake, words: str) -> None:
    source = KafkaLakeSource({"KAFKA.bootstrap.servers": broker.bootstrap_servers, "subscribe": words})
    reader = source.reader(StructType().add("offset", "long"))
    assert sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)) == 3
    query = source.streamReader(StructType().add("offset", "long"))
    assert query.initialOffset()[words] == {"0": 2, "1": 1}


@pytest.mark.parametrize("mode", ["", "append", "errorifexists", "overwrite", "ignore"])
def test_a_batch_is_written_in_the_modes_of_sparks_kafka_sink(
    mode: str, spark: SparkSession, broker: Kafkalake
) -> None:
    out = topic_name("out")
    create_topic(broker, out)
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS key", "'x' AS value")
    written = []
    for form in ("kafka", "kafkalake"):
        writer = rows.write.format(form).option("kafka.bootstrap.servers", broker.bootstrap_servers)
        try:
            (writer.mode(mode) if mode else writer).option("topic", out).save()
        except Exception as error:
            assert form == "kafka" or one_line_message(error).endswith(
                'use mode("append")' + " or INSERT INTO" * (mode == "overwrite")
            )
        written.append(read(spark, broker.bootstrap_servers, out).count())
    assert written == ([0, 0] if mode in ("overwrite", "ignore") else [3, 6])


def test_the_lake_is_that_of_the_brokers(spark: SparkSession, broker: Kafkalake, words: str) -> None:
    servers = broker.bootstrap_servers
    assert read(spark, f"127.0.0.1:1,{servers}", words).count() == 3
    assert read(spark, servers, words, lake=str(broker.lake)).count() == 3
    assert read(spark, "127.0.0.1:1", words, lake=str(broker.lake)).count() == 3  # reads need no broker
    with Kafkalake() as other, pytest.raises(Exception) as error:
        read(spark, servers, words, lake=str(other.lake)).count()
    assert "do not belong together: the brokers' cluster is" in one_line_message(error.value)
    with pytest.raises(Exception) as error:
        read(spark, "127.0.0.1:1", words).count()
    assert one_line_message(error.value).startswith(
        "no kafkalake broker answers that could say where the lake is (127.0.0.1:1"
    )


def test_a_lake_that_is_not_on_this_machine_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answer: dict[str, Any] = {"cluster_id": "x" * 22, "lake": str(tmp_path / "lake")}
    monkeypatch.setattr(lake_broker, "ask_once", lambda *_: answer)
    options = {"Kafka.Bootstrap.Servers": "far:9092", "subscribe": "clicks"}
    with pytest.raises(
        ConfigurationError, match=r"the broker at far:9092 is .*/lake on the broker's machine, and not there on this"
    ):
        located(options)
    answer["lake"] = None
    with pytest.raises(ConfigurationError, match="may not say where its lake is: use option"):
        located(options)
    del answer["cluster_id"]
    with pytest.raises(BrokerUnavailableError, match="is of an older version"):
        located(options)
    assert located({**options, "__located": "true"}) == {**options, "__located": "true"}
    with pytest.raises(ConfigurationError, match="'far' is not HOST:PORT"):
        located({"kafka.bootstrap.servers": "far"})
    for malformed in ("far", "far:port", "", " , "):
        with pytest.raises(ConfigurationError, match=r"is not HOST:PORT|names no broker"):
            located({"lake": str(tmp_path), "kafka.bootstrap.servers": malformed})


def test_a_table_is_made_over_topics_that_are_there(spark: SparkSession, broker: Kafkalake, words: str) -> None:
    made = f"CREATE TABLE made USING kafkalake OPTIONS (kafka.bootstrap.servers '{broker.bootstrap_servers}', subscribe '{words}')"
    wrong = [
        (f"OPTIONS (lake '{broker.lake}', subscribe 'wrds')", "topic 'wrds' is not in"),
        (f"OPTIONS (lake '{broker.lake}x', subscribe '{words}')", "no lake at"),
        (f"OPTIONS (lake '{broker.lake}')", "topics are named in one way, and none was named"),
        (f"OPTIONS (lake 's3a://b/lake', subscribe '{words}')", "a lake is a directory of a file system"),
    ]
    for columns in ("", "(offset BIGINT)"):
        for options, sentence in wrong:
            with pytest.raises(Exception) as error:
                spark.sql(f"CREATE TABLE made {columns} USING kafkalake {options}")
            assert one_line_message(error.value).startswith(sentence)
    spark.sql(made)
    try:
        assert spark.table("made").count() == 3
    finally:
        spark.sql("DROP TABLE made")


def test_a_frame_is_written_to_a_table_of_deltas_catalogue(spark: SparkSession, broker: Kafkalake, words: str) -> None:
    options = f"OPTIONS (lake '{broker.lake}', subscribe '{words}')"
    spark.sql(f"CREATE TABLE spoken (key STRING, value STRING) USING kafkalake {options}")
    rows = spark.sql("SELECT 'v' AS value, 'k' AS key")
    try:
        for name in ("spoken", "default.spoken", "spark_catalog.default.spoken"):
            rows.writeTo(name).append()
        assert [tuple(row) for row in spark.table("spoken").filter("key = 'k'").collect()] == [("k", "v")] * 3
        with pytest.raises(Exception) as error:
            rows.writeTo("spoken").overwrite(lit(True))
        assert one_line_message(error.value).startswith("a topic cannot be overwritten")
        with pytest.raises(Exception) as error:
            rows.selectExpr("*", "1 AS more").writeTo("spoken").append()
        assert "too many data columns" in one_line_message(error.value)
    finally:
        spark.sql("DROP TABLE spoken")


def test_texts_are_inserted_into_columns_of_bytes(spark: SparkSession, broker: Kafkalake) -> None:
    """Under Delta's catalogue in these tests; under Spark's own in `test_catalog_environments.py`."""
    name = topic_name("spoken")
    create_topic(broker, name)
    spark.sql(f"CREATE TABLE spoken USING kafkalake OPTIONS (lake '{broker.lake}', subscribe '{name}')")
    try:
        assert spark.sql("CACHE TABLE spoken") is not None
        spark.sql("INSERT INTO spoken (key, value) VALUES ('k', 'v')")
        spark.sql("INSERT INTO spoken BY NAME SELECT X'ff00' AS value, 'k' AS key")
        spark.sql("WITH few AS (SELECT 'c' AS value) INSERT INTO spoken (value) SELECT * FROM few")
        spark.createDataFrame([("k", "d")], "key STRING, value STRING").writeTo("spoken").append()
        values = [bytes(row.value) for row in spark.table("spoken").orderBy("offset").collect()]
        assert values == [b"v", b"\xff\x00", b"c", b"d"]
        with pytest.raises(Exception, match="a topic cannot be overwritten"):
            spark.sql("INSERT OVERWRITE spoken (key, value) VALUES ('k', 'v')")
        with pytest.raises(Exception, match="CANNOT_SAFELY_CAST"):
            spark.sql("INSERT INTO spoken (value, partition) VALUES ('v', 'first')")
    finally:
        spark.sql("DROP TABLE spoken")


def test_a_mistake_in_a_value_schema_is_shown_as_it_was_written(
    spark: SparkSession, broker: Kafkalake, words: str
) -> None:
    for schema, shown in (("a STRNG", "STRNG"), ("a INT, b", "b")):
        with pytest.raises(Exception) as error:
            read(spark, broker.bootstrap_servers, words, valueSchema=schema)
        message = one_line_message(error.value)
        assert message.startswith("valueSchema") and shown in message and "BINARY" not in str(error.value)


def test_another_spark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # The jar and the pin name the same version.
    (java,) = (PROJECT / "kafkalake/spark/jvm/io/kafkalake/spark").glob("SparkVersion.java")
    assert f'NEEDED = "{SPARK}"' in java.read_text()
    assert f'"pyspark>={SPARK},<' in (PROJECT / "pyproject.toml").read_text()
    require_spark(pyspark.__version__)
    with monkeypatch.context() as other:
        other.setattr(pyspark, "__version__", "4.1.4")
        source = importlib.reload(pyspark_kafkalake).DefaultSource({})
        uses = (
            source.schema,
            lambda: source.reader(None),
            lambda: source.writer(None, False),
            lambda: source.streamReader(None),
        )
        for use in (*uses, lambda: source.streamWriter(None, False), session):
            with pytest.raises(ConfigurationError, match=r"^kafkalake needs Spark 4\.2, and this is Spark 4\.1\.4$"):
                use()
    assert importlib.reload(pyspark_kafkalake).DefaultSource.__name__ == "KafkaLakeSource"


EXAMPLE = """
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import explode
from pyspark.sql.functions import split

if __name__ == "__main__":
    bootstrapServers = sys.argv[1]
    subscribeType = sys.argv[2]
    topics = sys.argv[3]

    spark = SparkSession.builder.appName("StructuredKafkaWordCount").getOrCreate()

    lines = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrapServers)
        .option(subscribeType, topics)
        .load()
        .selectExpr("CAST(value AS STRING)")
    )
    words = lines.select(explode(split(lines.value, " ")).alias("word"))
    wordCounts = words.groupBy("word").count()
    query = wordCounts.writeStream.outputMode("complete").format("console").start()
    query.awaitTermination()
"""
"""What `structured_kafka_wordcount.py` of Spark's examples does."""


def test_sparks_own_example_runs_with_one_word_changed(
    spark: SparkSession, broker: Kafkalake, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this session, and what it would print goes to a table."""
    script = tmp_path / "structured_kafka_wordcount.py"
    script.write_text(EXAMPLE.replace('"kafka"', '"kafkalake"'))
    write_to = DataStreamWriter.format

    def not_to_the_console(writer: DataStreamWriter, form: str) -> DataStreamWriter:
        return write_to(writer, "memory").queryName("counted") if form == "console" else write_to(writer, form)

    monkeypatch.setattr(DataStreamWriter, "format", not_to_the_console)
    monkeypatch.setattr(StreamingQuery, "awaitTermination", lambda query: None)
    monkeypatch.setattr(sys, "argv", [str(script), broker.bootstrap_servers, "subscribe", words])
    query = runpy.run_path(str(script), run_name="__main__")["query"]
    try:
        query.processAllAvailable()
        produce(broker, words, 0, [b"a b", b"a"])
        query.processAllAvailable()
        assert sorted(map(tuple, spark.table("counted").collect())) == [("a", 2), ("b", 1)]
    finally:
        query.stop()


@pytest.mark.long
@pytest.mark.spark
def test_sparks_own_example_is_submitted(broker: Kafkalake, words: str, tmp_path: Path) -> None:
    script = tmp_path / "structured_kafka_wordcount.py"
    script.write_text(EXAMPLE.replace('"kafka"', '"kafkalake"'))
    settings = local_spark.settings(tmp_path) | local_spark.FEW_ROWS | {"spark.master": "local[2]"}
    conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    submitted = subprocess.Popen(
        [
            str(Path(sys.executable).parent / "spark-submit"),
            *conf,
            str(script),
            broker.bootstrap_servers,
            "subscribe",
            words,
        ],
        env={**os.environ, "PYTHONPATH": str(PROJECT), "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    printed: queue.Queue[str] = queue.Queue()
    assert submitted.stdout is not None
    threading.Thread(
        target=lambda out: [printed.put(line) for line in out], args=(submitted.stdout,), daemon=True
    ).start()
    found: dict[str, int] = {}
    try:
        while printed.get(timeout=TIMEOUT_S) != "Batch: 0\n":
            pass
        produce(broker, words, 0, [b"a b", b"a"])
        while found != {"a": 2, "b": 1}:
            row = re.fullmatch(r"\|\s*(\w+)\|\s*(\d+)\|\n", printed.get(timeout=TIMEOUT_S))
            found |= {row[1]: int(row[2])} if row else {}
    finally:
        submitted.kill()
        submitted.wait(30)
