"""Reads a segment file from any process, without a lock, while a broker may be appending to it.

The offset index gives the start position and is not trusted. Data is verified in bounded chunks. `to_offset` must not exceed the
end in `state` (or Delta): below it every message is whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from kafkalake.errors import CorruptSegmentError
from kafkalake.record import layout as at
from kafkalake.record.message_set import MessageSet
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.segment import Segment, parse_name

CHUNK_BYTES = 4 << 20


def open_segment(path: str | os.PathLike[str], open_files: OpenFiles | None = None) -> Segment:
    """Return the segment at `path`. Raise `ValueError` if the file name is not a segment's."""
    directory, name = os.path.split(os.fspath(path))
    parsed = parse_name(name)
    if parsed is None:
        raise ValueError(f"{name} is no name of a segment")
    return Segment(directory or ".", parsed.base_offset, open_files or OpenFiles(limit=8), parsed.generation)


def read_messages(
    path: str | os.PathLike[str],
    from_offset: int,
    to_offset: int,
    columns: int = at.ALL_COLUMNS,
    *,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[MessageSet]:
    """Yield whole messages with offsets in [from_offset, to_offset) in chunks, verified in `columns` (a bit mask).

    The first may begin below `from_offset`, the last may end past `to_offset`. Raise `CorruptSegmentError` on damage or if the
    unsealed file ends before `to_offset`, `OSError` if I/O fails.
    """
    segment = open_segment(path)
    position = segment.locate(from_offset)
    next_offset = from_offset
    while position is not None and next_offset < to_offset:
        found = segment.read(position, chunk_bytes, to_offset, columns)
        if found is None:
            break
        yield found.messages
        position, next_offset = found.end, found.messages.next_offset
    if next_offset < to_offset and not (segment.end() and segment.whole):
        raise CorruptSegmentError(segment.path, segment.end(), f"records from offset {next_offset} on are missing")
