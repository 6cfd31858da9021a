"""`broker start --jobs`: runs the jobs that a broker does not include, by their schedule, in a separate process.

It is `kafkalake jobs schedule`, started by the broker, restarted after a pause when it ends, and ended with the broker: by a
signal when the broker stops, by the kernel when it dies (`parent`). An interrupted job is resumed by its next run.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

from kafkalake.errors import KafkaLakeError
from kafkalake.process.parent import environment_of_child

RULES = ("*/5 * * * * lag", "*/30 * * * * compaction", "17 3 * * * maintenance")
"""Without retention, which a broker runs itself."""

_STOP_TIMEOUT_S = 10.0


class JobsEndedError(KafkaLakeError):
    """The process that runs jobs has ended unexpectedly."""


async def run_jobs(lake: Path) -> None:
    """Run the schedule until cancelled. Raise `JobsEndedError` if the process ends before."""
    rules = [word for rule in RULES for word in ("--rule", rule)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "kafkalake", "jobs", "schedule", "--lake", str(lake.absolute()), *rules),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        env=environment_of_child(),
    )
    try:
        code = await process.wait()
    finally:
        await _end(process)
    raise JobsEndedError(f"the process that runs jobs has ended with code {code}")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _STOP_TIMEOUT_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
