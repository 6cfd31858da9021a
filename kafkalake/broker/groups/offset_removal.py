"""Removes committed offsets that nobody asks to be removed: those of deleted topics, and those that have expired (KIP-211).

A look at all groups takes time by all their offsets, and a topic may be the one of all of them. So it is done in short turns, with
few batches of tombstones on their way at a time. What is found is looked at again when its batch is made: a commit may have come
meanwhile. A group with a commit on its way to the journal is left alone, as a tombstone behind that would remove it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from functools import partial

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.groups.coordinator import GroupCoordinator
from kafkalake.broker.groups.offset_requests import RECORDS_PER_BATCH, OffsetRequests, tombstones
from kafkalake.broker.groups.table import GroupEntry
from kafkalake.broker.partitions.scheduler import Scheduler
from kafkalake.run_blocking import TURN_NS
from kafkalake.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

BATCHES_MAX = 4
"""Maximum number of batches, or deletions of groups, that are being written at a time."""
OFFSETS_PER_STEP = 500
"""Maximum number of offsets that are looked at in one step: a group may have a million."""
RETRY_MS = 1_000
"""Delay before groups are looked at again in which offsets of deleted topics could not be removed."""

_IsGone = Callable[[Iterable[TopicPartition]], list[TopicPartition]]
"""Returns those of a group's partitions whose offset is to be removed."""


