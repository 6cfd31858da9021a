"""Compares the sealed segments of logs with the table `segments`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kafkalake.metadata.tables.schemas import SegmentKey, SegmentRow


@dataclass(frozen=True, slots=True)
class Repair:
    """The differences of `segments` from the disk: `missing` (sealed on disk, not published) and `gone` (published, no file)."""

    missing: tuple[SegmentRow, ...]
    gone: tuple[SegmentKey, ...]


def reconcile(sealed_on_disk: Iterable[SegmentRow], published: Iterable[SegmentRow]) -> Repair:
    """Compare a broker's sealed segments with Delta after a kill between log and publish, and return the differences.

    `published` must be of these logs only. A segment whose content differs from the published one counts as
    missing, and publishing it replaces the row. So does one that a job has rewritten, which publishing does not add again, unless
    the log has refused what was rewritten: that is gone then.
    """
    on_disk = {row.key: row for row in sealed_on_disk}
    in_delta = {row.key: row for row in published}
    missing = [row for key, row in on_disk.items() if not (key in in_delta and in_delta[key].same_content(row))]
    return Repair(tuple(missing), tuple(key for key in in_delta if key not in on_disk))


def lost_rows(published: Iterable[SegmentRow], borders: Sequence[int]) -> dict[SegmentKey, SegmentRow]:
    """Return the rows of records that an unclean election has lost, by key.

    borders: as `LogReader.segment_borders`. All replicas have the same, so a segment that begins or ends elsewhere is of another
    history. One that a job has rewritten may not be here yet: only the log end counts, as for the active segment, which goes on.
    """
    *sealed, active, end = borders
    ends = dict(pairwise((*sealed, active)))

    def is_lost(row: SegmentRow) -> bool:
        if row.generation or row.base_offset < borders[0] or row.base_offset == active:
            return row.next_offset > end
        return ends.get(row.base_offset) != row.next_offset

    return {row.key: row for row in published if is_lost(row)}


def still_there(
    rows: Iterable[SegmentRow], bases: Collection[int], generation_of: Callable[[int], int]
) -> list[SegmentRow]:
    """Return the rows whose segments a log has now. It may have reported since `reconcile` that another one is removed or replaced.

    bases: the base offsets of its sealed segments.
    """
    there = frozenset(bases)
    return [row for row in rows if row.base_offset in there and row.generation == generation_of(row.base_offset)]
