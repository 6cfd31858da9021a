"""The directories of replicas that are removed: from the disk after a delay, and again where that fails."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from manual_clock import ManualClock

from kafkalake.broker.partitions.log_directory import LogDirectory
from kafkalake.broker.partitions.retired_logs import RetiredLogs
from kafkalake.storage.config import LogConfig
from kafkalake.storage.open_files import OpenFiles

STANDARD_STREAMS = 3


def test_a_directory_that_cannot_be_removed_is_removed_later(tmp_path: Path) -> None:
    """Without descriptors for a moment the files of a deleted topic stayed until the next start, and nothing was said."""
    logs = LogDirectory(tmp_path, ManualClock(), OpenFiles())
    topic_id = uuid4()
    logs.open("clicks", 0, topic_id, LogConfig()).close()
    later: list[tuple[int, Callable[[], None]]] = []

    async def run_blocking(work: Callable[[], Any]) -> Any:
        return work()

    async def run() -> None:
        retired = RetiredLogs(logs, run_blocking, lambda delay_ms, action: later.append((delay_ms, action)))
        directories = logs.retire("clicks", topic_id, [0])
        retired.remove_later(directories, 1_000)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        for used_up in (True, False):
            ((_, remove),) = later
            later.clear()
            remove()
            resource.setrlimit(resource.RLIMIT_NOFILE, (STANDARD_STREAMS if used_up else limits[0], limits[1]))
            try:
                await retired.wait()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            assert [each.exists() for each in directories] == [used_up]
        assert not later

    asyncio.run(run())
