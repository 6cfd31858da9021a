"""Copies changes of a coordinator's journal to a Delta table in one commit, at most once per publish interval.

There is one for committed offsets (`group_offsets`) and one for transactional ids (`transactions`). Changes are collected on the
event loop and committed in a thread, one publish at a time. Failed changes are put back before the next are taken, so published
positions never pass a change that Delta lacks. After a publish the journal is trimmed up to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from kafkalake.broker.coordination.table import Changed, Changes
from kafkalake.broker.groups.published import published_row as published_offset
from kafkalake.broker.groups.table import ChangedOffset
from kafkalake.broker.partitions.scheduler import Scheduler
from kafkalake.broker.transactions.published import published_row as published_transaction
from kafkalake.broker.transactions.table import ChangedTransaction
from kafkalake.clock import Clock
from kafkalake.metadata.store import GroupOffsetTable, PublishedOffsets, Transactions, TransactionTable

logger = logging.getLogger(__name__)

RunBlocking = Callable[[Callable[[], Any]], Awaitable[Any]]

BACKOFF_MS_MAX = 30_000


C = TypeVar("C", bound=Changed)


class Journaled(Protocol[C]):
    """The changes of a coordinator's journal that Delta lacks, as `JournalLifecycle` keeps them."""

    def take_changes(self) -> Changes[C]: ...

    def put_back(self, changes: Changes[C]) -> None: ...

    async def trim(self, resume_at: Mapping[int, int]) -> None: ...


class JournalPublisher(Generic[C]):
    """The publishing of one journal, see the module. Runs on the event loop's thread.

    `commit(rows, positions, now_ms)` commits changed rows and their journal positions. It is called in a thread.
    """

    def __init__(
        self,
        name: str,
        journal: Journaled[C],
        commit: Callable[[Sequence[C], Mapping[int, int], int], object],
        clock: Clock,
        run_blocking: RunBlocking,
        interval_ms: int,
    ) -> None:
        self._name = name
        self._journal = journal
        self._store = commit
        self._clock = clock
        self._run_blocking = run_blocking
        self._interval_ms = self._pause_ms = interval_ms
        self._publishing = asyncio.Lock()
        self._failures = 0

    def begin(self, scheduler: Scheduler) -> None:
        """Publish from now on. Changes reach Delta within the interval, or within the duration of a commit if that is longer."""
        scheduler.every(f"publishing of {self._name}", lambda: self._pause_ms, self._publish_in_time)

    async def _publish_in_time(self) -> None:
        began_ms = self._clock.monotonic_ms()
        # A commit in progress is completed even if the broker stops meanwhile.
        await asyncio.shield(asyncio.ensure_future(self.publish()))
        cost_ms = self._clock.monotonic_ms() - began_ms
        backoff_ms = min(self._interval_ms << min(self._failures, 10), BACKOFF_MS_MAX) if self._failures else 0
        self._pause_ms = max(self._interval_ms - cost_ms, backoff_ms, 1)

    async def publish(self) -> bool:
        """Publish pending changes after any publish in progress, and return whether it succeeded. Failures are logged."""
        try:
            return await self._publish()
        except Exception:
            logger.exception("publishing %s failed", self._name)
            self._failures += 1
            return False

    async def _publish(self) -> bool:
        async with self._publishing:
            changes = self._journal.take_changes()
            if changes.rows and not await self._commit(changes):
                return False
        await self._journal.trim(changes.resume_at)
        return True

    async def finish(self) -> None:
        """Publish the last changes when the broker stops. If that fails, the next start publishes them."""
        await self.publish()

    async def _commit(self, changes: Changes[C]) -> bool:
        now_ms = self._clock.now_ms()
        positions = {row.journal_partition: changes.resume_at[row.journal_partition] for row in changes.rows}
        try:
            await self._run_blocking(lambda: self._store(changes.rows, positions, now_ms))
        except Exception as error:
            self._failures += 1
            self._journal.put_back(changes)
            logger.warning("%s not published failures=%d error=%s", self._name, self._failures, error)
            return False
        self._failures = 0
        return True


def publish_groups(
    journal: Journaled[ChangedOffset],
    store: GroupOffsetTable,
    clock: Clock,
    run_blocking: RunBlocking,
    interval_ms: int,
) -> JournalPublisher[ChangedOffset]:
    """Return the publishing of committed offsets to `group_offsets`."""

    def commit(rows: Sequence[ChangedOffset], positions: Mapping[int, int], now_ms: int) -> None:
        store.publish_group_offsets(PublishedOffsets([published_offset(row, now_ms) for row in rows], positions))

    return JournalPublisher("group_offsets", journal, commit, clock, run_blocking, interval_ms)


def publish_transactions(
    journal: Journaled[ChangedTransaction],
    store: TransactionTable,
    clock: Clock,
    run_blocking: RunBlocking,
    interval_ms: int,
) -> JournalPublisher[ChangedTransaction]:
    """Return the publishing of transactional ids to `transactions`."""

    def commit(rows: Sequence[ChangedTransaction], positions: Mapping[int, int], now_ms: int) -> None:
        store.publish_transactions(Transactions([published_transaction(row, now_ms) for row in rows], positions))

    return JournalPublisher("transactions", journal, commit, clock, run_blocking, interval_ms)
