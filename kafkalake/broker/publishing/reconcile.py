"""Compares the sealed segments of logs with the table `segments`. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafkalake.metadata.tables.schemas import SegmentKey, SegmentRow
from kafkalake.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Repair:
    """The differences of `segments` from the disk: `missing` (sealed on disk, not published) and `gone` (published, no file)."""

    missing: tuple[SegmentRow, ...]
    gone: tuple[SegmentKey, ...]


def reconcile(sealed_on_disk: Iterable[SegmentRow], published: Iterable[SegmentRow]) -> Repair:
    """Compare a broker's sealed segments with Delta after a kill between log and publish, and return the differences.

    `published` must be of these logs only. A segment whose content differs from the published one counts as
    missing, and publishing it replaces the row. A segment on disk that begins in the range of a published newer generation is not
    missing: compaction, which swaps whole segments, has replaced it, and it will be deleted. It is missing if the log has refused
    that generation.
    """
    on_disk = {row.key: row for row in sealed_on_disk}
    in_delta = {row.key: row for row in published}
    newer: dict[TopicPartition, list[SegmentRow]] = {}
    for row in in_delta.values():
        if row.generation > 0 and row.key in on_disk:
            newer.setdefault((row.topic_id, row.partition), []).append(row)
    missing = [
        row
        for key, row in on_disk.items()
        if not (key in in_delta and in_delta[key].same_content(row)) and not _is_covered(row, newer)
    ]
    return Repair(tuple(missing), tuple(key for key in in_delta if key not in on_disk))


def _is_covered(row: SegmentRow, newer: dict[TopicPartition, list[SegmentRow]]) -> bool:
    return any(
        other.generation > row.generation and other.base_offset <= row.base_offset < other.next_offset
        for other in newer.get((row.topic_id, row.partition), ())
    )
