"""Brings the cluster's image and the table `topics` together, at the start of a controller."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from kafkalake.cluster.image import NO_LEADER, ClusterImage, PartitionRegistration
from kafkalake.metadata.tables.schemas import PartitionRow, TopicRow


def with_topics_of(
    image: ClusterImage, topics: Iterable[TopicRow], partitions: Iterable[PartitionRow], broker_id: int
) -> ClusterImage:
    """Return the next version, with exactly the topics of the table `topics`; the same image if it has them.

    A topic that the image does not have, or has with fewer partitions, is from a lake without a control table, or its creation was
    interrupted. Such a partition has one replica and no leader yet. The replica is on the broker that has published the partition.
    One that was never published is where the others are, on `broker_id` if there are none.
    """
    published = {(row.topic_id, row.partition): row for row in partitions}
    where = min((row.leader for row in published.values()), default=broker_id)

    def registered(topic_id: str, index: int) -> PartitionRegistration:
        row = published.get((topic_id, index))
        replica, epoch = (where, -1) if row is None else (row.leader, row.leader_epoch)
        return PartitionRegistration(NO_LEADER, epoch, (replica,), (replica,))

    together = {}
    for row in topics:
        known = image.partitions.get(UUID(row.topic_id), ())
        more = (registered(row.topic_id, index) for index in range(len(known), row.partitions))
        together[UUID(row.topic_id)] = (*known, *more)
    if together == image.partitions:
        return image
    return replace(image, version=image.version + 1, topics_version=image.topics_version + 1, partitions=together)
