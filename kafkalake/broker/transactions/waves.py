"""The waves of markers that this broker's coordinator writes, and the hold of them while positions are taken for Delta.

A wave is all markers of one transaction. While waves are held, none begins; those under way end, or are reported with their
partitions. Positions that are taken meanwhile have each other transaction whole: so one version of `partitions` shows it in all
partitions or in none, whatever broker leads them. A hold ends by itself after `HOLD_MS`. The publish then does without it.

A committed transaction is reported with the ranges of its records until a version shows it (`cut`). A coordinator that takes over
finds it in the journal, which is not trimmed before it (`first_unpublished`), without the ranges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.coordination.journal import Timers
from kafkalake.broker.transactions.beginnings import Beginnings
from kafkalake.broker.transactions.cut import (
    UNFINISHED,
    UNKNOWN,
    EndedTransaction,
    JournalPosition,
    group_by_links,
    merge,
)
from kafkalake.offset_range import OffsetRange
from kafkalake.topic_partition import TopicPartition

HOLD_MS = 500
"""Longest time in which no transaction ends because of a publish."""
DRAIN_MS = 100
"""Longest wait for the waves under way."""
TRANSACTIONS_MAX = 1_000
"""Transactions that are kept one by one. If there are more, those of one partition of the journal that share partitions with each
other are taken for one. Then there are as many as sets of partitions at most."""
RECORDS_MAX = 1_000_000
"""Records of the journal that are kept for the next coordinator at most. If it takes over from one that is that far behind, a
version may show half of a transaction."""


@dataclass(slots=True)
class _Committed:
    """A transaction from its Prepare record on, at `position` in the journal.

    lacking: partitions without a marker, as far as it is known. is_begun: some may have one.
    """

    position: int
    ranges: dict[TopicPartition, OffsetRange]
    lacking: set[TopicPartition]
    is_begun: bool

    def reported(self, journal_partition: int) -> EndedTransaction:
        unfinished = dict.fromkeys(self.lacking, OffsetRange(UNKNOWN, UNFINISHED))
        return EndedTransaction((journal_partition, self.position), {**self.ranges, **unfinished})


class _Ended:
    """The transactions of one partition of the journal that have ended and are not published."""

    def __init__(self) -> None:
        self._reported: dict[int, EndedTransaction] = {}
        self._new: dict[int, EndedTransaction] = {}
        """By position, or a number of several taken for one."""
        self._first_of: dict[int, int] = {}
        """The first position of several that are taken for one, by their number."""
        self._merges = 0

    def __len__(self) -> int:
        return len(self._reported) + len(self._new)

    def add(self, transaction: EndedTransaction) -> None:
        self._new[transaction.position[1]] = transaction

    def merge(self) -> None:
        """Take those that share partitions for one, with a number below 0 that no other merge gives."""
        kept = self._reported | self._new
        newest = max(kept, default=0) << 20
        self._reported, self._new = {}, {}
        for linked in group_by_links(kept.values()):
            numbers = [each.position[1] for each in linked]
            if len(linked) == 1:
                self._new[numbers[0]] = linked[0]
                continue
            self._merges += 1
            merged = -newest - self._merges
            self._first_of[merged] = min(self._first_of.get(number, number) for number in numbers)
            self._new[merged] = EndedTransaction((linked[0].position[0], merged), merge(linked))
        self._first_of = {number: first for number, first in self._first_of.items() if number in self._new}

    def first(self, end: int) -> int:
        """Return the first position that is needed, at most `end`."""
        kept = self._reported.keys() | self._new.keys()
        return min(end, *(self._first_of.get(number, number) for number in kept)) if kept else end

    def report(self) -> Iterable[EndedTransaction]:
        self._reported |= self._new
        self._new = {}
        return self._reported.values()

    def published(self, hidden: Collection[JournalPosition]) -> None:
        """Forget those that were reported, but for hidden ones."""
        self._reported = {number: each for number, each in self._reported.items() if each.position in hidden}


class Waves:
    """The waves of one broker. Used by the event loop's thread only."""

    def __init__(self, timers: Timers) -> None:
        self.beginnings = Beginnings(timers)
        self._timers = timers
        self._committed: defaultdict[int, dict[int, _Committed]] = defaultdict(dict)
        """Those without a completion in the journal, by partition of the journal and producer id."""
        self._ended: defaultdict[int, _Ended] = defaultdict(_Ended)
        """By partition of the journal."""
        self._merge_from = TRANSACTIONS_MAX
        self._waves: dict[int, set[TopicPartition]] = {}
        """Producer id -> the partitions whose marker is under way."""
        self._held_back: list[Callable[[], None]] | None = None
        self._drained: list[Callable[[], None]] = []
        self._alarm: object = None
        self._is_stopped = False

    def stop(self) -> None:
        """Keep what there is for the last publish: the coordinator stops."""
        self._is_stopped = True

    # What the journal says

    def committed(
        self, partition: int, position: int, producer_id: int, partitions: Collection[TopicPartition], *, loading: bool
    ) -> None:
        """Note the Prepare record of a commit. `loading`: it was read again, so some of the markers may be written."""
        self._committed[partition][producer_id] = _Committed(position, {}, set(partitions), loading)

    def completed(self, partition: int, producer_id: int) -> None:
        """Note that all markers of a producer's transaction are written, as the journal says."""
        done = self._committed[partition].pop(producer_id, None)
        if done is not None and (done.lacking or done.ranges):
            ended = dict.fromkeys(done.lacking, OffsetRange(UNKNOWN, UNKNOWN))
            self._ended[partition].add(EndedTransaction((partition, done.position), {**done.ranges, **ended}))
            self._bound()

    def _bound(self) -> None:
        """Keep fewer, in which more is taken for one, once there are too many."""
        if sum(map(len, self._ended.values())) > self._merge_from:
            for ended in self._ended.values():
                ended.merge()
            self._merge_from = TRANSACTIONS_MAX + sum(map(len, self._ended.values()))

    def forget(self, partition: int) -> None:
        """Forget the transactions of a partition of the journal that another broker leads now. That one finds them in it."""
        self.beginnings.forget(partition)
        if not self._is_stopped:
            self._committed.pop(partition, None)
            self._ended.pop(partition, None)

    def first_unpublished(self, partition: int, end: int) -> int:
        """Return the first position of a journal's partition with a transaction that is not published, at most `end`."""
        first = min((each.position for each in self._committed.get(partition, {}).values()), default=end)
        ended = self._ended.get(partition)
        return max(min(end, first) if ended is None else ended.first(min(end, first)), end - RECORDS_MAX)

    # Markers

    def begin(self, key: TopicPartition, producer_id: int, write: Callable[[], None]) -> None:
        """Call `write` to write a marker: now, or when the hold ends if that begins a wave."""
        if self._held_back is not None and producer_id not in self._waves:
            self._held_back.append(lambda: self.begin(key, producer_id, write))
            return
        self._waves.setdefault(producer_id, set()).add(key)
        if (transaction := self._transaction(producer_id)) is not None:
            transaction.is_begun = True
        write()

    def _transaction(self, producer_id: int) -> _Committed | None:
        found = (each[producer_id] for each in self._committed.values() if producer_id in each)
        return next(found, None)

    def written(self, key: TopicPartition, producer_id: int, records: OffsetRange | None) -> None:
        """Note a marker that is written, with the records that it has ended, or one that need not be."""
        transaction = self._transaction(producer_id)
        if transaction is not None and key in transaction.lacking:
            transaction.lacking.discard(key)
            if records is not None:
                transaction.ranges[key] = records
        wave = self._waves.get(producer_id)
        if wave is None:
            return
        wave.discard(key)
        if not wave:
            self._end(producer_id)

    def abandon(self, producer_id: int) -> None:
        """Note that this broker writes no marker of a producer any more, as another one coordinates it, or will."""
        transaction = self._transaction(producer_id)
        if transaction is not None and not self._is_stopped:
            transaction.is_begun = False
        self._end(producer_id)

    def _end(self, producer_id: int) -> None:
        if self._waves.pop(producer_id, None) is not None and not self._waves:
            self._drain()

    # The hold

    @property
    def has_unpublished(self) -> bool:
        """Return whether there are transactions that are not published, or markers under way."""
        return bool(self._waves) or any(self._ended.values())

    def hold(self, drained: Callable[[None], None]) -> None:
        """Begin no wave from now on, and call `drained` once, when those under way have ended or `DRAIN_MS` have passed.

        A hold that is there already begins anew.
        """
        self._cancel()
        if self._held_back is None:
            self._held_back = []
        self._alarm = self._timers.schedule(HOLD_MS, self._expire)
        called = False

        def once() -> None:
            nonlocal called
            if not called:
                called = True
                drained(None)

        if self._waves:
            self._drained.append(once)
            self._timers.schedule(DRAIN_MS, once)
        else:
            once()

    def _expire(self) -> None:
        self._alarm = None
        self.release()

    def release(self) -> bool:
        """Let waves and transactions begin again, and return whether no wave did since the hold."""
        self._cancel()
        self.beginnings.release()
        waiting, self._held_back = self._held_back, None
        self._drain()
        for begin in waiting or ():
            call_isolated(CallbackLoop.COORDINATED, begin)
        return waiting is not None

    def report(self) -> list[EndedTransaction]:
        """Return the transactions that have markers and are not published, for `published`."""
        found = [each for ended in self._ended.values() for each in ended.report()]
        for partition, committed in self._committed.items():
            found += [each.reported(partition) for each in committed.values() if each.is_begun]
        return found

    def published(self, hidden: Collection[JournalPosition]) -> None:
        """Forget the transactions that were reported and had ended, but for those that are hidden."""
        for ended in self._ended.values():
            ended.published(hidden)

    def _drain(self) -> None:
        waiting, self._drained = self._drained, []
        for drained in waiting:
            call_isolated(CallbackLoop.COORDINATED, drained)

    def _cancel(self) -> None:
        if self._alarm is not None:
            self._timers.cancel(self._alarm)
            self._alarm = None
