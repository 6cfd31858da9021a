"""Decodes many batches of a Fetch response into the columns of one Arrow body, in two compiled calls: measured, then copied.

A batch alone costs some 15 µs of Python, and its Arrow columns 50 more. An invalid batch ends a run: `record_batch.decode_fetched`,
which decodes one at a time, raises what is wrong with it.
"""

from __future__ import annotations

import struct

import numpy as np

from kafkalake.buffers import Buffer
from kafkalake.errors import KafkaError
from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.compiled import compiled
from kafkalake.record.memory import load_u8
from kafkalake.wire import batch_header as wire
from kafkalake.wire import batch_reader
from kafkalake.wire.compression import decompress
from kafkalake.wire.record_batch import DEFAULT_LIMITS, codec_of
from kafkalake.wire.varint import big_i16, big_i32

_LENGTH = struct.Struct(">i")
_BATCHES_MAX = 1_024
PLAIN_BYTES = 8 * 1024 * 1024
"""The most bytes of uncompressed records in a run, but for its last batch."""


@compiled("int64(view, int64, int64[:,::1], int64[:,::1])")
def _measure_plain(data: Bytes, position: int, numbers: Int64s, places: Int64s) -> int:
    """Check and measure uncompressed batches from `position` on. Return how many are valid, up to `PLAIN_BYTES`.

    numbers: int64[B, NUMBERS], as of `measure_records`. places: int64[B, 2], where the records of each begin and end.
    """
    begin = position
    count = 0
    while count < len(numbers) and len(data) - position >= wire.RECORDS and position - begin < PLAIN_BYTES:
        size = big_i32(data, position + wire.BATCH_LENGTH) + wire.BEFORE_BATCH_LENGTH
        if size < wire.RECORDS or size > len(data) - position:
            break
        if load_u8(data, position + wire.MAGIC) != wire.MAGIC_2:
            break
        if big_i16(data, position + wire.ATTRIBUTES) & at.ATTRIBUTE_COMPRESSION_MASK:
            break
        if batch_reader.check_batch(data, position, position + size, False, numbers[count]) != batch_reader.OK:
            break
        places[count, 0], places[count, 1] = position + wire.RECORDS, position + size
        status = batch_reader.measure_records(data, position + wire.RECORDS, position + size, False, numbers[count])
        if status != batch_reader.OK:
            break
        position += size
        count += 1
    return count


@compiled("int64(view, int64[::1])")
def _measure_one(records: Bytes, numbers: Int64s) -> int:
    """Measure the uncompressed records of a batch."""
    return batch_reader.measure_records(records, 0, len(records), False, numbers)


@compiled("int64(int64[:,::1], int64[::1])")
def _lay_out(numbers: Int64s, joined: Int64s) -> int:
    """Lay out the body of several batches in `joined`, int64[NUMBERS]. Return its length."""
    joined[:] = 0
    for k in range(len(numbers)):
        for field in range(at.FIRST_BUFFER):
            joined[field] += numbers[k, field]
        for field in range(batch_reader.KEY_BYTES, batch_reader.NUMBERS):
            joined[field] += numbers[k, field]
    return batch_reader.lay_out(joined)


@compiled("void(int64[::1], uint8[::1])")
def _begin(joined: Int64s, out: Bytes) -> None:
    batch_reader.begin_fill(joined, out, len(out))


@compiled("void(view, int64[:,::1], int64[:,::1], int64[::1], uint8[::1], int64[::1])")
def _fill(data: Bytes, numbers: Int64s, places: Int64s, joined: Int64s, out: Bytes, cursor: Int64s) -> None:
    """Copy the records of batches to the body that `joined` lays out, from the cursor on."""
    for k in range(len(numbers)):
        batch_reader.fill(data, places[k, 0], places[k, 1], numbers[k], joined, out, cursor)


