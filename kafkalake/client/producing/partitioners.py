"""Partitioners: which partition a record goes to. Without socket, clock or state of others.

By key as in all clients (`client.partitioner`); without a key the sticky partitioner of KIP-794: records fill one partition for
`batch.size` bytes, then another one, chosen by chance with odds that fall with the length of a partition's queue.
Source: `org.apache.kafka.clients.producer.internals.BuiltInPartitioner`.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import Protocol

import numpy as np

from kafkalake.client.partitioner import murmur2

_ALMOST_BYTES = 1_024
"""What a batch that is full may lack, as the next record did not fit."""

_TOPICS_MAX = 10_000
"""The most topics whose turns are remembered."""


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key, as all of Kafka's clients choose it."""
    return (int(murmur2(np.frombuffer(key, dtype=np.uint8), 0, len(key))) & 0x7FFFFFFF) % partitions


class Partitioner(Protocol):
    """A partitioner that may be given to a producer. Called by the threads that send."""

    def partition(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: int, available: Sequence[int]
    ) -> int:
        """Return the partition of a record, from 0 to `partitions` - 1. available: the partitions with a leader."""
        ...


class RoundRobinPartitioner:
    """Spreads records over the available partitions in turn, whatever their keys. The turns of 10,000 topics are remembered."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}
        self._lock = threading.Lock()
        self._forgotten = 0

    def partition(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: int, available: Sequence[int]
    ) -> int:
        """Return the next partition in turn."""
        with self._lock:
            # not from 0 on: topics that are forgotten and come back again and again would stay at their first partition
            turn = self._next.get(topic, self._forgotten)
            if topic not in self._next and len(self._next) >= _TOPICS_MAX:
                del self._next[next(iter(self._next))]
                self._forgotten += 1
            self._next[topic] = turn + 1
        return available[turn % len(available)] if available else turn % partitions


class StickyPartitioner:
    """The partition of a topic's records without a key, for now. See the module."""

    def __init__(self, batch_size: int, random: Random) -> None:
        self._batch_size = max(batch_size, 1)
        self._random = random
        self._load: tuple[list[int], list[int]] | None = None
        self._produced = 0
        self.current = -1

    def begin(self, partitions: int, available: Sequence[int]) -> int:
        """Return the partition to use, a first one if there was none."""
        if not 0 <= self.current < partitions:
            self._switch(partitions, available)
        return self.current

    def add_batch(self, partition: int, size: int, partitions: int, available: Sequence[int]) -> None:
        """Count a batch that takes no more records, and go on to another partition if this one had its share."""
        if partition == self.current:
            self._produced += size
            if self._produced >= self._batch_size - _ALMOST_BYTES:
                self._switch(partitions, available)

    def update_load(self, partitions: Sequence[int], queued: Sequence[int]) -> None:
        """Take over the number of batches that wait at each partition that may be chosen. None of them: no preference."""
        if not partitions:
            self._load = None
            return
        longest = max(queued) + 1
        self._load = list(partitions), list(accumulate(longest - each for each in queued))

    def _switch(self, partitions: int, available: Sequence[int]) -> None:
        self._produced = 0
        if self._load is not None and self._load[1][-1] > 0:
            chosen, odds = self._load
            found = chosen[bisect_right(odds, self._random.randrange(odds[-1]))]
            if found < partitions:
                self.current = found
                return
        self.current = self._random.choice(available) if available else self._random.randrange(partitions)
