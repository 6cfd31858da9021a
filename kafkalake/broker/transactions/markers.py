"""Writes the markers that end transactions, and holds back the offsets of their partitions until all are written.

A marker goes through the append queue of its partition, behind earlier batches. One in `__consumer_offsets` also ends the
transaction for the groups whose offsets it committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
        self._held = broker.held_offsets

    def __call__(self, partition: TopicPartition, marker: Marker, coordinator_epoch: int, done: Done) -> None:
        """Write the coordinator's marker as `Markers` defines it."""
        try:
            found = self._broker.topics.leader(*partition)
        except UnknownTopicOrPartitionError as error:
            self._release(self._held.written(partition, marker.producer_id))
            done(type(error))
            return
        self._held.hold(partition, found, marker.producer_id)

        def settled(error: ErrorClass | None) -> None:
            if error is None:
                self._release(self._held.written(partition, marker.producer_id))
            elif error in NEVER_WRITTEN:
                self._release(self._held.release(marker.producer_id))
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

    def _release(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self._broker.moved(partition)
