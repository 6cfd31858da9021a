"""How a job removes and replaces sealed segments: with the broker up, which follows at its next publish, or with none.

**Replacing.** The new segments are written beside the old ones first, as files of a higher generation, and forced to the disk.
One commit to `segments` then makes them count (`swap`): readers that plan afterwards read them, those that planned before
go on with the old files, which are kept for `file.delete.delay.ms`. A job that dies before the commit has changed nothing;
what it left is found by name (`storage/generations.py`).

**Removing** (`remove_before`) is the commit of a log start to `cleaning`: from then on no reader reads what lies below. That the
rows of `segments` go, and the files, follows from it, and is done by whoever comes next: this job, another run of
it, or the broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from kafkalake.clock import Clock
from kafkalake.errors import SegmentsChangedError
from kafkalake.metadata.lease import is_running
from kafkalake.metadata.schemas import CleaningRow, SegmentRow
from kafkalake.metadata.store import MetadataStore


def swap(store: MetadataStore, lake: Path, old: Sequence[SegmentRow], new: Sequence[SegmentRow], clock: Clock) -> int:
    """Have `new` count in place of `old`, which are whole segments of the same ranges; the version of `segments` that says so.

    The files of `new` must be on the disk. Raises `SegmentsChangedError` where `old` is not there any more, and nothing is
    changed; `KafkaStorageError`.
    """
    version = store.swap_segments(old, new)
    _stamp_where_stopped(store, lake, {leader_of(row) for row in old}, clock)
    return version


def remove_before(store: MetadataStore, lake: Path, removals: Sequence[CleaningRow], clock: Clock) -> int:
    """Move the beginning of partitions to the `log_start_offset` of each row; returns the version of `cleaning` that says so.

    That offset is the base offset of a sealed segment or the end of the last one, and not above the high watermark. Safe to
    repeat; a log start never goes back. Raises `KafkaStorageError`.
    """
    version = store.update_cleaning(removals)
    starts = {row.key: row.log_start_offset for row in store.load_cleaning()}
    wanted = {row.key for row in removals}

    def removed() -> list[SegmentRow]:
        rows = [row for row in store.load_segments() if (row.topic_id, row.partition) in wanted]
        return [row for row in rows if row.next_offset <= starts[row.topic_id, row.partition]]

    old = removed()
    while old:
        try:
            store.swap_segments(old, [])
            break
        except SegmentsChangedError:  # the broker has followed already
            old = removed()
    leaders = {row.leader for row in store.load_partitions() if (row.topic_id, row.partition) in wanted}
    _stamp_where_stopped(store, lake, leaders, clock)
    return version


def _stamp_where_stopped(store: MetadataStore, lake: Path, leaders: Iterable[int], clock: Clock) -> None:
    """Have `partitions` name the new state where no broker runs that would publish it."""
    for leader in sorted(leaders):
        if not is_running(store, lake, leader, clock):
            store.stamp_partitions(leader)


def leader_of(row: SegmentRow) -> int:
    """The broker in whose directory a segment lies: `logs/<broker id>/...`."""
    return int(row.path.split("/")[1])
