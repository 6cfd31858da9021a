"""Topics that are created together, and where their replicas are placed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple
from uuid import UUID

from kafkalake.broker.admin.topic_plans import TopicPlan
from kafkalake.broker.partitions.new_topic import NewTopic
from kafkalake.broker.partitions.topics import Topic
from kafkalake.cluster.image import ClusterImage, PartitionRegistration
from kafkalake.cluster.placement import Placement
from kafkalake.cluster.topic_changes import new_partitions
from kafkalake.errors import (
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    KafkaError,
    as_value,
)
from kafkalake.run_blocking import iterate_in_turns

Count = Callable[[int], None]
"""Counts the partitions that a client is about to create or delete. Raises `KafkaError` if that exceeds its quota."""


def no_quota(partitions: int) -> None:
    """Count nothing: what the broker does for itself has no quota."""


class Creation(NamedTuple):
    """A topic that is created, with its size."""

    topic: Topic
    plan: TopicPlan


def place_all(
    image: ClusterImage, creations: Iterable[Creation], placing: Placement, refused: dict[str, KafkaError]
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


async def make_creations(
    wanted: Iterable[NewTopic],
    planned: Iterable[TopicPlan | KafkaError],
    make: Callable[[NewTopic], Topic],
    count: Count,
    now_ns: Callable[[], int],
) -> list[Creation | KafkaError]:
    """Return what is to be created as it was planned, counted, and why the rest is not. In turns."""
    made: list[Creation | KafkaError] = []
    async for new, plan in iterate_in_turns(zip(wanted, planned, strict=True), now_ns):
        if isinstance(plan, KafkaError):
            made.append(plan)
            continue
        try:
            count(plan.partitions)
            made.append(Creation(make(new), plan))
        except KafkaError as error:
            made.append(as_value(error))
    return made
