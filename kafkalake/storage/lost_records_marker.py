"""Marks the offsets of lost acknowledged records in the log. What that is for says `lost_records`."""

from __future__ import annotations

import os

import numpy as np

from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.storage.active_segment import ActiveSegment
from kafkalake.storage.message_writer import write_message
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.segment_names import DATA_SUFFIX, SUFFIXES

_OFFSETS_MAX = 1 << 31


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
        message = write_message([_lost_batch(first_offset, count, leader_epoch)], at.NO_CODEC)
        segment.append(message.parts, first_offset, 0, first_offset + count, message.min_timestamp, -1, -1)
        segment.seal()
        file = open_files.get(segment.path, write=True)
        open_files.files.sync(file.descriptor)
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
