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
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kafkalake.buffers import Buffer
from kafkalake.codecs import NAMES
from kafkalake.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    LakeError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.crc32c import checksum
from kafkalake.record.message_set import MessageSet
from kafkalake.wire import batch_header as wire
from kafkalake.wire import batch_reader, batch_writer, compression
from kafkalake.wire.arrow_batch import batch_from_arrow
from kafkalake.wire.record_faults import refuse_records

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
]


_UINT8, _INT64 = np.dtype(np.uint8), np.dtype(np.int64)
"""Types as numpy takes them: from a scalar type it makes one at each call."""

_COUNT = struct.Struct(">i")
_CRC = struct.Struct(">I")
_STATED = struct.Struct(">h12xq")
"""Fields from the attributes on: attributes, last offset delta and base timestamp (skipped), max timestamp."""
_COLUMN_BYTES_PER_RECORD = 45
"""29 for offset, timestamp, three int32 offsets and two validity bits. The rest is room for the offsets of a few headers."""
_BODY_RATIO_MAX = 4
"""Largest ratio of Arrow columns to the limit on decompressed records. Tiny records or many headers need the most."""
_UNBOUNDED = 1 << 62
_BODY_PADDING = 8 * at.BUFFERS + 64

FAULTS: dict[int, tuple[type[KafkaError], str]] = {
    batch_reader.CORRUPT_LENGTH: (CorruptMessageError, "the batch length does not fit the bytes"),
    batch_reader.BAD_CHECKSUM: (CorruptMessageError, "the CRC32C of the batch does not match"),
    batch_reader.BAD_MAGIC: (UnsupportedForMessageFormatError, "only record batches of magic 2 are supported"),
    batch_reader.BASE_OFFSET_NOT_ZERO: (InvalidRecordError, "the base offset of a produced batch must be 0"),
    batch_reader.BAD_COUNT: (InvalidRecordError, "the batch claims an impossible number of records"),
    batch_reader.BAD_OFFSET_RANGE: (InvalidRecordError, "last offset delta and number of records do not agree"),
    batch_reader.CONTROL_FROM_CLIENT: (InvalidRecordError, "clients are not allowed to write control records"),
    batch_reader.BAD_SEQUENCE: (InvalidRecordError, "a batch with a producer id must have a sequence number"),
    batch_reader.BAD_PRODUCER: (InvalidRecordError, "producer id, producer epoch and transactional flag do not agree"),
    batch_reader.BAD_TIMESTAMP_TYPE: (
        InvalidTimestampError,
        "a producer must not set the timestamp type LogAppendTime",
    ),
    batch_reader.BAD_RECORD_LENGTH: (InvalidRecordError, "its length does not fit the bytes"),
    batch_reader.BAD_RECORD: (InvalidRecordError, "a length or a varint runs out of the record, or is negative"),
    batch_reader.BAD_OFFSET_DELTA: (InvalidRecordError, "its offset delta is out of order"),
    batch_reader.BAD_HEADER_COUNT: (InvalidRecordError, "its number of headers does not fit its length"),
    batch_reader.BAD_HEADER_KEY: (InvalidRecordError, "the key of a header is null"),
    batch_reader.TRAILING_BYTES: (InvalidRecordError, "bytes follow the last record"),
    batch_reader.TIMESTAMP_OUT_OF_RANGE: (InvalidTimestampError, "a timestamp does not fit in microseconds"),
    batch_reader.BODY_TOO_LARGE: (MessageTooLargeError, "the records take more than 2 GiB as Arrow columns"),
    batch_reader.BAD_CONTROL_RECORD: (InvalidRecordError, "a control batch must hold one control record"),
}
"""Error class and message by kernel status. Statuses from BAD_RECORD_LENGTH on concern the record at RECORD_INDEX."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits on a produced batch.

    max_message_bytes: `max.message.bytes`, size of the batch as received. max_decompressed_bytes: size of its uncompressed
    records. timestamp_before_max_ms, timestamp_after_max_ms: allowed distance of a timestamp before and after `now_ms`
    (KIP-937). None: no bound. key_required: refuse records without a key (compacted topic).
    """

    max_message_bytes: int = 1_048_588
    max_decompressed_bytes: int = 104_857_600
    timestamp_before_max_ms: int | None = None
    timestamp_after_max_ms: int | None = None
    key_required: bool = False


