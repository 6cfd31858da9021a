"""The last stable offsets that Delta may have while markers of a transaction are missing.

**Atomic.** The markers of one transaction are appended one after the other, and a publish may come between (after a failed write,
or during the fsync of a partition). Until the last one is written, `stable_offset` of each of its partitions stays where it was
before the first. So one version of `partitions` shows a transaction in all partitions or in none.

*Several brokers.* This holds of the partitions that one broker leads. Where the markers of a transaction are written by several
brokers, each publishes for itself: a version of `partitions` may show the transaction in the partitions of one and not yet in those
of another. The coordinator's broker holds its partitions until all markers are written, the others while they write theirs.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkalake.broker.partitions.partition import Partition
from kafkalake.topic_partition import TopicPartition


class HeldOffsets:
    """The offsets held back, by partition. Used by the event loop's thread only."""

    def __init__(self) -> None:
        self._unwritten: dict[int, set[TopicPartition]] = {}
        self._held: dict[Partition, dict[int, int]] = {}
        self._holders: dict[int, list[Partition]] = {}
        self._published: Mapping[TopicPartition, int] = {}

    def resume(self, published: Mapping[TopicPartition, int]) -> None:
        """Begin to write the markers again that the previous process left, up to `resumed`.

        published: Delta's last stable offsets. Some partitions may have their marker already. Delta has none of them, and gets none
        before the last one is written.
        """
        self._published = published

    def resumed(self) -> None:
        """End the resumption: later transactions are held at their current last stable offset."""
        self._published = {}

    def stable_offset(self, partition: Partition) -> int:
        """Return the last stable offset that may be published to Delta."""
        held = self._held.get(partition)
        log = partition.log
        stable = log.last_stable_offset
        return stable if held is None else max(min(stable, *held.values()), log.log_start_offset)

    def hold(self, key: TopicPartition, partition: Partition, producer_id: int) -> None:
        """Hold a partition at its current last stable offset, until all markers of the producer's transaction are written."""
        self._unwritten.setdefault(producer_id, set()).add(key)
        held = self._held.setdefault(partition, {})
        if producer_id not in held:
            stable = partition.log.last_stable_offset
            held[producer_id] = min(stable, self._published.get(key, stable))
            self._holders.setdefault(producer_id, []).append(partition)

    def expect(self, key: TopicPartition, producer_id: int) -> None:
        """Hold the others also until the marker of a partition led by another broker is written."""
        self._unwritten.setdefault(producer_id, set()).add(key)

    def written(self, key: TopicPartition, producer_id: int) -> list[Partition]:
        """Note a written marker, and return the partitions that this releases."""
        unwritten = self._unwritten.get(producer_id)
        if unwritten is None:
            return []
        unwritten.discard(key)
        return [] if unwritten else self.release(producer_id)

    def release(self, producer_id: int) -> list[Partition]:
        """Release the partitions of a producer's transaction whose markers are all written, or never will be. Return them."""
        if self._unwritten.pop(producer_id, None) is None:
            return []
        released = self._holders.pop(producer_id, [])
        for partition in released:
            held = self._held[partition]
            del held[producer_id]
            if not held:
                del self._held[partition]
        return released
