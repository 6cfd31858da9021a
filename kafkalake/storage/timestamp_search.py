"""Finds the first record at or after a time by bisecting the segments, then one time index, then scanning few messages.

Timestamps need not increase with offsets, but the running maximum does: entry 0 of a segment's time index is the largest
timestamp of all earlier segments, the last entry that of the segment itself. Let P(s) be entry 0. Then the first segment
that can hold the answer is the last one with P(s) < t. After the log's beginning is deleted, P may include deleted records.
If P >= t already in the first segment, segments are tried one by one by their own largest timestamp.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from kafkalake.record import layout as at
from kafkalake.record.arrays import Int64s
from kafkalake.record.message_set import MessageSet
from kafkalake.storage.active_segment import ANY_TIMESTAMP, ActiveSegment
from kafkalake.storage.segment import Segment
from kafkalake.storage.segment_reader import SegmentReader

_COLUMNS = at.OFFSET_COLUMN | at.TIMESTAMP_COLUMN


class TimestampOffset(NamedTuple):
    """A record: its timestamp in ms and its offset."""

    timestamp: int
    offset: int


class InOrder(Protocol):
    """Segments by number, oldest first, opened on access."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> Segment: ...


def first_not_before(segments: InOrder, timestamp: int, start_offset: int, end_offset: int) -> TimestampOffset | None:
    """Return the first record in [start_offset, end_offset) with a timestamp at or after `timestamp`, None if there is none.
    Raise `CorruptSegmentError` on damage, `OSError` if I/O fails."""
    for number in range(_first_candidate(segments, timestamp), len(segments)):
        segment = segments[number]
        if segment.base_offset >= end_offset:
            return None
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        if _may_hold(segment, following, timestamp):
            end = end_offset if following is None else min(following, end_offset)
            found = first_in_segment(SegmentReader(segment), timestamp, start_offset, end)
            if found is not None:
                return found
    return None


def earlier_max(segment: Segment) -> int | None:
    """Return the largest timestamp of the segments before, or a larger one, in ms. None: the index does not say it."""
    entry = segment.time_index.first()
    return entry[0] if entry is not None and entry[1] == 0 else None


def _first_candidate(segments: InOrder, timestamp: int) -> int:
    """Return the last segment number with all earlier timestamps below `timestamp`, a lower one if an index is unusable."""
    low, high = 0, len(segments)
    while low + 1 < high:
        middle = (low + high) // 2
        earlier = earlier_max(segments[middle])
        if earlier is None:
            return low
        if earlier < timestamp:
            low = middle
        else:
            high = middle
    return low


def _may_hold(segment: Segment, following: int | None, timestamp: int) -> bool:
    """Return False if the segment's complete time index shows that all its records are older."""
    last = segment.time_index.last()
    whole = last is not None and following is not None and last[1] == following - segment.base_offset
    return not whole or (last is not None and last[0] >= timestamp)


def first_in_segment(
    reader: SegmentReader, timestamp: int, start_offset: int, end_offset: int
) -> TimestampOffset | None:
    """Return the first record of one segment in [start_offset, end_offset) with a timestamp at or after `timestamp`, or None.

    Raise `CorruptSegmentError` on damage, `OSError` if I/O fails.
    """
    segment = reader.segment
    entry = segment.time_index.lookup(timestamp - 1, skip=1)
    start = segment.base_offset if entry is None else segment.base_offset + entry[1]
    for messages in reader.messages(max(start_offset, start), end_offset, _COLUMNS):
        headers = messages.headers
        candidates = (headers[:, at.MAX_TIMESTAMP] >= timestamp) & (headers[:, at.RECORDS] > 0)
        for message in _messages_of(messages, candidates):
            hit = _row(messages, message, timestamp, start_offset, end_offset)
            if hit is not None:
                return hit
    return None


