"""The partitions that a newer version of the cluster's image changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from kafkalake.broker.partitions.followers import Follower
from kafkalake.broker.partitions.leader_replicas import ReplicaId
from kafkalake.broker.partitions.topics import Topic
from kafkalake.cluster.image import ClusterImage, PartitionRegistration


class ReplicaChange(NamedTuple):
    """A partition whose registration differs in a newer version."""

    topic: Topic
    number: int
    registered: PartitionRegistration

    @property
    def replica(self) -> ReplicaId:
        return self.topic.topic_id, self.number

    def is_followed(self, follower: Follower | None, here: int) -> bool:
        """Return whether the replica on broker `here` follows already as the registration says."""
        if follower is None or here not in self.registered.replicas:
            return False
        leader = self.registered.leader, self.registered.leader_epoch
        return (follower.leader_id, follower.leader_epoch) == leader

    def is_led_on(self, here: int) -> bool:
        """Return whether broker `here` leads in the same epoch as before."""
        partition = self.topic.replicas.get(self.number)
        epoch = None if partition is None or self.registered.leader != here else partition.leader_epoch
        return epoch == self.registered.leader_epoch

    def ends_leadership(self, here: int) -> bool:
        """Return whether broker `here` leads in an earlier epoch. The log is to be at rest before anything else uses it."""
        partition = self.topic.replicas.get(self.number)
        return partition is not None and not partition.is_offline and not self.is_led_on(here)


def changed_partitions(image: ClusterImage, topics: Mapping[UUID, Topic]) -> Iterator[ReplicaChange]:
    """Yield the partitions whose registration is not the one that their topic has now."""
    for topic_id, registrations in image.partitions.items():
        topic = topics.get(topic_id)
        if topic is None or topic.registrations is registrations:
            continue
        before = topic.registrations
        for number, each in enumerate(registrations):
            if number >= len(before) or (before[number] is not each and before[number] != each):
                yield ReplicaChange(topic, number, each)
