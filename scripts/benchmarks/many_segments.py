"""Topics whose partitions have many segments, made through the broker's front door.

A segment rolls when the next batch's timestamp is `segment.ms` past its first one, so batches whose timestamps lie an hour
apart make one segment each, on both brokers, with little data. All timestamps lie in the past (brokers refuse the future) and
nothing expires.
"""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_reference import BrokerProcess

from benchmarks.kafka_tools import ToolFailed

APART_MS = 3_600_000
SEGMENT_PER_BATCH = {"segment.ms": "1000", "retention.ms": "-1", "message.timestamp.type": "CreateTime"}


def create_topics(broker: BrokerProcess, partitions: dict[str, int]) -> None:
    """Create topics (name -> partitions) whose segments roll with the timestamps of their batches."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    wanted = [NewTopic(name, count, 1, config=SEGMENT_PER_BATCH) for name, count in partitions.items()]
    for done in client.create_topics(wanted, operation_timeout=120, request_timeout=120).values():
        done.result(120)


def write_segments(
    broker: BrokerProcess, partitions: dict[str, int], *, segments: int, batches: int = 1, batch_records: int = 1
) -> None:
    """Append `segments` segments of `batches` batches to each partition. Raises `ToolFailed` for a record that failed."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.num.messages": batch_records,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
        }
    )
    failed: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    value = b"v" * 100
    first_ms = int(time.time() * 1000) - (segments + 1) * APART_MS
    for segment in range(segments):
        for topic, count in partitions.items():
            for partition in range(count):
                for _ in range(batches * batch_records):
                    producer.produce(
                        topic,
                        value,
                        partition=partition,
                        timestamp=first_ms + segment * APART_MS,
                        on_delivery=delivered,
                    )
        left = producer.flush(600)
        if left or failed:
            raise ToolFailed(f"{broker.name}: {left} records were not acknowledged, {len(failed)} failed: {failed[:3]}")


def require_segments(directory: Path, pattern: str, at_least: int) -> int:
    """The number of segment files below a directory. Raises `ToolFailed` where they are fewer than wanted."""
    found = sum(1 for _ in directory.rglob(pattern))
    if found < at_least:
        raise ToolFailed(f"{directory} has {found} segments ({pattern}), {at_least} were wanted")
    return found
