"""The names of a partition: by its topic's name, as clients know it, and by its topic's id, which no topic made again has.

Plain tuples: requests with many partitions make one for each.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import TypeAlias, TypeVar

TopicPartition: TypeAlias = tuple[str, int]
"""A partition by topic name and number."""

TopicId = TypeVar("TopicId", str, uuid.UUID)

PartitionId: TypeAlias = tuple[TopicId, int]
"""A partition by topic id (a `UUID`, or its text as the lake's tables have it) and number."""


def partition_name(partition: TopicPartition) -> str:
    """Return a partition as Kafka's tools and log lines name it: `clicks-0`."""
    return f"{partition[0]}-{partition[1]}"


def by_topic(partitions: Iterable[PartitionId[TopicId]]) -> dict[TopicId, list[int]]:
    """Return the numbers of partitions by topic, both in order."""
    found: dict[TopicId, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return {topic: sorted(found[topic]) for topic in sorted(found)}
