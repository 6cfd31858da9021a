"""Any Arrow table of records as one `record.RecordBatch`: what a producer of our own sends."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.record import layout as at
from kafkalake.record.batch import RecordBatch
from kafkalake.record.schema import SCHEMA
from kafkalake.wire.batch_header import NO_PRODUCER_ID, NO_TIMESTAMP

_NO_SEQUENCE = -1


def batch_from_arrow(
    records: pa.RecordBatch | pa.Table,
    *,
    timestamp_ms: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = _NO_SEQUENCE,
    transactional: bool = False,
) -> RecordBatch:
    """One producer batch of the columns `value`, and where they are there `key`, `timestamp` and `headers`; others are
    not looked at.

    Text is taken as its UTF-8 bytes. A missing or null timestamp becomes `timestamp_ms` (ms since 1970), missing
    headers none. Offsets count from 0. Raises pyarrow.ArrowInvalid where a column cannot be cast to its type in
    `SCHEMA` without loss, and ValueError for a table without `value` or without rows.
    """
    if "value" not in records.column_names or not records.num_rows:
        raise ValueError("records need a column `value` and at least one row")
    columns = _columns(records, timestamp_ms)
    body, layout = _body(columns)
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
    return RecordBatch(body, layout, header)


def _columns(records: pa.RecordBatch | pa.Table, timestamp_ms: int) -> pa.RecordBatch:
    """The same records with schema `SCHEMA`, as one batch whose buffers start at their first row."""
    rows = records.num_rows
    arrays = []
    for field in SCHEMA:
        if field.name == "offset":
            arrays.append(pa.array(np.arange(rows, dtype=np.int64)))
        elif field.name in records.column_names:
            arrays.append(_cast(records.column(field.name), field, timestamp_ms))
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


def _cast(array: pa.Array | pa.ChunkedArray, field: pa.Field, timestamp_ms: int) -> pa.Array | pa.ChunkedArray:
    if field.name == "timestamp":
        if pa.types.is_timestamp(array.type) and array.type.tz is None:
            array = pc.assume_timezone(array, "UTC")
        safe = not pa.types.is_timestamp(array.type)  # finer units lose their fraction of a millisecond
        array = array.cast(field.type, safe=safe)
        return pc.fill_null(array, pa.scalar(timestamp_ms).cast(field.type)) if array.null_count else array
    array = array.cast(field.type)
    if field.name == "headers" and array.null_count:
        array = pc.fill_null(array, pa.scalar([], field.type))
    return array


def _body(
    columns: pa.RecordBatch,
) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint8]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """The buffers of a batch of `SCHEMA`, one behind the other, and their layout."""
    rows = len(columns)
    headers = columns.column("headers")
    inner = headers.values
    layout = np.zeros(at.LAYOUT_SIZE, dtype=np.int64)
    layout[at.ROWS], layout[at.HEADER_ROWS] = rows, len(inner)
    layout[at.KEY_NULLS], layout[at.VALUE_NULLS] = columns.column("key").null_count, columns.column("value").null_count
    layout[at.HEADER_VALUE_NULLS] = inner.field("value").null_count
    nulls = {
        at.KEY_VALIDITY: at.KEY_NULLS,
        at.VALUE_VALIDITY: at.VALUE_NULLS,
        at.HEADER_VALUE_VALIDITY: at.HEADER_VALUE_NULLS,
    }
    buffers = [buffer for column in columns.columns for buffer in column.buffers()]
    parts: list[bytes] = []
    position = 0
    for index, length in enumerate(_lengths(columns, inner)):
        buffer = buffers[index]
        wanted = 0 if index in nulls and not layout[nulls[index]] else length
        part = bytes(buffer.slice(0, wanted)) if buffer is not None and wanted else bytes(wanted)
        layout[at.FIRST_BUFFER + 2 * index], layout[at.FIRST_BUFFER + 2 * index + 1] = position, wanted
        parts.append(part + bytes(-wanted % 8))
        position += len(parts[-1])
    return np.frombuffer(b"".join(parts), dtype=np.uint8), layout


def _lengths(columns: pa.RecordBatch, inner: pa.StructArray) -> list[int]:
    """Bytes of each of the 19 buffers; validity buffers that the format does not have are 0."""
    rows, headers = len(columns), len(inner)

    def binary(array: pa.Array, count: int) -> list[int]:
        offsets = array.buffers()[1]
        data = int(np.frombuffer(offsets, dtype=np.int32, count=count + 1)[-1]) if offsets is not None and count else 0
        return [4 * (count + 1), data]

    return [
        *(0, 8 * rows, 0, 8 * rows),
        *((rows + 7) // 8, *binary(columns.column("key"), rows)),
        *((rows + 7) // 8, *binary(columns.column("value"), rows)),
        *(0, 4 * (rows + 1), 0),
        *(0, *binary(inner.field("key"), headers)),
        *((headers + 7) // 8, *binary(inner.field("value"), headers)),
    ]
