"""Queues the batches of produce requests by partition and answers each request when its last batch is written.

This is the hot path: no task, future or timer per request. A burst of reads ends with `AppendQueue.end_burst`, which flushes every
partition with queued batches. The event loop calls it at the end of a turn of reading (`call_soon`); so does a request that reads
what was appended before it. A flush longer than `TURN_NS`, as with the first batches of a thousand partitions, yields to the event
loop in between.

Producers get their answers first, as soon as the records are committed. Waiting fetches are completed after these answers are sent,
so that no producer waits while records are read and encoded for consumers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from functools import partial

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.pending_append import PendingAppend, nobody_waits
from kafkalake.broker.partitions.purgatory import DelayedOperation, Purgatory
from kafkalake.clock import Clock
from kafkalake.errors import KafkaError, KafkaStorageError, NotLeaderOrFollowerError, as_value
from kafkalake.ownership import Ownership
from kafkalake.run_blocking import RunBlocking

logger = logging.getLogger(__name__)

TURN_NS = 10_000_000
"""The time limit of a flush, and of the fetches completed after it. The rest continues in the next turn of the event loop."""
_FOREVER_NS = 1 << 63
_WAIT_MS = 60_000

CallSoon = Callable[[Callable[[], object]], object]


class ProduceRequest:
    """The batches of one request, some possibly failed already. `reply` is called once, when every batch has its result."""

    __slots__ = ("_reply", "_waiting", "batches")

    def __init__(self, batches: Sequence[PendingAppend], reply: Callable[[ProduceRequest], None]) -> None:
        self.batches = batches
        self._reply = reply
        self._waiting = 0

    def start(self, queue: AppendQueue) -> None:
        """Queue the batches that have no result yet."""
        pending = [each for each in self.batches if each.result is None]
        self._waiting = len(pending)
        if not pending:
            self._reply(self)
        settled = self._settled
        for each in pending:
            queue.add(each, settled)

    def _settled(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._reply(self)


def is_behind(partition: Partition) -> bool:
    """Return whether a partition is led here, and its watermark may lag what earlier leaders acknowledged."""
    return partition.is_watermark_behind and not partition.removed


class _WatermarkWait(DelayedOperation):
    """Waits until the watermark of a partition is no longer behind, or for `_WAIT_MS`."""

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__()
        self._action = action

    def is_complete(self, key: Hashable) -> bool:
        assert isinstance(key, Partition)
        return not is_behind(key)

    def complete(self) -> None:
        self._action()


class AppendQueue:
    """The partitions with queued batches."""

    def __init__(
        self,
        purgatory: Purgatory,
        call_soon: CallSoon,
        run_blocking: RunBlocking,
        moved: Callable[[Partition], None],
        ownership: Ownership,
        clock: Clock,
        failed: Callable[[Partition], None] = lambda partition: None,
    ) -> None:
        """Create the queue. `run_blocking` runs a function in a thread. `moved` is called with each partition appended to, `failed`
        with one whose disk has failed, or that has lost records which followers may have: it is not led in this epoch any more.

        While `ownership` is not certain, nothing is appended and each batch fails with `NotLeaderOrFollowerError`.
        """
        self._purgatory = purgatory
        self._call_soon = call_soon
        self._run_blocking = run_blocking
        self._moved = moved
        self._failed = failed
        self._ownership = ownership
        self._now_ns = clock.monotonic_ns
        self._dirty: list[Partition] = []
        self._goes_on = False
        """Whether a flush follows in the next turn of the event loop."""
        self._watched: dict[Partition, int] = {}
        """By partition with batches that wait for the replicas in sync, when the first of them is due."""
        self.is_answering = False
        """Whether a flush is answering producers, so that more answers may follow (`when_answered`)."""
        self._when_answered: list[Callable[[], None]] = []
        self._changed: dict[Partition, None] = {}
        """Partitions whose waiting fetches are to be checked, after the answers to producers."""
        self._held: set[asyncio.Future[None]] = set()

    def add(self, pending: PendingAppend, settled: Callable[[], None] = nobody_waits) -> None:
        """Queue a batch and call `settled` when it has its result. The flush follows after the reads of this turn of the loop."""
        partition = pending.partition
        assert partition is not None
        if partition.enqueue(pending, settled):
            self._to_flush(partition)

    def when_answered(self, action: Callable[[], None]) -> None:
        """Call `action` once, after the answers that the flush is collecting now."""
        self._when_answered.append(action)

    def _to_flush(self, partition: Partition) -> None:
        self._dirty.append(partition)
        self._go_on_soon()

    def _go_on_soon(self) -> None:
        if not self._goes_on:
            self._goes_on = True
            self._call_soon(self._go_on)

    def _go_on(self) -> None:
        self._goes_on = False
        self.end_burst()

    def end_burst(self) -> bool:
        """End a burst of reads: flush for at most about `TURN_NS`, and continue in the next turn of the event loop."""
        return self.flush(TURN_NS)

    def flush(self, within_ns: int = _FOREVER_NS) -> bool:
        """Append queued batches in order of arrival per partition, answer the producers, complete waiting fetches.

        Return whether any batch was queued. Batches queued by the answers wait for the next flush, as do partitions not
        reached `within_ns`.
        """
        dirty, self._dirty = self._dirty, []
        if not dirty and not self._changed:
            return False
        self._answer_together(lambda: self._flush(dirty, self._now_ns() + within_ns), within_ns)
        return bool(dirty)

    def advance(self, partition: Partition) -> None:
        """Advance the high watermark of a partition by what is known of its replicas now, and answer the producers that waited.

        Nothing happens while `ownership` is not certain.
        """
        if self._ownership.is_certain():
            self._answer_together(lambda: self._settle(partition, []))

    def leave(self, partition: Partition) -> None:
        """Refuse the batches that wait at a partition which is not led here any more, and complete the fetches that do."""
        self._changed[partition] = None
        self._answer_together(lambda: self._answer(partition.take_refused()))

    def when_caught_up(self, partition: Partition, action: Callable[[], None]) -> None:
        """Call `action` once the watermark has reached the start of the leader's epoch, or the partition is led here no more."""
        operation = _WatermarkWait(lambda: self.when_caught_up(partition, action) if is_behind(partition) else action())
        if is_behind(partition):
            self._purgatory.watch(operation, [partition], _WAIT_MS)
        else:
            action()

    def _answer_together(self, work: Callable[[], None], within_ns: int = _FOREVER_NS) -> None:
        """Run `work`, which answers producers, and send these answers. Then do so for the fetches of the partitions it changed."""
        if self.is_answering:
            work()
            return
        self.is_answering = True
        try:
            work()
        finally:
            self._send_answers()
            self._complete_fetches(self._now_ns() + within_ns)
            self.is_answering = False
            self._send_answers()

    def _send_answers(self) -> None:
        waiting, self._when_answered = self._when_answered, []
        for action in waiting:
            call_isolated(CallbackLoop.SENDING, action)

    def _complete_fetches(self, end_ns: int) -> None:
        """Complete the fetches that waited for the changed partitions. Those not reached until `end_ns` follow in the next turn."""
        changed = self._changed
        while changed:
            partition = next(iter(changed))
            del changed[partition]
            call_isolated(CallbackLoop.FETCHES_OF_PARTITION, self._purgatory.check, partition)
            if changed and self._now_ns() >= end_ns:
                self._go_on_soon()
                return

    def _flush(self, dirty: list[Partition], end_ns: int) -> None:
        if not self._ownership.is_certain():
            error = NotLeaderOrFollowerError("the broker's lease was not renewed in time")
            for partition in dirty:
                self._refuse(partition, error)
            return
        for number, partition in enumerate(dirty, 1):
            if not call_isolated(CallbackLoop.FLUSH_OF_PARTITION, self._flush_partition, partition):
                self._refuse(partition, KafkaStorageError("append failed"))
            if self._now_ns() >= end_ns and number < len(dirty):
                self._dirty = dirty[number:] + self._dirty
                self._go_on_soon()
                return

    @staticmethod
    def _refuse(partition: Partition, error: KafkaError) -> None:
        for refused in partition.refuse_queued(error):
            call_isolated(CallbackLoop.PRODUCER_ANSWER, refused.settle)

    def _flush_partition(self, partition: Partition) -> None:
        if not partition.removed and partition.seals_many:
            self._hold(self._list_messages(partition, partition.list_messages(self._run_blocking)))
            return
        appended = partition.append_queued()
        if partition.log.flush_due() and not partition.removed:  # else the log is another one's
            self._hold(self._sync(partition, partition.sync(self._run_blocking), appended))
        else:
            self._settle(partition, appended)

    def _hold(self, work: Coroutine[object, object, None]) -> None:
        """Begin work during which further batches of a partition queue up."""
        held = asyncio.ensure_future(work)
        self._held.add(held)
        held.add_done_callback(self._held.discard)

    def _settle(self, partition: Partition, appended: list[PendingAppend]) -> None:
        done: list[PendingAppend] = []
        now_ms = self._now_ns() // 1_000_000
        if not call_isolated(CallbackLoop.COMMIT_OF_PARTITION, partition.commit, appended, done, now_ms):
            partition.fail(appended, KafkaStorageError("it is not certain that the records are there"))
            done = appended
        if partition.uncommitted:
            self._watch(partition, now_ms)
        self._answer(done)
        if partition.has_failed:
            call_isolated(CallbackLoop.TOPIC_CHANGE, self._failed, partition)
        call_isolated(CallbackLoop.PARTITION_MOVED, self._moved, partition)
        self._changed[partition] = None

    @staticmethod
    def _answer(done: Iterable[PendingAppend]) -> None:
        for pending in done:
            call_isolated(CallbackLoop.PRODUCER_ANSWER, pending.settle)

    def _watch(self, partition: Partition, now_ms: int) -> None:
        """Have a look at the batches that wait in a partition when the first of them is due."""
        due_ms = partition.uncommitted.due_ms
        if due_ms < self._watched.get(partition, _FOREVER_NS):
            self._watched[partition] = due_ms
            self._purgatory.later(max(due_ms - now_ms, 1), partial(self._expire, partition))

    def _expire(self, partition: Partition) -> None:
        """Refuse the batches that have waited for their timeouts, and look again when the next is due."""
        self._watched.pop(partition, None)
        now_ms = self._now_ns() // 1_000_000
        self._answer_together(lambda: self._answer(partition.uncommitted.take_due(now_ms)))
        if partition.uncommitted:
            self._watch(partition, now_ms)

    async def _sync(
        self, partition: Partition, sync: Coroutine[object, object, None], appended: list[PendingAppend]
    ) -> None:
        """Await the fsync of the log, then settle. Batches arriving for the partition meanwhile form the next group."""
        try:
            await sync
        except KafkaError as error:
            partition.fail(appended, as_value(error))
        except Exception as error:
            logger.exception("not forced to the disk partition=%s", partition.name)
            partition.fail(appended, KafkaStorageError(f"not forced to the disk: {error}"))
        self._answer_together(lambda: self._settle(partition, appended))
        if partition.has_queue:
            self._to_flush(partition)

    async def _list_messages(self, partition: Partition, listing: Coroutine[object, object, None]) -> None:
        """Await what makes sealing the partition's segment short, then append."""
        try:
            await listing
        except Exception as error:
            logger.warning("sealing may take long partition=%s error=%s", partition.name, error)
        self._to_flush(partition)
