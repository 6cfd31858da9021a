"""One partition led by this broker: its log, its replicas, queued producer batches and cached tail.

**Group commit.** Batches of all connections that arrive in one turn of the event loop are queued here and written by one
append to the log, in three steps. First the batches are in the log (`append_queued`), fsynced if `flush.messages` requires it.
Then the high watermark moves, by what is known of the replicas (`cluster.replication`). Then the producers are answered
(`commit`): those with acks=all whose records the watermark has passed, and of the others all. With one replica the steps follow
directly; else a follower's fetch may be the one that moves the watermark. The response comes last, so every reader, Spark
included, finds an acknowledged record.

A little more than 400 lines: the three steps share the queue, the counts of bytes and what waits, and nothing else does.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, TypeVar

from kafkalake.broker.partitions.pending_append import (
    ACKS_ALL,
    PendingAppend,
    UncommittedAppends,
    nobody_waits,
    share_below,
    with_error,
)
from kafkalake.broker.partitions.wire_cache import EncodedRead, PartitionTail
from kafkalake.cluster.replication import (
    Leadership,
    check_leader_epoch,
    high_watermark,
    refusal_after,
    refusal_before,
    with_min_isr,
)
from kafkalake.errors import (
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    as_value,
)
from kafkalake.run_blocking import RunBlocking
from kafkalake.storage.append_group import AppendResult
from kafkalake.storage.log import Log
from kafkalake.topic_partition import PartitionId

if TYPE_CHECKING:
    from uuid import UUID

    from kafkalake.broker.partitions.topics import Topic

logger = logging.getLogger(__name__)

T = TypeVar("T")

_BYTES_UNKNOWN = 1024 * 1024
"""The assumed size of records that were in the log before: uncommitted, or of a transaction that is open."""


UNCOMMITTED_MAX = 50_000
"""The limit on the batches of one partition that wait for the replicas in sync. The others are not waited for."""


class Partition:
    """A partition led by this broker. Used by the event loop's thread only."""

    __slots__ = (
        "_discarded",
        "_end_offset",
        "_joining",
        "_queue",
        "_readable_offset",
        "_stable_offset",
        "_tail",
        "_too_few",
        "appended_bytes",
        "has_failed",
        "index",
        "is_offline",
        "leadership",
        "log",
        "readable_bytes",
        "refusal",
        "stable_bytes",
        "syncing",
        "topic",
        "uncommitted",
        "under_way",
    )

    def __init__(
        self,
        topic: Topic,
        index: int,
        log: Log,
        tail: PartitionTail,
        leadership: Leadership,
        *,
        is_offline: bool = False,
    ) -> None:
        """Lead the partition in the epoch of `leadership`, which the log has begun.

        `is_offline`: `log` is an empty placeholder for one that could not be opened (`Log.offline`).
        Raise `KafkaStorageError` on I/O errors.
        """
        self.topic = topic
        self.is_offline = is_offline
        self.index = index
        self.log = log
        self.refusal: KafkaError | None = None
        self.lead(leadership)
        if not is_offline:
            self.advance_high_watermark()
        self.has_failed = False
        """Whether followers must lead: the disk has failed, or a failed flush has discarded records that they may have."""
        self.syncing = False
        """Whether an fsync of appended batches is running (`sync`), or `list_messages`. Further batches queue up meanwhile."""
        self.under_way: set[Awaitable[object]] = set()
        """The work on the log that is running in threads (`change_log`), which must end before somebody else uses the log."""
        self.appended_bytes = 0
        """Bytes appended so far. Replicas count new bytes by it."""
        self.readable_bytes = 0
        """Bytes of these below the high watermark. read_uncommitted fetches count new bytes by it."""
        self.stable_bytes = 0
        """Bytes of these below the last stable offset. read_committed fetches count new bytes by it."""
        self._end_offset = log.log_end_offset
        self._readable_offset = log.high_watermark
        self._stable_offset = log.last_stable_offset
        if self._readable_offset < self._end_offset:
            self.appended_bytes = _BYTES_UNKNOWN
        if self._stable_offset < self._readable_offset:
            self.appended_bytes += _BYTES_UNKNOWN
            self.readable_bytes = _BYTES_UNKNOWN
        self._tail = tail
        self._queue: list[PendingAppend] = []
        self.uncommitted = UncommittedAppends()
        """The batches with acks=all that wait for the replicas in sync."""
        self._discarded: list[PendingAppend] = []

    def lead(self, leadership: Leadership, joining: Sequence[int] = ()) -> None:
        """Go by this knowledge of the replicas from now on. `joining`: those to wait for until they are in the ISR."""
        self.leadership = leadership
        self._joining = joining
        self._too_few = refusal_before(leadership)

    def require_min_isr(self, min_isr: int) -> None:
        """Go by another `min.insync.replicas`."""
        self.lead(with_min_isr(self.leadership, min_isr), self._joining)

    @property
    def leader_epoch(self) -> int:
        """The epoch in which the partition is led."""
        return self.leadership.leader_epoch

    @property
    def is_watermark_behind(self) -> bool:
        """Return whether the watermark here may lag what earlier leaders acknowledged: it is below the start of the epoch."""
        return self.log.high_watermark < self.leadership.epoch_start

    @property
    def name(self) -> str:
        """Topic and partition number, as in log messages and directory names."""
        return f"{self.topic.name}-{self.index}"

    @property
    def replica(self) -> PartitionId[UUID]:
        """The id of its topic, and its number."""
        return self.topic.topic_id, self.index

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
        check_leader_epoch(epoch, self.leadership.leader_epoch)

    def enqueue(self, pending: PendingAppend, settled: Callable[[], None] = nobody_waits) -> bool:
        """Queue a batch and return whether the caller must schedule the append (none is scheduled yet)."""
        pending.when_settled(settled)
        self._queue.append(pending)
        return len(self._queue) == 1 and not self.syncing

    @property
    def has_queue(self) -> bool:
        """Return whether batches are queued for appending."""
        return bool(self._queue)

    async def change_log(self, run_blocking: RunBlocking, change: Callable[[], T]) -> T:
        """Run work that changes the log in a thread. A replica that leads no more follows, or leads anew, once it has ended.

        Raise the partition's error, without the work, if it is led here no more.
        """
        if self.refusal is not None:
            raise as_value(self.refusal)
        work = asyncio.ensure_future(run_blocking(change))
        self.under_way.add(work)
        work.add_done_callback(self.under_way.discard)
        return await asyncio.shield(work)

    def sync(self, run_blocking: RunBlocking) -> Coroutine[object, object, None]:
        """Hold back further appends from now on, and return the fsync of the log in a thread. It may raise `KafkaStorageError`."""
        self.syncing = True
        return self._held_back(run_blocking, self.log.flush)

    @property
    def seals_many(self) -> bool:
        """Return whether `append_queued` may take long, as it seals a segment of many messages: `list_messages` first."""
        return self.log.append_seals_many(each.batch for each in self._queue)

    def list_messages(self, run_blocking: RunBlocking) -> Coroutine[object, object, None]:
        """Hold back appends as `sync`, while the messages of the segment are listed in a thread. It may raise as that."""
        self.syncing = True
        return self._held_back(run_blocking, self.log.list_messages)

    async def _held_back(self, run_blocking: RunBlocking, work: Callable[[], None]) -> None:
        try:
            await self.change_log(run_blocking, work)
        finally:
            self.syncing = False

    def append_queued(self) -> list[PendingAppend]:
        """Append the queued batches to the log (step one) and return them with their results, not yet visible to readers."""
        queue, self._queue = self._queue, []
        if self.log.log_end_offset < self._end_offset:
            self._forget_discarded()
        if self.refusal is not None:
            return with_error(queue, self.refusal)
        accepted = queue if self._too_few is None else self._accepted(queue, self._too_few)
        batches = [pending.batch for pending in accepted if pending.batch is not None]
        try:
            if len(batches) == len(accepted):
                results = self.log.append(batches, self.leader_epoch, self._end_offset)
                for pending, result in zip(accepted, results, strict=True):
                    pending.appended(result)
            else:
                self._append_with_markers(accepted)
            self._keep_originals(accepted)
        except Exception as error:
            # An unexpected error must not leave producers without a response.
            logger.exception("append failed partition=%s", self.name)
            return with_error(queue, KafkaStorageError(f"append failed: {error}"))
        return queue

    @staticmethod
    def _accepted(queue: list[PendingAppend], too_few: KafkaError) -> list[PendingAppend]:
        """Refuse the batches with acks=all and return the others."""
        with_error([each for each in queue if each.acks == ACKS_ALL], too_few)
        return [each for each in queue if each.acks != ACKS_ALL]

    def refuse_queued(self, error: KafkaError) -> list[PendingAppend]:
        """Empty the queue and return its batches with `error`. A queue left behind would block every later batch."""
        queue, self._queue = self._queue, []
        return with_error(queue, error)

    def _append_with_markers(self, queue: list[PendingAppend]) -> None:
        """Append as `append_queued` does, keeping the queue order of batches and markers."""
        end = self._end_offset
        for is_marker, group in itertools.groupby(queue, lambda pending: pending.marker is not None):
            waiting = list(group)
            if not is_marker:
                batches = [each.batch for each in waiting if each.batch is not None]
                for pending, result in zip(waiting, self.log.append(batches, self.leader_epoch, end), strict=True):
                    pending.appended(result)
                    end = max(end, result.last_offset + 1) if isinstance(result, AppendResult) else end
                continue
            for pending in waiting:
                assert pending.marker is not None
                try:
                    appended = self.log.append_control(pending.marker, self.leader_epoch, end)
                    pending.appended(appended)
                    end = appended.last_offset + 1
                except KafkaError as error:
                    pending.refuse(as_value(error))

    def advance_high_watermark(self) -> None:
        """Advance the high watermark to the offset up to which all replicas in sync have the records.

        Not of a log that is led here no more, which another leader moves. Raise `KafkaStorageError` on I/O errors.
        """
        if self.refusal is not None:
            return
        if self.leadership.followers:
            self.log.advance_high_watermark(self._committed_end())
        else:
            self.log.advance_high_watermark(self.log.log_end_offset)

    def _committed_end(self) -> int:
        log = self.log
        return high_watermark(self.leadership, log.log_end_offset, log.high_watermark, self._joining)

    @property
    def can_advance(self) -> bool:
        """Return whether the high watermark may move, by what is known of the replicas now."""
        return self._committed_end() > self.log.high_watermark

    def commit(self, appended: list[PendingAppend], done: list[PendingAppend], now_ms: int) -> None:
        """Advance the high watermark (step two) and add to `done` the batches whose results are final by that.

        If that fails, the results become errors. So do those of batches that a failed flush of another thread has discarded
        meanwhile. Batches with acks=all that are above the high watermark wait, at most for their timeouts.
        """
        try:
            self.advance_high_watermark()
        except Exception as error:
            logger.exception("high watermark not moved partition=%s", self.name)
            with_error(appended, KafkaStorageError(f"high watermark not moved: {error}"))
        log_end_offset, high_watermark = self.log.log_end_offset, self.log.high_watermark
        if log_end_offset < self._end_offset:
            self._forget_discarded()
            self._refuse_discarded(appended)
        if self._discarded:
            done += self._discarded
            self._discarded = []
        self._count_readable(high_watermark, log_end_offset)
        if self.uncommitted:
            done += self._refused_after(self.uncommitted.take_below(high_watermark))
        for pending in appended:
            result = pending.result
            if type(result) is AppendResult and result.last_offset >= high_watermark and pending.acks == ACKS_ALL:
                if self.refusal is not None:  # since the append, whose fsync took its time
                    pending.refuse(self.refusal)
                elif len(self.uncommitted) < UNCOMMITTED_MAX:
                    self.uncommitted.add(pending, result.last_offset, now_ms)
                    continue
                else:
                    pending.refuse(RequestTimedOutError("too many batches wait for the replicas in sync"))
            done.append(pending)

    def _give_up(self, reason: str) -> None:
        """Append nothing more in this epoch, if there are followers: one of them is to lead."""
        if self.leadership.followers and self.refusal is None:
            self.has_failed = True
            self.refusal = KafkaStorageError(reason)

    def _forget_discarded(self) -> None:
        """Forget what a failed flush has discarded: the records above the log end.

        Followers may have them, and no epoch would tell them from others at the same offsets: nothing is appended in this epoch.
        """
        self._give_up(f"{self.name}: a failed flush has discarded records")
        self._tail.forget()
        self._end_offset = self.log.log_end_offset
        waiting = self.uncommitted.take_from(self._end_offset)
        self._refuse_discarded(waiting)
        self._discarded += waiting

    def _refuse_discarded(self, appended: list[PendingAppend]) -> None:
        error = KafkaStorageError(f"{self.name}: discarded by a failed flush, send again")
        for each in appended:
            if type(each.result) is AppendResult and each.result.last_offset >= self._end_offset:
                each.refuse(error)

    def _refused_after(self, committed: list[PendingAppend]) -> list[PendingAppend]:
        error = refusal_after(self.leadership) if committed else None
        return committed if error is None else with_error(committed, error)

    def take_refused(self) -> list[PendingAppend]:
        """Return the batches that wait for the replicas in sync, with the error of a partition that is not led here any more."""
        assert self.refusal is not None
        return with_error(self.uncommitted.take_from(0), self.refusal)

    def _count_readable(self, high_watermark: int, log_end_offset: int) -> None:
        """Count the bytes that became readable, and stable: all of them, or a proportional share."""
        last_stable_offset = self.log.last_stable_offset
        if last_stable_offset == log_end_offset:
            self.readable_bytes = self.stable_bytes = self.appended_bytes
        else:
            self.readable_bytes += share_below(
                self.appended_bytes - self.readable_bytes, self._readable_offset, high_watermark, log_end_offset
            )
            self.stable_bytes += share_below(
                self.readable_bytes - self.stable_bytes, self._stable_offset, last_stable_offset, high_watermark
            )
        self._readable_offset, self._stable_offset = high_watermark, last_stable_offset

    def read_tail(
        self, offset: int, end_offset: int, bytes_max: int, *, first_whole: bool
    ) -> tuple[list[memoryview], int] | None:
        """Return cached original batches, see `PartitionTail.read`."""
        return self._tail.read(offset, end_offset, bytes_max, first_whole=first_whole)

    def read_encoded(self, offset: int, end_offset: int, bytes_max: int) -> EncodedRead | None:
        """Return what was encoded for an equal read from files, see `PartitionTail.read_encoded`."""
        return self._tail.read_encoded(offset, end_offset, bytes_max)

    def stored_bytes_for(self, bytes_max: int) -> int:
        """Return how many bytes of messages to read for `bytes_max` of batches, see `PartitionTail.stored_bytes_for`."""
        return self._tail.stored_bytes_for(bytes_max)

    def keep_encoded(self, offset: int, bytes_max: int, read: EncodedRead, *, ahead: bool = False) -> None:
        """Keep what was encoded for a read from files, see `PartitionTail.keep_encoded`."""
        if self.refusal is None:
            self._tail.keep_encoded(offset, bytes_max, read, ahead=ahead)

    def goes_on(self, offset: int, next_offset: int, bytes_max: int) -> bool:
        """Return whether a consumer is expected to go on with its reads from files, see `PartitionTail.goes_on`."""
        return self._tail.goes_on(offset, next_offset, bytes_max)

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
        with_error(appended, error)

    @property
    def removed(self) -> bool:
        """Return whether the partition is no longer led here: its topic was deleted, or another broker leads it, or none."""
        return self.refusal is not None

    def remove(self) -> None:
        """Mark the partition's topic as deleted. Later appends are refused and the cached tail is dropped."""
        self.refusal = KafkaStorageError("the topic is being deleted")
        self._tail.forget()

    def resign(self) -> None:
        """Lead the partition no more. Later appends are refused and the cached tail is dropped."""
        self.refusal = NotLeaderOrFollowerError()
        self._tail.forget()

    def _keep_originals(self, appended: list[PendingAppend]) -> None:
        """Keep the bytes of appended batches for consumers, who get them once the high watermark has passed them."""
        log_end_offset = self.log.log_end_offset
        if log_end_offset < self._end_offset:
            self._forget_discarded()
        self._end_offset = log_end_offset
        for pending in appended:
            result = pending.result
            if type(result) is not AppendResult:
                if isinstance(result, KafkaStorageError):
                    self._give_up(f"{self.name}: its disk has failed")
            elif not result.duplicate:
                self._keep_original(pending, result)

    def _keep_original(self, pending: PendingAppend, result: AppendResult) -> None:
        original = pending.take_original()
        if original is None or result.log_append_time_ms >= 0:  # LogAppendTime: the log sets the timestamps
            self._tail.clear()
            # At least one, also of a marker: whoever waits for bytes hears of it.
            self.appended_bytes += max(pending.batch.size, 1) if pending.batch is not None else 1
        else:
            self.appended_bytes += len(original)
            self._tail.keep(original, result.base_offset, result.last_offset + 1, self.leadership.leader_epoch)
