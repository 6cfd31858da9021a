"""Encodes producer batches as one Arrow message in a reused buffer.

Calls `merge_bodies` and `frame` once for any number of batches. Each appending thread has its own buffer. A message beyond
`KEPT_BYTES` gets a temporary one, so that one huge batch does not stay in a small broker's memory.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.batch import RecordBatch
from kafkalake.record.merge import merge_bodies, merged_bound
from kafkalake.record.message import frame, metadata_bytes
from kafkalake.record.message_set import compress_body
from kafkalake.storage.segment_kernels import smallest_timestamp

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
        self.body_start = np.zeros(1, dtype=np.int64)


_buffers = _Buffers()


def _room(needed: int) -> Bytes:
    if len(_buffers.out) >= needed:
        return _buffers.out
    size = 1 << (needed - 1).bit_length()
    if size > KEPT_BYTES:
        return np.empty(needed, dtype=np.uint8)
    _buffers.out = np.empty(size, dtype=np.uint8)
    return _buffers.out


def write_message(batches: Sequence[RecordBatch], codec: int) -> tuple[memoryview, int]:
    """Return the bytes of one Arrow message of `batches` with complete headers, and its smallest timestamp.

    The timestamp is in ms, NO_TIMESTAMP without records. The bytes are valid until this thread's next call.
    """
    if len(batches) == 1:
        batch = batches[0]
        bodies, starts = batch.body, _buffers.first_start
        layouts, headers = batch.layout.reshape(1, -1), batch.header.reshape(1, -1)
    else:
        bodies, starts, layouts, headers = _join(batches)
    body = int(metadata_bytes(len(batches)))
    out = _room(body + int(merged_bound(layouts, at.ALL_COLUMNS)))
    merged = _buffers.merged
    length = int(merge_bodies(bodies, starts, layouts, headers, out, body, merged))
    _buffers.body_start[0] = body
    smallest = int(smallest_timestamp(out, _buffers.body_start, merged.reshape(1, -1)))
    if codec != at.NO_CODEC and merged[at.ROWS]:
        stored, merged = compress_body(out[body : body + length], merged, codec)
        length = len(stored)
        out = out if len(out) >= body + length else np.empty(body + length, dtype=np.uint8)
        out[body : body + length] = stored
    else:
        codec = at.NO_CODEC
    end = int(frame(out, length, merged, headers, codec, _buffers.scratch))
    return memoryview(out.data)[:end], smallest


def _join(batches: Sequence[RecordBatch]) -> tuple[Bytes, Int64s, Int64s, Int64s]:
    bodies = np.concatenate([batch.body for batch in batches])
    starts = np.zeros(len(batches), dtype=np.int64)
    np.cumsum([len(batch.body) for batch in batches[:-1]], out=starts[1:])
    return bodies, starts, np.stack([batch.layout for batch in batches]), np.stack([batch.header for batch in batches])
