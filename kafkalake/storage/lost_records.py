"""Marks the offsets of lost acknowledged records in the log.

A power failure loses records that were not fsynced: with Kafka's default settings the last seconds of every partition. Their
offsets were assigned and are never reused. So recovery seals the remaining data and covers the gap with a segment of its own: one
message with one empty batch of control type LOST_RECORDS. Offsets stay contiguous for readers that ignore the marker. `log
verify` reports it, and readers of the lake fail on such offsets unless `failOnDataLoss=false`. Kafka consumers skip them, like
offsets emptied by compaction. Kafka's own broker truncates its log there silently.

Only missing bytes are marked this way. Reads of damaged bytes (a flipped bit) keep failing.
"""

from __future__ import annotations

import os

import numpy as np

from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.message_set import MessageSet
from kafkalake.storage.active_segment import ActiveSegment
from kafkalake.storage.message_writer import write_message
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.segment import DATA_SUFFIX, SUFFIXES
from kafkalake.storage.segment_reader import SEGMENTS

LOST_SEGMENT_BYTES = 1826
"""The size of a segment that marks lost offsets. Few others share it: those of one message without a record."""
_OFFSETS_MAX = 1 << 31


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
    with SEGMENTS.open(path) as reader:
        messages = next(reader.messages(0, None, 0), None)
    ranges = lost_ranges(messages) if messages is not None else []
    return ranges[0] if ranges else None


def record_loss(
    open_files: OpenFiles, directory: str, first_offset: int, end_offset: int, *, leader_epoch: int, earlier_max: int
) -> list[int]:
    """Mark offsets [first_offset, end_offset) as lost, durably, and return the base offsets of the new segments.

    earlier_max: the largest timestamp (ms) of all earlier records. Raise `OSError` if I/O fails.
    """
    made = []
    while first_offset < end_offset:
        count = min(end_offset - first_offset, _OFFSETS_MAX)
        segment = ActiveSegment(
            directory, first_offset, open_files, index_interval_bytes=1 << 62, earlier_max_timestamp=earlier_max
        )
        drop_segment(open_files, segment)
        message, smallest = write_message([_lost_batch(first_offset, count, leader_epoch)], at.NO_CODEC)
        segment.append(message, first_offset, 0, first_offset + count, smallest, -1, -1)
        segment.seal()
        open_files.files.sync(open_files.get(segment.path, write=True).descriptor)
        segment.forget()
        made.append(first_offset)
        first_offset += count
    open_files.files.sync_directory(directory)
    return made


def drop_segment(open_files: OpenFiles, segment: ActiveSegment) -> None:
    """Remove the files of an empty segment. Raise `OSError` if I/O fails."""
    segment.forget()
    for suffix in (*SUFFIXES[1:], DATA_SUFFIX):
        path = segment.path_of(suffix)
        if os.path.lexists(path):
            open_files.files.unlink(path)


def _lost_batch(base_offset: int, count: int, leader_epoch: int) -> ProducerBatch:
    header = np.zeros(at.HEADER_FIELDS, dtype=np.int64)
    header[at.BASE_OFFSET], header[at.LAST_OFFSET_DELTA] = base_offset, count - 1
    header[at.LEADER_EPOCH] = leader_epoch
    header[at.PRODUCER_ID] = header[at.PRODUCER_EPOCH] = header[at.BASE_SEQUENCE] = -1
    header[at.BASE_TIMESTAMP] = header[at.MAX_TIMESTAMP] = -1
    header[at.CONTROL_TYPE] = at.LOST_RECORDS
    return ProducerBatch(np.zeros(0, dtype=np.uint8), np.zeros(at.LAYOUT_SIZE, dtype=np.int64), header)