class OffsetRemoval:
    """The removal of the coordinator's offsets. Runs on the event loop's thread."""

    def __init__(self, coordinator: GroupCoordinator, offsets: OffsetRequests) -> None:
        self._coordinator = coordinator
        self._table = coordinator.table
        self._config = coordinator.config
        self._offsets = offsets
        self._names: set[str] | None = set()
        """The topics whose offsets are to be looked at, None: all."""
        self._groups: set[str] = set()
        """The groups in which all topics are."""
        self._expires = False
        self._steps: Iterator[None] | None = None
        self._is_at_work = False
        self._is_scheduled = False
        self._under_way = 0
        self._refused: set[int] = set()
        """Partitions of the journal that have refused a batch in this look."""
        self._again: set[str] = set()

    def start_expiry(self, scheduler: Scheduler) -> None:
        """Check for expired offsets every `offsets.retention.check.interval.ms` from now on."""
        scheduler.every("expiry of offsets", lambda: self._config.offsets_retention_check_interval_ms, self.expire)

    def expire(self) -> None:
        """Remove expired offsets, and groups without members and offsets. A failed write is left to the next call."""
        self._expires = True
        self._go_on()

    def delete_stale(self, names: Collection[str] | None = None) -> None:
        """Remove the offsets of deleted topics, even if a new topic has the name now.

        names: topics created or deleted (None: check all). Offsets in open transactions are removed too. A failed write is retried.
        """
        self._names = None if names is None or self._names is None else self._names | set(names)
        self._go_on()

    # Turns

    def _go_on(self) -> None:
        """Take steps until a turn is over, enough is being written, or nothing is left to do."""
        if self._is_at_work or self._is_scheduled:
            return
        self._is_at_work = True
        clock = self._coordinator.clock
        end_ns = clock.monotonic_ns() + TURN_NS
        try:
            while self._under_way < BATCHES_MAX and self._step():
                if clock.monotonic_ns() >= end_ns:
                    self._go_on_soon()
                    return
        finally:
            self._is_at_work = False

    def _go_on_soon(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._coordinator.timers.schedule(0, self._next_turn)

    def _next_turn(self) -> None:
        self._is_scheduled = False
        self._go_on()

    def _step(self) -> bool:
        """Take one step, of a new look if the last one has ended. Return whether there may be another one."""
        if self._steps is None:
            if not (self._names is None or self._names or self._groups or self._expires):
                return False
            self._steps = self._look()
        call_isolated(CallbackLoop.COORDINATED, self._take_step, self._steps)
        return True

    def _take_step(self, steps: Iterator[None]) -> None:
        try:
            next(steps)
        except StopIteration:
            self._steps = None

    def _look(self) -> Iterator[None]:
        names, self._names = self._names, set()
        groups, self._groups = self._groups, set()
        expires, self._expires = self._expires, False
        self._refused.clear()
        is_of_few = names is not None and not names and not expires
        found = map(self._table.find, groups) if is_of_few else iter(list(self._table))
        for entry in found:
            if entry is None:
                continue
            try:
                if names is None or names or entry.name in groups:
                    yield from self._remove_stale(entry, None if entry.name in groups else names)
                if expires:
                    yield from self._expire(entry)
            except Exception:
                logger.exception("offsets not removed group=%s", entry.name)
                self._look_again(entry)

    # Steps

    def _remove_stale(self, entry: GroupEntry, names: Collection[str] | None) -> Iterator[None]:
        is_gone = partial(self._stale_of, entry)
        gone: list[TopicPartition] = []
        for some in _parts(entry.offsets.known_keys()):
            gone += is_gone(some if names is None else [key for key in some if key[0] in names])
            yield
        if gone and not (yield from self._remove(entry, gone, is_gone)):
            self._look_again(entry)

    def _stale_of(self, entry: GroupEntry, keys: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions whose offsets, committed and pending, all belong to earlier topics of that name."""
        is_stale, all_of = self._offsets.is_stale, entry.offsets.all_of
        return [key for key in keys if all(is_stale(key[0], committed) for committed in all_of(key))]

    def _expire(self, entry: GroupEntry) -> Iterator[None]:
        commits, gone = entry.offsets.commits, list[TopicPartition]()
        for some in _parts(entry.offsets.committed_keys()):
            gone += self._expired_of(entry, some)
            yield
        is_over = len(gone) == len(entry.offsets) and entry.offsets.commits == commits
        if not is_over or entry.offsets.has_pending or not entry.group.is_vacant:
            yield from self._remove(entry, gone, partial(self._expired_of, entry))
        elif not self._may_write(entry):
            return
        elif entry.written or gone:
            self._under_way += 1
            self._offsets.delete_group(entry, partial(self._written, entry))
        else:
            self._table.forget(entry)  # the journal has no record of it

    def _expired_of(self, entry: GroupEntry, keys: Iterable[TopicPartition]) -> list[TopicPartition]:
        now_ms, retention_ms = self._coordinator.clock.now_ms(), self._config.offsets_retention_ms
        return entry.offsets.expired(entry.group.expiry, now_ms, retention_ms, keys)

    def _remove(self, entry: GroupEntry, keys: list[TopicPartition], is_gone: _IsGone) -> Generator[None, None, bool]:
        """Write tombstones in as many batches as needed. Return whether all could be passed to the journal."""
        for begin in range(0, len(keys), RECORDS_PER_BATCH):
            if not self._may_write(entry):
                return False
            gone = is_gone(keys[begin : begin + RECORDS_PER_BATCH])
            if gone:
                self._under_way += 1
                self._coordinator.write(entry.partition, tombstones(entry, gone), partial(self._written, entry))
            yield
        return True

    def _may_write(self, entry: GroupEntry) -> bool:
        """Return whether the group is coordinated here, its partition takes batches, and none of its commits is on its way."""
        return (
            self._table.find(entry.name) is entry
            and self._table.is_serving(entry.partition)
            and entry.partition not in self._refused
            and not self._offsets.is_committing(entry.name)
        )

    def _written(self, entry: GroupEntry, error: ErrorClass | None) -> None:
        self._under_way -= 1
        if error is not None:
            self._refused.add(entry.partition)
            self._look_again(entry)
        if not self._is_at_work:
            self._go_on_soon()

    def _look_again(self, entry: GroupEntry) -> None:
        """Look for offsets of deleted topics in a group again, after a while."""
        if not self._again:
            self._coordinator.timers.schedule(RETRY_MS, self._try_again)
        self._again.add(entry.name)

    def _try_again(self) -> None:
        self._groups |= self._again
        self._again.clear()
        self._go_on()


def _parts(keys: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    """Yield what is looked at in one step, and nothing once if there is nothing."""
    return (keys[start : start + OFFSETS_PER_STEP] for start in range(0, len(keys) or 1, OFFSETS_PER_STEP))
