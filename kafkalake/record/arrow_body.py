"""Encodes an Arrow batch of records as the body of one message: the inverse of `record.batch.body_to_arrow`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s


def body_from_arrow(columns: pa.RecordBatch) -> tuple[Bytes, Int64s]:
    """Return the concatenated buffers of a batch of `SCHEMA`, each on an 8-byte boundary, and their layout.

    The arrays must start at the beginning of their buffers, as after a read or a filter.
    """
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
        part = buffer.slice(0, wanted).to_pybytes() if buffer is not None and buffer.size >= wanted else bytes(wanted)
        layout[at.FIRST_BUFFER + 2 * index], layout[at.FIRST_BUFFER + 2 * index + 1] = position, wanted
        parts.append(part + bytes(-wanted % 8))
        position += len(parts[-1])
    return np.frombuffer(b"".join(parts), dtype=np.uint8), layout


def _lengths(columns: pa.RecordBatch, inner: pa.StructArray) -> list[int]:
    """Return the bytes of each of the 19 buffers, 0 for validity buffers that the format never has."""
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
