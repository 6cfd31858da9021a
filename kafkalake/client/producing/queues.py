"""The queues of a topic's partitions: batches in the order in which they are to be sent."""

from __future__ import annotations

from collections import deque
from random import Random

from kafkalake.client.cluster import TopicInfo
from kafkalake.client.producing.batch import Batch
from kafkalake.client.producing.partitioners import StickyPartitioner


class PartitionQueue:
    """The batches of one partition. `open`: the last one, while records are added to it. is_muted: nothing is sent now."""

    __slots__ = ("_topic", "batches", "is_muted", "open", "partition", "topic")

    def __init__(self, topic: TopicQueues, partition: int) -> None:
        self.topic = topic.name
        self._topic = topic
        self.partition = partition
        self.batches: deque[Batch] = deque()
        self.open: Batch | None = None
        self.is_muted = False

    def begin(self, batch: Batch) -> None:
        """Add a batch to which records are added."""
        self.batches.append(batch)
        self.open = batch

    def close_open(self) -> None:
        """Encode the open batch, if there is one. The next record opens another."""
        if self.open is not None:
            self._topic.count_batch(self.partition, self.open.size)
            self.open.close()
            self.open = None

    def add_encoded(self, batch: Batch) -> None:
        """Add a batch of encoded records behind those that were added before."""
        self.close_open()
        self.batches.append(batch)

    def pop(self) -> Batch:
        """Remove the first batch, encoded."""
        batch = self.batches.popleft()
        if batch is self.open:
            self.close_open()
        return batch

    def put_back(self, batch: Batch) -> None:
        """Add a batch that was popped: in the order of sequence numbers, or in front of all without one."""
        if batch.has_sequence:
            later = [each for each in self.batches if each.has_sequence and _precedes(batch, each)]
            place = self.batches.index(later[0]) if later else sum(each.has_sequence for each in self.batches)
            self.batches.insert(place, batch)
        else:
            self.batches.appendleft(batch)

    def remove(self, batch: Batch) -> None:
        """Remove a batch that is not sent any more."""
        self.batches.remove(batch)
        if batch is self.open:
            self.open = None

    def clear(self) -> None:
        """Remove all batches."""
        self.batches.clear()
        self.open = None

    def mute(self, is_muted: bool) -> None:
        """Set whether nothing is sent now."""
        self.is_muted = is_muted


def _precedes(batch: Batch, other: Batch) -> bool:
    """Return whether `batch` has the earlier sequence number. They begin again at 0 after 2^31 - 1."""
    return (other.base_sequence - batch.base_sequence) & 0x7FFFFFFF < 1 << 30


class TopicQueues:
    """The partitions of a topic, and the one for records without a key. `count`: of the newest metadata."""

    __slots__ = ("__weakref__", "available", "count", "name", "partitions", "sticky")

    def __init__(self, name: str, batch_size: int, random: Random) -> None:
        self.name = name
        self.sticky = StickyPartitioner(batch_size, random)
        self.partitions: list[PartitionQueue] = []
        self.available: list[int] = []
        self.count = 0

    def update(self, info: TopicInfo) -> None:
        """Take over the partitions of the newest metadata. Those that are gone keep their queues until these are empty."""
        self.count = len(info.partitions)
        for partition in range(len(self.partitions), len(info.partitions)):
            self.partitions.append(PartitionQueue(self, partition))
        self.available = [each.partition for each in info.partitions if each.leader >= 0]

    def count_batch(self, partition: int, size: int) -> None:
        """Take the news that a batch of `size` bytes takes no more records."""
        self.sticky.add_batch(partition, size, self.count, self.available)

    def update_load(self, available: list[int], *, is_adaptive: bool) -> None:
        """Take over the load of the partitions, by the lengths of their queues."""
        if not is_adaptive:
            self.sticky.update_load((), ())
            return
        self.sticky.update_load(available, [len(self.partitions[each].batches) for each in available])
