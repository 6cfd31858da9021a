"""Writes the markers that end transactions, and hides them from Delta until all are written.

A marker goes through the append queue of its partition, behind earlier batches. One in `__consumer_offsets` also ends the
transaction for the groups whose offsets it committed.

**Atomic.** The markers of one transaction are appended one after the other, and a publish may come between (after a failed write,
or during the fsync of a partition). Until the last one is written, `stable_offset` of each of its partitions stays where it was
before the first. So one version of `partitions` shows a transaction in all partitions or in none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.partitions.partition import Partition, PendingAppend
from kafkalake.broker.transactions.decisions import Marker
from kafkalake.errors import (
    InvalidProducerEpochError,
    KafkaError,
    KafkaStorageError,
    TransactionCoordinatorFencedError,
    UnknownTopicOrPartitionError,
)
from kafkalake.internal_topics import GROUP_JOURNAL
from kafkalake.storage.producer_state import ABORT, COMMIT, EndMarker
from kafkalake.topic_partition import TopicPartition

if TYPE_CHECKING:
    from kafkalake.broker.broker import Broker

NEVER_WRITTEN = (InvalidProducerEpochError, TransactionCoordinatorFencedError)
"""Errors that are not retried, because another coordinator has taken over."""

Done = Callable[[ErrorClass | None], None]


class MarkerWriter:
    """The `Markers` of the transaction coordinator. Runs on the event loop's thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._unwritten: dict[int, set[TopicPartition]] = {}
        self._held: dict[Partition, dict[int, int]] = {}
        self._holders: dict[int, list[Partition]] = {}
        self._published: Mapping[TopicPartition, int] = {}

    def __call__(self, partition: TopicPartition, marker: Marker, coordinator_epoch: int, done: Done) -> None:
        """Write the coordinator's marker as `Markers` defines it."""
        try:
            found = self._broker.topics.partition(*partition)
        except UnknownTopicOrPartitionError as error:
            self._is_written(partition, marker.producer_id)
            done(type(error))
            return
        self._hold(partition, found, marker.producer_id)

        def settled(error: ErrorClass | None) -> None:
            if error is None:
                self._is_written(partition, marker.producer_id)
            elif error in NEVER_WRITTEN:
                self._give_up(marker.producer_id)
            done(error)

        self.write(found, marker, coordinator_epoch, settled)

    def write(self, partition: Partition, marker: Marker, coordinator_epoch: int, done: Done) -> None:
        """Append a marker and call `done` once, later, with the error or None."""
        end = EndMarker(
            marker.producer_id, marker.epoch, COMMIT if marker.committed else ABORT, coordinator_epoch=coordinator_epoch
        )
        pending = PendingAppend(partition, None, None, marker=end)

        def settled() -> None:
            result = pending.result
            if result is None or isinstance(result, KafkaError):
                done(KafkaStorageError if result is None else type(result))
                return
            if partition.topic.name == GROUP_JOURNAL:
                self._broker.groups.coordinator.end_transaction(
                    partition.index, marker.producer_id, committed=marker.committed, position=result.base_offset
                )
            done(None)

        self._broker.append_queue.add(pending, settled)

    # For Delta

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

    def _hold(self, key: TopicPartition, partition: Partition, producer_id: int) -> None:
        self._unwritten.setdefault(producer_id, set()).add(key)
        held = self._held.setdefault(partition, {})
        if producer_id not in held:
            stable = partition.log.last_stable_offset
            held[producer_id] = min(stable, self._published.get(key, stable))
            self._holders.setdefault(producer_id, []).append(partition)

    def _is_written(self, key: TopicPartition, producer_id: int) -> None:
        unwritten = self._unwritten.get(producer_id)
        if unwritten is None:
            return
        unwritten.discard(key)
        if not unwritten:
            self._give_up(producer_id)

    def _give_up(self, producer_id: int) -> None:
        """Release the partitions of a producer's transaction whose markers are all written, or will never be."""
        if self._unwritten.pop(producer_id, None) is None:
            return
        for partition in self._holders.pop(producer_id):
            held = self._held[partition]
            del held[producer_id]
            if not held:
                del self._held[partition]
            self._broker.moved(partition)
