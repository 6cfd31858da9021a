"""Sealed segments written again with the same records under a new generation: what tests of the swap put beside the old ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kafkalake.metadata import paths
from kafkalake.metadata.tables.schemas import SegmentRow
from kafkalake.storage.active_segment import ActiveSegment
from kafkalake.storage.files import REAL_FILES
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.scanner import scan_segment
from kafkalake.storage.segment_reader import SEGMENTS


def rewritten(lake: Path, rows: Sequence[SegmentRow], generation: int) -> SegmentRow:
    """One segment of `generation` with all messages of `rows`, on the disk; its row of `segments`."""
    open_files = OpenFiles(REAL_FILES, 16)
    first = lake / rows[0].path
    new = ActiveSegment(
        str(first.parent),
        rows[0].base_offset,
        open_files,
        index_interval_bytes=64,
        earlier_max_timestamp=-1,
        generation=generation,
    )
    for row in rows:
        old = SEGMENTS.segment(lake / row.path, open_files)

        def copy(messages: object, origin: int, old: object = old) -> None:
            for number in range(len(messages)):  # type: ignore[arg-type]
                one = messages.slice(number, number + 1)  # type: ignore[attr-defined]
                begin, end = one.positions.tolist()
                data = old.read_bytes(origin + begin, end - begin).tobytes()  # type: ignore[attr-defined]
                largest = int(one.headers[:, 8].max())
                new.append([data], one.base_offset, one.rows, one.next_offset, largest, largest, one.base_offset)

        scan_segment(old, copy)
    new.seal()
    return replace(
        rows[0],
        next_offset=rows[-1].next_offset,
        generation=generation,
        path=paths.relative_path(lake, Path(new.path)),
        records=sum(row.records for row in rows),
        bytes=Path(new.path).stat().st_size,
        min_timestamp_ms=min(row.min_timestamp_ms or 0 for row in rows),
        max_timestamp_ms=max(row.max_timestamp_ms or 0 for row in rows),
    )
