"""One partition led by this broker: its log, queued producer batches and cached tail.

**Group commit.** Batches of all connections that arrive in one turn of the event loop are queued here and written by one
append to the log. Three separate steps leave room for replication. First the batches are in the log (`append_queued`), fsynced
if `flush.messages` requires it. Then the high watermark moves (`commit`, by the rule of `advance_high_watermark`). Then the
producers are answered. With one replica the steps follow directly, whatever `acks` says. The response comes last, so every
reader, Spark included, finds an acknowledged record.
"""

from __future__ import annotations

import itertools
import logging
import struct
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from kafkalake.broker.partitions.wire_cache import EncodedRead, PartitionTail
from kafkalake.errors import (
    FencedLeaderEpochError,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
    as_value,
)
from kafkalake.record.batch import ProducerBatch
from kafkalake.storage.append_group import AppendResult
from kafkalake.storage.log import Log
from kafkalake.storage.producer_state import EndMarker

if TYPE_CHECKING:
    from kafkalake.broker.partitions.topics import Topic

logger = logging.getLogger(__name__)

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
RunBlocking = Callable[[Callable[[], None]], Awaitable[None]]

ACKS_ALL = -1
"""Wait for all replicas in sync, as clients may ask and the broker's own batches do."""

_BYTES_OF_OPEN_TRANSACTION = 1024 * 1024
"""The assumed size of a transaction found open at startup. Its actual bytes are unknown."""


def nobody_waits() -> None:
    """Do nothing, as the callback of a batch whose result nobody waits for."""


class PendingAppend:
    """A batch or end-of-transaction marker to be appended, and its result.

    partition, batch: None if `result` is an error found earlier. original: the producer's bytes if the cache may serve them to
    consumers unchanged. acks: the replicas to wait for, `ACKS_ALL` for those in sync. settled: called when the result is set, see
    `AppendQueue.add`.
    """

    __slots__ = ("acks", "batch", "marker", "original", "partition", "result", "settled")

    def __init__(
        self,
        partition: Partition | None,
        batch: ProducerBatch | None,
        original: bytes | memoryview | None,
        result: AppendResult | KafkaError | None = None,
        marker: EndMarker | None = None,
        acks: int = ACKS_ALL,
    ) -> None:
        self.acks = acks
        self.partition = partition
        self.batch = batch
        self.original = original
        self.result = result
        self.marker = marker
        self.settled: Callable[[], None] = nobody_waits

    def decoded(self, batch: ProducerBatch, original: bytes | memoryview | None) -> None:
        """Set the batch of one that was decoded later."""
        self.batch, self.original = batch, original

    def refuse(self, error: KafkaError) -> None:
        """Set `error` as the result of a batch that will not be queued."""
        self.result = error

    def break_cycle(self) -> None:
        """Release the batches of an answered request. The reference cycle would keep their memory until garbage collection."""
        self.settled = nobody_waits
        self.batch = self.original = None


def _failed(pending: list[PendingAppend], error: KafkaError) -> list[PendingAppend]:
    """Set `error` on every batch that has none yet and return all batches."""
    for each in pending:
        if not isinstance(each.result, KafkaError):
            each.result = error
    return pending


