"""Fetch at random offsets: a partition of 5,000 segments against one of 5, a request at a time on one connection.

The two partitions have segments of the same size and are asked in random turns, so that what differs is how many there are.
"""

from __future__ import annotations

import random
import statistics

from kafka_reference import BrokerProcess

from benchmarks.many_segments import create_topics, require_segments, write_segments
from benchmarks.plan import Plan, progress
from benchmarks.raw import Connection, offsets_of_first_batch
from benchmarks.rows import Row

LIMIT = 1.5
BATCHES = 2
BATCH_RECORDS = 50
MAX_BYTES = 8192  # one batch


def measure(plan: Plan) -> list[Row]:
    segments = {"few": 5, "many": plan.size(5_000, 500)}
    with plan.brokers() as brokers:
        for broker in brokers:
            create_topics(broker, dict.fromkeys(segments, 1))
            for topic, count in segments.items():
                progress(f"random fetch: writing {count:,} segments to {broker.name}")
                write_segments(broker, {topic: 1}, segments=count, batches=BATCHES, batch_records=BATCH_RECORDS)
        ours, theirs = brokers
        require_segments(ours.lake / "logs", "*.arrow", sum(segments.values()))
        require_segments(theirs.directory / "data", "*.log", sum(segments.values()))
        fetches = plan.size(10_000, 1_000)
        seconds = {broker.name: _fetch(broker, segments, fetches) for broker in brokers}
    ratios = {name: statistics.median(s["many"]) / statistics.median(s["few"]) for name, s in seconds.items()}
    for name, ratio in ratios.items():
        progress(f"random fetch: {name}: {ratio:.2f} x, {_milliseconds(seconds[name])}")
    return [
        Row(
            "random-fetch",
            f"fetch at a random offset, partition of {segments['many']:,} segments against one of {segments['few']}",
            f"{ratios[ours.name]:.2f} x the time ({_milliseconds(seconds[ours.name])})",
            f"{ratios[theirs.name]:.2f} x the time ({_milliseconds(seconds[theirs.name])})",
            "",
            f"{LIMIT:g} x at most",
            ratios[ours.name] <= LIMIT,
            {
                "fetches": fetches,
                "percentiles_ms": {
                    name: {
                        topic: {p: round(statistics.quantiles(s, n=100)[p - 1] * 1e3, 4) for p in (5, 50, 95, 99)}
                        for topic, s in of_topic.items()
                    }
                    for name, of_topic in seconds.items()
                },
            },
        )
    ]


def _fetch(broker: BrokerProcess, segments: dict[str, int], fetches: int) -> dict[str, list[float]]:
    """Seconds of each fetch, by topic; the first tenth warms and is left out. Raises `LookupError` for a wrong answer."""
    choose = random.Random(20250101)
    seconds: dict[str, list[float]] = {topic: [] for topic in segments}
    with Connection(broker.port) as connection:
        for number in range(-fetches // 10, fetches):
            topic = choose.choice(list(segments))
            offset = choose.randrange(segments[topic] * BATCHES * BATCH_RECORDS)
            records, elapsed = connection.fetch(topic, 0, offset, MAX_BYTES)
            first, last = offsets_of_first_batch(records)
            if not first <= offset <= last:
                raise LookupError(f"{broker.name}: fetch at {offset} of {topic} brought {first} to {last}")
            if number >= 0:
                seconds[topic].append(elapsed)
    return seconds


def _milliseconds(seconds: dict[str, list[float]]) -> str:
    return f"{statistics.median(seconds['many']) * 1e3:.2f} against {statistics.median(seconds['few']) * 1e3:.2f} ms"
