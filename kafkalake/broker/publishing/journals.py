"""Copies what a coordinator's journal says into a Delta table: all that changed in one commit, at most once a publish interval.

One each for committed offsets (`group_offsets`) and transactional ids (`transactions`). Decided on the event loop, committed in a
thread, one at a time: what failed is given back before the next is taken, so the positions that a publish carries never pass
something that Delta lacks. After a publish the journal is trimmed behind it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from kafkalake.broker.groups.service import GroupService
from kafkalake.broker.groups.service import published_row as published_offset
from kafkalake.broker.groups.table import Changes as GroupChanges
from kafkalake.broker.transactions.published import published_row as published_transaction
from kafkalake.broker.transactions.service import TransactionService
from kafkalake.broker.transactions.table import Changes as TransactionChanges
from kafkalake.clock import Clock
from kafkalake.metadata.store import GroupOffsets, MetadataStore, Transactions

logger = logging.getLogger(__name__)

RunBlocking = Callable[[Callable[[], Any]], Awaitable[Any]]

BACKOFF_MS_MAX = 30_000


class Changes(Protocol):
    """What Delta lacks: rows, and journal partition -> where to read the journal from, once they are published."""

    @property
    def rows(self) -> Sequence[Any]: ...

    @property
    def resume_at(self) -> Mapping[int, int]: ...


C = TypeVar("C", bound=Changes)


class Journaled(Protocol[C]):
    """A coordinator's service, as `GroupService` and `TransactionService` are."""

    def take_changes(self) -> C: ...

    def put_back(self, changes: C) -> None: ...

    async def trim(self, resume_at: Mapping[int, int]) -> None: ...


class JournalPublishing(Generic[C]):
    """See the module. On the event loop's thread.

    `commit(rows, positions, now_ms)` commits rows of changes, and how far they follow the journal; called in a thread.
    """

    def __init__(
        self,
        name: str,
        service: Journaled[C],
        commit: Callable[[Sequence[Any], Mapping[int, int], int], object],
        clock: Clock,
        run_blocking: RunBlocking,
        interval_ms: int,
    ) -> None:
        self._name = name
        self._service = service
        self._store = commit
        self._clock = clock
        self._run_blocking = run_blocking
        self._interval_ms = interval_ms
        self._publishing = asyncio.Lock()
        self._failures = 0

    async def run(self) -> None:
        """Publish for ever: what was committed is in Delta within the interval, or after what a commit takes."""
        pause_ms = self._interval_ms
        while True:
            await asyncio.sleep(pause_ms / 1000)
            began_ms = self._clock.monotonic_ms()
            # A commit that has begun is seen to its end, also when the broker stops meanwhile.
            await asyncio.shield(asyncio.ensure_future(self.publish()))
            cost_ms = self._clock.monotonic_ms() - began_ms
            backoff_ms = min(self._interval_ms << min(self._failures, 10), BACKOFF_MS_MAX) if self._failures else 0
            pause_ms = max(self._interval_ms - cost_ms, backoff_ms, 1)

    async def publish(self) -> bool:
        """Publish what there is, after what is under way; whether nothing is left."""
        try:
            return await self._publish()
        except Exception:
            logger.exception("publishing %s failed", self._name)
            self._failures += 1
            return False

    async def _publish(self) -> bool:
        async with self._publishing:
            changes = self._service.take_changes()
            if changes.rows and not await self._commit(changes):
                return False
        await self._service.trim(changes.resume_at)
        return True

    async def finish(self) -> None:
        """The broker stops, and no more is committed: publish the last. Where it fails the next start does it."""
        await self.publish()

    async def _commit(self, changes: C) -> bool:
        now_ms = self._clock.now_ms()
        positions = {row.journal_partition: changes.resume_at[row.journal_partition] for row in changes.rows}
        try:
            await self._run_blocking(lambda: self._store(changes.rows, positions, now_ms))
        except Exception as error:
            self._failures += 1
            self._service.put_back(changes)
            logger.warning("%s not published failures=%d error=%s", self._name, self._failures, error)
            return False
        self._failures = 0
        return True


def publish_groups(
    groups: GroupService,
    store: MetadataStore,
    clock: Clock,
    run_blocking: RunBlocking,
    interval_ms: int,
) -> JournalPublishing[GroupChanges]:
    """Committed offsets, into `group_offsets`."""

    def commit(rows: Sequence[Any], positions: Mapping[int, int], now_ms: int) -> None:
        store.publish_group_offsets(GroupOffsets([published_offset(row, now_ms) for row in rows], positions))

    return JournalPublishing("group_offsets", groups, commit, clock, run_blocking, interval_ms)


def publish_transactions(
    transactions: TransactionService,
    store: MetadataStore,
    clock: Clock,
    run_blocking: RunBlocking,
    interval_ms: int,
) -> JournalPublishing[TransactionChanges]:
    """Transactional ids, into `transactions`."""

    def commit(rows: Sequence[Any], positions: Mapping[int, int], now_ms: int) -> None:
        store.publish_transactions(Transactions([published_transaction(row, now_ms) for row in rows], positions))

    return JournalPublishing("transactions", transactions, commit, clock, run_blocking, interval_ms)
