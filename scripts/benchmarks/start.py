"""Start: from the command to the first answer, on data of 1,000 partitions and 20,000 segments, after a stop and after a kill."""

from __future__ import annotations

import random
import statistics
import time

from kafka_reference import BrokerProcess

from benchmarks.many_segments import create_topics, require_segments, write_segments
from benchmarks.plan import Plan, progress, take_turns
from benchmarks.raw import Connection
from benchmarks.rows import Row

LIMIT_S = 10.0


def measure(plan: Plan) -> list[Row]:
    topics = {f"start-{number}": plan.size(100, 10) for number in range(10)}
    segments = 20
    partitions = sum(topics.values())
    with plan.brokers(start_timeout_s=180) as brokers:
        for broker in brokers:
            progress(f"start: writing {partitions * segments:,} segments to {broker.name}")
            create_topics(broker, topics)
            write_segments(broker, topics, segments=segments)
        ours, theirs = brokers
        require_segments(ours.lake / "logs", "*.arrow", partitions * segments)
        require_segments(theirs.directory / "data", "start-*/*.log", partitions * segments)
        rounds = max(plan.rounds // 2 + 1, 2)

        def after_stop(broker: BrokerProcess) -> float:
            broker.stop()
            return _start(broker, topics)

        def after_kill(broker: BrokerProcess) -> float:
            broker.kill()
            return _start(broker, topics)

        return [
            _row(plan, "start", "", partitions, segments, take_turns("start", rounds, brokers, after_stop, "s")),
            _row(
                plan,
                "start-after-kill",
                " after SIGKILL",
                partitions,
                segments,
                take_turns("start after SIGKILL", rounds, brokers, after_kill, "s"),
            ),
        ]


def _start(broker: BrokerProcess, topics: dict[str, int]) -> float:
    """Seconds from the start of the process to the first record served."""
    started = time.perf_counter()
    broker.start()
    topic, partitions = random.choice(list(topics.items()))
    with Connection(broker.port) as connection:
        records, _ = connection.fetch(topic, random.randrange(partitions), 0, 1 << 20)
    if not records:
        raise LookupError(f"{broker.name} served nothing of {topic} after its start")
    return time.perf_counter() - started


def _row(plan: Plan, key: str, how: str, partitions: int, segments: int, figures: list[list[float]]) -> Row:
    ours, theirs = figures
    worst = max(ours)
    return Row(
        key,
        f"start{how} on {partitions:,} partitions and {partitions * segments:,} segments, to the first record served",
        f"{statistics.median(ours):.1f} s (at most {worst:.1f})",
        f"{statistics.median(theirs):.1f} s",
        "",
        f"{LIMIT_S:g} s at most",
        worst <= LIMIT_S,
        {"kafkalake": ours, "apache_kafka": theirs, "unit": "s", "partitions": partitions, "segments": segments},
    )