DEFAULT_LIMITS = BatchLimits()


def codec_of(data: Buffer) -> int:
    """Return the codec (0 to 7, `codecs.NAMES`) in a batch's attributes, 0 if the bytes are shorter than a header."""
    return data[wire.ATTRIBUTES + 1] & at.ATTRIBUTE_COMPRESSION_MASK if len(data) >= wire.RECORDS else compression.NONE


def decode_produced(
    data: Buffer,
    limits: BatchLimits = DEFAULT_LIMITS,
    now_ms: int | None = None,
    decompressed_bytes_max: int | None = None,
) -> ProducerBatch:
    """Decode the one record batch of a partition in a Produce request (>= 3). Offsets count from 0.

    `header` has the producer's fields. Its `max_timestamp` is computed from the records; the log sets leader epoch and base
    offset. `now_ms` (ms since 1970) is the reference for timestamp limits, which are not checked without it.
    `decompressed_bytes_max` is a bound below that of `limits`, so that a caller can defer larger batches.

    Raise, as Kafka does, `CorruptMessageError` (batch length, checksum), `InvalidRecordError` (anything else that is not
    exactly one valid batch), `MessageTooLargeError`, `DecompressedTooLargeError`, `InvalidTimestampError`,
    `UnsupportedCompressionTypeError`. If single records fail because of keys or timestamps, the error's `record_errors` lists
    them.
    """
    length = len(data)
    if length < wire.RECORDS or data[wire.MAGIC] != wire.MAGIC_2:
        raise _not_a_batch(data)
    stated = _COUNT.unpack_from(data, wire.BATCH_LENGTH)[0] + wire.BEFORE_BATCH_LENGTH
    if stated != length:
        raise _not_one_batch(stated, length)
    if length > limits.max_message_bytes:
        raise MessageTooLargeError(
            f"the record batch has {length} bytes, more than max.message.bytes {limits.max_message_bytes}"
        )
    source = np.frombuffer(data, _UINT8)
    numbers = np.empty(batch_reader.NUMBERS, _INT64)
    limit = limits.max_decompressed_bytes
    room_max = _BODY_RATIO_MAX * limit
    if decompressed_bytes_max is not None and decompressed_bytes_max < limit:
        limit = decompressed_bytes_max
    batch = _decode(source, 0, length, True, numbers, limit, room_max)
    _check_limits(batch, numbers, limits, now_ms)
    return batch


def _not_a_batch(data: Buffer) -> KafkaError:
    if not len(data):
        return InvalidRecordError("a produce request must have exactly one record batch for each partition")
    if len(data) > wire.MAGIC and data[wire.MAGIC] < wire.MAGIC_2:
        return InvalidRecordError(f"produce requests may only hold record batches of magic 2, not {data[wire.MAGIC]}")
    if len(data) > wire.MAGIC and data[wire.MAGIC] > wire.MAGIC_2:
        return CorruptMessageError(f"unknown magic {data[wire.MAGIC]}")
    return CorruptMessageError(f"{len(data)} bytes are too few for a record batch")


def _not_one_batch(stated: int, length: int) -> KafkaError:
    if stated < wire.RECORDS:
        return CorruptMessageError(f"a record batch of {stated} bytes is smaller than its header")
    if stated > length:
        return InvalidRecordError(f"the record batch is cut short: {length} of {stated} bytes")
    return InvalidRecordError(f"{length - stated} bytes follow the record batch: a partition takes exactly one")


def _fault(status: int, numbers: Int64s) -> KafkaError:
    error, text = FAULTS[status]
    if status >= batch_reader.BAD_RECORD_LENGTH:
        text = f"record {numbers[batch_reader.RECORD_INDEX]}: {text}"
    return error(text)


