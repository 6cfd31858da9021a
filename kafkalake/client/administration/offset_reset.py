"""Where the committed offsets of a group are moved to, as by `kafka-consumer-groups --reset-offsets`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafkalake.client.administration.blocking import Admin
from kafkalake.client.administration.partition_offsets import EARLIEST, LATEST
from kafkalake.errors import GroupIdNotFoundError, NonEmptyGroupError, UnknownTopicOrPartitionError
from kafkalake.topic_partition import TopicPartition


@dataclass(frozen=True)
class PartitionOffsets:
    """The first offset and the end of partitions, between which every new offset lies."""

    begins: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]

    @classmethod
    def of(cls, admin: Admin, partitions: Collection[TopicPartition]) -> PartitionOffsets:
        """Ask for those of `partitions`. Raise `UnknownTopicOrPartitionError` if one does not exist."""
        begins, ends = (places(admin, partitions, special) for special in (EARLIEST, LATEST))
        for topic, partition in partitions:
            if (topic, partition) not in begins.keys() & ends.keys():
                raise UnknownTopicOrPartitionError(f"partition {topic}-{partition} does not exist any more")
        return cls(begins, ends)

    def at_time(self, admin: Admin, timestamp_ms: int) -> dict[TopicPartition, int]:
        """Return the offset of the first record at or after a time, or the end where there is none.

        A time before 1970 is the beginning: Kafka takes no negative timestamps, of which -1 would be the end.
        """
        if timestamp_ms < 0:
            return self.begins
        found = places(admin, self.ends, timestamp_ms)
        return {at: found[at] if found.get(at, -1) >= 0 else end for at, end in self.ends.items()}

    def within(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return these offsets, moved to the nearest that the partition holds."""
        return {at: min(max(wanted[at], self.begins[at]), end) for at, end in self.ends.items()}


def places(admin: Admin, partitions: Collection[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
    """Return an offset by time (ms, or `EARLIEST`, `LATEST`) for each existing partition."""
    times: dict[TopicPartition, int] = {}
    for topic in sorted({topic for topic, _ in partitions}):
        try:
            known = {info.partition for info in admin.describe_topic(topic).partitions}
        except UnknownTopicOrPartitionError:
            continue
        times |= {(name, index): timestamp for name, index in partitions if name == topic and index in known}
    return {partition: listed.offset for partition, listed in admin.list_offsets(times).items()} if times else {}


def require_no_members(admin: Admin, group: str, *, may_be_new: bool) -> None:
    """Raise `NonEmptyGroupError` if the group has members, `GroupIdNotFoundError` if there is none and it may not be new."""
    try:
        described = admin.describe_group(group)
    except GroupIdNotFoundError:
        if not may_be_new:
            raise
        return
    if described.members:
        raise NonEmptyGroupError(
            f"group '{group}' has members: offsets are reset while it has none (its state is {described.state})"
        )
