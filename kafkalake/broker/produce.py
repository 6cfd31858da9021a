"""Producing: batches of one request go into the queues of their partitions; when the last is written, the request is answered.

No task, no future and no timer per request: this is the hot path. `AppendQueue` is told by the event loop when a turn of
reading is over (`call_soon`), and flushes every partition that has something in its queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafkalake.broker.partition import Partition, PendingAppend
from kafkalake.broker.purgatory import Purgatory

CallSoon = Callable[[Callable[[], None]], object]


class ProduceRequest:
    """The batches of one request, some of which may have an error already; `reply` is called once, when each has its result."""

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
        for each in pending:
            each.settled = self._settled
            queue.add(each)

    def _settled(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._reply(self)


class AppendQueue:
    """The partitions that have batches waiting."""

    def __init__(self, purgatory: Purgatory, call_soon: CallSoon, moved: Callable[[Partition], None]) -> None:
        """`moved` is told of each partition that was appended to."""
        self._purgatory = purgatory
        self._call_soon = call_soon
        self._moved = moved
        self._dirty: list[Partition] = []

    def add(self, pending: PendingAppend) -> None:
        """Queue a batch; the flush comes when this turn of the event loop has read what there was."""
        partition = pending.partition
        assert partition is not None
        if partition.enqueue(pending):
            if not self._dirty:
                self._call_soon(self.flush)
            self._dirty.append(partition)

    def flush(self) -> None:
        """Write what waits, in the order it came for each partition, answer the producers, wake the consumers."""
        dirty, self._dirty = self._dirty, []
        for partition in dirty:
            for pending in partition.flush():
                pending.settled()
            self._moved(partition)
            self._purgatory.check(partition)
