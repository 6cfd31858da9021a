"""The image of a lake whose table `cluster` has no version yet, because the leaders stand in `partitions` alone."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from kafkalake.cluster.image import ClusterImage, PartitionRegistration
from kafkalake.metadata.tables.schemas import PartitionRow, TopicRow


def initial_image(cluster_id: str, topics: Iterable[TopicRow], partitions: Iterable[PartitionRow]) -> ClusterImage:
    """Return the image, of version 0, on which the first one to be committed is decided."""
    return ClusterImage(cluster_id, partitions=registrations_of(topics, partitions))


def registrations_of(
    topics: Iterable[TopicRow], partitions: Iterable[PartitionRow]
) -> dict[UUID, tuple[PartitionRegistration, ...]]:
    """Return the partitions of each topic, in order of their numbers. One that was never published has no leader."""
    published = {
        (row.topic_id, row.partition): PartitionRegistration(row.leader, row.leader_epoch, row.replicas, row.isr)
        for row in partitions
    }
    none = PartitionRegistration()
    return {
        UUID(row.topic_id): tuple(published.get((row.topic_id, index), none) for index in range(row.partitions))
        for row in topics
    }
