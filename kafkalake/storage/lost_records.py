"""Offsets whose records were acknowledged and are gone, as a fact that stands in the log.

A machine that loses its power forgets what was not forced to the disk: with Kafka's default settings the last seconds of every
partition. The offsets were given out and are not used again. So recovery seals what is there, and writes a segment of its own
over the gap: one message with one empty batch, whose control type is LOST_RECORDS. Offsets then run on without a gap, for every
reader that knows nothing of this, and whoever asks is told: `log verify`, and readers of the lake, which fail where they touch such
offsets unless they were told to go on (`failOnDataLoss=false`). A Kafka consumer passes over them, as over offsets that
compaction has emptied: Kafka's own broker truncates its log there and says nothing.

Only what is absent becomes such a fact. Bytes that are there and damaged (a flipped bit) stay refused.
"""

from __future__ import annotations

import os

import numpy as np

from kafkalake.record import layout as at
from kafkalake.record.batch import RecordBatch
from kafkalake.record.message_set import MessageSet
from kafkalake.storage.active_segment import ActiveSegment
from kafkalake.storage.message_writer import write_message
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.segment import DATA_SUFFIX, FIRST_MESSAGE, SUFFIXES
from kafkalake.storage.segment_reader import open_segment

LOST_SEGMENT_BYTES = 1826
"""Size of a segment that says of offsets that they are lost. Few others have it: those of one message without a record."""
_OFFSETS_MAX = 1 << 31


def lost_ranges(messages: MessageSet) -> list[range]:
    """Return the offsets of these messages whose records are lost."""
    lost = messages.headers[(messages.headers[:, at.CONTROL_TYPE] == at.LOST_RECORDS)]
    return [range(base, base + delta + 1) for base, delta in lost[:, [at.BASE_OFFSET, at.LAST_OFFSET_DELTA]].tolist()]


def lost_range(path: str | os.PathLike[str], size: int) -> range | None:
    """Return the offsets that the segment at `path`, of `size` bytes, says are lost; None for every other segment.

    Opens the file only where its size is that of such a segment. Raise `CorruptSegmentError`, `OSError`.
    """
    if size != LOST_SEGMENT_BYTES:
        return None
    found = open_segment(path).read(FIRST_MESSAGE, 1, 1 << 62, 0)
    ranges = lost_ranges(found.messages) if found is not None else []
    return ranges[0] if ranges else None


def record_loss(
    open_files: OpenFiles, directory: str, first_offset: int, end_offset: int, *, leader_epoch: int, earlier_max: int
) -> list[int]:
    """Write down that offsets [first_offset, end_offset) are lost, durably; return the base offsets of the segments made.

    earlier_max: the largest timestamp (ms) of all records before. Raise `OSError`.
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
    """Remove the files of a segment that holds nothing. Raise `OSError`."""
    segment.forget()
    for suffix in (*SUFFIXES[1:], DATA_SUFFIX):
        path = segment.path_of(suffix)
        if os.path.lexists(path):
            open_files.files.unlink(path)


def _lost_batch(base_offset: int, count: int, leader_epoch: int) -> RecordBatch:
    header = np.zeros(at.HEADER_FIELDS, dtype=np.int64)
    header[at.BASE_OFFSET], header[at.LAST_OFFSET_DELTA] = base_offset, count - 1
    header[at.LEADER_EPOCH] = leader_epoch
    header[at.PRODUCER_ID] = header[at.PRODUCER_EPOCH] = header[at.BASE_SEQUENCE] = -1
    header[at.BASE_TIMESTAMP] = header[at.MAX_TIMESTAMP] = -1
    header[at.CONTROL_TYPE] = at.LOST_RECORDS
    return RecordBatch(np.zeros(0, dtype=np.uint8), np.zeros(at.LAYOUT_SIZE, dtype=np.int64), header)
