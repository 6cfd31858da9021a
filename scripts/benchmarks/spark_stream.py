"""Spark: a stream over 8 M records in micro-batches of 1 M, kafkalake's source against Spark's Kafka source.

One session runs both, in turns, each with a checkpoint of its own: the time from `load` to the end of `Trigger.AvailableNow`,
eight batches later. Nothing is written. The runs that warm both up also add up the lengths of all values, which proves that each
was read once; what Spark takes for such sums is its own, and no part of a measured run, of which the number of records is checked.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from kafka_reference import BrokerProcess, Kafkalake, create_topic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks import kafka_tools
from benchmarks.plan import Plan, progress, take_turns
from benchmarks.produce import LARGE_BATCHES
from benchmarks.rows import Row, compare_times
from benchmarks.spark_scan import PARTITIONS, RECORD_BYTES, spark_session

TOPIC = "stream"
BATCHES = 8


def measure(plan: Plan) -> list[Row]:
    records = plan.size(8_000_000, 800_000)
    with plan.brokers() as brokers, spark_session(plan.directory) as spark:
        for broker in brokers:
            create_topic(broker, TOPIC, partitions=PARTITIONS)
            progress(f"spark-stream: writing {records:,} records to {broker.name}")
            kafka_tools.produce(
                broker.bootstrap_servers, TOPIC, records=records, record_bytes=RECORD_BYTES, settings=LARGE_BATCHES
            )

        def work(broker: BrokerProcess, *, add_up: bool = False) -> float:
            return _stream(spark, broker, records, plan.directory, add_up=add_up)

        for broker in brokers:
            for _ in range(2):
                progress(f"spark-stream: warming {broker.name}: {work(broker, add_up=True):.2f} s")
        ours, theirs = take_turns("spark-stream", plan.rounds, brokers, work, "s")
    title = f"Spark stream, {records:,} records of 100 bytes, `AvailableNow`, {records // BATCHES:,} a batch"
    return [compare_times("spark-stream", title, ours, theirs, at_least=4.5, unit="s", partitions=PARTITIONS)]


def _stream(spark: SparkSession, broker: BrokerProcess, records: int, directory: Path, *, add_up: bool) -> float:
    """Seconds of a whole run. Raises `ToolFailed` where not every record was read once."""
    with tempfile.TemporaryDirectory(prefix="kafkalake-checkpoint-", dir=directory) as checkpoint:
        started = time.perf_counter()
        frame = _load(spark, broker, records // BATCHES).selectExpr("length(value) AS bytes")
        if add_up:
            frame = frame.observe("read", f.sum("bytes").alias("bytes"))
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        elapsed = time.perf_counter() - started
    read = [batch for batch in query.recentProgress if batch["numInputRows"]]
    found = sum(batch["numInputRows"] for batch in read)
    found_bytes = sum(batch["observedMetrics"]["read"].bytes for batch in read) if add_up else records * RECORD_BYTES
    if (found, found_bytes) != (records, records * RECORD_BYTES):
        raise kafka_tools.ToolFailed(f"spark-stream: {broker.name} read {found} records of {records}")
    spent = query.recentProgress[BATCHES // 2]["durationMs"]
    progress(f"spark-stream: {broker.name}: {len(read)} batches, one of them (ms): {dict(spent)}")
    return elapsed


def _load(spark: SparkSession, broker: BrokerProcess, batch: int) -> DataFrame:
    reader = spark.readStream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(batch))
    if isinstance(broker, Kafkalake):
        return reader.format("kafkalake").option("lake", str(broker.lake)).load(TOPIC)
    return (
        reader.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", TOPIC)
        .load()
    )
