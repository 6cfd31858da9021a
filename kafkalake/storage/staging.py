"""The staging area of a lake: what jobs have written and no broker has appended yet, and which of it nobody will ask for.

    <lake>/staging/<job>/task-<number>-<attempt>.arrow   one staged file a task attempt (`staged_file.py`)
    <lake>/staging/<job>/.asked                          the broker was asked to append them, and the answer never came
    <lake>/staging/.commits/<name>.json                  what a writing application has committed (the broker's)

A job removes its own directory. What a killed job leaves is found here by its age: a maintenance job calls `stale_staging` and
`remove_staged`. A directory that a broker is reading at that moment is not lost silently: the append is then aborted as a whole.
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
"""How long nothing was written to a job's directory before it counts as left behind, unless the caller says otherwise."""
COMMITS_KEPT_MS = 30 * 24 * 3_600_000
"""How long an application that no longer writes is remembered."""


@dataclass(frozen=True, slots=True)
class StagedJob:
    """A directory of staged files, or a remembered application that nobody has heard of for long.

    newest_ms: when something in it was last written, wall clock.
    """

    path: Path
    files: int
    bytes: int
    newest_ms: int


def staging_path(lake: Path) -> Path:
    """Where jobs stage."""
    return lake / STAGING_DIRECTORY


def commits_path(lake: Path) -> Path:
    """Where the broker remembers what applications have committed."""
    return lake / STAGING_DIRECTORY / COMMITS_DIRECTORY


def stale_staging(
    lake: Path, now_ms: int, *, older_than_ms: int = STALE_MS, commits_older_than_ms: int = COMMITS_KEPT_MS
) -> list[StagedJob]:
    """What may go, oldest first: jobs nothing was written to for `older_than_ms`, applications for `commits_older_than_ms`.

    What disappears meanwhile is passed over. Raises `OSError` where the staging area cannot be listed.
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
    """Remove what `stale_staging` found; no error where it is gone. Raises `OSError`."""
    if job.path.is_dir():
        remove_directory(job.path)
    else:
        job.path.unlink(missing_ok=True)


def remove_directory(path: Path) -> None:
    """Remove a job's directory, also while others do. Raises `OSError`."""
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
