"""Allows one run of a kind on a lake at a time, and detects runs whose end was not recorded, such as killed ones.

The lock is the kernel's (`flock`) and released when the process ends. The file names the holder, in a line of JSON, until
`job_runs` has its end. The next run first records the runs that a free lock names.

Runs of a kind that may be side by side, as they write to different outputs, have a file each, which goes with its run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from kafkalake import __version__
from kafkalake.errors import LakeError
from kafkalake.metadata import paths
from kafkalake.metadata.lock_file import is_at, open_lock_file, try_flock
from kafkalake.storage.files import REAL_FILES, write_all

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

    def __init__(self, path: Path, descriptor: int, unrecorded: Sequence[LockHolder], own: LockHolder) -> None:
        self.unrecorded = unrecorded
        self._path = path
        self._descriptor = descriptor
        self._own = own

    def earlier_are_recorded(self) -> None:
        """Forget the earlier runs. Raise `LakeError` if the file cannot be written."""
        self.unrecorded = ()
        _write(self._path, self._descriptor, [self._own])

    def is_recorded(self) -> None:
        """Forget the run that holds the lock. Raise `LakeError` if the file cannot be written."""
        _write(self._path, self._descriptor, self.unrecorded)


@contextmanager
def exclusive_job_lock(lake: Path, job: str, run_id: str, started_ms: int) -> Iterator[JobLock]:
    """Hold the lock of a job on a lake. Raise `LakeError` while another process holds it, or if its file cannot be written."""
    path = paths.job_lock_path(lake, job)
    descriptor = open_lock_file(path)
    try:
        free = try_flock(descriptor)
        named = _named(path)
        if not free:
            holder = named[-1].process if named else "another process"
            raise LakeError(f"already running on {lake}: {holder}; let it end, or end it, and run this again")
        own = _holder(run_id, started_ms)
        _write(path, descriptor, [*named[-_UNRECORDED_MAX:], own])
        yield JobLock(path, descriptor, named, own)
    finally:
        os.close(descriptor)


class ParallelJobLock:
    """The lock of one of several runs while it is held. unrecorded: as in `JobLock`."""

    def __init__(self, path: Path, earlier: Mapping[Path, LockHolder], held: ExitStack) -> None:
        self._path = path
        self._earlier = earlier
        self._held = held

    @property
    def unrecorded(self) -> Sequence[LockHolder]:
        return list(self._earlier.values())

    def earlier_are_recorded(self) -> None:
        """Remove the files of the earlier runs, and release their locks. Raise `OSError` if that fails."""
        for path in self._earlier:
            path.unlink(missing_ok=True)
        self._earlier = {}
        self._held.close()

    def is_recorded(self) -> None:
        """Remove the file of the run that holds the lock. Raise `OSError` if that fails."""
        self._path.unlink(missing_ok=True)


@contextmanager
def parallel_job_lock(lake: Path, job: str, run_id: str, started_ms: int) -> Iterator[ParallelJobLock]:
    """Hold a lock of a run of a job that may run beside others. Raise `LakeError` if its file cannot be written."""
    path = paths.job_lock_path(lake, f"{job}.{run_id}")
    with ExitStack() as own, ExitStack() as held:
        descriptor = open_lock_file(path)
        own.callback(os.close, descriptor)
        if not try_flock(descriptor):
            raise LakeError(f"the lock file {path} is held by another process")
        try:
            _write(path, descriptor, [_holder(run_id, started_ms)])
        except LakeError:
            path.unlink(missing_ok=True)
            raise
        yield ParallelJobLock(path, dict(_ended(job, path, held)), held)


def _ended(job: str, own: Path, held: ExitStack) -> Iterator[tuple[Path, LockHolder]]:
    """Yield the runs of a job whose process has ended, each with its file, whose lock is held for as long as `held`."""
    for path in sorted(own.parent.glob(f"{job}.*{own.suffix}")):
        if path == own:
            continue
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # its run has ended, or another one has recorded it
        held.callback(os.close, descriptor)
        if try_flock(descriptor, attempts=1) and is_at(path, descriptor):
            for holder in _named(path):  # none while it is being written
                yield path, holder


def _holder(run_id: str, started_ms: int) -> LockHolder:
    return LockHolder(run_id, started_ms, f"process {os.getpid()} of {os.uname().nodename}", __version__)


def _named(path: Path) -> list[LockHolder]:
    """Return the runs in the file, without what is being written."""
    found = []
    for line in path.read_bytes().splitlines():
        with suppress(ValueError, TypeError):
            found.append(LockHolder(**json.loads(line)))
    return found


def _write(path: Path, descriptor: int, runs: Sequence[LockHolder]) -> None:
    """Write the runs. Those that the file begins with stay in it where that fails, such as on a full disk."""
    content = "".join(json.dumps(asdict(run)) + "\n" for run in runs).encode()
    try:
        write_all(REAL_FILES, descriptor, content, 0)
        REAL_FILES.truncate(descriptor, len(content))
    except OSError as error:
        raise LakeError(f"the lock file {path} cannot be written: {error.strerror}") from error