class BatchRun:
    """Consecutive batches of a response.

    headers: the fields of each (`record.layout`). end: where the next one begins.
    """

    def __init__(self, sources: list[Bytes], numbers: Int64s, places: Int64s, end: int) -> None:
        """sources: the uncompressed records of each batch, or one array with those of all. numbers, places: see the kernels."""
        self.end = end
        self._sources = sources
        self._numbers = numbers
        self._places = places
        self._headers = numbers[:, at.LAYOUT_SIZE : batch_reader.ROOM]
        self.headers: list[list[int]] = self._headers.tolist()

    def join(self, first: int, last: int) -> ProducerBatch:
        """Return the batches [first, last) as one, with the attributes, leader epoch and producer of the first."""
        joined = np.empty(batch_reader.NUMBERS, dtype=np.int64)
        out = np.empty(_lay_out(self._numbers[first:last], joined), dtype=np.uint8)
        _begin(joined, out)
        cursor = np.zeros(batch_reader.CURSOR, dtype=np.int64)
        step = last - first if len(self._sources) == 1 else 1
        for k in range(first, last, step):
            source = self._sources[0] if len(self._sources) == 1 else self._sources[k]
            _fill(source, self._numbers[k : k + step], self._places[k : k + step], joined, out, cursor)
        header = self._headers[first].copy()
        begin, end = self.headers[first], self.headers[last - 1]
        header[at.LAST_OFFSET_DELTA] = end[at.BASE_OFFSET] + end[at.LAST_OFFSET_DELTA] - begin[at.BASE_OFFSET]
        header[at.RECORDS] = joined[at.ROWS]
        return ProducerBatch(out, joined[: at.LAYOUT_SIZE], header)


def read_run(data: Buffer, position: int) -> BatchRun | None:
    """Return the valid batches from `position` on, all compressed or none, up to some MiB. None if the first one is not valid."""
    batches_max = min(_BATCHES_MAX, (len(data) - position) // wire.RECORDS)
    if batches_max <= 0:
        return None
    numbers = np.empty((batches_max, batch_reader.NUMBERS), dtype=np.int64)
    places = np.empty((batches_max, 2), dtype=np.int64)
    if data[position + wire.ATTRIBUTES + 1] & at.ATTRIBUTE_COMPRESSION_MASK:
        return _read_compressed(memoryview(data), position, numbers, places)
    source = np.frombuffer(data, dtype=np.uint8)
    count = _measure_plain(source, position, numbers, places)
    return BatchRun([source], numbers[:count], places[:count], int(places[count - 1, 1])) if count else None


def _read_compressed(data: memoryview, position: int, numbers: Int64s, places: Int64s) -> BatchRun | None:
    plain: list[Bytes] = []
    size = 0
    while len(plain) < len(numbers) and size < PLAIN_BYTES:
        end = _end_of_compressed(data, position)
        records = None if end is None else _decompressed(data[position:end], numbers[len(plain)])
        if end is None or records is None:
            break
        places[len(plain)] = 0, len(records)
        position = end
        plain.append(records)
        size += len(records)
    count = len(plain)
    return BatchRun(plain, numbers[:count], places[:count], position) if count else None


def _end_of_compressed(data: memoryview, position: int) -> int | None:
    """Return the end of the batch at `position`, None if it is not whole or not compressed."""
    if len(data) - position < wire.RECORDS or not codec_of(data[position:]):
        return None
    end = position + wire.BEFORE_BATCH_LENGTH + int(_LENGTH.unpack_from(data, position + wire.BATCH_LENGTH)[0])
    return end if position + wire.RECORDS <= end <= len(data) else None


def _decompressed(batch: memoryview, numbers: Int64s) -> Bytes | None:
    """Return the records of a batch and measure them, None if it is invalid."""
    source = np.frombuffer(batch, dtype=np.uint8)
    if batch_reader.check_batch(source, 0, len(source), False, numbers) != batch_reader.OK:
        return None
    try:
        records = decompress(codec_of(batch), source[wire.RECORDS :], DEFAULT_LIMITS.max_decompressed_bytes)
    except KafkaError:
        return None
    return records if _measure_one(records, numbers) == batch_reader.OK else None
