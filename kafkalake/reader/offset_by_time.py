"""Finds the first offset at or after a time, as Kafka's ListOffsets does.

Delta's timestamps select the segments, `storage.timestamp_search` finds the record in one.
"""

from __future__ import annotations

from kafkalake.reader.read import PartitionSnapshot


def first_offset_at(snapshot: PartitionSnapshot, timestamp_ms: int) -> int | None:
    """Return the first readable offset with a timestamp at or after `timestamp_ms`, or None."""
    from kafkalake.reader.opened_segment import open_segment  # imports numba
    from kafkalake.storage.timestamp_search import first_in_segment

    for segment in snapshot.segments:
        newest = segment.max_timestamp_ms
        if segment.sealed if newest is None else newest < timestamp_ms:
            continue
        start = max(segment.base_offset, snapshot.start_offset)
        end = min(segment.next_offset, snapshot.end_offset)
        if start < end:
            with open_segment(segment.path, segment.readable_bytes, topic_id=snapshot.topic_id) as reader:
                found = first_in_segment(reader, timestamp_ms, start, end)
            if found is not None:
                return found.offset
    return None
