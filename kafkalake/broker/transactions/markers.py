"""Writes the markers that end transactions, in waves that can be held (`waves`).

A marker goes through the append queue of its partition, behind earlier batches. One in `__consumer_offsets` also ends the
transaction for the groups whose offsets it committed. Markers of partitions that other brokers lead are sent to them
(`remote_markers`), and those of coordinators elsewhere are received (`receive`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.partitions.append_queue import AppendQueue
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.pending_append import PendingAppend
from kafkalake.broker.partitions.topics import Topics
from kafkalake.broker.transactions.cut import UNKNOWN
from kafkalake.broker.transactions.decisions import Marker, MarkerResult, error_of
from kafkalake.broker.transactions.remote_admission import MarkerWatch
from kafkalake.broker.transactions.remote_markers import NEVER_WRITTEN, Done, RemoteMarkers, WriteHere
from kafkalake.broker.transactions.waves import Waves
from kafkalake.errors import KafkaError, KafkaStorageError, NotLeaderOrFollowerError, UnknownTopicOrPartitionError
from kafkalake.internal_topics import GROUP_JOURNAL
from kafkalake.offset_range import OffsetRange
from kafkalake.storage.producer_state import ABORT, COMMIT, EndMarker
from kafkalake.topic_partition import TopicPartition


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
        waves: Waves,
        marked: Callable[[Partition, bool], None],
        offsets: TransactionalOffsets,
        watch: MarkerWatch,
        new_remote: Callable[[WriteHere], RemoteMarkers],
    ) -> None:
        """Set up the writer. `marked` is called with each partition that gets a marker: with False before, with True afterwards.

        `watch` notes each marker. `new_remote` makes the sender of other brokers' markers. It gives back those of partitions that
        this broker is to lead by then.
        """
        self._topics = topics
        self._queue = queue
        self._waves = waves
        self._marked = marked
        self._offsets = offsets
        self._watch = watch
        self._remote = new_remote(self._write_here)

    def __call__(
        self,
        partition: TopicPartition,
        marker: Marker,
        coordinator_epoch: int,
        done: Callable[[ErrorClass | None], None],
    ) -> None:
        """Write the coordinator's marker as `Markers` defines it, after a hold of the waves."""

        def settled(result: MarkerResult) -> None:
            error = error_of(result)
            if error in NEVER_WRITTEN:
                self._remote.abandon(marker.producer_id)
                self._waves.abandon(marker.producer_id)
            elif error is UnknownTopicOrPartitionError:
                self._waves.written(partition, marker.producer_id, None)
            elif error is None:
                records = result if isinstance(result, OffsetRange) else OffsetRange(UNKNOWN, UNKNOWN)
                self._waves.written(partition, marker.producer_id, records)
            done(error)

        def write() -> None:
            if not self._write_here(partition, marker, coordinator_epoch, settled):
                self._remote.write(partition, marker, coordinator_epoch, settled)

        self._waves.begin(partition, marker.producer_id, write)

    def _write_here(self, partition: TopicPartition, marker: Marker, coordinator_epoch: int, done: Done) -> bool:
        """Write a marker if this broker leads the partition, and return whether it does. One that is gone needs no marker."""
        try:
            self.write(self._topics.leader(*partition), marker, coordinator_epoch, done)
        except UnknownTopicOrPartitionError as error:
            done(type(error))
        except NotLeaderOrFollowerError:
            return False
        return True

    def abandon(self, producer_id: int) -> None:
        """Send no more markers of a producer, whose coordinator is another one now. That one sends all of them, here too."""
        self._remote.abandon(producer_id)
        self._waves.abandon(producer_id)

    def stop(self) -> None:
        """Send nothing more to other brokers."""
        self._remote.stop()

    def write(self, partition: Partition, marker: Marker, coordinator_epoch: int, done: Done) -> None:
        """Append a marker and call `done` once, later. One of another broker is sent again if it fails."""
        end = EndMarker(
            marker.producer_id, marker.epoch, COMMIT if marker.committed else ABORT, coordinator_epoch=coordinator_epoch
        )
        pending = PendingAppend(partition, None, None, marker=end)
        key = partition.topic.name, partition.index
        self._watch.queued(key, marker.producer_id)
        self._marked(partition, False)

        def settled() -> None:
            self._watch.settled(key, marker.producer_id)
            self._marked(partition, True)
            result = pending.result
            if result is None or isinstance(result, KafkaError):
                done(KafkaStorageError if result is None else type(result))
                return
            if partition.topic.name == GROUP_JOURNAL:
                self._offsets.end_transaction(
                    partition.index, marker.producer_id, committed=marker.committed, position=result.base_offset
                )
            done(result.ended or OffsetRange(UNKNOWN, result.base_offset))

        self._queue.add(pending, settled)
