"""Verifies the messages that a follower got from its leader, before they are written. Pure.

Every checksum is verified, the offsets continue batch by batch, and leader epochs never decrease. What is left of the messages is
a `ReplicaRun`: the content of index entries, producers and epochs. Their bytes are written as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kafkalake.errors import CorruptMessageError, DivergedLogError, OffsetOutOfRangeError
from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.message import OK, REASONS
from kafkalake.record.message_set import MessageSet, scan
from kafkalake.storage.segment_kernels import NO_TIMESTAMP, smallest_timestamp
from kafkalake.storage.segment_reader import bases_of, messages_in_order


class ReplicaRun(NamedTuple):
    """M verified messages with B batches. Timestamps in ms.

    headers: int64[B, HEADER_FIELDS]. positions: int64[M + 1], of each message in the bytes, and their length. bases: int64[M],
    first offsets. tops: int64[M], largest timestamps, -1: none. `min_timestamp` is NO_TIMESTAMP and `max_timestamp` -1 without
    records. `max_timestamp_offset`: base offset of its batch.
    """

    headers: Int64s
    positions: Int64s
    bases: Int64s
    tops: Int64s
    records: int
    next_offset: int
    leader_epoch: int
    min_timestamp: int
    max_timestamp: int
    max_timestamp_offset: int


def verify_run(messages: Any, log_end_offset: int, leader_epoch: int) -> ReplicaRun:
    """Verify whole messages (bytes-like, at least one) that continue a log with its newest epoch, and return their run.

    Raise CorruptMessageError if bytes are damaged, missing or no messages, or offsets do not follow each other or epochs
    decrease among them, OffsetOutOfRangeError if they do not begin at `log_end_offset`, DivergedLogError if their epoch is below
    `leader_epoch`.
    """
    data = np.frombuffer(messages, dtype=np.uint8)
    parts = list(_verified_parts(data))
    if not parts:
        raise CorruptMessageError("no messages")
    run = _joined(parts)
    if run.bases[0] != log_end_offset:
        raise OffsetOutOfRangeError(f"the messages begin at offset {run.bases[0]}, the log ends at {log_end_offset}")
    epochs = run.headers[:, at.LEADER_EPOCH]
    if (epochs[1:] < epochs[:-1]).any():
        raise CorruptMessageError("the leader epochs decrease")
    if int(epochs[0]) < leader_epoch:
        raise DivergedLogError(f"offset {log_end_offset} is of leader epoch {epochs[0]}, the log's is {leader_epoch}")
    return run


def _verified_parts(data: Bytes) -> Iterator[tuple[MessageSet, int]]:
    """Yield the messages with their smallest timestamps, part by part: of compressed ones only so many are decompressed at once."""
    position, next_offset = 0, -1
    while position < len(data):
        found = scan(data, position, len(data), plain_columns=at.TIMESTAMP_COLUMN)
        messages = found.messages
        if not len(messages) or (found.status != OK):
            raise CorruptMessageError(f"at byte {found.end} of {len(data)}: {REASONS[found.status]}")
        if next_offset < 0:
            next_offset = messages.base_offset
        right = messages_in_order(messages, next_offset)
        if right < len(messages):
            raise CorruptMessageError(f"offset {int(bases_of(messages)[right])} is not the next one")
        yield messages, int(smallest_timestamp(messages.data, messages.starts, messages.layouts))
        position, next_offset = found.end, messages.next_offset


def _joined(parts: list[tuple[MessageSet, int]]) -> ReplicaRun:
    sets = [messages for messages, _ in parts]
    headers = np.concatenate([each.headers for each in sets])
    firsts = np.concatenate([[0], *(np.diff(each.first_batch) for each in sets)]).cumsum()
    largest = np.where(headers[:, at.RECORDS] > 0, headers[:, at.MAX_TIMESTAMP], -1)
    top = int(np.argmax(largest))
    return ReplicaRun(
        headers,
        np.concatenate([*(each.positions[:-1] for each in sets), sets[-1].positions[-1:]]),
        headers[firsts[:-1], at.BASE_OFFSET],
        np.maximum.reduceat(largest, firsts[:-1]),
        sum(each.rows for each in sets),
        sets[-1].next_offset,
        int(headers[-1, at.LEADER_EPOCH]),
        min((smallest for _, smallest in parts), default=NO_TIMESTAMP),
        int(largest[top]),
        int(headers[top, at.BASE_OFFSET]) if largest[top] >= 0 else -1,
    )
