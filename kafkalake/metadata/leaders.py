"""The leader of a lake's partitions: a single broker, until brokers can share a lake."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from kafkalake.errors import LakeError
from kafkalake.metadata import paths
from kafkalake.metadata.lock_file import running_brokers
from kafkalake.metadata.store import BrokerTable, PartitionTable, TopicTable


class _Tables(TopicTable, PartitionTable, BrokerTable, Protocol): ...


def refuse_foreign_partitions(tables: _Tables, lake: Path, broker_id: int) -> None:
    """Raise `LakeError` if another broker leads partitions of this lake or runs on it.

    Both would lead the same topics with separate logs: two values for one offset.
    """
    topics = {row.topic_id: row.topic for row in tables.load_topics()}
    led = {row.leader: row.topic for row in tables.load_partitions() if row.topic_id in topics}
    for topic in topics.values():  # created, but the broker was killed before the publish
        led |= dict.fromkeys(paths.partition_paths(lake, topic, 0), topic)
    if led and broker_id not in led:
        leader, topic = min(led.items())
        raise LakeError(
            f"broker {broker_id} cannot run on this lake: its topics (such as {topic}) are led by broker {leader}. "
            f"A lake has one broker: start it with --broker-id {leader}, or use another lake."
        )
    running = running_brokers(lake, tables.load_brokers(), time.time_ns() // 1_000_000) - {broker_id}
    if running:
        raise LakeError(
            f"broker {broker_id} cannot run on this lake: broker {min(running)} runs on it, and a lake has one broker."
        )
