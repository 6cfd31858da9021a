"""Converts Kafka record batches (v2) to `record.ProducerBatch` and back, at the broker's network edge and in the client.

Produce: `decode_produced` takes exactly one batch, applies all of Kafka's checks for produced batches and returns Arrow
columns. `is_as_stored` tells whether its bytes may be served to consumers unchanged. Fetch: `encode_fetched` rebuilds the
producers' batches from stored messages. Client: `batch_from_arrow` and `encode_batch` produce, `decode_fetched` consumes.

Stricter than Kafka, because the log is Arrow and Spark reads it: timestamps must fit in microseconds. A negative length
other than -1 is not null. The LogAppendTime bit is refused for CreateTime topics too. Offset deltas must increase without
gaps in uncompressed batches too. A transactional batch needs a producer id. Header keys that are not UTF-8 keep their
bytes: see `header_key.py`.

Measured, one core of a 2-core machine, medians: `decode_produced` of an uncompressed batch with 100-byte values takes
4 µs for 1 record, 10-12 µs for 150 (16 KiB), 48 µs for 1,000 (21 M records/s); with a key and two headers each 20 µs
for 150. Compressed, 150 records: 13 (snappy), 18 (lz4), 21 (zstd), 63 µs (gzip). `encode_fetched` of 1 MB in batches
of 150: 260 µs (35 M records/s, 3.8 GB/s), with keys and headers 16 M records/s, in batches of one record 8 M/s.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kafkalake.buffers import Buffer
from kafkalake.codecs import NAMES
from kafkalake.errors import (
    CorruptMessageError,
    LakeError,
    UnsupportedCompressionTypeError,
)
from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.crc32c import checksum
from kafkalake.record.message_set import MessageSet
from kafkalake.wire import batch_header as wire
from kafkalake.wire import batch_reader, batch_writer, compression
from kafkalake.wire.arrow_batch import batch_from_arrow
from kafkalake.wire.batch_decoding import FAULTS, decode_batch
from kafkalake.wire.column_batch import decode_columns
from kafkalake.wire.produced_batch import DEFAULT_LIMITS, BatchLimits, decode_produced, is_as_stored

__all__ = [
    "DEFAULT_LIMITS",
    "BatchLimits",
    "Encoded",
    "batch_from_arrow",
    "codec_of",
    "decode_fetched",
    "decode_produced",
    "encode_batch",
    "encode_fetched",
    "is_as_stored",
    "records_of_columns",
]


_COUNT = struct.Struct(">i")
_CRC = struct.Struct(">I")
_UNBOUNDED = 1 << 62


def codec_of(data: Buffer) -> int:
    """Return the codec (0 to 7, `codecs.NAMES`) in a batch's attributes, 0 if the bytes are shorter than a header."""
    return data[wire.ATTRIBUTES + 1] & at.ATTRIBUTE_COMPRESSION_MASK if len(data) >= wire.RECORDS else compression.NONE


class Encoded(NamedTuple):
    """Batches as bytes of a Fetch response, which keep `memory_bytes`, and the offset after the last one."""

    records: memoryview
    next_offset: int
    memory_bytes: int


def encode_fetched(messages: MessageSet, start_offset: int, end_offset: int, max_bytes: int) -> Encoded:
    """Encode the producers' batches that overlap offsets [start_offset, end_offset).

    Batches are whole, so the first may start before `start_offset`. The first is returned whatever its size, others only
    while they fit in `max_bytes`. Each batch is compressed with the codec in its attributes. Empty if no batch overlaps.

    Raise `LakeError` if the messages are not bodies written by kafkalake, or lack columns.
    """
    arrays = messages.data, messages.starts, messages.layouts, messages.headers, messages.first_batch
    plan = np.empty(batch_writer.PLAN, dtype=np.int64)
    _sound(batch_writer.select(*arrays, start_offset, end_offset, max_bytes, plan))
    _, first, _, end, room, codecs, _ = plan.tolist()
    if codecs:
        return _encode_compressed(messages, start_offset, end_offset, max_bytes)
    out: Any = np.empty(room, dtype=np.uint8)
    ends = np.empty(end - first, dtype=np.int64)
    _sound(batch_writer.write_batches(*arrays, max_bytes, plan, out, ends))
    written = int(plan[batch_writer.WRITTEN])
    if not written:
        return Encoded(memoryview(b""), start_offset, 0)
    return Encoded(memoryview(out[: ends[written - 1]]), _next_offset(messages, first + written - 1), len(out))


def _next_offset(messages: MessageSet, batch: int) -> int:
    header = messages.headers[batch]
    return int(header[at.BASE_OFFSET] + header[at.LAST_OFFSET_DELTA]) + 1


def _sound(status: int) -> None:
    if status:
        raise LakeError("rows, buffers and batch headers of an Arrow message do not fit together")