class Partition:
    """A partition led by this broker. Used by the event loop's thread only."""

    __slots__ = (
        "_queue",
        "_stable_offset",
        "_tail",
        "appended_bytes",
        "index",
        "is_offline",
        "leader_epoch",
        "log",
        "refusal",
        "stable_bytes",
        "syncing",
        "topic",
    )

    def __init__(
        self,
        topic: Topic,
        index: int,
        log: Log,
        tail: PartitionTail,
        leader_epoch: int,
        *,
        is_offline: bool = False,
    ) -> None:
        """Lead the partition in `leader_epoch`.

        `is_offline`: `log` is an empty placeholder for one that could not be opened (`Log.offline`).
        Raise `KafkaStorageError` on I/O errors.
        """
        self.topic = topic
        self.is_offline = is_offline
        self.index = index
        self.log = log
        if not is_offline:
            self.advance_high_watermark()
        self.leader_epoch = leader_epoch
        self.refusal: KafkaError | None = None
        self.syncing = False
        """Whether an fsync of appended batches is running (`sync`). Further batches queue up meanwhile."""
        self.appended_bytes = 0
        """Bytes appended so far. read_uncommitted fetches count new bytes by it."""
        self.stable_bytes = 0
        """Bytes of these below the last stable offset. read_committed fetches count new bytes by it."""
        self._stable_offset = log.last_stable_offset
        if self._stable_offset < log.high_watermark:
            self.appended_bytes = _BYTES_OF_OPEN_TRANSACTION
        self._tail = tail
        self._queue: list[PendingAppend] = []

    @property
    def name(self) -> str:
        """Topic and partition number, as in log messages and directory names."""
        return f"{self.topic.name}-{self.index}"

    def check_online(self) -> None:
        """Raise `KafkaStorageError` if the log could not be opened. Its offsets are unknown."""
        if self.is_offline:
            raise KafkaStorageError(f"{self.name} is offline: its log could not be opened when the broker started")

    def check_leader_epoch(self, epoch: int) -> None:
        """Check a client's leader epoch (-1: none) against the current one.

        Raise `KafkaStorageError` if the partition is offline, `FencedLeaderEpochError` if the client's epoch is older,
        `UnknownLeaderEpochError` if it is newer. Source: KIP-320.
        """
        self.check_online()
        if epoch >= 0 and epoch != self.leader_epoch:
            if epoch < self.leader_epoch:
                raise FencedLeaderEpochError()
            raise UnknownLeaderEpochError()

    def enqueue(self, pending: PendingAppend, settled: Callable[[], None] = nobody_waits) -> bool:
        """Queue a batch and return whether the caller must schedule the append (none is scheduled yet)."""
        pending.settled = settled
        self._queue.append(pending)
        return len(self._queue) == 1 and not self.syncing

    @property
    def has_queue(self) -> bool:
        """Return whether batches are queued for appending."""
        return bool(self._queue)

    def sync(self, run_blocking: RunBlocking) -> Coroutine[Any, Any, None]:
        """Hold back further appends from now on, and return the fsync of the log in a thread. It may raise `KafkaStorageError`."""
        self.syncing = True
        return self._sync(run_blocking)

    async def _sync(self, run_blocking: RunBlocking) -> None:
        try:
            await run_blocking(self.log.flush)
        finally:
            self.syncing = False

    def append_queued(self) -> list[PendingAppend]:
        """Append the queued batches to the log (step one) and return them with their results, not yet visible to readers."""
        queue, self._queue = self._queue, []
        if self.refusal is not None:
            return _failed(queue, self.refusal)
        batches = [pending.batch for pending in queue if pending.batch is not None]
        try:
            if len(batches) == len(queue):
                for pending, result in zip(queue, self.log.append(batches, self.leader_epoch), strict=True):
                    pending.result = result
            else:
                self._append_with_markers(queue)
        except Exception as error:
            # An unexpected error must not leave producers without a response.
            logger.exception("append failed partition=%s", self.name)
            return _failed(queue, KafkaStorageError(f"append failed: {error}"))
        return queue

    def refuse_queued(self, error: KafkaError) -> list[PendingAppend]:
        """Empty the queue and return its batches with `error`. A queue left behind would block every later batch."""
        queue, self._queue = self._queue, []
        return _failed(queue, error)

    def _append_with_markers(self, queue: list[PendingAppend]) -> None:
        """Append as `append_queued` does, keeping the queue order of batches and markers."""
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

    def advance_high_watermark(self) -> None:
        """Advance the high watermark to the offset up to which all replicas in sync have the records.

        This replica is the only one, so that is its log end. Raise `KafkaStorageError` on I/O errors.
        """
        self.log.advance_high_watermark(self.log.log_end_offset)

    def commit(self, appended: list[PendingAppend]) -> None:
        """Advance the high watermark (step two). If that fails, the results become errors.

        So do those of batches that a failed flush of another thread has discarded meanwhile.
        """
        try:
            self.advance_high_watermark()
        except Exception as error:
            logger.exception("high watermark not moved partition=%s", self.name)
            _failed(appended, KafkaStorageError(f"high watermark not moved: {error}"))
        high_watermark = self.log.high_watermark
        for pending in appended:
            result = pending.result
            if type(result) is not AppendResult:
                continue
            if result.last_offset >= high_watermark:
                pending.result = KafkaStorageError(f"{self.name}: discarded by a failed flush, send again")
            elif not result.duplicate:
                self._keep_original(pending, result)
        self._count_stable()

    def _count_stable(self) -> None:
        """Count the bytes that became stable: all of them, or a proportional share while a transaction is open."""
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
        """Return cached original batches, see `PartitionTail.read`."""
        return self._tail.read(offset, end_offset, bytes_max, first_whole=first_whole)

    def read_encoded(self, offset: int, end_offset: int, bytes_max: int) -> EncodedRead | None:
        """Return what was encoded for an equal read from files, see `PartitionTail.read_encoded`."""
        return self._tail.read_encoded(offset, end_offset, bytes_max)

    def keep_encoded(self, offset: int, bytes_max: int, read: EncodedRead) -> None:
        """Keep what was encoded for a read from files, see `PartitionTail.keep_encoded`."""
        if self.refusal is None:
            self._tail.keep_encoded(offset, bytes_max, read)

    @property
    def reads_generation(self) -> int:
        """A number that changes when segments were rewritten, so that reads from before it are not kept."""
        return self._tail.generation

    def forget_tail(self) -> None:
        """Drop the cached batches after segments were rewritten. Consumers then get the log's current content."""
        self._tail.forget()

    def fail(self, appended: list[PendingAppend], error: KafkaError) -> None:
        """Set `error` on appended batches that must not be acknowledged, and drop the cached tail."""
        self._tail.forget()
        _failed(appended, error)

    @property
    def removed(self) -> bool:
        """Return whether the partition is no longer led here: its topic was deleted, or another broker leads it, or none."""
        return self.refusal is not None

    def begin_epoch(self, leader_epoch: int) -> None:
        """Lead with this leader epoch from now on."""
        self.leader_epoch = leader_epoch

    def remove(self) -> None:
        """Mark the partition's topic as deleted. Later appends are refused and the cached tail is dropped."""
        self.refusal = KafkaStorageError("the topic is being deleted")
        self._tail.forget()

    def resign(self) -> None:
        """Lead the partition no more. Later appends are refused and the cached tail is dropped."""
        self.refusal = NotLeaderOrFollowerError()
        self._tail.forget()

    def _keep_original(self, pending: PendingAppend, result: AppendResult) -> None:
        original, pending.original = pending.original, None
        if original is None or result.log_append_time_ms >= 0:  # LogAppendTime: the log sets the timestamps
            self._tail.clear()
            self.appended_bytes += len(pending.batch.body) if pending.batch is not None else 0
            return
        length = len(original)
        self.appended_bytes += length
        base_offset = result.base_offset
        room = self._tail.reserve(length, base_offset, result.last_offset + 1)
        if room is not None:
            # Record batch v2: base offset at 0, leader epoch at 12. The checksum covers neither.
            room[:] = original
            _BASE_OFFSET.pack_into(room, 0, base_offset)
            _LEADER_EPOCH.pack_into(room, 12, self.leader_epoch)
