"""Copies committed offsets into Delta's `group_offsets`: all groups in one commit, at most once a publish interval.

Decided on the event loop, committed in a thread, one at a time: what failed is given back before the next is taken, so the
positions that a publish carries never pass an offset that Delta lacks. After a publish the journal is trimmed behind it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from kafkalake.broker.groups.service import GroupService, published_row
from kafkalake.broker.groups.table import Changes
from kafkalake.clock import Clock
from kafkalake.metadata.store import GroupOffsets, MetadataStore

logger = logging.getLogger(__name__)

BACKOFF_MS_MAX = 30_000


class GroupPublishing:
    """See the module. On the event loop's thread."""

    def __init__(
        self,
        groups: GroupService,
        store: MetadataStore,
        clock: Clock,
        run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]],
        interval_ms: int,
    ) -> None:
        self._groups = groups
        self._store = store
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
            logger.exception("publishing committed offsets failed")
            self._failures += 1
            return False

    async def _publish(self) -> bool:
        async with self._publishing:
            changes = self._groups.take_changes()
            if changes.rows and not await self._commit(changes):
                return False
        await self._groups.trim(changes.resume_at)
        return True

    async def finish(self) -> None:
        """The broker stops, and no more is committed: publish the last. Where it fails the next start does it."""
        await self.publish()

    async def _commit(self, changes: Changes) -> bool:
        now_ms = self._clock.now_ms()
        partitions = {row.journal_partition for row in changes.rows}

        def commit() -> None:
            rows = [published_row(row, now_ms) for row in changes.rows]
            positions = {index: changes.resume_at[index] for index in partitions}
            self._store.publish_group_offsets(GroupOffsets(rows, positions))

        try:
            await self._run_blocking(commit)
        except Exception as error:
            self._failures += 1
            self._groups.put_back(changes)
            logger.warning("committed offsets not published failures=%d error=%s", self._failures, error)
            return False
        self._failures = 0
        return True