def _encode_compressed(messages: MessageSet, start_offset: int, end_offset: int, max_bytes: int) -> Encoded:
    """Encode compressed batches like `encode_fetched`, in rounds of at most `max_bytes` uncompressed, until the limit is reached.

    A round is smaller once compressed, which leaves room for the next.
    """
    arrays = messages.data, messages.starts, messages.layouts, messages.headers, messages.first_batch
    plan = np.empty(batch_writer.PLAN, dtype=np.int64)
    parts: list[bytes] = []
    left = max_bytes
    while True:
        _sound(batch_writer.select(*arrays, start_offset, end_offset, left, plan))
        _, first, _, end, room, _, _ = plan.tolist()
        if first == end:
            break
        out = np.empty(room, dtype=np.uint8)
        ends = np.empty(end - first, dtype=np.int64)
        _sound(batch_writer.write_batches(*arrays, left, plan, out, ends))
        written = int(plan[batch_writer.WRITTEN])
        begin = 0
        for batch, stop in enumerate(ends[:written].tolist(), first):
            part = compressed_batch(out[begin:stop])
            if parts and len(part) > left:
                return _joined(parts, start_offset)
            parts.append(part)
            left -= len(part)
            begin = stop
            start_offset = _next_offset(messages, batch)
    return _joined(parts, start_offset)


def _joined(parts: list[bytes], next_offset: int) -> Encoded:
    records = b"".join(parts)
    return Encoded(memoryview(records), next_offset, len(records))


def compressed_batch(plain: Bytes) -> bytes:
    """Compress the records of an encoded batch with the codec in its attributes."""
    codec = int(plain[wire.ATTRIBUTES + 1]) & at.ATTRIBUTE_COMPRESSION_MASK
    if not codec:
        return plain.tobytes()
    batch = bytearray(plain[: wire.RECORDS])
    batch += compression.compress(codec, plain[wire.RECORDS :])
    _COUNT.pack_into(batch, wire.BATCH_LENGTH, len(batch) - wire.BEFORE_BATCH_LENGTH)
    crc = checksum(np.frombuffer(batch, dtype=np.uint8), wire.ATTRIBUTES, len(batch))
    _CRC.pack_into(batch, wire.CRC, crc)
    return bytes(batch)


def encode_batch(batch: ProducerBatch, codec: int = compression.NONE) -> bytes:
    """Encode one batch as a producer sends it, compressed with `codec`. The rest of its header is kept.

    Raise `UnsupportedCompressionTypeError` for an unknown codec.
    """
    if codec not in range(len(NAMES)):
        raise UnsupportedCompressionTypeError(f"unknown compression type {codec}")
    batch, header = batch.whole(), batch.header.copy()
    header[at.ATTRIBUTES] = (int(header[at.ATTRIBUTES]) & ~at.ATTRIBUTE_COMPRESSION_MASK) | codec
    messages = MessageSet(
        batch.body,
        np.zeros(1, dtype=np.int64),
        batch.layout.reshape(1, at.LAYOUT_SIZE),
        header.reshape(1, at.HEADER_FIELDS),
        np.array([0, 1], dtype=np.int64),
        np.zeros(2, dtype=np.int64),
    )
    base_offset = int(header[at.BASE_OFFSET])
    return bytes(encode_fetched(messages, base_offset, base_offset + 1, 0).records)


def records_of_columns(data: Buffer, codec: int) -> bytes:
    """Return a producer's batch of columns, which may be sent, as a batch of records."""
    numbers = np.empty(batch_reader.NUMBERS, dtype=np.int64)
    return encode_batch(decode_columns(np.frombuffer(data, dtype=np.uint8), numbers, _UNBOUNDED, _UNBOUNDED), codec)


def decode_fetched(
    data: Buffer, limit: int = DEFAULT_LIMITS.max_decompressed_bytes, position: int = 0
) -> Iterator[ProducerBatch]:
    """Yield the batches of a Fetch response, from `position` on, with absolute offsets.

    Each is decompressed to at most `limit` bytes of records.

    A control batch has no rows and its `control_type` set. A batch truncated by the end of the response is dropped, as the
    protocol allows. Batches are whole, so the first may hold offsets before the requested one.

    Raise `CorruptMessageError`, `InvalidRecordError`, `UnsupportedForMessageFormatError` (magic 0 or 1) or
    `UnsupportedCompressionTypeError`.
    """
    if not len(data):
        return
    source: Any = np.frombuffer(data, dtype=np.uint8)
    while len(source) - position >= wire.RECORDS:
        size = _COUNT.unpack_from(source, position + wire.BATCH_LENGTH)[0] + wire.BEFORE_BATCH_LENGTH
        if source[position + wire.MAGIC] != wire.MAGIC_2:
            error, text = FAULTS[batch_reader.BAD_MAGIC]
            raise error(text)
        if size < wire.RECORDS:
            raise CorruptMessageError(f"a record batch of {size} bytes is smaller than its header")
        if size > len(source) - position:
            return
        numbers = np.empty(batch_reader.NUMBERS, dtype=np.int64)
        yield decode_batch(source, position, position + size, False, numbers, limit, _UNBOUNDED)
        position += size
