"""Writes the markers that end transactions, and holds back the offsets of their partitions until all are written.

A marker goes through the append queue of its partition, behind earlier batches. One in `__consumer_offsets` also ends the
transaction for the groups whose offsets it committed. Markers of partitions that other brokers lead are sent to them
(`remote_markers`), and those of coordinators elsewhere are received (`receive`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.partitions.append_queue import AppendQueue
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.pending_append import PendingAppend
from kafkalake.broker.partitions.topics import Topics
from kafkalake.broker.transactions.decisions import Marker
from kafkalake.broker.transactions.held_offsets import HeldOffsets
from kafkalake.broker.transactions.remote_admission import MarkerWatch
from kafkalake.broker.transactions.remote_markers import NEVER_WRITTEN, Done, RemoteMarkers
from kafkalake.errors import KafkaError, KafkaStorageError, NotLeaderOrFollowerError, UnknownTopicOrPartitionError
from kafkalake.internal_topics import GROUP_JOURNAL
from kafkalake.storage.producer_state import ABORT, COMMIT, EndMarker
from kafkalake.topic_partition import TopicPartition

WriteMarkers = Callable[[TopicPartition, Marker, int, Done], None]
"""The call of a `MarkerWriter`."""


class TransactionalOffsets(Protocol):
    """The offsets that groups have committed in open transactions, by partition of `__consumer_offsets`."""

    @property
    def is_damaged(self) -> bool:
        """Return whether some of them may be lost."""
        ...

    def open_transactions(self, partition: int) -> list[int]:
        """Return the producer ids of open transactions."""
        ...

    def end_transaction(self, partition: int, producer_id: int, *, committed: bool, position: int) -> None:
        """Apply a commit or abort marker at `position`."""
        ...


class MarkerWriter:
    """The `Markers` of the transaction coordinator. Runs on the event loop's thread."""

    def __init__(
        self,
        topics: Topics,
        queue: AppendQueue,
        held: HeldOffsets,
        moved: Callable[[Partition], None],
        offsets: TransactionalOffsets,
        watch: MarkerWatch,
        new_remote: Callable[[WriteMarkers], RemoteMarkers],
    ) -> None:
        """Set up the writer. `moved` is called with each partition whose last stable offset may be published now.

        `watch` notes each marker. `new_remote` makes the sender of other brokers' markers. It gives back those of partitions that
        this broker leads by then.
        """
        self._topics = topics
        self._queue = queue
        self._held = held
        self._moved = moved
        self._offsets = offsets
        self._watch = watch
        self._remote = new_remote(self)

    def __call__(self, partition: TopicPartition, marker: Marker, coordinator_epoch: int, done: Done) -> None:
        """Write the coordinator's marker as `Markers` defines it."""
        try:
            found = self._topics.leader(*partition)
        except UnknownTopicOrPartitionError as error:
            self._release(self._held.written(partition, marker.producer_id))
            done(type(error))
            return
        except NotLeaderOrFollowerError:
            found = None

        def settled(error: ErrorClass | None) -> None:
            if error in NEVER_WRITTEN:
                self._remote.abandon(marker.producer_id)
                self._release(self._held.release(marker.producer_id))
            elif error is None or error is UnknownTopicOrPartitionError:
                self._release(self._held.written(partition, marker.producer_id))
            done(error)

        if found is None:
            self._held.expect(partition, marker.producer_id)
            self._remote.write(partition, marker, coordinator_epoch, settled)
        else:
            self._held.hold(partition, found, marker.producer_id)
            self.write(found, marker, coordinator_epoch, settled)

    def abandon(self, producer_id: int) -> None:
        """Send no more markers of a producer, whose coordinator is another one now. That one sends all of them, here too."""
        for partition in self._remote.abandon(producer_id):
            self._release(self._held.written(partition, producer_id))

    def stop(self) -> None:
        """Send nothing more to other brokers."""
        self._remote.stop()

    def hold(self, partition: Partition, marker: Marker) -> None:
        """Hold a partition back until a marker of another broker's coordinator is received for it.

        All partitions of a transaction are held before the first marker is received.
        """
        self._held.hold((partition.topic.name, partition.index), partition, marker.producer_id)

    def receive(self, partition: Partition, marker: Marker, coordinator_epoch: int, done: Done) -> None:
        """Append a marker of another broker's coordinator as `write` does. One that fails is sent again."""

        def settled(error: ErrorClass | None) -> None:
            self._release(self._held.written((partition.topic.name, partition.index), marker.producer_id))
            done(error)

        self.write(partition, marker, coordinator_epoch, settled)

    def write(self, partition: Partition, marker: Marker, coordinator_epoch: int, done: Done) -> None:
        """Append a marker and call `done` once, later, with the error or None."""
        end = EndMarker(
            marker.producer_id, marker.epoch, COMMIT if marker.committed else ABORT, coordinator_epoch=coordinator_epoch
        )
        pending = PendingAppend(partition, None, None, marker=end)
        key = partition.topic.name, partition.index
        self._watch.queued(key, marker.producer_id)

        def settled() -> None:
            self._watch.settled(key, marker.producer_id)
            result = pending.result
            if result is None or isinstance(result, KafkaError):
                done(KafkaStorageError if result is None else type(result))
                return
            if partition.topic.name == GROUP_JOURNAL:
                self._offsets.end_transaction(
                    partition.index, marker.producer_id, committed=marker.committed, position=result.base_offset
                )
            done(None)

        self._queue.add(pending, settled)

    def _release(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self._moved(partition)
