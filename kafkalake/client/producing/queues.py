"""The queues of a topic's partitions: batches in the order in which they are to be sent."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TypeAlias

from kafkalake.client.cluster import TopicInfo
from kafkalake.client.producing.batch import Batch
from kafkalake.client.producing.partitioners import StickyPartitioner
from kafkalake.record.sequences import is_before

_PARTITIONS_A_MS = 50
"""Partitions whose load is taken over in a millisecond at most, a few hundredths of the sender's time."""

Filled: TypeAlias = "dict[PartitionQueue, None]"
"""The queues with batches, of all topics, in the order in which they are looked at."""


class PartitionQueue:
    """The batches of one partition. `open`: the last one, while records are added to it.

    in_flight: the number of batches that are sent and not answered. connection: on which these are, or the next ones are sent,
    -1 before.
    """

    __slots__ = ("_filled", "_topic", "batches", "connection", "in_flight", "is_moving", "open", "partition", "topic")

    def __init__(self, topic: TopicQueues, partition: int, filled: Filled) -> None:
        self.topic = topic.name
        self._topic = topic
        self._filled = filled
        self.partition = partition
        self.batches: deque[Batch] = deque()
        self.open: Batch | None = None
        self.in_flight = 0
        self.connection = -1
        self.is_moving = False

    @property
    def has_full(self) -> bool:
        """Return whether there is a batch that takes no more records: the first one then is such."""
        return bool(self.batches) and self.batches[0] is not self.open

    def begin(self, batch: Batch) -> None:
        """Add a batch to which records are added."""
        self.batches.append(batch)
        self._filled[self] = None
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
        self._filled[self] = None

    def pop(self) -> Batch:
        """Remove the first batch, encoded. Other partitions with batches are in front of this one then."""
        batch = self.batches.popleft()
        del self._filled[self]
        if self.batches:
            self._filled[self] = None
        if batch is self.open:
            self.close_open()
        return batch

    def put_back(self, batch: Batch) -> None:
        """Add a batch that was popped: in the order of sequence numbers, or in front of all without one."""
        if batch.has_sequence:
            later = [
                each
                for each in self.batches
                if each.has_sequence and is_before(batch.base_sequence, each.base_sequence)
            ]
            place = self.batches.index(later[0]) if later else sum(each.has_sequence for each in self.batches)
            self.batches.insert(place, batch)
        else:
            self.batches.appendleft(batch)
        self._filled[self] = None

    def remove(self, batch: Batch) -> None:
        """Remove a batch that is not sent any more."""
        self.batches.remove(batch)
        if not self.batches:
            del self._filled[self]
        if batch is self.open:
            self.open = None

    def clear(self) -> None:
        """Remove all batches."""
        self.batches.clear()
        self._filled.pop(self, None)
        self.open = None

    def begin_flight(self) -> None:
        """Take the news that a batch is sent."""
        self.in_flight += 1

    def end_flight(self) -> None:
        """Take the news that the request of a batch has ended."""
        self.in_flight -= 1

    def use(self, connection: int) -> None:
        """Send the next batches on a connection."""
        self.connection = connection
        self.is_moving = False

    def move(self) -> None:
        """Send nothing until nothing is in flight any more, so that no batch overtakes another one on the next connection."""
        self.is_moving = True


class TopicQueues:
    """The partitions of a topic, and the one for records without a key. `count`: of the newest metadata.

    load_due_ms: when the load of the partitions may be taken over again.
    """

    __slots__ = ("__weakref__", "_filled", "available", "count", "load_due_ms", "name", "partitions", "sticky")

    def __init__(self, name: str, batch_size: int, random: Random, filled: Filled) -> None:
        self.name = name
        self._filled = filled
        self.load_due_ms = 0
        self.sticky = StickyPartitioner(batch_size, random)
        self.partitions: list[PartitionQueue] = []
        self.available: list[int] = []
        self.count = 0

    def update(self, info: TopicInfo) -> None:
        """Take over the partitions of the newest metadata. Those that are gone keep their queues until these are empty."""
        self.count = len(info.partitions)
        for partition in range(len(self.partitions), len(info.partitions)):
            self.partitions.append(PartitionQueue(self, partition, self._filled))
        self.available = [each.partition for each in info.partitions if each.leader >= 0]

    def count_batch(self, partition: int, size: int) -> None:
        """Take the news that a batch of `size` bytes takes no more records."""
        self.sticky.add_batch(partition, size, self.count, self.available)

    def update_load(self, available: list[int], now_ms: int) -> None:
        """Take over the load of the partitions, by the lengths of their queues. That of many is taken over less often."""
        self.load_due_ms = now_ms + self.count // _PARTITIONS_A_MS
        self.sticky.update_load(available, [len(self.partitions[each].batches) for each in available])
