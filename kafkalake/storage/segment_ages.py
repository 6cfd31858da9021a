"""How old and how big the segments of a log are, for retention: looked up once a sealed segment, which never changes."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalake.storage.active_segment import ActiveSegment
from kafkalake.storage.retention import SealedRange
from kafkalake.storage.scanner import scan_segment
from kafkalake.storage.segment import Segment


class SegmentAges:
    """Remembers what it has found, as long as the segment is part of the log. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, SealedRange] = {}

    def of(self, segments: Sequence[tuple[Segment, int]]) -> list[SealedRange]:
        """Return what retention asks of sealed segments, each given with the offset where it ends. Raises `OSError`."""
        known = self._known
        self._known = {
            segment.path: known.get(segment.path) or _range_of(segment, next_offset)
            for segment, next_offset in segments
        }
        return list(self._known.values())


def _range_of(segment: Segment, next_offset: int) -> SealedRange:
    """As Kafka: a segment without timestamps is as old as its file."""
    largest = segment.time_index.last()
    if largest is not None and largest[1] == next_offset - segment.base_offset:
        timestamp_ms = largest[0]
    else:  # the index is lost or damaged
        timestamp_ms = scan_segment(segment).content.max_timestamp
    if timestamp_ms < 0:
        timestamp_ms = segment.modified_ms()
    return SealedRange(segment.base_offset, next_offset, segment.size_bytes(), timestamp_ms)


def range_of_active(active: ActiveSegment, end_offset: int) -> SealedRange:
    """Return the same of a segment that is still written to, as if it were sealed now. Raises `OSError`."""
    timestamp_ms = active.content.max_timestamp
    if timestamp_ms < 0:
        timestamp_ms = active.modified_ms()
    return SealedRange(active.base_offset, end_offset, active.size_bytes(), timestamp_ms)
