"""Finds the offsets of lost acknowledged records, which `lost_records_marker` marks in the log.

A power failure loses records that were not fsynced: with Kafka's default settings the last seconds of every partition. Their
offsets were assigned and are never reused. So recovery seals the remaining data and covers the gap with a segment of its own: one
message with one empty batch of control type LOST_RECORDS. Offsets stay contiguous for readers that ignore the marker. `log
verify` reports it, and readers of the lake fail on such offsets unless `failOnDataLoss=false`. Kafka consumers skip them, like
offsets emptied by compaction. Kafka's own broker truncates its log there silently.

Only missing bytes are marked this way. Reads of damaged bytes (a flipped bit) keep failing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafkalake.record import layout as at

if TYPE_CHECKING:
    from kafkalake.record.message_set import MessageSet

LOST_SEGMENT_BYTES = 1826
"""The size of a segment that marks lost offsets. Few others share it: those of one message without a record."""


def lost_ranges(messages: MessageSet) -> list[range]:
    """Return the ranges of lost offsets in these messages."""
    lost = messages.headers[(messages.headers[:, at.CONTROL_TYPE] == at.LOST_RECORDS)]
    return [range(base, base + delta + 1) for base, delta in lost[:, [at.BASE_OFFSET, at.LAST_OFFSET_DELTA]].tolist()]


def lost_range(path: str | os.PathLike[str], size: int) -> range | None:
    """Return the lost offsets marked by the segment at `path`, of `size` bytes. None for every other segment.

    Opens the file only if its size matches. Raise `CorruptSegmentError` on damage, `OSError` if I/O fails.
    """
    if size != LOST_SEGMENT_BYTES:
        return None
    # Imported here: it loads numba, and hardly any segment is looked into.
    from kafkalake.storage.segment_reader import SEGMENTS

    with SEGMENTS.open(path) as reader:
        messages = next(reader.messages(0, None, 0), None)
    ranges = lost_ranges(messages) if messages is not None else []
    return ranges[0] if ranges else None
