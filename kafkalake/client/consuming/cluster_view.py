"""The cluster's metadata as the parts of a consumer ask for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from kafkalake.client.cluster import PartitionInfo
from kafkalake.client.network.metadata import Metadata
from kafkalake.topic_partition import TopicPartition, partition_name


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

    def reason(self, partition: TopicPartition) -> str:
        """Return why a partition has no leader, to follow a text about it: "" if that is not known."""
        cluster = self._metadata.cluster
        topic, number = partition
        info = cluster.topics.get(topic)
        if info is not None and number >= len(info.partitions):
            return f": topic '{topic}' has {len(info.partitions)} partitions, numbered from 0"
        error = cluster.errors.get(topic) or self._metadata.error
        return "" if error is None else f": {error}"

    def missing(self, topics: Collection[str], partitions: Collection[TopicPartition]) -> set[str]:
        """Return a sentence for each of `topics` that has an error, and each of `partitions` that its topic does not have."""
        cluster = self._metadata.cluster
        found = {str(error) for topic, error in cluster.errors.items() if topic in topics}
        absent = [each for each in partitions if each[0] in cluster.topics and self.partition(each) is None]
        return found | {f"partition {partition_name(each)} does not exist{self.reason(each)}" for each in absent}

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
