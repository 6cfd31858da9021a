"""The waves of markers that this broker's coordinator writes, and the hold of them while positions are taken for Delta.

A wave is all markers of one transaction. While waves are held, none begins; those under way end, or are reported with their
partitions. Positions that are taken meanwhile have each other transaction whole: so one version of `partitions` shows it in all
partitions or in none, whatever broker leads them. A hold ends by itself after `HOLD_MS`. The publish then does without it.

Until the last stable offsets with its markers are published, the partitions of a wave stay linked. A coordinator that takes over
finds the links in the journal, which is not trimmed before them (`first_unpublished`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.coordination.journal import Timers
from kafkalake.broker.transactions.linked_partitions import LinkedPartitions
from kafkalake.topic_partition import TopicPartition

HOLD_MS = 500
"""Longest time in which no transaction ends because of a publish."""
DRAIN_MS = 100
"""Longest wait for the waves under way."""
RECORDS_MAX = 1_000_000
"""Records of the journal that are kept for links at most. A publisher that is that far behind may show half of a transaction."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A transaction that has to get its markers.

    position: of its Prepare record. is_resumed: an earlier coordinator may have begun.
    """

    position: int
    partitions: Collection[TopicPartition]
    is_resumed: bool


@dataclass(slots=True)
class _Links:
    """The partitions that waves link. first: by partition of the journal, the position of the first of their Prepare records."""

    linked: LinkedPartitions = field(default_factory=LinkedPartitions)
    first: dict[int, int] = field(default_factory=dict)


class Waves:
    """The waves of one broker. Used by the event loop's thread only."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._prepared: defaultdict[int, dict[int, _Prepared]] = defaultdict(dict)
        """By partition of the journal and producer id."""
        self._waves: dict[int, set[TopicPartition]] = {}
        """Producer id -> the partitions whose marker is under way."""
        self._reported = _Links()
        self._new = _Links()
        self._held_back: list[Callable[[], None]] | None = None
        self._drained: list[Callable[[], None]] = []
        self._alarm: object = None
        self._is_stopped = False

    def stop(self) -> None:
        """Keep what there is for the last publish: the coordinator stops."""
        self._is_stopped = True

    # What the journal says

    def prepared(
        self, partition: int, position: int, producer_id: int, partitions: Collection[TopicPartition], *, loading: bool
    ) -> None:
        """Note a Prepare record. `loading`: it was read again, so some of the markers may be written."""
        self._prepared[partition][producer_id] = _Prepared(position, partitions, loading)

    def completed(self, partition: int, producer_id: int) -> None:
        """Note that all markers of a producer's transaction are written, as the journal says."""
        done = self._prepared[partition].pop(producer_id, None)
        if done is not None and done.partitions:
            self._new.linked.link(done.partitions)
            self._new.first[partition] = min(done.position, self._new.first.get(partition, done.position))

    def forget(self, partition: int) -> None:
        """Forget the waves of a partition of the journal that another broker leads now. That one finds their links in it."""
        if self._is_stopped:
            return
        self._prepared.pop(partition, None)
        for links in (self._reported, self._new):
            links.first.pop(partition, None)

    def first_unpublished(self, partition: int, end: int) -> int:
        """Return the first position of a journal's partition that is needed for links, at most `end`."""
        found = [links.first.get(partition, end) for links in (self._reported, self._new)]
        prepared = [each.position for each in self._prepared.get(partition, {}).values()]
        return max(min(end, *found, *prepared), end - RECORDS_MAX)

    # Markers

    def begin(self, key: TopicPartition, producer_id: int, write: Callable[[], None]) -> None:
        """Call `write` to write a marker: now, or when the hold ends if that begins a wave."""
        if self._held_back is not None and producer_id not in self._waves:
            self._held_back.append(lambda: self.begin(key, producer_id, write))
            return
        self._waves.setdefault(producer_id, set()).add(key)
        write()

    def written(self, key: TopicPartition, producer_id: int) -> None:
        """Note a marker that is written, or need not be."""
        wave = self._waves.get(producer_id)
        if wave is None:
            return
        wave.discard(key)
        if not wave:
            self.abandon(producer_id)

    def abandon(self, producer_id: int) -> None:
        """Note that no marker of a producer is under way any more."""
        if self._waves.pop(producer_id, None) is not None and not self._waves:
            self._drain()

    # The hold

    @property
    def has_links(self) -> bool:
        """Return whether partitions are linked by transactions that are not published, or by those that get markers now."""
        return bool(self._reported.linked or self._new.linked or self._waves)

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
        """Let waves begin again, and return whether none did since the hold."""
        self._cancel()
        waiting, self._held_back = self._held_back, None
        self._drain()
        for begin in waiting or ():
            call_isolated(CallbackLoop.COORDINATED, begin)
        return waiting is not None

    def unfinished(self) -> list[frozenset[TopicPartition]]:
        """Return the partitions of each wave that has not ended."""
        return [
            frozenset(each.partitions)
            for prepared in self._prepared.values()
            for producer_id, each in prepared.items()
            if each.is_resumed or producer_id in self._waves
        ]

    def report_links(self) -> list[frozenset[TopicPartition]]:
        """Return which partitions the transactions link that are not published, for `published`.

        Among them are those whose markers are all written, but not yet their completion in the journal.
        """
        for linked in self._new.linked.sets():
            self._reported.linked.link(linked)
        for partition, position in self._new.first.items():
            self._reported.first.setdefault(partition, position)
        self._new = _Links()
        for prepared in self._prepared.values():
            for each in prepared.values():
                self._reported.linked.link(each.partitions)
        return self._reported.linked.sets()

    def published(self, kept: Collection[TopicPartition]) -> None:
        """Forget the links that were reported, but for those of partitions whose last stable offset was kept."""
        self._reported.linked.retain(kept)
        if not self._reported.linked:
            self._reported = _Links()

    def _drain(self) -> None:
        waiting, self._drained = self._drained, []
        for drained in waiting:
            call_isolated(CallbackLoop.COORDINATED, drained)

    def _cancel(self) -> None:
        if self._alarm is not None:
            self._timers.cancel(self._alarm)
            self._alarm = None
