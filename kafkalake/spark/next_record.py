"""The timestamp of one record: its segment's index, then the few messages at that place. What a lag in seconds is made of.

Reading is little work and much waiting, one place at a time; so many places that it takes long are shared among Spark's tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kafkalake.errors import LakeError
from kafkalake.spark.columns import OFFSET, TIMESTAMP
from kafkalake.spark.segment_scan import SegmentScan
from kafkalake.spark.snapshot import PartitionSnapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS = 32
_CHUNK_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class Place:
    """An offset, and where it may be: (path, readable bytes, base offset, next offset) of the segments from it on."""

    offset: int
    segments: tuple[tuple[str, int, int, int], ...]


def place_of(snapshot: PartitionSnapshot, offset: int) -> Place:
    """Where in a partition the first record at or after `offset` is."""
    segments = tuple(
        (each.path, each.readable_bytes, each.base_offset, min(each.next_offset, snapshot.end_offset))
        for each in snapshot.segments
        if each.next_offset > offset
    )
    return Place(offset, segments)


def timestamp_of(place: Place) -> int | None:
    """Timestamp (ms) of the first record at or after the place's offset; None where there is none, or it was removed meanwhile.

    Raises `CorruptSegmentError`.
    """
    from kafkalake.record.message_set import to_arrow

    for path, size, base_offset, end_offset in place.segments:
        start = max(place.offset, base_offset)
        if start >= end_offset:
            continue
        try:
            with SegmentScan(path, size, first_chunk_bytes=_CHUNK_BYTES) as scan:
                for messages in scan.messages(start, end_offset, OFFSET | TIMESTAMP):
                    if not messages.rows:
                        continue
                    batch = to_arrow(messages, OFFSET | TIMESTAMP)
                    offsets = batch.column("offset").to_numpy()
                    at = int(np.searchsorted(offsets, start))
                    if at < len(offsets) and offsets[at] < end_offset:
                        return int(batch.column("timestamp").cast("int64")[at].as_py())
        except LakeError as error:
            if type(error) is not LakeError:
                raise
            return None  # no such file any more
    return None


def timestamps_of(places: Sequence[Place], spark: SparkSession | None = None) -> list[int | None]:
    """As `timestamp_of`, for many; with a session by its tasks. Raises `CorruptSegmentError`."""
    if spark is None:
        return [timestamp_of(place) for place in places]
    numbered = spark.sparkContext.parallelize(list(enumerate(places)), min(_TASKS, max(1, len(places))))
    found = dict(numbered.mapPartitions(_read).collect())
    return [found[number] for number in range(len(places))]


def _read(places: Iterable[tuple[int, Place]]) -> Iterator[tuple[int, int | None]]:
    for number, place in places:
        yield number, timestamp_of(place)
