"""Finds the first offset at or after a time, as Kafka's ListOffsets does.

Delta's timestamps select the segment, the time index and batch headers the message.
"""

from __future__ import annotations

from kafkalake.reader.segment_scan import SegmentScan
from kafkalake.reader.snapshot import PartitionSnapshot, SegmentFile
from kafkalake.storage.index import Index
from kafkalake.storage.open_files import OpenFiles

_OFFSET_AND_TIMESTAMP = 0b11


def first_offset_at(snapshot: PartitionSnapshot, timestamp_ms: int) -> int | None:
    """Return the first readable offset with a timestamp at or after `timestamp_ms`, or None."""
    for segment in snapshot.segments:
        newest = segment.max_timestamp_ms
        if segment.sealed if newest is None else newest < timestamp_ms:
            continue
        start = max(segment.base_offset, snapshot.start_offset)
        end = min(segment.next_offset, snapshot.end_offset)
        found = _first_in_segment(segment, snapshot.topic_id, start, end, timestamp_ms) if start < end else None
        if found is not None:
            return found
    return None


def _first_in_segment(segment: SegmentFile, topic_id: str, start: int, end: int, timestamp_ms: int) -> int | None:
    from kafkalake.record import layout as at
    from kafkalake.record.message_set import to_arrow

    hint = Index(segment.path.removesuffix(".arrow") + ".timeindex", OpenFiles(limit=1)).lookup(timestamp_ms - 1)
    if hint is not None:
        start = max(start, min(segment.base_offset + hint[1], end - 1))
    with SegmentScan(segment.path, segment.readable_bytes, topic_id=topic_id) as opened:
        for messages in opened.messages(start, end, _OFFSET_AND_TIMESTAMP):
            if (messages.headers[:, at.MAX_TIMESTAMP] >= timestamp_ms).any():
                rows = to_arrow(messages, _OFFSET_AND_TIMESTAMP)
                offsets = rows.column("offset").to_numpy()
                times = rows.column("timestamp").cast("int64").to_numpy()
                found = offsets[(times >= timestamp_ms) & (offsets >= start)]
                if len(found):
                    return int(found[0]) if found[0] < end else None
    return None