def _decode(
    source: Any, position: int, end: int, produced: bool, numbers: Int64s, limit: int, room_max: int
) -> ProducerBatch:
    """Decode the batch at `source[position:end]`. `numbers` (uninitialised) is filled and kept by the result.

    Compressed records may take `limit` bytes when decompressed, and about `room_max` as Arrow columns.
    """
    attributes = source.item(position + wire.ATTRIBUTES + 1)
    if attributes & at.ATTRIBUTE_COMPRESSION_MASK:
        status = batch_reader.check_batch(source, position, end, produced, numbers)
        if status:
            raise _fault(status, numbers)
        codec = attributes & at.ATTRIBUTE_COMPRESSION_MASK
        records = compression.decompress(codec, source[position + wire.RECORDS : end], limit)
        body = _room(records, len(records), int(numbers[batch_reader.CLAIMED]))
        _check_room(len(body), room_max)
        status = batch_reader.read_records(records, 0, len(records), produced, numbers, body)
        if status == batch_reader.NEEDS_ROOM:
            _check_room(int(numbers[batch_reader.ROOM]), room_max)
            body = np.empty(int(numbers[batch_reader.ROOM]), dtype=np.uint8)
            status = batch_reader.read_records(records, 0, len(records), produced, numbers, body)
    else:
        claimed = _COUNT.unpack_from(source, position + wire.RECORD_COUNT)[0]
        body = _room(source, end - position, claimed)
        status = batch_reader.read_batch(source, position, end, produced, numbers, body)
        if status == batch_reader.NEEDS_ROOM:
            body = np.empty(int(numbers[batch_reader.ROOM]), dtype=np.uint8)
            status = batch_reader.read_batch(source, position, end, produced, numbers, body)
    if status:
        raise _fault(status, numbers)
    used = numbers.item(batch_reader.ROOM)
    return ProducerBatch(body[:used], numbers[: at.LAYOUT_SIZE], numbers[at.LAYOUT_SIZE : batch_reader.ROOM])


def _check_room(needed: int, room_max: int) -> None:
    if needed > room_max:
        raise MessageTooLargeError(f"the records take about {needed} bytes as Arrow columns, more than {room_max}")


def _room(records: Bytes, length: int, claimed: int) -> Bytes:
    """Allocate a body large enough unless there are many headers. The claimed record count is capped by the byte length."""
    count = max(0, min(claimed, length // wire.SMALLEST_RECORD))
    return np.empty(length + _COLUMN_BYTES_PER_RECORD * count + _BODY_PADDING, _UINT8)


def _check_limits(batch: ProducerBatch, numbers: Int64s, limits: BatchLimits, now_ms: int | None) -> None:
    smallest, largest = numbers.item(batch_reader.MIN_TIMESTAMP), numbers.item(at.LAYOUT_SIZE + at.MAX_TIMESTAMP)
    earliest, latest = wire.EARLIEST_TIMESTAMP_MS, wire.LATEST_TIMESTAMP_MS
    if now_ms is not None:
        before, after = limits.timestamp_before_max_ms, limits.timestamp_after_max_ms
        if before is not None and now_ms - before > earliest:
            earliest = now_ms - before
        if after is not None and now_ms + after < latest:
            latest = now_ms + after
    if (
        largest > latest
        or (smallest < earliest and smallest != wire.NO_TIMESTAMP)
        or (limits.key_required and numbers[at.KEY_NULLS])
    ):
        raise refuse_records(batch, earliest, latest, key_required=limits.key_required)


def is_as_stored(data: Buffer, batch: ProducerBatch) -> bool:
    """Return whether the produced bytes match what the log stores, so that consumers may get them unchanged: `decode_produced`
    recomputes the max timestamp and drops unknown attributes.
    """
    header = batch.header
    attributes, largest = _STATED.unpack_from(data, wire.ATTRIBUTES)
    return bool(attributes == header.item(at.ATTRIBUTES) and largest == header.item(at.MAX_TIMESTAMP))


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
    header = batch.header.copy()
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
        yield _decode(source, position, position + size, False, numbers, limit, _UNBOUNDED)
        position += size
