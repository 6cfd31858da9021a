"""Decodes many small batches of a Fetch response in one compiled call, and joins them in another.

A batch alone costs some 15 µs of Python, and its Arrow columns 50 more, which is much for a batch of few records. Batches that are
compressed, invalid or large are left to `record_batch.decode_fetched`, which decodes one at a time and raises.
"""

from __future__ import annotations

import struct

import numpy as np

from kafkalake.buffers import Buffer
from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.compiled import compiled
from kafkalake.record.memory import load_u8
from kafkalake.record.merge import merge_columns, merged_bound
from kafkalake.wire import batch_header as wire
from kafkalake.wire import batch_reader
from kafkalake.wire.varint import big_i16, big_i32

LARGEST_BATCH_BYTES = 128 * 1024
"""Batches above this size are worth a call each."""
_LENGTH = struct.Struct(">i")
_BATCHES_MAX = 1_024
_BODY_BYTES = 4 * 1024 * 1024


@compiled("int64(view, int64, int64[:,::1], uint8[::1], int64[::1])")
def _read_run(data: Bytes, position: int, numbers: Int64s, out: Bytes, ends: Int64s) -> int:
    """Decode batches from `position` on into `out`, each from an 8-byte boundary. Return how many.

    numbers: int64[B, NUMBERS], as of `read_batch`. ends: int64[B + 1], the position after each batch, from index 1 on.
    """
    used = 0
    count = 0
    ends[0] = position
    while count < len(numbers) and len(data) - position >= wire.RECORDS:
        size = big_i32(data, position + wire.BATCH_LENGTH) + wire.BEFORE_BATCH_LENGTH
        if size < wire.RECORDS or size > len(data) - position or size > LARGEST_BATCH_BYTES:
            break
        if load_u8(data, position + wire.MAGIC) != wire.MAGIC_2:
            break
        if big_i16(data, position + wire.ATTRIBUTES) & at.ATTRIBUTE_COMPRESSION_MASK:
            break
        status = batch_reader.read_batch(data, position, position + size, False, numbers[count], out[used:])
        if status != batch_reader.OK:
            break
        used += (numbers[count, batch_reader.ROOM] + 7) & ~7
        position += size
        count += 1
        ends[count] = position
    return count


class BatchRun:
    """Consecutive batches of a response.

    headers: the fields of each (`record.layout`). end: where the next one begins.
    """

    def __init__(self, body: Bytes, numbers: Int64s, end: int) -> None:
        self.end = end
        self._body = body
        self._layouts = np.ascontiguousarray(numbers[:, : at.LAYOUT_SIZE])
        self._headers = np.ascontiguousarray(numbers[:, at.LAYOUT_SIZE : batch_reader.ROOM])
        rooms = (numbers[:, batch_reader.ROOM] + 7) & ~7
        self._starts = np.zeros(len(numbers), dtype=np.int64)
        np.cumsum(rooms[:-1], out=self._starts[1:])
        self.headers: list[list[int]] = self._headers.tolist()

    def join(self, first: int, last: int) -> ProducerBatch:
        """Return the batches [first, last) as one, with the attributes, leader epoch and producer of the first."""
        if last == first + 1:
            return ProducerBatch(self._body[self._starts[first] :], self._layouts[first], self._headers[first])
        layouts = self._layouts[first:last]
        out = np.empty(merged_bound(layouts, at.ALL_COLUMNS), dtype=np.uint8)
        merged = np.empty(at.LAYOUT_SIZE, dtype=np.int64)
        merge_columns(self._body, self._starts[first:last], layouts, at.ALL_COLUMNS, out, merged)
        header = self._headers[first].copy()
        begin, end = self.headers[first], self.headers[last - 1]
        header[at.LAST_OFFSET_DELTA] = end[at.BASE_OFFSET] + end[at.LAST_OFFSET_DELTA] - begin[at.BASE_OFFSET]
        header[at.RECORDS] = merged[at.ROWS]
        return ProducerBatch(out, merged, header)


def read_run(data: Buffer, position: int) -> BatchRun | None:
    """Return the valid, small, uncompressed batches from `position` on, None if the first one is not."""
    if len(data) - position < wire.RECORDS:
        return None
    (length,) = _LENGTH.unpack_from(data, position + wire.BATCH_LENGTH)
    if length > LARGEST_BATCH_BYTES or data[position + wire.ATTRIBUTES + 1] & at.ATTRIBUTE_COMPRESSION_MASK:
        return None
    source = np.frombuffer(data, dtype=np.uint8)
    batches_max = min(_BATCHES_MAX, (len(source) - position) // wire.RECORDS)
    numbers = np.empty((batches_max, batch_reader.NUMBERS), dtype=np.int64)
    room = min(_BODY_BYTES, 8 * (len(source) - position) + 1024 * batches_max)
    body = np.empty(room, dtype=np.uint8)
    ends = np.empty(batches_max + 1, dtype=np.int64)
    count = _read_run(source, position, numbers, body, ends)
    return BatchRun(body, numbers[:count], int(ends[count])) if count else None
