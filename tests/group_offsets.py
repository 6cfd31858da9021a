"""Records for a group to read, and how far `kafkalake groups describe` says that it is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from confluent_kafka import Consumer, Producer, TopicPartition
from kafka_reference import Kafkalake


def produce(broker: Kafkalake, topic: str, partition: int, values: Sequence[bytes]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value=value, partition=partition)
    assert producer.flush(30) == 0


def described(broker: Kafkalake, group: str) -> dict[tuple[str, int], tuple[int, int]]:
    """(offset, lag) by partition, as the command says."""
    command = [sys.executable, "-m", "kafkalake.cli.main", "groups", "describe", group, "--json"]
    finished = subprocess.run(
        [*command, "--bootstrap-server", broker.bootstrap_servers], capture_output=True, text=True, timeout=60
    )
    assert finished.returncode == 0, finished.stderr
    rows = json.loads(finished.stdout)
    return {(row["topic"], row["partition"]): (row["currentOffset"], row["lag"]) for row in rows}


def committed(broker: Kafkalake, group: str, topic: str, partitions: int) -> list[int]:
    """The committed offset of each partition, below 0 where there is none."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    try:
        asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        return [found.offset for found in consumer.committed(asked, timeout=30)]
    finally:
        consumer.close()
