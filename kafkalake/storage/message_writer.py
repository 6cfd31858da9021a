"""Encodes producer batches as one Arrow message in a reused buffer.

Calls two kernels, `join_batches` and `frame`, for any number of batches. Each appending thread has its own buffer. A message
beyond `KEPT_BYTES` gets a temporary one, so that one huge batch does not stay in a small broker's memory.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.message import frame
from kafkalake.record.message_set import compress_body
from kafkalake.storage.segment_kernels import join_batches

MESSAGE_BODY_BYTES = 8 << 20
"""The maximum size of joined batches in one message. A larger batch becomes a message of its own."""
KEPT_BYTES = 2 * MESSAGE_BODY_BYTES
_INITIAL_BYTES = 1 << 20


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


def write_message(batches: Sequence[ProducerBatch], codec: int) -> tuple[memoryview, int]:
    """Return the bytes of one Arrow message of `batches` with complete headers, and its smallest timestamp.

    The timestamp is in ms, NO_TIMESTAMP without records. The bytes are valid until this thread's next call.
    """
    buffers = _buffers
    if len(batches) == 1:
        batch = batches[0]
        bodies, starts = batch.body, buffers.first_start
        layouts, headers = batch.layout.reshape(1, -1), batch.header.reshape(1, -1)
    else:
        bodies, starts, layouts, headers = _join(batches)
    out, merged, found = buffers.out, buffers.merged, buffers.found
    length = int(join_batches(bodies, starts, layouts, headers, out, merged, found))
    if length < 0:
        out = _room(-length)
        length = int(join_batches(bodies, starts, layouts, headers, out, merged, found))
    body, smallest = found.tolist()
    if codec != at.NO_CODEC and merged[at.ROWS]:
        stored, merged = compress_body(out[body : body + length], merged, codec)
        length = len(stored)
        out = out if len(out) >= body + length else np.empty(body + length, dtype=np.uint8)
        out[body : body + length] = stored
    else:
        codec = at.NO_CODEC
    end = int(frame(out, length, merged, headers, codec, buffers.scratch))
    return memoryview(out.data)[:end], smallest


def _join(batches: Sequence[ProducerBatch]) -> tuple[Bytes, Int64s, Int64s, Int64s]:
    count = len(batches)
    bodies = [batch.body for batch in batches]
    starts = np.array([0, *accumulate(map(len, bodies[:-1]))], dtype=np.int64)
    layouts = np.concatenate([batch.layout for batch in batches]).reshape(count, -1)
    headers = np.concatenate([batch.header for batch in batches]).reshape(count, -1)
    return np.concatenate(bodies), starts, layouts, headers
