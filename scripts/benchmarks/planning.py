"""Planning: a Spark query on a topic of 20,000 sealed segments, of which a time filter needs 10.

What is measured is the whole query, from `load` to its result: planning, starting its tasks, and reading the 10 segments.
The segments are written through the broker's front door and published in Delta; the broker runs on.
"""

from __future__ import annotations

import json
import statistics
import time

from kafka_reference import Kafkalake
from pyspark.sql import SparkSession

from benchmarks.kafka_tools import ToolFailed
from benchmarks.many_segments import APART_MS, create_topics, require_segments, write_segments
from benchmarks.plan import Plan, progress
from benchmarks.rows import Row
from benchmarks.spark_scan import spark_session

TOPIC = "planning"
PARTITIONS = 10
NEEDED = 10
LIMIT_S = 2.0


def measure(plan: Plan) -> list[Row]:
    segments = plan.size(20_000, 500)
    # The last segment of a partition is not sealed, so each gets one more.
    each = segments // PARTITIONS + 1
    with plan.kafkalake() as broker, spark_session(plan.directory) as spark:
        progress(f"planning: writing {segments:,} segments")
        create_topics(broker, {TOPIC: PARTITIONS})
        write_segments(broker, {TOPIC: PARTITIONS}, segments=each)
        require_segments(broker.lake / "logs", "*.arrow", segments)
        first_ms = _first_timestamp_ms(spark, broker)
        seconds = []
        for number in range(-2, max(plan.rounds, 3)):
            elapsed = _query(spark, broker, first_ms + (each // 2 + number) * APART_MS)
            progress(f"planning: {'warming' if number < 0 else f'round {number + 1}'}: {elapsed:.3f} s")
            if number >= 0:
                seconds.append(elapsed)
    worst = max(seconds)
    return [
        Row(
            "planning",
            f"Spark, a query on a topic of {segments:,} sealed segments, of which a time filter needs {NEEDED}, planned and read",
            f"{statistics.median(seconds):.2f} s (at most {worst:.2f})",
            "",
            "",
            f"{LIMIT_S:g} s at most, to plan",
            worst <= LIMIT_S,
            {"kafkalake": seconds, "unit": "s", "partitions": PARTITIONS, "segments": segments},
        )
    ]


def _first_timestamp_ms(spark: SparkSession, broker: Kafkalake) -> int:
    """The timestamp of the first segment of every partition."""
    first = json.dumps({TOPIC: {str(partition): 1 for partition in range(PARTITIONS)}})
    reader = spark.read.format("kafkalake").option("lake", str(broker.lake)).option("endingOffsets", first)
    (row,) = reader.load(TOPIC).selectExpr("unix_millis(min(timestamp))").collect()
    return int(row[0])


def _query(spark: SparkSession, broker: Kafkalake, from_ms: int) -> float:
    """Seconds that a count takes over two segments of each partition. Raises `ToolFailed` for a wrong count."""
    started = time.perf_counter()
    topic = spark.read.format("kafkalake").option("lake", str(broker.lake)).load(TOPIC)
    until_ms = from_ms + (NEEDED // PARTITIONS) * APART_MS
    wanted = topic.filter(f"timestamp >= timestamp_millis({from_ms}) AND timestamp < timestamp_millis({until_ms})")
    found = wanted.count()
    elapsed = time.perf_counter() - started
    if found != NEEDED:
        raise ToolFailed(f"planning: {found} records in {NEEDED} segments of one record each")
    return elapsed
