"""The cluster's metadata as the parts of a consumer ask for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from kafkalake.client.cluster import PartitionInfo
from kafkalake.client.network.metadata import Metadata
from kafkalake.topic_partition import TopicPartition


class ClusterView:
    """Implements `fetcher.Leaders`, `consumer_membership.TopicIds` and `membership.PartitionCounts`."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def partition(self, partition: TopicPartition) -> PartitionInfo | None:
        """Return what is known of a partition, None for nothing."""
        info = self._metadata.cluster.topics.get(partition[0])
        if info is None or not 0 <= partition[1] < len(info.partitions):
            return None
        return info.partitions[partition[1]]

    def leader_of(self, partition: TopicPartition) -> tuple[int, int] | None:
        """Return (node id, leader epoch) of a partition's leader, None if none is known."""
        info = self.partition(partition)
        return None if info is None or info.leader < 0 else (info.leader, info.leader_epoch)

    def has_node(self, node_id: int) -> bool:
        """Return whether a broker is part of the cluster now."""
        return node_id in self._metadata.cluster.nodes

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic, None if it is not known yet."""
        return self._metadata.cluster.names.get(topic_id)

    def topic_id(self, name: str) -> UUID | None:
        """Return the id of a topic, None if it is not known."""
        info = self._metadata.cluster.topics.get(name)
        return None if info is None else info.topic_id

    def request_update(self) -> None:
        """Have the metadata refreshed."""
        self._metadata.request_update()

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int] | None:
        """Return the number of partitions of those topics that exist, None as long as that is not known of all."""
        cluster = self._metadata.cluster
        if any(topic not in cluster.topics and topic not in cluster.errors for topic in topics):
            return None
        return {topic: len(cluster.topics[topic].partitions) for topic in topics if topic in cluster.topics}
