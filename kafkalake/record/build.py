"""Builds batches of keys and values: the broker's own (its coordinators' journals), which are read here too, and producers'.

The columns are packed without numpy, Arrow arrays or the wire format: calls of those cost more than the few bytes of a record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.record import layout as at
from kafkalake.record.arrow_body import body_from_arrow
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.message_set import MessageSet, to_arrow

Pair = tuple[bytes | None, bytes | None]


class HeaderColumns(NamedTuple):
    """Headers of the records of a batch: how many each record has, and the keys (as segments store them) and values of all."""

    counts: Sequence[int]
    keys: list[bytes | None]
    values: list[bytes | None]


_KEY_BUFFERS = at.KEY_VALIDITY, at.KEY_OFFSETS, at.KEY_DATA
_VALUE_BUFFERS = at.VALUE_VALIDITY, at.VALUE_OFFSETS, at.VALUE_DATA
_HEADER_KEY_BUFFERS = at.HEADER_KEY_OFFSETS, at.HEADER_KEY_DATA
_HEADER_VALUE_BUFFERS = at.HEADER_VALUE_VALIDITY, at.HEADER_VALUE_OFFSETS, at.HEADER_VALUE_DATA
_PADDING = [bytes(-length % 8) for length in range(8)]


def build_batch(
    pairs: Sequence[Pair],
    timestamp_ms: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
) -> ProducerBatch:
    """Return one batch of (key, value) records without headers, all with one timestamp (ms since 1970). None is null."""
    return build_columns(
        [key for key, _ in pairs],
        [value for _, value in pairs],
        [timestamp_ms] * len(pairs),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=transactional,
    )


def build_columns(
    keys: list[bytes | None],
    values: list[bytes | None],
    timestamps: Sequence[int],
    headers: HeaderColumns | None = None,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
) -> ProducerBatch:
    """Return one batch of records as columns of equal lengths, timestamps in ms since 1970. None is null."""
    rows = len(keys)
    assert rows, "a batch holds records"
    longs = f"<{rows}q"
    buffers = (
        (at.OFFSET_DATA, struct.pack(longs, *range(rows))),
        (at.TIMESTAMP_DATA, struct.pack(longs, *timestamps)),
        *zip(_KEY_BUFFERS, _binary(keys, rows), strict=True),
        *zip(_VALUE_BUFFERS, _binary(values, rows), strict=True),
        *_header_buffers(headers, rows),
    )
    numbers = [0] * (at.LAYOUT_SIZE + at.HEADER_FIELDS)
    numbers[at.ROWS], numbers[at.KEY_NULLS], numbers[at.VALUE_NULLS] = rows, keys.count(None), values.count(None)
    if headers is not None:
        numbers[at.HEADER_ROWS], numbers[at.HEADER_VALUE_NULLS] = len(headers.keys), headers.values.count(None)
    body = bytearray()
    for buffer, data in buffers:
        place = at.FIRST_BUFFER + 2 * buffer
        numbers[place], numbers[place + 1] = len(body), len(data)
        body += data
        body += _PADDING[len(data) & 7]
    header = at.LAYOUT_SIZE
    producer = producer_id, producer_epoch, -1
    _fill_header(numbers, header, rows, (timestamps[0], max(timestamps)), producer, transactional=transactional)
    array = np.array(numbers, dtype=np.int64)
    return ProducerBatch(np.frombuffer(body, dtype=np.uint8), array[:header], array[header:])


def build_from_arrow(
    columns: pa.RecordBatch,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> ProducerBatch:
    """Return one batch of the rows of an Arrow batch of `SCHEMA`, at least one. Its offsets count from 0."""
    body, layout = body_from_arrow(columns)
    timestamps = columns.column("timestamp").view(pa.int64())
    header = [0] * at.HEADER_FIELDS
    times = timestamps[0].as_py(), pc.max(timestamps).as_py()
    producer = producer_id, producer_epoch, base_sequence
    _fill_header(header, 0, len(columns), times, producer, transactional=transactional)
    return ProducerBatch(body, layout, np.array(header, dtype=np.int64))


def _fill_header(
    numbers: list[int],
    begin: int,
    rows: int,
    timestamps: tuple[int, int],
    producer: tuple[int, int, int],
    *,
    transactional: bool,
) -> None:
    """Fill a batch header at `begin`. timestamps: the first and the largest. producer: id, epoch, first sequence."""
    numbers[begin + at.LEADER_EPOCH] = numbers[begin + at.CONTROL_TYPE] = -1
    numbers[begin + at.PRODUCER_ID], numbers[begin + at.PRODUCER_EPOCH], numbers[begin + at.BASE_SEQUENCE] = producer
    numbers[begin + at.ATTRIBUTES] = at.ATTRIBUTE_TRANSACTIONAL if transactional else 0
    numbers[begin + at.BASE_TIMESTAMP], numbers[begin + at.MAX_TIMESTAMP] = timestamps
    numbers[begin + at.RECORDS], numbers[begin + at.LAST_OFFSET_DELTA] = rows, rows - 1


def _header_buffers(headers: HeaderColumns | None, rows: int) -> list[tuple[int, bytes]]:
    if headers is None:
        return [
            (at.HEADERS_OFFSETS, bytes(4 * (rows + 1))),
            (at.HEADER_KEY_OFFSETS, bytes(4)),
            (at.HEADER_VALUE_OFFSETS, bytes(4)),
        ]
    count = len(headers.keys)
    return [
        (at.HEADERS_OFFSETS, struct.pack(f"<{rows + 1}i", 0, *accumulate(headers.counts))),
        *zip(_HEADER_KEY_BUFFERS, _binary(headers.keys, count)[1:], strict=True),
        *zip(_HEADER_VALUE_BUFFERS, _binary(headers.values, count), strict=True),
    ]


def _binary(values: list[bytes | None], rows: int) -> tuple[bytes, bytes, bytes]:
    """Return an Arrow binary column: validity (empty without nulls), offsets, data."""
    nulls = values.count(None)
    if nulls == rows:
        return bytes((rows + 7) >> 3), bytes(4 * (rows + 1)), b""
    if nulls:
        present = np.fromiter((value is not None for value in values), dtype=np.bool_, count=rows)
        validity = np.packbits(present, bitorder="little").tobytes()
        found = [value or b"" for value in values]
    else:
        validity, found = b"", cast(list[bytes], values)
    return validity, struct.pack(f"<{rows + 1}i", 0, *accumulate(map(len, found))), b"".join(found)


class ReadBatch(NamedTuple):
    """A decoded batch. `producer_id` -1: not transactional. `committed`: outcome of a transaction marker (no pairs), else None."""

    base_offset: int
    pairs: list[Pair]
    producer_id: int
    producer_epoch: int
    committed: bool | None


def read_batches(messages: MessageSet) -> Iterator[ReadBatch]:
    """Yield the batches of `messages` in order, with copied keys and values. Batches must have a record for each offset."""
    table = to_arrow(messages, at.KEY_COLUMN | at.VALUE_COLUMN)
    pairs = list(zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True))
    begin = 0
    for header in messages.headers.tolist():
        end = begin + header[at.RECORDS]
        attributes = header[at.ATTRIBUTES]
        yield ReadBatch(
            base_offset=header[at.BASE_OFFSET],
            pairs=pairs[begin:end],
            producer_id=header[at.PRODUCER_ID] if attributes & at.ATTRIBUTE_TRANSACTIONAL else -1,
            producer_epoch=header[at.PRODUCER_EPOCH],
            committed=header[at.CONTROL_TYPE] == 1 if attributes & at.ATTRIBUTE_CONTROL else None,
        )
        begin = end
