"""Topics that are created together, and where their replicas are placed."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from typing import NamedTuple, TypeVar, cast
from uuid import UUID

from kafkalake.broker.admin.topic_plans import TopicPlan
from kafkalake.broker.partitions.topics import Topic
from kafkalake.cluster.image import ClusterImage, PartitionRegistration
from kafkalake.cluster.placement import NewTopics
from kafkalake.cluster.topic_changes import new_partitions
from kafkalake.errors import (
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    KafkaError,
    as_value,
)

TOPICS_PER_TURN = 100
"""How many new topics are checked before other requests have their turn."""

T = TypeVar("T")


class Creation(NamedTuple):
    """A topic that is created, with its size."""

    topic: Topic
    plan: TopicPlan


def place_all(
    image: ClusterImage, creations: Iterable[Creation], placing: NewTopics, refused: dict[str, KafkaError]
) -> dict[UUID, tuple[PartitionRegistration, ...]]:
    """Return the partitions of new topics by their ids. `refused` gets those for which there are no brokers any more, by name."""
    placed = {}
    refused.clear()
    for topic, plan in creations:
        try:
            assignment = plan.assignment or placing.place(plan.partitions, plan.replication_factor)
            placed[topic.topic_id] = new_partitions(image, assignment)
        except (InvalidReplicationFactorError, InvalidReplicaAssignmentError) as error:
            refused[topic.name] = as_value(error)
    return placed


async def run_in_turns(steps: Generator[None, None, T]) -> T:
    """Return the result of `steps`, between which other requests have their turns."""
    number = 0
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return cast(T, stop.value)
        number += 1
        if number % TOPICS_PER_TURN == 0:
            await asyncio.sleep(0)
