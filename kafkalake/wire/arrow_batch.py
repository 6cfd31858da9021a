"""Turns any Arrow table of records into one `record.ProducerBatch`, for our own producers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.record import layout as at
from kafkalake.record.arrow_body import body_from_arrow
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.schema import SCHEMA
from kafkalake.record.timestamps import NO_TIMESTAMP
from kafkalake.wire.batch_header import NO_PRODUCER_ID

_NO_SEQUENCE = -1


def batch_from_arrow(
    records: pa.RecordBatch | pa.Table,
    *,
    timestamp_ms: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = _NO_SEQUENCE,
    transactional: bool = False,
) -> ProducerBatch:
    """Return one producer batch of the columns `value` and, if present, `key`, `timestamp` and `headers`. Others are ignored.

    Text becomes its UTF-8 bytes. A missing or null timestamp becomes `timestamp_ms` (ms since 1970), missing headers none.
    Offsets count from 0. Raise `pyarrow.ArrowException` if a column cannot be cast to its type in `SCHEMA` without
    loss, `ValueError` if the table has no `value` column or no rows.
    """
    if "value" not in records.column_names or not records.num_rows:
        raise ValueError("records need a column `value` and at least one row")
    columns = _columns(records, timestamp_ms)
    body, layout = body_from_arrow(columns)
    timestamps = np.frombuffer(columns.column("timestamp").buffers()[1], dtype=np.int64, count=len(columns))
    header = np.zeros(at.HEADER_FIELDS, dtype=np.int64)
    header[at.LAST_OFFSET_DELTA] = len(columns) - 1
    header[at.LEADER_EPOCH] = -1
    header[at.PRODUCER_ID], header[at.PRODUCER_EPOCH] = producer_id, producer_epoch
    header[at.BASE_SEQUENCE] = base_sequence
    header[at.ATTRIBUTES] = at.ATTRIBUTE_TRANSACTIONAL if transactional else 0
    header[at.BASE_TIMESTAMP], header[at.MAX_TIMESTAMP] = timestamps[0], timestamps.max()
    header[at.RECORDS] = len(columns)
    header[at.CONTROL_TYPE] = -1
    return ProducerBatch(body, layout, header)


def _columns(records: pa.RecordBatch | pa.Table, timestamp_ms: int) -> pa.RecordBatch:
    """Return the records with schema `SCHEMA`, as one batch whose buffers start at their first row."""
    rows = records.num_rows
    arrays = []
    for field in SCHEMA:
        if field.name == "offset":
            arrays.append(pa.array(np.arange(rows, dtype=np.int64)))
        elif field.name in records.column_names:
            arrays.append(cast_column(records.column(field.name), field, timestamp_ms))
        elif field.name == "timestamp":
            arrays.append(pa.array(np.full(rows, timestamp_ms)).cast(field.type))
        elif field.name == "headers":
            arrays.append(pa.array([[]], field.type).take(pa.array(np.zeros(rows, dtype=np.int64))))
        else:
            arrays.append(pa.nulls(rows, field.type))
    table = pa.Table.from_arrays([pa.concat_arrays(_chunks(array)) for array in arrays], schema=SCHEMA)
    sink = pa.BufferOutputStream()  # a round trip through IPC cuts slices to size
    with pa.ipc.new_stream(sink, SCHEMA) as stream:
        stream.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


def _chunks(array: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return array.chunks if isinstance(array, pa.ChunkedArray) else [array]


def cast_column(array: pa.Array | pa.ChunkedArray, field: pa.Field, timestamp_ms: int) -> pa.Array | pa.ChunkedArray:
    """Return a column with the type of a field of `SCHEMA`. Null timestamps become `timestamp_ms`, null headers none.

    Raise `pyarrow.ArrowException` if it cannot be cast without loss.
    """
    if field.name == "timestamp":
        if pa.types.is_timestamp(array.type) and array.type.tz is None:
            array = pc.assume_timezone(array, "UTC")
        is_finer = pa.types.is_timestamp(array.type) and array.type.unit in ("us", "ns")
        safe = not is_finer  # they lose their fraction of a millisecond
        array = array.cast(field.type, safe=safe)
        return pc.fill_null(array, pa.scalar(timestamp_ms).cast(field.type)) if array.null_count else array
    array = array.cast(field.type)
    if field.name == "headers":
        if pc.list_flatten(array).null_count:
            raise pa.ArrowInvalid("the column `headers` has a null in place of a header")
        if array.null_count:
            array = pc.fill_null(array, pa.scalar([], field.type))
    return array
