"""Allows one run of a kind on a lake at a time, and detects runs whose end was not recorded, such as killed ones.

The lock is the kernel's (`flock`) and released when the process ends. The file names the holder, in a line of JSON, until
`job_runs` has its end. The next run first records the runs that a free lock names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from kafkalake import __version__
from kafkalake.errors import LakeError
from kafkalake.metadata import paths
from kafkalake.metadata.lock_file import open_lock_file, try_flock

_UNRECORDED_MAX = 100
"""Runs that are kept to be recorded, where `job_runs` cannot be written for long."""


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A run of a job, as written to the lock file."""

    run_id: str
    started_ms: int
    process: str
    kafkalake_version: str


class JobLock:
    """The lock while it is held. unrecorded: the earlier runs whose end is not in `job_runs`, the oldest first."""

    def __init__(self, file: IO[str], unrecorded: Sequence[LockHolder], own: LockHolder) -> None:
        self.unrecorded = unrecorded
        self._file = file
        self._own = own

    def earlier_are_recorded(self) -> None:
        """Forget the earlier runs."""
        self.unrecorded = ()
        _write(self._file, [self._own])

    def is_recorded(self) -> None:
        """Forget the run that holds the lock."""
        _write(self._file, self.unrecorded)


@contextmanager
def exclusive_job_lock(lake: Path, job: str, run_id: str, started_ms: int) -> Iterator[JobLock]:
    """Hold the lock of a job on a lake. Raise `LakeError` while another process holds it."""
    with open(open_lock_file(paths.job_lock_path(lake, job)), "r+") as file:
        free = try_flock(file.fileno())
        named = _named(file)
        if not free:
            holder = named[-1].process if named else "another process"
            raise LakeError(f"already running on {lake}: {holder}; let it end, or end it, and run this again")
        own = LockHolder(run_id, started_ms, f"process {os.getpid()} of {os.uname().nodename}", __version__)
        _write(file, [*named[-_UNRECORDED_MAX:], own])
        yield JobLock(file, named, own)


def _named(file: IO[str]) -> list[LockHolder]:
    """Return the runs in the file, without what is being written."""
    file.seek(0)
    found = []
    for line in file:
        with suppress(ValueError, TypeError):
            found.append(LockHolder(**json.loads(line)))
    return found


def _write(file: IO[str], runs: Sequence[LockHolder]) -> None:
    file.seek(0)
    file.truncate()
    file.write("".join(json.dumps(asdict(run)) + "\n" for run in runs))
    file.flush()
