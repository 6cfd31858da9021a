"""Decodes the batches of producers with all of Kafka's checks: records, or columns from kafkalake's own producers.

See `record_batch` for where the checks are stricter than Kafka's, and for what they cost.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from kafkalake.buffers import Buffer
from kafkalake.errors import CorruptMessageError, InvalidRecordError, KafkaError, MessageTooLargeError
from kafkalake.record import layout as at
from kafkalake.record.arrays import Int64s
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.timestamps import NO_TIMESTAMP, allowed_timestamps
from kafkalake.timestamp_range import EARLIEST_TIMESTAMP_MS, LATEST_TIMESTAMP_MS
from kafkalake.wire import batch_header as wire
from kafkalake.wire import batch_reader
from kafkalake.wire.batch_decoding import decode_batch
from kafkalake.wire.column_batch import decode_columns
from kafkalake.wire.record_faults import refuse_records

_UINT8, _INT64 = np.dtype(np.uint8), np.dtype(np.int64)
"""Types as numpy takes them: from a scalar type it makes one at each call."""

_LENGTH_AND_MAGIC = struct.Struct(">8xi4xB")
_STATED = struct.Struct(">h12xq")
"""Fields from the attributes on: attributes, last offset delta and base timestamp (skipped), max timestamp."""
_MAX_TIMESTAMP = at.LAYOUT_SIZE + at.MAX_TIMESTAMP
_MAGICS = (wire.MAGIC_2, wire.MAGIC_COLUMNS)
_BODY_RATIO_MAX = 4
"""Largest ratio of Arrow columns to the limit on decompressed records. Tiny records or many headers need the most."""


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


def decode_produced(
    data: Buffer,
    limits: BatchLimits = DEFAULT_LIMITS,
    now_ms: int | None = None,
    decompressed_bytes_max: int | None = None,
    *,
    is_kept: bool = False,
) -> ProducerBatch:
    """Decode the one record batch, or batch of columns, of a partition in a Produce request (>= 3). Offsets count from 0.

    `header` has the producer's fields. Its `max_timestamp` is computed from the records; the log sets leader epoch and base
    offset. `now_ms` (ms since 1970) is the reference for timestamp limits, which are not checked without it.
    `decompressed_bytes_max` is a bound below that of `limits`, so that a caller can defer larger batches. is_kept: `data` stays as
    it is, so that the batch may refer to it (`ProducerBatch.values`).

    Raise, as Kafka does, `CorruptMessageError` (batch length, checksum), `InvalidRecordError` (anything else that is not
    exactly one valid batch), `MessageTooLargeError`, `DecompressedTooLargeError`, `InvalidTimestampError`,
    `UnsupportedCompressionTypeError`. If single records fail because of keys or timestamps, the error's `record_errors` lists
    them.
    """
    length = len(data)
    if length < wire.RECORDS:
        raise _not_a_batch(data)
    stated, magic = _LENGTH_AND_MAGIC.unpack_from(data)
    if magic not in _MAGICS:
        raise _not_a_batch(data)
    if stated + wire.BEFORE_BATCH_LENGTH != length:
        raise _not_one_batch(stated + wire.BEFORE_BATCH_LENGTH, length)
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
    if magic == wire.MAGIC_2:
        batch = decode_batch(source, 0, length, True, numbers, limit, room_max)
    else:
        batch = decode_columns(source, numbers, limit, room_max, is_kept=is_kept)
        _check_size(numbers, limits)
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


def _check_size(numbers: Int64s, limits: BatchLimits) -> None:
    """Refuse columns that are too large as records, as which consumers get them. If they are compressed, only the bytes count."""
    if numbers.item(at.LAYOUT_SIZE + at.ATTRIBUTES) & at.ATTRIBUTE_COMPRESSION_MASK:
        return
    length = wire.RECORDS + wire.SMALLEST_RECORD * numbers.item(at.ROWS)
    length += numbers.item(batch_reader.KEY_BYTES) + numbers.item(batch_reader.VALUE_BYTES)
    if length > limits.max_message_bytes:
        raise MessageTooLargeError(
            f"the record batch has {length} bytes or more as records, more than max.message.bytes {limits.max_message_bytes}"
        )


def _check_limits(batch: ProducerBatch, numbers: Int64s, limits: BatchLimits, now_ms: int | None) -> None:
    smallest, largest = numbers.item(batch_reader.MIN_TIMESTAMP), numbers.item(_MAX_TIMESTAMP)
    earliest, latest = EARLIEST_TIMESTAMP_MS, LATEST_TIMESTAMP_MS
    if now_ms is not None:
        earliest, latest = allowed_timestamps(limits.timestamp_before_max_ms, limits.timestamp_after_max_ms, now_ms)
    if (
        largest > latest
        or (smallest < earliest and smallest != NO_TIMESTAMP)
        or (limits.key_required and numbers[at.KEY_NULLS])
    ):
        raise refuse_records(batch, earliest, latest, key_required=limits.key_required)


def is_as_stored(data: Buffer, batch: ProducerBatch) -> bool:
    """Return whether the produced bytes match what the log stores, so that consumers may get them unchanged: `decode_produced`
    recomputes the max timestamp and drops unknown attributes. Columns are no records.
    """
    if data[wire.MAGIC] != wire.MAGIC_2:
        return False
    item = batch.header.item
    return _STATED.unpack_from(data, wire.ATTRIBUTES) == (item(at.ATTRIBUTES), item(at.MAX_TIMESTAMP))
