"""Allows one run of a kind on a lake at a time, and detects a run that was killed.

The lock is the kernel's (`flock`) and released when the process ends. The file names the holder and is emptied at the normal end
of a run. A free lock that names a run therefore belongs to a killed one, which the next run records in `job_runs`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from kafkalake import __version__
from kafkalake.errors import LakeError
from kafkalake.metadata import paths
from kafkalake.metadata.lock_file import open_lock_file, try_flock


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A run of a job, as written to the lock file."""

    run_id: str
    started_ms: int
    process: str
    kafkalake_version: str


@contextmanager
def exclusive_job_lock(lake: Path, job: str, run_id: str, started_ms: int) -> Iterator[LockHolder | None]:
    """Hold the lock of a job on a lake. Yields the previous holder if it was killed, else None.

    Raise `LakeError` while another process holds the lock.
    """
    with open(open_lock_file(paths.job_lock_path(lake, job)), "r+") as file:
        free = try_flock(file.fileno())
        last = _named(file)
        if not free:
            holder = last.process if last is not None else "another process"
            raise LakeError(f"already running on {lake}: {holder}; let it end, or end it, and run this again")
        own = LockHolder(run_id, started_ms, f"process {os.getpid()} of {os.uname().nodename}", __version__)
        _write(file, json.dumps(asdict(own)))
        try:
            yield last
        finally:
            _write(file, "")


def _named(file: IO[str]) -> LockHolder | None:
    """Return the holder in the file, or None if there is none or it is being written."""
    file.seek(0)
    try:
        return LockHolder(**json.loads(file.read()))
    except (ValueError, TypeError):
        return None


def _write(file: IO[str], content: str) -> None:
    file.seek(0)
    file.truncate()
    file.write(content)
    file.flush()
