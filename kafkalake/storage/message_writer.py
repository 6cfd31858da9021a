"""Encodes producer batches as one Arrow message in a reused buffer.

Calls two kernels, `join_batches` and `frame`, for any number of batches. Each appending thread has its own buffer. A message
beyond `KEPT_BYTES` gets a temporary one, so that one huge batch does not stay in a small broker's memory.

If the values of a batch are where they were received (`ProducerBatch.values`), none are copied: the buffer has room for them, which
stays as it is, and the message is what is before it, the values of each batch, and what is behind.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from kafkalake.buffers import Buffer
from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.crc32c import START, extended, finish
from kafkalake.record.message import IN_BODY, frame
from kafkalake.record.message_set import compress_body
from kafkalake.storage.segment_kernels import join_batches

MESSAGE_BODY_BYTES = 8 << 20
"""The maximum size of joined batches in one message. A larger batch becomes a message of its own."""
KEPT_BYTES = 2 * MESSAGE_BODY_BYTES
_INITIAL_BYTES = 1 << 20


class Message(NamedTuple):
    """One Arrow message: its bytes, in parts, their number, and its smallest timestamp (ms, NO_TIMESTAMP without records)."""

    parts: Sequence[Buffer]
    size: int
    min_timestamp: int


class _Buffers(threading.local):
    def __init__(self) -> None:
        self.out = np.empty(_INITIAL_BYTES, dtype=np.uint8)
        self.merged = np.zeros(at.LAYOUT_SIZE, dtype=np.int64)
        self.scratch = np.zeros(64, dtype=np.uint8)
        self.first_start = np.zeros(1, dtype=np.int64)
        self.found = np.zeros(2, dtype=np.int64)


_buffers = _Buffers()


def _room(needed: int) -> Bytes:
    size = 1 << (needed - 1).bit_length()
    if size > KEPT_BYTES:
        return np.empty(needed, dtype=np.uint8)
    _buffers.out = np.empty(size, dtype=np.uint8)
    return _buffers.out


def write_message(batches: Sequence[ProducerBatch], codec: int) -> Message:
    """Return one Arrow message of `batches` with complete headers. Its bytes are valid until this thread's next call."""
    buffers = _buffers
    apart = any(batch.values is not None for batch in batches)
    if apart and codec != at.NO_CODEC:
        batches, apart = [batch.whole() for batch in batches], False
    if len(batches) == 1:
        batch = batches[0]
        bodies, starts = batch.body, buffers.first_start
        layouts, headers = batch.layout.reshape(1, -1), batch.header.reshape(1, -1)
    else:
        bodies, starts, layouts, headers = _join(batches)
    out, merged, found = buffers.out, buffers.merged, buffers.found
    length = int(join_batches(bodies, starts, layouts, headers, out, merged, found, apart))
    if length < 0:
        out = _room(-length)
        length = int(join_batches(bodies, starts, layouts, headers, out, merged, found, apart))
    body, smallest = found.tolist()
    if codec != at.NO_CODEC and merged[at.ROWS]:
        stored, merged = compress_body(out[body : body + length], merged, codec)
        length = len(stored)
        out = out if len(out) >= body + length else np.empty(body + length, dtype=np.uint8)
        out[body : body + length] = stored
    else:
        codec = at.NO_CODEC
    if apart:
        values = [_values_of(batch) for batch in batches]
        value_sum, begin, after = _sum_of_values(out, body, merged, values)
        end = int(frame(out, length, merged, headers, codec, buffers.scratch, value_sum))
        return Message([out.data[:begin], *[each.data for each in values], out.data[after:end]], end, smallest)
    end = int(frame(out, length, merged, headers, codec, buffers.scratch, IN_BODY))
    return Message((out.data[:end],), end, smallest)


def _values_of(batch: ProducerBatch) -> Bytes:
    """Return the bytes of a batch's values."""
    if batch.values is not None:
        return batch.values
    begin, length = batch.layout[at.FIRST_BUFFER + 2 * at.VALUE_DATA :][:2].tolist()
    return batch.body[begin : begin + length]


def _sum_of_values(out: Bytes, body: int, merged: Int64s, values: Sequence[Bytes]) -> tuple[int, int, int]:
    """Return the checksum of the column `value`, whose bytes are in `values`, and the begin and end of their room in `out`."""
    starts = merged[at.FIRST_BUFFER :: 2]
    begin = body + starts.item(at.VALUE_DATA)
    after = begin + merged.item(at.FIRST_BUFFER + 2 * at.VALUE_DATA + 1)
    crc = extended(START, out, body + starts.item(at.VALUE_VALIDITY), begin)
    for each in values:
        crc = extended(crc, each, 0, len(each))
    crc = extended(crc, out, after, body + starts.item(at.HEADERS_OFFSETS - 1))
    return int(finish(crc)), begin, after


def _join(batches: Sequence[ProducerBatch]) -> tuple[Bytes, Int64s, Int64s, Int64s]:
    count = len(batches)
    bodies = [batch.body for batch in batches]
    starts = np.array([0, *accumulate(map(len, bodies[:-1]))], dtype=np.int64)
    layouts = np.concatenate([batch.layout for batch in batches]).reshape(count, -1)
    headers = np.concatenate([batch.header for batch in batches]).reshape(count, -1)
    return np.concatenate(bodies), starts, layouts, headers
