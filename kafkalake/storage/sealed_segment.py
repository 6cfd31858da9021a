"""The description of a sealed segment for other packages."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalake.storage.active_segment import SegmentContent
from kafkalake.storage.segment import Segment
from kafkalake.storage.segment_kernels import NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A sealed segment, as in the Delta table `segments`.

    Offsets [base_offset, next_offset). `path`: relative or absolute as the log's directory. `bytes`: of the data file.
    Timestamps in ms, None without records.
    """

    base_offset: int
    next_offset: int
    path: str
    records: int
    bytes: int
    min_timestamp: int | None
    max_timestamp: int | None
    sealed_at_ms: int
    generation: int = 0


def smallest_of(content: SegmentContent) -> int | None:
    """Return the smallest timestamp (ms) of the records, None without records."""
    return content.min_timestamp if content.min_timestamp != NO_TIMESTAMP else None


def describe(segment: Segment, content: SegmentContent, size: int, sealed_at_ms: int) -> SealedSegment:
    """Return the description of `segment` with `content` in `size` bytes."""
    return SealedSegment(
        segment.base_offset,
        content.next_offset,
        segment.path,
        content.records,
        size,
        smallest_of(content),
        content.max_timestamp if content.max_timestamp >= 0 else None,
        sealed_at_ms,
        segment.generation,
    )
