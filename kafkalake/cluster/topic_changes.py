"""Topics come and go, and get more partitions.

`topics_version` is the version of the table `topics` that was written before: name, number of partitions and settings are there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from kafkalake.cluster.image import ClusterImage, PartitionRegistration
from kafkalake.errors import InvalidReplicaAssignmentError

Assignment = Sequence[Sequence[int]]
"""The replicas of new partitions, in order of the partitions' numbers; the first of each is preferred as the leader."""


def create_topics(
    image: ClusterImage, created: Mapping[UUID, tuple[PartitionRegistration, ...]], topics_version: int
) -> ClusterImage:
    """Return the next version, with new topics, whose partitions are `new_partitions`."""
    assert not created.keys() & image.partitions.keys()
    return replace(image.with_topics(created), topics_version=topics_version)


def delete_topics(image: ClusterImage, topic_ids: Collection[UUID], topics_version: int) -> ClusterImage:
    """Return the next version, without topics; the same one if it has none of them."""
    deleted = image.partitions.keys() & frozenset(topic_ids)
    return replace(image.without_topics(deleted), topics_version=topics_version) if deleted else image


def add_partitions(
    image: ClusterImage, added: Mapping[UUID, tuple[PartitionRegistration, ...]], topics_version: int
) -> ClusterImage:
    """Return the next version, with more partitions of topics, which are `new_partitions`; the same one if there are none."""
    grown = {topic_id: image.partitions[topic_id] + more for topic_id, more in added.items()}
    return replace(image.with_topics(grown), topics_version=topics_version) if grown else image


def change_topics(image: ClusterImage, topics_version: int) -> ClusterImage:
    """Return the next version, with a newer version of the table `topics`: settings of topics have changed."""
    if topics_version == image.topics_version:
        return image
    return replace(image, version=image.version + 1, topics_version=topics_version)


def clear_eligible(image: ClusterImage, topic_id: UUID) -> ClusterImage:
    """Return the next version, in which no replica of a topic is eligible to lead beside its ISRs.

    Those that are were in an ISR below `min.insync.replicas` of before: where that changes, the high watermark moves without them.
    """
    before = image.partitions.get(topic_id, ())
    after = tuple(
        replace(each, elr=(), partition_epoch=each.partition_epoch + 1) if each.elr else each for each in before
    )
    return image if after == before else image.with_topics({topic_id: after})


def new_partitions(image: ClusterImage, assignment: Assignment, first: int = 0) -> tuple[PartitionRegistration, ...]:
    """Return new partitions. Their active replicas are the ISR, the first of them is the leader.

    Raise `InvalidReplicaAssignmentError` if a partition has no active replica; `first` is the number of the first one.
    """
    partitions = []
    for index, replicas in enumerate(assignment, first):
        isr = tuple(each for each in replicas if each in image.brokers and image.brokers[each].is_active)
        if not isr:
            raise InvalidReplicaAssignmentError(
                f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
                "controlled shutdown."
            )
        partitions.append(PartitionRegistration(isr[0], 0, tuple(replicas), isr))
    return tuple(partitions)
