"""Removes the directories of replicas that this broker no longer has: at once by name, and from the disk after a delay."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from kafkalake.broker.partitions.log_directory import LogDirectory
from kafkalake.broker.partitions.topics import Topic
from kafkalake.run_blocking import RunBlocking
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

    async def retire(self, topic: Topic, logs: Mapping[int, Log], indices: Sequence[int]) -> None:
        """Discard these logs of a topic, and rename the directories of the partitions `indices`."""

        def discard_and_retire() -> list[Path]:
            """Run on the executor. The logs need neither footer nor state."""
            for log in logs.values():
                log.discard()
            return self._logs.retire(topic.name, topic.topic_id, indices)

        self.remove_later(await self._run_blocking(discard_and_retire), topic.config.file_delete_delay_ms)

    def begin(self, work: Awaitable[object]) -> None:
        """Do something of this in the background. An error is logged."""
        future = asyncio.ensure_future(work)
        self._removing.add(future)
        future.add_done_callback(self._removed)

    def remove_later(self, retired: list[Path], delay_ms: int) -> None:
        """Remove retired directories after a delay, for readers that planned with them."""
        self._later(delay_ms, lambda: self.begin(self._run_blocking(lambda: self._logs.remove(retired))))

    def _removed(self, future: asyncio.Future[object]) -> None:
        self._removing.discard(future)
        if not future.cancelled() and future.exception() is not None:
            logger.error("directories of removed replicas not removed error=%r", future.exception())

    async def wait(self) -> None:
        """Wait until nothing is being removed."""
        while self._removing:
            await asyncio.wait(list(self._removing))
