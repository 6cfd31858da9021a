"""Says where in a segment to begin, by the indexes beside it: for planners of reads, and without what is compiled."""

from __future__ import annotations

import os

from kafkalake.record.arrays import Int64s
from kafkalake.storage.files import REAL_FILES, Files
from kafkalake.storage.index import Index, read_entries
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.segment_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, file_name, name_of


def index_entries(location: str | os.PathLike[str], files: Files = REAL_FILES) -> tuple[Int64s, Int64s]:
    """Return offsets and positions (ascending, int64[n]) in the offset index of the segment at `location`, as hints.

    They are not verified. There are none if the index cannot be read.
    """
    return read_entries(files, _beside(location, INDEX_SUFFIX))


def offset_by_time(location: str | os.PathLike[str], timestamp_ms: int, files: Files = REAL_FILES) -> int:
    """Return the largest offset below which the time index of the segment at `location` shows every record to be older.

    That is the segment's first one if the index cannot be read.
    """
    open_files, path = OpenFiles(files, 1), _beside(location, TIME_INDEX_SUFFIX)
    try:
        entry = Index(path, open_files).lookup(timestamp_ms - 1, skip=1)
    finally:
        open_files.forget(path)
    return name_of(location).base_offset + (0 if entry is None else entry[1])


def _beside(location: str | os.PathLike[str], suffix: str) -> str:
    name = name_of(location)
    return f"{os.path.dirname(os.fspath(location))}/{file_name(name.base_offset, suffix, name.generation)}"