def _messages_of(messages: MessageSet, candidates: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> list[int]:
    batches = np.nonzero(candidates)[0]
    numbers: list[int] = np.unique(np.searchsorted(messages.first_batch, batches, side="right") - 1).tolist()
    return numbers


def _column(messages: MessageSet, message: int, buffer: int) -> Int64s:
    start = int(messages.starts[message] + messages.layouts[message, at.FIRST_BUFFER + 2 * buffer])
    rows = int(messages.layouts[message, at.ROWS])
    return np.frombuffer(messages.data[start : start + 8 * rows].tobytes(), dtype=np.int64)


def _row(
    messages: MessageSet, message: int, timestamp: int, start_offset: int, end_offset: int
) -> TimestampOffset | None:
    offsets = _column(messages, message, at.OFFSET_DATA)
    timestamps = _column(messages, message, at.TIMESTAMP_DATA)
    hits = np.nonzero((timestamps >= timestamp) & (offsets >= start_offset) & (offsets < end_offset))[0]
    if not len(hits):
        return None
    return TimestampOffset(int(timestamps[hits[0]]), int(offsets[hits[0]]))


def record_with(segment: Segment, offset: int, timestamp: int, start_offset: int) -> TimestampOffset | None:
    """Return the first record at or after `start_offset` with exactly `timestamp` in the message with `offset`, else None.

    Raise `CorruptSegmentError` on damage, `OSError` if I/O fails.
    """
    position = segment.locate(offset)
    found = None if position is None else segment.read(position, 1, 1 << 62, _COLUMNS)
    if found is None:
        return None
    offsets, timestamps = _column(found.messages, 0, at.OFFSET_DATA), _column(found.messages, 0, at.TIMESTAMP_DATA)
    hits = np.nonzero((timestamps == timestamp) & (offsets >= start_offset))[0]
    return TimestampOffset(timestamp, int(offsets[hits[0]])) if len(hits) else None


def record_with_largest(segments: InOrder, start_offset: int, end_offset: int) -> TimestampOffset | None:
    """Return the first record with the largest timestamp in [start_offset, end_offset), for when the known one is deleted.

    Tries segments by descending largest timestamp until no other can hold a larger one. Reads a whole segment only if its largest
    timestamp belongs to a deleted record, or its index is damaged. Raise `CorruptSegmentError` on damage, `OSError` if I/O fails.
    """
    following = [segments[number].base_offset for number in range(1, len(segments))]
    tops = [_top(segments[number], end) for number, end in enumerate([*following, None])]
    ends = [*following, end_offset]
    best: TimestampOffset | None = None
    for number in sorted(range(len(segments)), key=lambda number: -tops[number]):
        segment, end, top = segments[number], ends[number], tops[number]
        if top < 0 or (best is not None and (top, -segment.base_offset) < (best.timestamp, -best.offset)):
            break
        found = None
        if top < ANY_TIMESTAMP and segment.base_offset >= start_offset:
            found = first_in_segment(SegmentReader(segment), top, start_offset, end)
        if found is None:
            found = _largest_in(segment, start_offset, end)
        if found is not None and (best is None or (-found.timestamp, found.offset) < (-best.timestamp, best.offset)):
            best = found
    return best


def _top(segment: Segment, following: int | None) -> int:
    """Return the largest timestamp of a segment, including deleted records. -1: none. ANY_TIMESTAMP: the index is damaged."""
    if following is None and isinstance(segment, ActiveSegment):
        return segment.content.max_timestamp
    last = segment.time_index.last()
    if last is None or (following is not None and last[1] != following - segment.base_offset):
        return ANY_TIMESTAMP
    return last[0]


def _largest_in(segment: Segment, start_offset: int, end_offset: int) -> TimestampOffset | None:
    best: TimestampOffset | None = None
    for messages in SegmentReader(segment).messages(max(start_offset, segment.base_offset), end_offset, _COLUMNS):
        tops = np.where(messages.headers[:, at.RECORDS] > 0, messages.headers[:, at.MAX_TIMESTAMP], -1)
        for message in _messages_of(messages, tops > (best.timestamp if best is not None else -1)):
            offsets = _column(messages, message, at.OFFSET_DATA)
            timestamps = _column(messages, message, at.TIMESTAMP_DATA)
            timestamps = np.where(offsets >= start_offset, timestamps, -1)
            row = int(np.argmax(timestamps))
            if timestamps[row] >= 0 and (best is None or timestamps[row] > best.timestamp):
                best = TimestampOffset(int(timestamps[row]), int(offsets[row]))
    return best
