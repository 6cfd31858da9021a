"""Removes the directories of replicas that this broker no longer has: at once by name, and from the disk after a delay."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path

from kafkalake.broker.partitions.log_directory import LogDirectory
from kafkalake.broker.partitions.topics import Topic
from kafkalake.run_blocking import RunBlocking
from kafkalake.storage.deleted_files import REMOVED_AGAIN_MS
from kafkalake.storage.log import Log

logger = logging.getLogger(__name__)


class RetiredLogs:
    """See the module. Used on the event loop's thread."""

    def __init__(
        self,
        logs: LogDirectory,
        run_blocking: RunBlocking,
        later: Callable[[int, Callable[[], None]], object],
    ) -> None:
        """`later(delay_ms, action)` runs an action after a delay."""
        self._logs = logs
        self._run_blocking = run_blocking
        self._later = later
        self._removing: set[asyncio.Future[object]] = set()
        self._retiring: dict[asyncio.Future[object], str] = {}
        """The names of the topics whose directories are being renamed in the background."""

    def retire_soon(self, topic: Topic, logs: Mapping[int, Log], indices: Sequence[int]) -> None:
        """Do what `retire` does in the background."""
        retiring = self.begin(self.retire(topic, logs, indices))
        self._retiring[retiring] = topic.name
        retiring.add_done_callback(lambda _: self._retiring.pop(retiring, None))

    async def wait_for(self, names: Collection[str]) -> None:
        """Wait until the directories of deleted topics with these names are renamed, or cannot be."""
        if waited := [each for each, name in self._retiring.items() if name in names]:
            await asyncio.wait(waited)

    async def retire(self, topic: Topic, logs: Mapping[int, Log], indices: Sequence[int]) -> None:
        """Discard these logs of a topic, and rename the directories of the partitions `indices`."""

        def discard_and_retire() -> list[Path]:
            """Run on the executor. The logs need neither footer nor state."""
            for log in logs.values():
                log.discard()
            return self._logs.retire(topic.name, topic.topic_id, indices)

        self.remove_later(await self._run_blocking(discard_and_retire), topic.config.file_delete_delay_ms)

    def begin(self, work: Awaitable[object]) -> asyncio.Future[object]:
        """Do something of this in the background, and return it. An error is logged."""
        future = asyncio.ensure_future(work)
        self._removing.add(future)
        future.add_done_callback(self._removed)
        return future

    def remove_later(self, retired: list[Path], delay_ms: int) -> None:
        """Remove retired directories after a delay, for readers that planned with them. Those that stay are tried again."""

        def remove() -> None:
            self.begin(self._remove(retired))

        self._later(delay_ms, remove)

    async def _remove(self, retired: list[Path]) -> None:
        if left := await self._run_blocking(lambda: self._logs.remove(retired)):
            logger.warning("directories of removed replicas not removed yet number=%d first=%s", len(left), left[0])
            self.remove_later(left, REMOVED_AGAIN_MS)

    def _removed(self, future: asyncio.Future[object]) -> None:
        self._removing.discard(future)
        if not future.cancelled() and future.exception() is not None:
            logger.error("directories of removed replicas not removed error=%r", future.exception())

    async def wait(self) -> None:
        """Wait until nothing is being removed."""
        while self._removing:
            await asyncio.wait(list(self._removing))
