"""One partition that this broker leads: its log, the producers' batches that wait for it, the cached tail.

**Group commit.** Batches of all connections that arrive in one turn of the event loop are queued here and written by one
append of the log. Three separate steps, so that replicas can come between them: the batches are in the log
(`append_queued`; where `flush.messages` says so, on the disk too); the high watermark moves (`commit`); the producers are
answered. With one replica they follow at once, and the answer comes last, so that whoever has it finds the record in every
reader, Spark included.
"""

from __future__ import annotations

import itertools
import logging
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalake.broker.partitions.wire_cache import PartitionTail
from kafkalake.errors import FencedLeaderEpochError, KafkaError, KafkaStorageError, UnknownLeaderEpochError, as_value
from kafkalake.record.batch import RecordBatch
from kafkalake.storage.append_group import AppendResult
from kafkalake.storage.log import Log
from kafkalake.storage.producer_state import EndMarker

if TYPE_CHECKING:
    from kafkalake.broker.partitions.topics import Topic

logger = logging.getLogger(__name__)

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_BYTES_OF_OPEN_TRANSACTION = 1024 * 1024
"""What an open transaction that a start finds counts for when it ends: its bytes are not known."""


class PendingAppend:
    """A batch, or the marker that ends a transaction, on its way into the log, and its result.

    partition, batch: None where `result` is an error that was found before. original: the producer's bytes where the cache may
    give them to consumers as they are. settled: called when the result is there.
    """

    __slots__ = ("batch", "marker", "original", "partition", "result", "settled")

    def __init__(
        self,
        partition: Partition | None,
        batch: RecordBatch | None,
        original: bytes | memoryview | None,
        result: AppendResult | KafkaError | None = None,
        marker: EndMarker | None = None,
    ) -> None:
        self.partition = partition
        self.batch = batch
        self.original = original
        self.result = result
        self.marker = marker
        self.settled: Callable[[], None] = _nobody_waits

    def let_go(self) -> None:
        """The request is answered. Its batches point at it and it at them: without this, only the collector frees the memory."""
        self.settled = _nobody_waits
        self.batch = self.original = None


def _nobody_waits() -> None:
    pass


def _failed(pending: list[PendingAppend], error: KafkaError) -> list[PendingAppend]:
    """Give every batch that has no error yet this one."""
    for each in pending:
        if not isinstance(each.result, KafkaError):
            each.result = error
    return pending


