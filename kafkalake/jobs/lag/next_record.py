"""Timestamps of single records, for the lag in seconds: reads the index of their segment, then a few messages there.

Places in one segment are read together, in order, so that many groups in one partition cost little more than one. A large
number of segments is distributed over Spark's tasks.

A record that is damaged is passed over, with a warning: the group that stands before it is the one whose lag must be seen.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kafkalake.errors import CorruptSegmentError, LakeError
from kafkalake.reader.read import PartitionSnapshot
from kafkalake.record import layout as at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalake.storage.segment_reader import SegmentReader

logger = logging.getLogger(__name__)

SPARK_SEGMENTS = 50_000
"""Number of segments to read from which on Spark's tasks share them."""

_SEGMENTS_OF_TASK = 2_000
_CHUNK_BYTES = 16 << 10
_COLUMNS = at.OFFSET_COLUMN | at.TIMESTAMP_COLUMN


class SegmentPart(NamedTuple):
    """Offsets [base_offset, end_offset) of a segment file, of which the first `size` bytes may be read (-1: all)."""

    path: str
    size: int
    base_offset: int
    end_offset: int


class RecordLookup(NamedTuple):
    """An offset, and the segments that may hold the first record at or after it, nearest first."""

    offset: int
    segments: tuple[SegmentPart, ...]


def place_of(snapshot: PartitionSnapshot, offset: int) -> RecordLookup:
    """Return the place of the first record at or after `offset` in a partition."""
    segments = tuple(
        SegmentPart(each.path, each.readable_bytes, each.base_offset, min(each.next_offset, snapshot.end_offset))
        for each in snapshot.segments
        if each.next_offset > offset
    )
    return RecordLookup(offset, segments)


def timestamps_of(places: Sequence[RecordLookup], spark: Callable[[], SparkSession] | None) -> list[int | None]:
    """Return the timestamp (ms) of the first record at or after each place's offset that can be read, or None if none can.

    spark: returns a session, called if there is much to read (None: all is read here).
    """
    found: list[int | None] = [None] * len(places)
    left = list(range(len(places)))
    depth = 0
    while left:  # almost always once: a compacted or damaged segment may have no record after an offset
        wanted: dict[SegmentPart, set[int]] = defaultdict(set)
        left = [number for number in left if depth < len(places[number].segments)]
        for number in left:
            place = places[number]
            wanted[place.segments[depth]].add(max(place.offset, place.segments[depth].base_offset))
        read = _read_all([(part, sorted(offsets)) for part, offsets in wanted.items()], spark)
        for number in left:
            place = places[number]
            part = place.segments[depth]
            found[number] = read[part].get(max(place.offset, part.base_offset))
        left = [number for number in left if found[number] is None]
        depth += 1
    return found


_Wanted = tuple[SegmentPart, list[int]]


def _read_all(wanted: Sequence[_Wanted], spark: Callable[[], SparkSession] | None) -> dict[SegmentPart, dict[int, int]]:
    if spark is None or len(wanted) < SPARK_SEGMENTS:
        return dict(_read(wanted))
    tasks = -(-len(wanted) // _SEGMENTS_OF_TASK)
    return dict(spark().sparkContext.parallelize(wanted, tasks).mapPartitions(_read).collect())


def _read(wanted: Iterable[_Wanted]) -> Iterator[tuple[SegmentPart, dict[int, int]]]:
    for part, offsets in wanted:
        yield part, read_timestamps(part, offsets)


def read_timestamps(part: SegmentPart, offsets: Sequence[int]) -> dict[int, int]:
    """Return, by offset of `offsets` (ascending, in the part), the timestamp of the part's first record at or after it, if any.

    Empty if retention has removed the file. Offsets before damage that hides their record are left out.
    """
    from kafkalake.reader.opened_segment import open_segment  # imports numba

    found: dict[int, int] = {}
    left = deque(offsets)
    try:
        with open_segment(part.path, part.size, first_chunk_bytes=_CHUNK_BYTES) as reader:
            while left:
                first = left[0]
                try:
                    if not _read_from(reader, part, left, found):
                        break
                except (CorruptSegmentError, OSError) as error:
                    logger.warning("the age of a record is not known: %s", error)
                    if left[0] == first:
                        left.popleft()
    except LakeError as error:
        if type(error) is not LakeError:
            raise
    return found


def _read_from(reader: SegmentReader, part: SegmentPart, left: deque[int], found: dict[int, int]) -> bool:
    """Look up `left` from its first offset on, as long as it is near. Return whether to continue elsewhere in the file."""
    from kafkalake.record.message_set import to_arrow

    for messages in reader.messages(left[0], part.end_offset, _COLUMNS):
        if messages.rows:
            batch = to_arrow(messages, _COLUMNS)
            here = batch.column("offset").to_numpy()
            times = batch.column("timestamp").cast("int64").to_numpy()
            while left and left[0] <= here[-1]:
                offset = left.popleft()
                row = int(np.searchsorted(here, offset))
                if here[row] < part.end_offset:
                    found[offset] = int(times[row])
        if not left or left[0] >= messages.next_offset:
            return bool(left)
    return False
