"""Where the committed offsets of a group are moved to, as by `kafka-consumer-groups --reset-offsets`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafkalake.client import admin, group_admin
from kafkalake.client.cluster import Cluster
from kafkalake.errors import GroupIdNotFoundError, NonEmptyGroupError, UnknownTopicOrPartitionError
from kafkalake.topic_partition import TopicPartition


@dataclass(frozen=True)
class PartitionOffsets:
    """The first offset and the end of partitions, between which every new offset lies."""

    begins: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]

    @classmethod
    def of(cls, cluster: Cluster, partitions: Collection[TopicPartition]) -> PartitionOffsets:
        """Ask for those of `partitions`. Raise `UnknownTopicOrPartitionError` if one does not exist."""
        begins, ends = (places(cluster, partitions, special) for special in (admin.EARLIEST, admin.LATEST))
        for topic, partition in partitions:
            if (topic, partition) not in begins.keys() & ends.keys():
                raise UnknownTopicOrPartitionError(f"partition {topic}-{partition} does not exist any more")
        return cls(begins, ends)

    def at_time(self, cluster: Cluster, timestamp_ms: int) -> dict[TopicPartition, int]:
        """Return the offset of the first record at or after a time, or the end where there is none."""
        found = places(cluster, self.ends, timestamp_ms)
        return {at: found[at] if found.get(at, -1) >= 0 else end for at, end in self.ends.items()}

    def within(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return these offsets, moved to the nearest that the partition holds."""
        return {at: min(max(wanted[at], self.begins[at]), end) for at, end in self.ends.items()}


def places(cluster: Cluster, partitions: Collection[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
    """Return an offset by time (ms, or `admin.EARLIEST`, `admin.LATEST`) for each existing partition."""
    found: dict[TopicPartition, int] = {}
    for topic in sorted({topic for topic, _ in partitions}):
        try:
            known = {info.partition for info in cluster.topic(topic).partitions}
        except UnknownTopicOrPartitionError:
            continue
        times = {index: timestamp for name, index in partitions if name == topic and index in known}
        for index, listed in admin.list_offsets(cluster, topic, times).items():
            found[topic, index] = listed.offset
    return found


def require_no_members(cluster: Cluster, group: str, *, may_be_new: bool) -> None:
    """Raise `NonEmptyGroupError` if the group has members, `GroupIdNotFoundError` if there is none and it may not be new."""
    try:
        described = group_admin.describe_group(cluster, group)
    except GroupIdNotFoundError:
        if not may_be_new:
            raise
        return
    if described.members:
        raise NonEmptyGroupError(
            f"group '{group}' has members: offsets are reset while it has none (its state is {described.state})"
        )
