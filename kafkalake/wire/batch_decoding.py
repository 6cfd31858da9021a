"""Turns the bytes of one record batch into a `record.ProducerBatch`, with the error of the first fault. For both directions."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from kafkalake.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageTooLargeError,
    UnsupportedForMessageFormatError,
)
from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.batch import ProducerBatch
from kafkalake.wire import batch_header as wire
from kafkalake.wire import batch_reader, compression

_UINT8 = np.dtype(np.uint8)
_COUNT = struct.Struct(">i")
_COLUMN_BYTES_PER_RECORD = 45
"""29 for offset, timestamp, three int32 offsets and two validity bits. The rest is room for the offsets of a few headers."""
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
    batch_reader.BAD_COLUMNS: (InvalidRecordError, "the columns do not fit the bytes"),
    batch_reader.BAD_COLUMN_ENDS: (
        InvalidRecordError,
        "the ends of a column's values run backwards or out of its bytes",
    ),
    batch_reader.BAD_COLUMN_NULLS: (
        InvalidRecordError,
        "the nulls of a column are not as many as it states, or have bytes",
    ),
}
"""Error class and message by status of a kernel. BAD_RECORD_LENGTH to BAD_CONTROL_RECORD concern the record at RECORD_INDEX."""


def fault(status: int, numbers: Int64s) -> KafkaError:
    """Return the error of a kernel's status."""
    error, text = FAULTS[status]
    if batch_reader.BAD_RECORD_LENGTH <= status <= batch_reader.BAD_CONTROL_RECORD:
        text = f"record {numbers[batch_reader.RECORD_INDEX]}: {text}"
    return error(text)


def decode_batch(
    source: Any, position: int, end: int, produced: bool, numbers: Int64s, limit: int, room_max: int
) -> ProducerBatch:
    """Decode the batch at `source[position:end]`. `numbers` (uninitialised) is filled and kept by the result.

    Compressed records may take `limit` bytes when decompressed, and about `room_max` as Arrow columns.
    """
    attributes = source.item(position + wire.ATTRIBUTES + 1)
    if attributes & at.ATTRIBUTE_COMPRESSION_MASK:
        status = batch_reader.check_batch(source, position, end, produced, numbers)
        if status:
            raise fault(status, numbers)
        codec = attributes & at.ATTRIBUTE_COMPRESSION_MASK
        records = compression.decompress(codec, source[position + wire.RECORDS : end], limit)
        body = allocate(len(records), int(numbers[batch_reader.CLAIMED]), wire.SMALLEST_RECORD)
        check_room(len(body), room_max)
        status = batch_reader.read_records(records, 0, len(records), produced, numbers, body)
        if status == batch_reader.NEEDS_ROOM:
            check_room(int(numbers[batch_reader.ROOM]), room_max)
            body = np.empty(int(numbers[batch_reader.ROOM]), dtype=np.uint8)
            status = batch_reader.read_records(records, 0, len(records), produced, numbers, body)
    else:
        claimed = _COUNT.unpack_from(source, position + wire.RECORD_COUNT)[0]
        body = allocate(end - position, claimed, wire.SMALLEST_RECORD)
        status = batch_reader.read_batch(source, position, end, produced, numbers, body)
        if status == batch_reader.NEEDS_ROOM:
            body = np.empty(int(numbers[batch_reader.ROOM]), dtype=np.uint8)
            status = batch_reader.read_batch(source, position, end, produced, numbers, body)
    if status:
        raise fault(status, numbers)
    used = numbers.item(batch_reader.ROOM)
    return ProducerBatch(body[:used], numbers[: at.LAYOUT_SIZE], numbers[at.LAYOUT_SIZE : batch_reader.ROOM])


def check_room(needed: int, room_max: int) -> None:
    """Raise `MessageTooLargeError` for columns of more than `room_max` bytes."""
    if needed > room_max:
        raise MessageTooLargeError(f"the records take about {needed} bytes as Arrow columns, more than {room_max}")


def allocate(length: int, claimed: int, smallest: int) -> Bytes:
    """Allocate a body large enough unless there are many headers. The claimed record count is capped by the byte length."""
    count = max(0, min(claimed, length // smallest))
    return np.empty(length + _COLUMN_BYTES_PER_RECORD * count + _BODY_PADDING, _UINT8)
