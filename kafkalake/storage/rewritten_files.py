"""The files of rewritten segments in a partition's directory, while a job writes, moves and removes them.

A run writes below a directory of its own, in that of the partition, and then moves whole segments beside the old ones. Nothing
there counts before a commit names it (`generations.py`), so the next run removes what a killed one left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from kafkalake.storage.files import REAL_FILES
from kafkalake.storage.generations import RewrittenSegment, StaleFiles, stale_files
from kafkalake.storage.segment_names import SUFFIXES, file_name

RUN_PREFIX = ".compaction-"


@contextlib.contextmanager
def run_directory(directory: Path, run_id: str) -> Iterator[Path]:
    """Make the directory of a run, and remove it with what is left in it. Raise `OSError` if it cannot be made."""
    own = directory / f"{RUN_PREFIX}{run_id}"
    own.mkdir()
    try:
        yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)


def task_directory(run: str) -> str:
    """Make a directory of its own for a task, which may run twice, in that of its run, and return it.

    Raise `FileNotFoundError` if the run was killed and another one has cleaned up.
    """
    directory = os.path.join(run, uuid.uuid4().hex)
    os.mkdir(directory)
    return directory


def move_segment(source: str, directory: Path, base_offset: int, generation: int) -> Path:
    """Move a segment with its indexes, the data last, and return its new path. Raise `OSError` if I/O fails."""
    names = [file_name(base_offset, suffix, generation) for suffix in reversed(SUFFIXES)]
    for name in sorted(set(REAL_FILES.list(source)).intersection(names), key=names.index):
        REAL_FILES.rename(os.path.join(source, name), str(directory / name))
    return directory / file_name(base_offset, generation=generation)


def remove_segment(directory: Path, base_offset: int, generation: int) -> None:
    """Remove a segment with its indexes. Raise `OSError` if I/O fails."""
    remove_files(directory, [file_name(base_offset, suffix, generation) for suffix in SUFFIXES])


def remove_files(directory: Path, names: Sequence[str]) -> None:
    """Remove files, those that are there. Raise `OSError` if I/O fails."""
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            REAL_FILES.unlink(str(directory / name))


def remove_runs(directory: Path, current: Sequence[RewrittenSegment], log_start_offset: int) -> StaleFiles:
    """Remove what killed runs left, as of the segments in Delta. Return the stale files that there were, the old ones stay."""
    names = REAL_FILES.list(str(directory))
    for name in names:
        if name.startswith(RUN_PREFIX):
            shutil.rmtree(directory / name, ignore_errors=True)
    stale = stale_files(names, current, log_start_offset)
    remove_files(directory, stale.uncommitted)
    return stale
