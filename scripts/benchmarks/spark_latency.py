"""Spark: from the acknowledgement of a record to a stream that has it, kafkalake's source against Spark's Kafka source, in turns.

A producer sends 200 records a second and takes the time of each acknowledgement. `stream-latency`: micro-batches every 100 ms,
until `foreachBatch` has collected the record. `real-time-latency`: Real-Time Mode with Spark's Kafka sink on the same broker, until
a consumer has what the query wrote of the record, so it includes a produce and a fetch. A figure is the median of a run.

Each run has a Spark session of its own: a stream of topics has its session write checkpoints without Hadoop's processes
(`LocalCheckpoints.java`), and who uses the connector alone does not have that.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from kafka_reference import BrokerProcess, Kafkalake, create_topic, topic_name
from pyspark.sql import DataFrame, SparkSession

from benchmarks import kafka_tools
from benchmarks.plan import Plan, progress, take_turns
from benchmarks.rows import Row, compare_times, limited
from benchmarks.spark_scan import spark_session

PER_S = 200
WARM = 100
"""Records of each run that come before the measured ones, so that the query is at work."""
TIMEOUT_S = 60
REAL_TIME_MS_MAX = 30
MOST_OF_THEIRS = 0.9
"""The latency of micro-batches, at most this of the connector's."""

Seen = dict[int, float]
"""When each record was seen, by number."""
Follow = Callable[[SparkSession, BrokerProcess, str, str, Seen], AbstractContextManager[None]]
"""Runs a query over a topic of a broker, with this checkpoint, that notes what it has seen."""


def measure(plan: Plan) -> list[Row]:
    records = plan.size(4_000, 600)
    rows = []
    with plan.brokers() as brokers, spark_session(plan.directory) as spark:
        for key, title, follow, at_least in (
            ("stream-latency", "Spark stream, `foreachBatch`, trigger 100 ms", _micro_batches, 1 / MOST_OF_THEIRS),
            ("real-time-latency", "Spark Real-Time Mode, Kafka sink", _real_time, 0.0),
        ):
            if not plan.wants(key):
                continue

            def work(broker: BrokerProcess, follow: Follow = follow) -> float:
                return _median_ms(spark.newSession(), broker, records, follow, plan.directory)

            for broker in brokers:
                progress(f"{key}: warming {broker.name}: {work(broker):.1f} ms")
            ours, theirs = take_turns(key, plan.rounds, brokers, work, "ms")
            full = f"{title}, {PER_S} records/s, from the acknowledgement, p50"
            rows.append(compare_times(key, full, ours, theirs, at_least=at_least, unit="ms", records=records))
            if follow is _real_time:
                rows[-1] = limited(rows[-1], REAL_TIME_MS_MAX)
    return rows


def _median_ms(spark: SparkSession, broker: BrokerProcess, records: int, follow: Follow, directory: Path) -> float:
    """Raise `ToolFailed` if a record is not seen."""
    topic = topic_name("latency")
    create_topic(broker, topic)
    acknowledged: Seen = {}
    seen: Seen = {}
    numbers = range(WARM + records)
    with (
        tempfile.TemporaryDirectory(prefix="kafkalake-checkpoint-", dir=directory) as checkpoint,
        follow(spark, broker, topic, checkpoint, seen),
    ):
        _produce(broker, topic, numbers, acknowledged)
        deadline = time.monotonic() + TIMEOUT_S
        while len(seen) < len(numbers) and time.monotonic() < deadline:
            time.sleep(0.1)
    if seen.keys() != acknowledged.keys():
        raise kafka_tools.ToolFailed(f"{broker.name}: {len(seen)} records of {len(acknowledged)} were seen")
    return 1000 * statistics.median(seen[number] - acknowledged[number] for number in numbers[WARM:])


def _produce(broker: BrokerProcess, topic: str, numbers: range, acknowledged: Seen) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    begun = time.perf_counter()
    for number in numbers:

        def on_delivery(error: object, _: object, number: int = number) -> None:
            assert error is None, error
            acknowledged[number] = time.perf_counter()

        producer.produce(topic, value=b"%d" % number, on_delivery=on_delivery)
        while (rest := begun + (number + 1) / PER_S - time.perf_counter()) > 0:
            producer.poll(min(rest, 0.001))
    producer.flush(TIMEOUT_S)


@contextmanager
def _micro_batches(
    spark: SparkSession, broker: BrokerProcess, topic: str, checkpoint: str, seen: Seen
) -> Iterator[None]:
    def take(frame: DataFrame, batch_id: int) -> None:
        values = [int(row.value) for row in frame.collect()]
        now = time.perf_counter()
        seen.update(dict.fromkeys(values, now))

    writer = _load(spark, broker, topic).select("value").writeStream.foreachBatch(take)
    query = writer.option("checkpointLocation", checkpoint).trigger(processingTime="100 milliseconds").start()
    try:
        yield
    finally:
        query.stop()


@contextmanager
def _real_time(spark: SparkSession, broker: BrokerProcess, topic: str, checkpoint: str, seen: Seen) -> Iterator[None]:
    out = topic_name("out")
    create_topic(broker, out)
    is_over = threading.Event()

    def consume() -> None:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": out, "fetch.wait.max.ms": "10"}
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(out, 0, 0)])
        while not is_over.is_set():
            if (message := consumer.poll(0.1)) is not None and message.error() is None:
                seen.setdefault(int(message.value()), time.perf_counter())
        consumer.close()

    writer = _load(spark, broker, topic).select("value").writeStream.format("kafka").option("topic", out)
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap_servers).option("checkpointLocation", checkpoint)
    query = writer.outputMode("update").trigger(realTime="5 minutes").start()
    thread = threading.Thread(target=consume)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        query.stop()


def _load(spark: SparkSession, broker: BrokerProcess, topic: str) -> DataFrame:
    reader = spark.readStream.option("startingOffsets", "earliest")
    if isinstance(broker, Kafkalake):
        return reader.format("kafkalake").option("lake", str(broker.lake)).load(topic)
    reader = reader.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return reader.option("subscribe", topic).load()
