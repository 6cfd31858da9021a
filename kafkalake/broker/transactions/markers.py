"""Writes the markers that end transactions, and holds back what Delta is told of them until all are written.

A marker goes through the queue of its partition, behind the batches that came before it. One in `__consumer_offsets` also ends
the transaction for the groups whose offsets it committed.

**Not torn.** The markers of one transaction are appended one after the other, and a publish may come between (after a write that
failed, or while the disk is asked to keep a partition). Until the last one is there, `stable_offset` of each of its partitions
stays where it was before the first: so one version of `partitions` shows a transaction in all partitions or in none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.partitions.partition import Partition, PendingAppend
from kafkalake.broker.transactions.decisions import Marker
from kafkalake.broker.transactions.records import PartitionKey
from kafkalake.errors import (
    InvalidProducerEpochError,
    KafkaError,
    KafkaStorageError,
    TransactionCoordinatorFencedError,
    UnknownTopicOrPartitionError,
)
from kafkalake.internal_topics import GROUP_JOURNAL
from kafkalake.storage.producer_state import ABORT, COMMIT, EndMarker

if TYPE_CHECKING:
    from kafkalake.broker.broker import Broker

NEVER_WRITTEN = (InvalidProducerEpochError, TransactionCoordinatorFencedError)
"""Errors after which the coordinator does not try again: another one has taken over."""

Done = Callable[[ErrorClass | None], None]


class MarkerWriter:
    """The `Markers` of the transaction coordinator. On the event loop's thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._unwritten: dict[int, set[PartitionKey]] = {}
        self._held: dict[Partition, dict[int, int]] = {}
        self._holders: dict[int, list[Partition]] = {}
        self._published: Mapping[PartitionKey, int] = {}

    def __call__(self, partition: PartitionKey, marker: Marker, coordinator_epoch: int, done: Done) -> None:
        """Write the coordinator's marker; see `Markers`."""
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
        """Append a marker; `done` is called once, later, with what refused it or None."""
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

        pending.settled = settled
        self._broker.append_queue.add(pending)

    # For Delta

    def resume(self, published: Mapping[PartitionKey, int]) -> None:
        """Markers that the process before left are written again from now on, up to `resumed`.

        published: the last stable offsets that Delta has. Some partitions may have their marker already; Delta has that of none,
        and hears of none before the last one is written.
        """
        self._published = published

    def resumed(self) -> None:
        """All transactions that the process before had decided are on their way: others are held where they stand."""
        self._published = {}

    def stable_offset(self, partition: Partition) -> int:
        """The last stable offset that Delta may be told."""
        held = self._held.get(partition)
        log = partition.log
        stable = log.last_stable_offset
        return stable if held is None else max(min(stable, *held.values()), log.log_start_offset)

    def _hold(self, key: PartitionKey, partition: Partition, producer_id: int) -> None:
        self._unwritten.setdefault(producer_id, set()).add(key)
        held = self._held.setdefault(partition, {})
        if producer_id not in held:
            stable = partition.log.last_stable_offset
            held[producer_id] = min(stable, self._published.get(key, stable))
            self._holders.setdefault(producer_id, []).append(partition)

    def _is_written(self, key: PartitionKey, producer_id: int) -> None:
        unwritten = self._unwritten.get(producer_id)
        if unwritten is None:
            return
        unwritten.discard(key)
        if not unwritten:
            self._give_up(producer_id)

    def _give_up(self, producer_id: int) -> None:
        """No marker of the producer's transaction is missing, or none will be written any more: nothing is held back for it."""
        if self._unwritten.pop(producer_id, None) is None:
            return
        for partition in self._holders.pop(producer_id):
            held = self._held[partition]
            del held[producer_id]
            if not held:
                del self._held[partition]
            self._broker.moved(partition)
