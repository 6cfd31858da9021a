"""The age and size of a log's segments, for retention. Looked up once per sealed segment, because it never changes.

A log that was truncated has other objects for its segments: a file of the same name may have other records.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkalake.storage.active_segment import ActiveSegment
from kafkalake.storage.retention import SealedRange
from kafkalake.storage.scanner import scan_segment
from kafkalake.storage.segment import Segment


class SegmentAges:
    """A cache of the ages and sizes, for as long as each segment is part of the log. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[Segment, SealedRange] = {}

    def of(self, segments: Sequence[tuple[Segment, int]]) -> list[SealedRange]:
        """Return retention's input for sealed segments, each passed with its end offset. Raise `OSError` if I/O fails."""
        known = self._known
        self._known = {
            segment: known.get(segment) or _range_of(segment, next_offset) for segment, next_offset in segments
        }
        return list(self._known.values())


def _range_of(segment: Segment, next_offset: int) -> SealedRange:
    """Return retention's input. Without timestamps the file's modification time counts, as in Kafka."""
    largest = segment.time_index.last()
    if largest is not None and largest[1] == next_offset - segment.base_offset:
        timestamp_ms = largest[0]
    else:  # the index is lost or damaged
        timestamp_ms = scan_segment(segment).content.max_timestamp
    if timestamp_ms < 0:
        timestamp_ms = segment.modified_ms()
    return SealedRange(segment.base_offset, next_offset, segment.size_bytes(), timestamp_ms)


def range_of_active(active: ActiveSegment, end_offset: int) -> SealedRange:
    """Return retention's input for the active segment, as if it were sealed now. Raise `OSError` if I/O fails."""
    timestamp_ms = active.content.max_timestamp
    if timestamp_ms < 0:
        timestamp_ms = active.modified_ms()
    return SealedRange(active.base_offset, end_offset, active.size_bytes(), timestamp_ms)
