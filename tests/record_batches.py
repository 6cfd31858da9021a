"""Producer batches from Python rows, without the wire: what the tests of `record` and `storage` append."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.message_set import MessageSet, to_arrow
from kafkalake.record.schema import SCHEMA

Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
"""timestamp (ms), key, value, headers."""


def _padded(buffer: pa.Buffer | None, length: int) -> bytes:
    return b"" if buffer is None else buffer.to_pybytes()[:length]


def _buffers_of(array: pa.Array, rows: int) -> list[bytes]:
    """Validity (empty without nulls), offsets, data of a binary array."""
    validity, offsets, data = array.buffers()
    positions = (
        np.frombuffer(offsets, dtype=np.int32)[: rows + 1] if offsets is not None else np.zeros(1, dtype=np.int32)
    )
    bitmap = _padded(validity, (rows + 7) // 8) if array.null_count else b""
    return [bitmap, positions.astype("<i4").tobytes(), _padded(data, int(positions[-1]))]


def record_batch(
    rows: Sequence[Row],
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    attributes: int = 0,
) -> ProducerBatch:
    """One producer batch of `rows`, offsets from 0."""
    count = len(rows)
    keys = pa.array([row[1] for row in rows], pa.binary())
    values = pa.array([row[2] for row in rows], pa.binary())
    inner = [header for row in rows for header in row[3]]
    header_keys = pa.array([key for key, _ in inner], pa.utf8())
    header_values = pa.array([value for _, value in inner], pa.binary())
    list_offsets = np.cumsum([0, *(len(row[3]) for row in rows)]).astype("<i4").tobytes()
    timestamps = [row[0] for row in rows]
    parts = [
        b"",
        np.arange(count, dtype="<i8").tobytes(),
        b"",
        np.array(timestamps, dtype="<i8").tobytes(),
        *_buffers_of(keys, count),
        *_buffers_of(values, count),
        b"",
        list_offsets,
        b"",
        b"",
        *_buffers_of(header_keys, len(inner))[1:],
        *_buffers_of(header_values, len(inner)),
    ]
    assert len(parts) == at.BUFFERS
    layout = np.zeros(at.LAYOUT_SIZE, dtype=np.int64)
    layout[: at.FIRST_BUFFER] = (count, len(inner), keys.null_count, values.null_count, header_values.null_count)
    body = bytearray()
    for number, part in enumerate(parts):
        layout[at.FIRST_BUFFER + 2 * number] = len(body)
        layout[at.FIRST_BUFFER + 2 * number + 1] = len(part)
        body += part + bytes(-len(part) % 8)
    header = np.zeros(at.HEADER_FIELDS, dtype=np.int64)
    header[at.LAST_OFFSET_DELTA] = count - 1
    header[at.LEADER_EPOCH] = -1
    header[at.PRODUCER_ID] = producer_id
    header[at.PRODUCER_EPOCH] = epoch
    header[at.BASE_SEQUENCE] = sequence
    header[at.ATTRIBUTES] = attributes | (at.ATTRIBUTE_TRANSACTIONAL if transactional else 0)
    header[at.BASE_TIMESTAMP] = timestamps[0] if timestamps else -1
    header[at.MAX_TIMESTAMP] = max(timestamps, default=-1)
    header[at.RECORDS] = count
    header[at.CONTROL_TYPE] = -1
    return ProducerBatch(np.frombuffer(bytes(body), dtype=np.uint8), layout, header)


def simple_batch(values: Sequence[bytes], timestamp: int = 1_000, **producer: Any) -> ProducerBatch:
    """One batch of values without keys or headers; timestamps count up from `timestamp`."""
    return record_batch([(timestamp + i, None, value, []) for i, value in enumerate(values)], **producer)


def with_values_apart(batch: ProducerBatch) -> ProducerBatch:
    """The batch with the bytes of its values outside of its body, as they may come from a producer."""
    value, *following = range(at.FIRST_BUFFER + 2 * at.VALUE_DATA, at.LAYOUT_SIZE, 2)
    begin, length = batch.layout[value : value + 2].tolist()
    end = batch.layout.item(following[0])
    layout = batch.layout.copy()
    layout[following] -= end - begin
    body = np.concatenate([batch.body[:begin], batch.body[end:]])
    return ProducerBatch(body, layout, batch.header, batch.body[begin : begin + length])


def rows_of(messages: MessageSet) -> list[tuple[int, Row]]:
    """(offset, row) of all records of some messages."""
    if not len(messages):
        return []
    return arrow_rows(to_arrow(messages))


def arrow_rows(batch: pa.RecordBatch | pa.Table) -> list[tuple[int, Row]]:
    """(offset, row) of an Arrow batch or table of `SCHEMA`."""
    assert batch.schema.equals(SCHEMA)
    timestamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
    columns = [batch.column(name).to_pylist() for name in ("offset", "key", "value", "headers")]
    return [
        (offset, (timestamp, key, value, [(pair["key"], pair["value"]) for pair in headers]))
        for timestamp, offset, key, value, headers in zip(timestamps, *columns, strict=True)
    ]
