"""Verifies the messages that a follower got from its leader, before they are written. Pure.

Every checksum is verified, the offsets continue batch by batch, and leader epochs never decrease: one compiled call. What is
left of the messages is a `ReplicaRun`, the content of index entries, producers and epochs. Their bytes are written as they are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafkalake.buffers import Buffer
from kafkalake.errors import CorruptMessageError, DivergedLogError, OffsetOutOfRangeError
from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.message import OK, REASONS
from kafkalake.record.message_set import scan
from kafkalake.storage import replica_kernels as kernels
from kafkalake.storage.segment_kernels import smallest_timestamp

_REASONS = {
    **REASONS,
    kernels.OUT_OF_ORDER: "an offset does not follow the one before",
    kernels.EPOCH_DECREASES: "the leader epoch is below the one before",
}


class ReplicaRun(NamedTuple):
    """M verified messages. Timestamps in ms.

    positions: int64[M], of each message in the bytes. bases: int64[M], first offsets. tops: int64[M], largest timestamps, -1: none.
    headers: int64[N, HEADER_FIELDS], of the batches that have a producer id or begin a leader epoch. `has_aborts`: markers that
    abort are among them. `min_timestamp` is NO_TIMESTAMP and `max_timestamp` -1 without records. `max_timestamp_offset`: base
    offset of its batch.
    """

    positions: Int64s
    bases: Int64s
    tops: Int64s
    headers: Int64s
    records: int
    next_offset: int
    leader_epoch: int
    min_timestamp: int
    max_timestamp: int
    max_timestamp_offset: int
    has_aborts: bool


def verify_run(messages: Buffer, log_end_offset: int, leader_epoch: int) -> ReplicaRun:
    """Verify whole messages (bytes-like, at least one) that continue a log with its newest epoch, and return their run.

    Raise CorruptMessageError if bytes are damaged, missing or no messages, or offsets do not follow each other or epochs
    decrease among them, OffsetOutOfRangeError if they do not begin at `log_end_offset`, DivergedLogError if their epoch is below
    `leader_epoch`.
    """
    data = np.frombuffer(messages, dtype=np.uint8)
    most = len(data) // at.FIRST_HEADER + 1
    positions, bases, tops = np.empty((3, most), dtype=np.int64)
    headers = np.empty((len(data) // at.HEADER_CHARACTERS + 1, at.HEADER_FIELDS), dtype=np.int64)
    numbers = np.empty(kernels.NUMBERS, dtype=np.int64)
    status = kernels.verify_messages(data, log_end_offset, leader_epoch, positions, bases, tops, headers, numbers)
    count, kept, records, end, next_offset, epoch, smallest, largest, largest_at, aborts, compressed = numbers.tolist()
    if status != OK:
        raise _fault(int(status), end, len(data), next_offset, log_end_offset)
    if compressed:
        smallest = min(smallest, _smallest_compressed(data))
    return ReplicaRun(
        positions[:count],
        bases[:count],
        tops[:count],
        headers[:kept],
        records,
        next_offset,
        epoch,
        smallest,
        largest,
        largest_at,
        bool(aborts),
    )


def _fault(status: int, position: int, length: int, first_offset: int, log_end_offset: int) -> Exception:
    if status == kernels.ELSEWHERE:
        return OffsetOutOfRangeError(f"the messages begin at offset {first_offset}, the log ends at {log_end_offset}")
    if status == kernels.EPOCH_DECREASES and not position:
        return DivergedLogError(f"offset {log_end_offset} is of an earlier leader epoch than this log's newest")
    return CorruptMessageError(f"at byte {position} of {length}: {_REASONS[status]}")


def _smallest_compressed(data: Bytes) -> int:
    """Return the smallest timestamp (ms) of verified messages, some of them compressed, a part of them at a time."""
    position, found = 0, []
    while position < len(data):
        part = scan(data, position, len(data), at.TIMESTAMP_COLUMN)
        found.append(int(smallest_timestamp(part.messages.data, part.messages.starts, part.messages.layouts)))
        position = part.end
    return min(found)
