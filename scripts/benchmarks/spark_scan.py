"""Spark: a full scan and a projection of 8 M records of 100 bytes, kafkalake's source against Spark's Kafka connector.

One session reads both, in turns. Each figure is the time from `load` to the result: planning is part of a query.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import local_spark
from kafka_reference import BrokerProcess, Kafkalake, create_topic
from pyspark.sql import DataFrame, SparkSession

from benchmarks import kafka_tools
from benchmarks.plan import Plan, progress, take_turns
from benchmarks.produce import LARGE_BATCHES
from benchmarks.rows import Row, compare_times

TOPIC = "scan"
PARTITIONS = 4
RECORD_BYTES = 100


def measure(plan: Plan) -> list[Row]:
    records = plan.size(8_000_000, 500_000)
    with plan.brokers() as brokers, spark_session(plan.directory) as spark:
        for broker in brokers:
            create_topic(broker, TOPIC, partitions=PARTITIONS)
            progress(f"spark: writing {records:,} records to {broker.name}")
            kafka_tools.produce(
                broker.bootstrap_servers, TOPIC, records=records, record_bytes=RECORD_BYTES, settings=LARGE_BATCHES
            )
        return [
            _compare(
                plan,
                brokers,
                "spark-scan",
                f"Spark, {records:,} records of 100 bytes: `count(*), sum(length(value))`",
                lambda broker: _load(spark, broker).selectExpr("count(*)", "sum(length(value))"),
                (records, records * RECORD_BYTES),
                at_least=5,
            ),
            _compare(
                plan,
                brokers,
                "spark-projection",
                f"Spark, {records:,} records, only the offset: `count(*), max(offset)`",
                lambda broker: _load(spark, broker, "offset long").selectExpr("count(*)", "max(offset) >= 0"),
                (records, True),
                at_least=10,
            ),
        ]


def _load(spark: SparkSession, broker: BrokerProcess, columns: str | None = None) -> DataFrame:
    if isinstance(broker, Kafkalake):
        reader = spark.read.format("kafkalake").option("lake", str(broker.lake))
        return (reader.schema(columns) if columns else reader).load(TOPIC)
    # Spark's connector has no schema of the user's; selecting the column is what prunes there.
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", TOPIC)
        .load()
    )


def _compare(
    plan: Plan,
    brokers: tuple[BrokerProcess, ...],
    key: str,
    title: str,
    query: Callable[[BrokerProcess], DataFrame],
    expected: tuple[object, ...],
    *,
    at_least: float,
) -> Row:
    def work(broker: BrokerProcess) -> float:
        started = time.perf_counter()
        result = query(broker).collect()
        elapsed = time.perf_counter() - started
        if tuple(result[0]) != expected:
            raise kafka_tools.ToolFailed(f"{key}: {broker.name} answered {tuple(result[0])}, {expected} were written")
        return elapsed

    for broker in brokers:
        for _ in range(2):
            progress(f"{key}: warming {broker.name}: {work(broker):.2f} s")
    ours, theirs = take_turns(key, plan.rounds, brokers, work, "s")
    return compare_times(key, title, ours, theirs, at_least=at_least, unit="s", partitions=PARTITIONS)


@contextlib.contextmanager
def spark_session(directory: Path) -> Iterator[SparkSession]:
    """A session on this machine's cores with spark-conf's settings, Delta, and Spark's Kafka connector."""
    with tempfile.TemporaryDirectory(prefix="kafkalake-spark-", dir=directory, ignore_cleanup_errors=True) as scratch:
        settings = local_spark.settings(Path(scratch), jar_sets=("delta", "spark-kafka"))
        session = local_spark.session(master="local[*]", name="kafkalake benchmark", of=settings)
        try:
            yield session
        finally:
            local_spark.end(session)
