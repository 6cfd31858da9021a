"""Batches and markers on their way into a partition: queued, then in the log, then below the high watermark.

Those with acks=all wait in `UncommittedAppends` between the last two. It is a heap by offset: what is appended comes in order, and
a batch sent again, which may lie far below, waits for the offset that it has already.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from kafkalake.errors import KafkaError, RequestTimedOutError
from kafkalake.record.batch import ProducerBatch
from kafkalake.storage.append_group import AppendResult
from kafkalake.storage.producer_state import EndMarker

if TYPE_CHECKING:
    from kafkalake.broker.partitions.partition import Partition

ACKS_ALL = -1
"""Wait for all replicas in sync, as clients may ask and the broker's own batches do."""

TIMEOUT_MS = 30_000
"""The longest wait of the broker's own batches for the replicas in sync."""

_NEVER_MS = 1 << 63


def nobody_waits() -> None:
    """Do nothing, as the callback of a batch whose result nobody waits for."""


class PendingAppend:
    """A batch or end-of-transaction marker to be appended, and its result.

    partition, batch: None if `result` is an error found earlier. original: the producer's bytes if the cache may serve them to
    consumers unchanged. acks: the replicas to wait for, `ACKS_ALL` for those in sync. timeout_ms: the longest wait for them.
    settled: called when the result is final, see `AppendQueue.add`.
    """

    __slots__ = ("acks", "batch", "marker", "original", "partition", "result", "settled", "timeout_ms")

    def __init__(
        self,
        partition: Partition | None,
        batch: ProducerBatch | None,
        original: bytes | memoryview | None,
        result: AppendResult | KafkaError | None = None,
        marker: EndMarker | None = None,
        acks: int = ACKS_ALL,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self.acks = acks
        self.partition = partition
        self.batch = batch
        self.original = original
        self.result = result
        self.marker = marker
        self.timeout_ms = timeout_ms
        self.settled: Callable[[], None] = nobody_waits

    def decoded(self, batch: ProducerBatch, original: bytes | memoryview | None) -> None:
        """Set the batch of one that was decoded later."""
        self.batch, self.original = batch, original

    def when_settled(self, settled: Callable[[], None]) -> None:
        """Call `settled` when the result is final."""
        self.settled = settled

    def appended(self, result: AppendResult | KafkaError) -> None:
        """Set the place of the batch in the log, or why it has none."""
        self.result = result

    def take_original(self) -> bytes | memoryview | None:
        """Return the producer's bytes, if consumers may get them, and keep them no longer."""
        original, self.original = self.original, None
        return original

    def refuse(self, error: KafkaError) -> None:
        """Set `error` as the result, of a batch that will not be queued or is not acknowledged."""
        self.result = error

    def drop_bytes(self) -> None:
        """Release the batch, which is in the log or will not be."""
        self.batch = self.original = None

    def settle(self) -> None:
        """Release the batch and the callback, which usually refers to this, and call it: the result is final.

        A reference cycle would keep the batch's memory until a garbage collection, which a broker rarely has.
        """
        settled, self.settled = self.settled, nobody_waits
        self.drop_bytes()
        settled()


def with_error(pending: list[PendingAppend], error: KafkaError) -> list[PendingAppend]:
    """Set `error` on every batch that has none yet and return all batches."""
    for each in pending:
        if not isinstance(each.result, KafkaError):
            each.refuse(error)
    return pending


class _Uncommitted(NamedTuple):
    last_offset: int
    number: int
    due_ms: int
    pending: PendingAppend


class UncommittedAppends:
    """The batches of one partition that wait for the high watermark, in order of their last offsets."""

    __slots__ = ("_heap", "_number", "due_ms")

    def __init__(self) -> None:
        self._heap: list[_Uncommitted] = []
        self._number = 0
        self.due_ms = _NEVER_MS
        """When a batch is due, at the earliest."""

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, pending: PendingAppend, last_offset: int, now_ms: int) -> None:
        """Add a batch that is in the log. It is due after its timeout."""
        pending.drop_bytes()
        self._number += 1
        due_ms = now_ms + pending.timeout_ms
        self.due_ms = min(due_ms, self.due_ms)
        heappush(self._heap, _Uncommitted(last_offset, self._number, due_ms, pending))

    def take_below(self, offset: int) -> list[PendingAppend]:
        """Remove and return the batches whose records are all below `offset`."""
        taken = []
        while self._heap and self._heap[0].last_offset < offset:
            taken.append(heappop(self._heap).pending)
        return taken

    def take_from(self, offset: int) -> list[PendingAppend]:
        """Remove and return the batches whose last record is at `offset` or above."""
        return self._take(lambda each: each.last_offset >= offset)

    def take_due(self, now_ms: int) -> list[PendingAppend]:
        """Remove and return the batches that have waited for their timeouts, with the error. They may yet be committed."""
        taken = self._take(lambda each: each.due_ms <= now_ms)
        for each in taken:
            each.refuse(RequestTimedOutError("the replicas in sync have not got the records in time"))
        self.due_ms = min((each.due_ms for each in self._heap), default=_NEVER_MS)
        return taken

    def _take(self, is_taken: Callable[[_Uncommitted], bool]) -> list[PendingAppend]:
        taken = sorted(each for each in self._heap if is_taken(each))
        if taken:
            self._heap = [each for each in self._heap if not is_taken(each)]
            heapify(self._heap)
        return [each.pending for each in taken]


def share_below(held_bytes: int, before: int, now: int, end: int) -> int:
    """Return how many of the bytes between `before` and `end` are below `now`, by its share of the offsets; at least one byte."""
    if now >= end:
        return held_bytes
    return max(1, held_bytes * (now - before) // (end - before)) if now > before else 0
