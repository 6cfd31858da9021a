"""Spark writes 4 M records of 100 bytes into a topic: exactly once here, at least once with Spark's Kafka sink into Apache Kafka.

One session does both, in turns, on the same rows: a key of up to 7 bytes and a value of 100, read from Parquet files, which is a
tenth of the connector's work. Rows that the tasks make by `LPAD` instead take a microsecond each: four fifths of kafkalake's work,
so that it is what would be measured. Each figure is the time from reading to the end of `save`: the records are there, for every
reader, when it returns.
"""

from __future__ import annotations

import tempfile
import time

import confluent_kafka
from kafka_reference import BrokerProcess, Kafkalake, create_topic, topic_name
from pyspark.sql import DataFrame, SparkSession

from benchmarks import kafka_tools
from benchmarks.plan import Plan, progress, take_turns
from benchmarks.rows import Row, compare_times
from benchmarks.spark_scan import spark_session

PARTITIONS = 4
FILES = 4


def measure(plan: Plan) -> list[Row]:
    records = plan.size(4_000_000, 400_000)
    with (
        plan.brokers() as brokers,
        spark_session(plan.directory) as spark,
        tempfile.TemporaryDirectory(dir=plan.directory) as files,
    ):
        made = spark.range(0, records, 1, FILES).selectExpr(
            "CAST(id AS STRING) AS key", "LPAD(CAST(id AS STRING), 100, '.') AS value"
        )
        made.write.mode("overwrite").parquet(files)

        def work(broker: BrokerProcess) -> float:
            topic = topic_name("written")
            create_topic(broker, topic, partitions=PARTITIONS)
            started = time.perf_counter()
            _write(spark.read.parquet(files), broker, topic)
            elapsed = time.perf_counter() - started
            _check(spark, broker, topic, records)
            return elapsed

        for broker in brokers:
            for _ in range(2):
                progress(f"spark-write: warming {broker.name}: {work(broker):.2f} s")
        ours, theirs = take_turns("spark-write", plan.rounds, brokers, work, "s")
    title = f"Spark writes {records:,} records of 100 bytes: exactly once, against at least once"
    return [compare_times("spark-write", title, ours, theirs, at_least=2, unit="s", partitions=PARTITIONS)]


def _write(rows: DataFrame, broker: BrokerProcess, topic: str) -> None:
    if isinstance(broker, Kafkalake):
        rows.write.format("kafkalake").option("lake", str(broker.lake)).mode("append").save(topic)
        return
    sink = rows.write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    sink.option("topic", topic).save()


def _check(spark: SparkSession, broker: BrokerProcess, topic: str, records: int) -> None:
    """As many records as were written. Raises `kafka_tools.ToolFailed`."""
    if isinstance(broker, Kafkalake):
        reader = spark.read.format("kafkalake").option("lake", str(broker.lake)).schema("offset long")
        found = reader.load(topic).count()
    else:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "benchmark"})
        partitions = [confluent_kafka.TopicPartition(topic, index) for index in range(PARTITIONS)]
        found = sum(consumer.get_watermark_offsets(each, timeout=30)[1] for each in partitions)
        consumer.close()
    if found != records:
        raise kafka_tools.ToolFailed(
            f"spark-write: {broker.name} has {found} records of {topic}, {records} were written"
        )
