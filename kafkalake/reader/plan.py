"""Plans input partitions from snapshots. Pure, except for reading the index files of segments that are split.

Segments that the selection rules out are not opened. The others are cut into pieces of about equal size in bytes: large
segments are split at entries of their index, and small ones are combined, as Spark does with files.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from kafkalake.errors import RecordsLostError
from kafkalake.reader.predicate import INT64_MIN, Selection
from kafkalake.reader.read import PartitionSnapshot, Read, SegmentFile
from kafkalake.reader.read_options import ReadOptions
from kafkalake.storage.lost_records import lost_range
from kafkalake.storage.producer_state import AbortedTransaction
from kafkalake.storage.segment_hints import index_entries, offset_by_time

PIECE_BYTES_MAX = 256 << 20
PIECE_BYTES_MIN = 4 << 20
OPEN_COST_BYTES = 256 << 10
"""The cost of opening a segment, so that thousands of tiny ones are not put into one task."""


@dataclass(frozen=True, slots=True)
class SegmentSlice:
    """Offsets [from_offset, to_offset) of one segment file, of which the first `size` bytes are read (-1: all).

    topic_id: the topic id that the file's directory must still name when it is read. bytes: an estimate of those of the offsets.
    Timestamps are those of the segment (None: unknown). aborted: (producer id, first offset, last offset) of the aborted
    transactions in it. records: the number of records in the slice, None if only reading it tells. has_exact_times: the smallest
    and the largest timestamp of these records are those of the segment.
    """

    path: str
    topic: str
    topic_id: str
    partition: int
    from_offset: int
    to_offset: int
    size: int
    bytes: int
    min_timestamp_ms: int | None = None
    max_timestamp_ms: int | None = None
    aborted: tuple[tuple[int, int, int], ...] = ()
    is_lost: bool = False
    """The offsets were assigned, but their records were lost in a power failure. There is nothing to read."""
    records: int | None = None
    has_exact_times: bool = False

    @property
    def cost(self) -> int:
        """Return what reading the slice costs, as bytes: a slice is put into a task by it."""
        return OPEN_COST_BYTES + self.bytes

    @property
    def is_dense(self) -> bool:
        """Return whether each offset of the slice is a record's."""
        return self.records == self.to_offset - self.from_offset

    def part(self, first: int, end: int) -> SegmentSlice:
        """Return the offsets [first, end) of the slice."""
        records = end - first if self.is_dense else None
        size = self.bytes * (end - first) // max(1, self.to_offset - self.from_offset)
        return replace(self, from_offset=first, to_offset=end, bytes=size, records=records, has_exact_times=False)


def plan_slices(
    read: Read, selection: Selection, cores: int | None = None, *, refuse_losses: bool = True
) -> list[list[SegmentSlice]]:
    """Return groups of slices, one for each input partition, which together cover exactly the records to read.

    `refuse_losses`: raise `RecordsLostError` if they include offsets whose records were lost, unless `failOnDataLoss` is
    false. If not set, the caller must call `check_losses` after it has ruled out more slices.
    """
    slices = selected_slices(read, selection)
    if refuse_losses:
        check_losses(slices, read.options)
    return grouped(slices, read.options, cores)


def selected_slices(read: Read, selection: Selection) -> list[SegmentSlice]:
    """Return one slice for each segment and range of offsets that may hold selected records, in their order."""
    return [piece for snapshot in read.partitions for piece in _slices_of(snapshot, selection, read.options)]


