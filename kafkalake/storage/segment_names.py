"""The names of a segment's files: the records, the indexes beside them. Free of numba, for planners of reads."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from kafkalake.errors import LakeError

DATA_SUFFIX = ".arrow"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SUFFIXES = (DATA_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class SegmentName(NamedTuple):
    """The parts of a segment file's name. `generation` 0: written by the log. Each rewrite by a job increments it."""

    base_offset: int
    generation: int
    suffix: str


_NAME = re.compile(r"(\d{20})(?:-([1-9]\d{0,9}))?(\.\w+)")


def file_name(base_offset: int, suffix: str = DATA_SUFFIX, generation: int = 0) -> str:
    """Return the file name: 20 digits, `-` and the generation if not 0, and the suffix."""
    return f"{base_offset:020d}-{generation}{suffix}" if generation else f"{base_offset:020d}{suffix}"


def parse_name(name: str) -> SegmentName | None:
    """Return the parts of a name made by `file_name`, with any suffix of one part. None for other names."""
    found = _NAME.fullmatch(name)
    return SegmentName(int(found[1]), int(found[2] or 0), found[3]) if found else None


def begins_from(name: str, offset: int) -> bool:
    """Return whether `name` is that of a segment's file, of any generation, with a base offset at or above `offset`."""
    parsed = parse_name(name)
    return parsed is not None and parsed.suffix in SUFFIXES and parsed.base_offset >= offset


def name_of(location: str | os.PathLike[str]) -> SegmentName:
    """Return the parts of the name of the segment at `location`. Raise `LakeError` if it is no name of a segment."""
    name = os.path.basename(os.fspath(location))
    parsed = parse_name(name)
    if parsed is None:
        raise LakeError(f"{name} is no name of a segment")
    return parsed