class Partition:
    """A partition. Used by the event loop's thread only."""

    __slots__ = (
        "_queue",
        "_stable_offset",
        "_tail",
        "appended_bytes",
        "index",
        "is_offline",
        "leader_epoch",
        "log",
        "removed",
        "stable_bytes",
        "syncing",
        "topic",
    )

    def __init__(self, topic: Topic, index: int, log: Log, tail: PartitionTail, *, is_offline: bool = False) -> None:
        """`is_offline`: `log` is an empty one in place of that which could not be opened (`Log.offline`)."""
        self.topic = topic
        self.is_offline = is_offline
        self.index = index
        self.log = log
        self.leader_epoch = log.leader_epoch + 1
        self.removed = False
        self.syncing = False
        """Whether the disk is being asked to keep what was appended; batches queue up meanwhile."""
        self.appended_bytes = 0
        """Bytes that were ever appended, as readers of everything count what is new."""
        self.stable_bytes = 0
        """Bytes of them that lie below the last stable offset, as readers of what is committed count what is new."""
        self._stable_offset = log.last_stable_offset
        if self._stable_offset < log.high_watermark:
            self.appended_bytes = _BYTES_OF_OPEN_TRANSACTION
        self._tail = tail
        self._queue: list[PendingAppend] = []

    @property
    def name(self) -> str:
        """Topic and number, as logs and directories show it."""
        return f"{self.topic.name}-{self.index}"

    def check_online(self) -> None:
        """Raise `KafkaStorageError` where the log could not be opened: nothing is known of its offsets."""
        if self.is_offline:
            raise KafkaStorageError(f"{self.name} is offline: its log could not be opened when the broker started")

    def check_leader_epoch(self, epoch: int) -> None:
        """A client's idea of the leader epoch (-1: it has none) against ours.

        Raises `KafkaStorageError` where the partition is offline, `FencedLeaderEpochError` (it is behind) or
        `UnknownLeaderEpochError` (it is ahead). Source: KIP-320.
        """
        self.check_online()
        if epoch >= 0 and epoch != self.leader_epoch:
            if epoch < self.leader_epoch:
                raise FencedLeaderEpochError()
            raise UnknownLeaderEpochError()

    def enqueue(self, pending: PendingAppend) -> bool:
        """Queue a batch; whether the caller has to see to it that it is appended (nobody else does yet)."""
        self._queue.append(pending)
        return len(self._queue) == 1 and not self.syncing

    @property
    def has_queue(self) -> bool:
        """Whether batches wait to be appended."""
        return bool(self._queue)

    def append_queued(self) -> list[PendingAppend]:
        """Step one: put what is queued into the log. What was queued, each with its result; nobody has seen it yet."""
        queue, self._queue = self._queue, []
        if self.removed:
            return _failed(queue, KafkaStorageError("the topic is being deleted"))
        batches = [pending.batch for pending in queue if pending.batch is not None]
        try:
            if len(batches) == len(queue):
                for pending, result in zip(queue, self.log.append(batches, self.leader_epoch), strict=True):
                    pending.result = result
            else:
                self._append_with_markers(queue)
        except Exception as error:
            # What was not foreseen must not leave producers without an answer.
            logger.exception("append failed partition=%s", self.name)
            return _failed(queue, KafkaStorageError(f"append failed: {error}"))
        return queue

    def refuse_queued(self, error: KafkaError) -> list[PendingAppend]:
        """What is still queued, with `error`: a queue that is left would keep every later batch waiting behind it."""
        queue, self._queue = self._queue, []
        return _failed(queue, error)

    def _append_with_markers(self, queue: list[PendingAppend]) -> None:
        """As `append_queued`: each marker after the batches that came before it, and before those that came after it."""
        for is_marker, group in itertools.groupby(queue, lambda pending: pending.marker is not None):
            waiting = list(group)
            if not is_marker:
                results = self.log.append([each.batch for each in waiting if each.batch is not None], self.leader_epoch)
                for pending, result in zip(waiting, results, strict=True):
                    pending.result = result
                continue
            for pending in waiting:
                assert pending.marker is not None
                try:
                    pending.result = self.log.append_control(pending.marker, self.leader_epoch)
                except KafkaError as error:
                    pending.result = as_value(error)

    def commit(self, appended: list[PendingAppend]) -> None:
        """Step two: move the high watermark over what is in the log; the results say so where that fails."""
        try:
            self.log.advance_high_watermark(self.log.log_end_offset)
        except Exception as error:
            logger.exception("high watermark not moved partition=%s", self.name)
            _failed(appended, KafkaStorageError(f"high watermark not moved: {error}"))
        for pending in appended:
            result = pending.result
            if type(result) is AppendResult and not result.duplicate:
                self._keep_original(pending, result)
        self._count_stable()

    def _count_stable(self) -> None:
        """Count what became readable to those who read what is committed: all of it, or a share while a transaction is open."""
        log = self.log
        before, self._stable_offset = self._stable_offset, log.last_stable_offset
        held = log.high_watermark - before
        if self._stable_offset >= log.high_watermark:
            self.stable_bytes = self.appended_bytes
        elif self._stable_offset > before and held > 0:
            share = (self._stable_offset - before) / held
            self.stable_bytes += max(1, int((self.appended_bytes - self.stable_bytes) * share))

    def read_tail(
        self, offset: int, end_offset: int, bytes_max: int, *, first_whole: bool
    ) -> tuple[list[memoryview], int] | None:
        """Cached original batches, see `PartitionTail.read`."""
        return self._tail.read(offset, end_offset, bytes_max, first_whole=first_whole)

    def forget_tail(self) -> None:
        """Segments were rewritten: consumers get what the log has now, not the batches that producers sent once."""
        self._tail.clear()

    def fail(self, appended: list[PendingAppend], error: KafkaError) -> None:
        """What was appended is not in the log after all."""
        self._tail.clear()
        _failed(appended, error)

    def remove(self) -> None:
        """The topic is deleted: what is queued from now on is refused, the cached bytes go."""
        self.removed = True
        self._tail.clear()

    def _keep_original(self, pending: PendingAppend, result: AppendResult) -> None:
        original, pending.original = pending.original, None
        if original is None or result.log_append_time_ms >= 0:  # the log decides on the timestamps, when it appends
            self._tail.clear()
            self.appended_bytes += len(pending.batch.body) if pending.batch is not None else 0
            return
        length = len(original)
        self.appended_bytes += length
        base_offset = result.base_offset
        room = self._tail.reserve(length, base_offset, result.last_offset + 1)
        if room is not None:
            # Record batch v2: base offset at 0, leader epoch at 12; the checksum covers neither.
            room[:] = original
            _BASE_OFFSET.pack_into(room, 0, base_offset)
            _LEADER_EPOCH.pack_into(room, 12, self.leader_epoch)