def grouped(slices: Sequence[SegmentSlice], options: ReadOptions, cores: int | None = None) -> list[list[SegmentSlice]]:
    """Return the same records as groups of slices of about equal cost."""
    total = sum(piece.cost for piece in slices)
    if not slices:
        return []
    if cores is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    target = max(PIECE_BYTES_MIN, min(PIECE_BYTES_MAX, math.ceil(total / cores)))
    if options.partitions_min is not None:
        target = min(target, max(1, total // options.partitions_min))
    if options.records_per_partition_max is not None:
        slices = [part for piece in slices for part in _by_records(piece, options.records_per_partition_max)]
    pieces = [part for piece in slices for part in _split(piece, target)]
    groups = _joined(pieces, target, options)
    if options.partitions_min is not None:
        groups = _at_least(groups, options.partitions_min)
    return groups


def check_losses(slices: Iterable[SegmentSlice], options: ReadOptions) -> None:
    """Raise `RecordsLostError` if a slice holds lost records, unless `failOnDataLoss` is false."""
    for piece in slices:
        if piece.is_lost and options.fail_on_data_loss:
            raise RecordsLostError(
                f"{piece.topic}-{piece.partition}: offsets {piece.from_offset} to {piece.to_offset - 1} were acknowledged, "
                "and lost when the machine stopped before they were on the disk; with failOnDataLoss=false they are "
                "passed over"
            )


def _slices_of(snapshot: PartitionSnapshot, selection: Selection, options: ReadOptions) -> Iterator[SegmentSlice]:
    if not selection.takes_partition(snapshot.topic, snapshot.partition):
        return
    selection = selection.of_partition(snapshot.topic, snapshot.partition)
    ranges = selection.offset_ranges(snapshot.start_offset, snapshot.end_offset)
    if not ranges:
        return
    found = []
    ends = [segment.next_offset for segment in snapshot.segments]
    for first, end in ranges:
        # Start at the first segment that ends after `first`: ranges are few, segments many.
        for segment in snapshot.segments[bisect_left(ends, first + 1) :]:
            if segment.base_offset >= end:
                break
            begin, stop = max(first, segment.base_offset), min(end, segment.next_offset)
            if selection.takes_range(begin, stop, segment.min_timestamp_ms, segment.max_timestamp_ms):
                begin = max(begin, _first_late_enough(segment, selection))
                if begin < stop:
                    found.append((segment, begin, stop))
    if not found:
        return
    aborted = snapshot.aborted_transactions(found[0][1]) if options.isolation == "read_committed" else []
    for segment, first, end in found:
        of_slice = _overlapping(aborted, first, end)
        records = None if of_slice else segment.records_between(first, end)
        yield SegmentSlice(
            segment.path,
            snapshot.topic,
            snapshot.topic_id,
            snapshot.partition,
            first,
            end,
            segment.readable_bytes,
            _bytes_between(segment, first, end),
            segment.min_timestamp_ms,
            segment.max_timestamp_ms,
            of_slice,
            lost_range(segment.path, segment.readable_bytes if segment.readable_bytes >= 0 else segment.size)
            is not None,
            records,
            records is not None and (first, end) == (segment.base_offset, segment.next_offset),
        )


def _first_late_enough(segment: SegmentFile, selection: Selection) -> int:
    """Return an offset below which the time index shows all records of the segment to be too early."""
    if selection.time_min_us == INT64_MIN or (
        segment.min_timestamp_ms is not None and segment.min_timestamp_ms * 1000 >= selection.time_min_us
    ):
        return segment.base_offset
    return offset_by_time(segment.path, -(-selection.time_min_us // 1000))


def _overlapping(aborted: Sequence[AbortedTransaction], first: int, end: int) -> tuple[tuple[int, int, int], ...]:
    """Return the transactions with an offset in [first, end). `aborted` is in the order of the markers."""
    found = []
    for entry in aborted[bisect_left(aborted, first, key=lambda entry: entry.last_offset) :]:
        if entry.first_offset < end:
            found.append((entry.producer_id, entry.first_offset, entry.last_offset))
        if entry.last_stable_offset >= end:
            break  # transactions aborted later began at or after `end`
    return tuple(found)


def _bytes_between(segment: SegmentFile, first: int, end: int) -> int:
    return segment.size * (end - first) // max(1, segment.next_offset - segment.base_offset)


def _split(piece: SegmentSlice, target: int) -> list[SegmentSlice]:
    """Cut into parts of about `target` bytes, at offsets of the index if it has enough."""
    count = min(round(piece.cost / target), piece.to_offset - piece.from_offset)
    if count < 2:
        return [piece]
    offsets, positions = index_entries(piece.path)
    inside = (offsets > piece.from_offset) & (offsets < piece.to_offset)
    offsets, positions = offsets[inside], positions[inside]
    if len(offsets) < 4 * count:
        cuts = [piece.from_offset + (piece.to_offset - piece.from_offset) * k // count for k in range(1, count)]
    else:
        wanted = [positions[0] + (positions[-1] - positions[0]) * k // count for k in range(1, count)]
        cuts = sorted({int(offsets[min(i, len(offsets) - 1)]) for i in positions.searchsorted(wanted)})
    edges = [piece.from_offset, *cuts, piece.to_offset]
    return [piece.part(first, end) for first, end in pairwise(edges) if first < end]


def _by_records(piece: SegmentSlice, records_max: int) -> list[SegmentSlice]:
    starts = range(piece.from_offset, piece.to_offset, records_max)
    return [piece.part(start, min(start + records_max, piece.to_offset)) for start in starts]


def _joined(pieces: Sequence[SegmentSlice], target: int, options: ReadOptions) -> list[list[SegmentSlice]]:
    """Group neighbours of up to `target` bytes in total (half of the last piece may exceed it)."""
    groups: list[list[SegmentSlice]] = []
    cost, records = 0, 0
    for piece in pieces:
        length = piece.to_offset - piece.from_offset
        too_long = (
            options.records_per_partition_max is not None and records + length > options.records_per_partition_max
        )
        if not groups or too_long or cost + piece.cost // 2 > target:
            groups.append([])
            cost = records = 0
        groups[-1].append(piece)
        cost += piece.cost
        records += length
    return groups


def _at_least(groups: list[list[SegmentSlice]], count: int) -> list[list[SegmentSlice]]:
    """Halve the most expensive groups until there are `count`, or no group has two records."""
    while len(groups) < count:
        index = max(range(len(groups)), key=lambda i: (_records(groups[i]) > 1, sum(piece.cost for piece in groups[i])))
        group = groups[index]
        if _records(group) < 2:
            return groups
        if len(group) > 1:
            halves = [group[: len(group) // 2], group[len(group) // 2 :]]
        else:
            middle = (group[0].from_offset + group[0].to_offset) // 2
            halves = [
                [group[0].part(group[0].from_offset, middle)],
                [group[0].part(middle, group[0].to_offset)],
            ]
        groups[index : index + 1] = halves
    return groups


def _records(group: Sequence[SegmentSlice]) -> int:
    return sum(piece.to_offset - piece.from_offset for piece in group)
