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
    """Return the next version, with no topic that the table `topics` does not have; the same image if that changes nothing.

    It has all topics and partitions of the table if the lake had no control table. Else those that it lacks are of an interrupted
    change, which the controller finishes or undoes, unless they were published: then the control table is an older one. A partition
    that is added has one replica and no leader yet. The replica is on the broker that has published the partition. One that was
    never published is where the others are, on `broker_id` if there are none.
    """
    published = {(row.topic_id, row.partition): row for row in partitions}
    where = min((row.leader for row in published.values()), default=broker_id)
    ends: dict[str, int] = {}
    for topic_id, index in published:
        ends[topic_id] = max(ends.get(topic_id, 0), index + 1)

    def registered(topic_id: str, index: int) -> PartitionRegistration:
        row = published.get((topic_id, index))
        replica, epoch = (where, -1) if row is None else (row.leader, row.leader_epoch)
        return PartitionRegistration(NO_LEADER, epoch, (replica,), (replica,))

    together = {}
    for row in topics:
        known = image.partitions.get(UUID(row.topic_id), ())
        end = min(row.partitions, ends.get(row.topic_id, 0)) if image.version else row.partitions
        if known or end:
            more = (registered(row.topic_id, index) for index in range(len(known), end))
            together[UUID(row.topic_id)] = (*known, *more)
    if together == image.partitions:
        return image
    return replace(image, version=image.version + 1, topics_version=image.topics_version + 1, partitions=together)


def has_topics_of(image: ClusterImage, topics: Iterable[TopicRow]) -> bool:
    """Return whether an image has exactly the topics of the table `topics`, with as many partitions."""
    in_table = {UUID(row.topic_id): row.partitions for row in topics}
    return in_table == {topic_id: len(partitions) for topic_id, partitions in image.partitions.items()}
