"""The staging area of a lake: files written by jobs and not yet appended by a broker, and the removal of stale ones.

    <lake>/staging/<job>/task-<number>-<attempt>.arrow   one staged file per task attempt (`staged_file.py`)
    <lake>/staging/<job>/.asked                          an append request to the broker got no response
    <lake>/staging/.commits/<name>.json                  the commits of a writing application (written by the broker)

A job removes its own directory. Leftovers of killed jobs are found by age: a maintenance job calls `stale_staging` and
`remove_staged`. Removing a directory that a broker is reading does not lose data silently: the whole append is aborted.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

STAGING_DIRECTORY = "staging"
COMMITS_DIRECTORY = ".commits"
ASKED_FILE = ".asked"
STALE_MS = 24 * 3_600_000
"""The default time without a write after which a job's directory is stale."""
COMMITS_KEPT_MS = 30 * 24 * 3_600_000
"""The time that the commits of an application are kept after its last write."""


@dataclass(frozen=True, slots=True)
class StagedJob:
    """A directory of staged files, or the commits file of an application.

    newest_ms: time of the last write in it, wall clock.
    """

    path: Path
    files: int
    bytes: int
    newest_ms: int


def staging_path(lake: Path) -> Path:
    """Return the staging directory of a lake."""
    return lake / STAGING_DIRECTORY


def commits_path(lake: Path) -> Path:
    """Return the directory of the applications' commits."""
    return lake / STAGING_DIRECTORY / COMMITS_DIRECTORY


def stale_staging(
    lake: Path, now_ms: int, *, older_than_ms: int = STALE_MS, commits_older_than_ms: int = COMMITS_KEPT_MS
) -> list[StagedJob]:
    """Return jobs without a write for `older_than_ms` and applications for `commits_older_than_ms`, oldest first.

    Skips files that disappear meanwhile. Raise `OSError` if the staging area cannot be listed.
    """
    found = [job for job in _jobs(staging_path(lake)) if now_ms - job.newest_ms >= older_than_ms]
    for path in _entries(commits_path(lake)):
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            job = StagedJob(path, 1, status.st_size, status.st_mtime_ns // 1_000_000)
            if now_ms - job.newest_ms >= commits_older_than_ms:
                found.append(job)
    return sorted(found, key=lambda job: (job.newest_ms, job.path))


def remove_staged(job: StagedJob) -> None:
    """Remove a result of `stale_staging`. It may already be gone. Raise `OSError` if I/O fails."""
    if job.path.is_dir():
        remove_directory(job.path)
    else:
        job.path.unlink(missing_ok=True)


def remove_directory(path: Path) -> None:
    """Remove a job's directory, also concurrently with other processes. Raise `OSError` if I/O fails."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


def _jobs(staging: Path) -> Iterator[StagedJob]:
    for directory in _entries(staging):
        if directory.name == COMMITS_DIRECTORY or not directory.is_dir():
            continue
        with contextlib.suppress(FileNotFoundError):
            statuses = [directory.stat(), *(path.stat() for path in directory.iterdir())]
            newest = max(status.st_mtime_ns for status in statuses) // 1_000_000
            yield StagedJob(directory, len(statuses) - 1, sum(status.st_size for status in statuses[1:]), newest)


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except FileNotFoundError:
        return []
