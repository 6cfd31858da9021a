"""The cluster as a broker knows it: which brokers there are, and who leads and replicates each partition.

A `ClusterImage` is never changed: each change makes the next version, which `topics.Topics.apply` puts in the place of
the one before it. Local logs stand beside it, in `Topic.replicas`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from kafkalake.metadata.tables.schemas import PartitionRow, TopicRow

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """A broker and the address at which clients reach it."""

    broker_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """The leader of a partition (`NO_LEADER`: none), its replicas in order of preference, and the replicas without a log."""

    leader: int = NO_LEADER
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


def sole_replica(broker_id: int, leader_epoch: int, *, is_offline: bool = False) -> PartitionRegistration:
    """Return the registration of a partition whose only replica is on `broker_id`. `is_offline`: its log could not be opened."""
    replicas = (broker_id,)
    if is_offline:
        return PartitionRegistration(NO_LEADER, leader_epoch, replicas, replicas, offline=replicas)
    return PartitionRegistration(broker_id, leader_epoch, replicas, replicas)


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """One version. `brokers` by id, `partitions` by topic id, in order of their numbers."""

    cluster_id: str
    controller_id: int
    version: int = 0
    brokers: Mapping[int, BrokerEndpoint] = field(default_factory=dict)
    partitions: Mapping[UUID, tuple[PartitionRegistration, ...]] = field(default_factory=dict)

    def with_rows(self, topics: Iterable[TopicRow], partitions: Iterable[PartitionRow]) -> ClusterImage:
        """Return the image with the topics and partitions of these tables. A partition that was never published has no leader."""
        published = {
            (row.topic_id, row.partition): PartitionRegistration(row.leader, row.leader_epoch, row.replicas, row.isr)
            for row in partitions
        }
        none = PartitionRegistration()
        return self.with_topics(
            {
                UUID(row.topic_id): tuple(published.get((row.topic_id, index), none) for index in range(row.partitions))
                for row in topics
            }
        )

    def with_broker(self, broker: BrokerEndpoint) -> ClusterImage:
        """Return the image with a broker that has registered."""
        return replace(self, version=self.version + 1, brokers={**self.brokers, broker.broker_id: broker})

    def with_topics(self, partitions: Mapping[UUID, tuple[PartitionRegistration, ...]]) -> ClusterImage:
        """Return the image with the partitions of these topics, new or changed."""
        return replace(self, version=self.version + 1, partitions={**self.partitions, **partitions})

    def without_topic(self, topic_id: UUID) -> ClusterImage:
        """Return the image without a topic."""
        others = {known: each for known, each in self.partitions.items() if known != topic_id}
        return replace(self, version=self.version + 1, partitions=others)
