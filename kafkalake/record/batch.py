"""A producer's batch inside the broker: Arrow columns and one batch header.

The wire codec decodes a record batch v2 to it, and the log appends it. The columns share one buffer with the layout of an Arrow
message body, so that nothing is built per column. `to_arrow` returns them as a pyarrow batch. The bytes of the values may stay
where they were received, as they are most of a batch and the log writes them as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kafkalake.buffers import Buffer
from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.schema import HEADERS_TYPE, SCHEMA


@dataclass(slots=True, eq=False)
class ProducerBatch:
    """One producer batch.

    body: uint8[], Arrow buffers of the 5 columns of `SCHEMA`, each on an 8-byte boundary; column `offset` counts from 0.
    layout: int64[LAYOUT_SIZE], rows, null counts and the position of each buffer in `body`.
    header: int64[HEADER_FIELDS], the batch header (`record.layout`). The log sets base offset and leader epoch.
    values: uint8[], the bytes of the values if they are not in `body`, which has no room for them then: `layout` has their length
    and the position where they would begin.
    """

    body: Bytes
    layout: Int64s
    header: Int64s
    values: Bytes | None = None

    @property
    def rows(self) -> int:
        """The number of records in the batch, 0 for a control batch."""
        return int(self.layout.item(at.ROWS))

    @property
    def offsets(self) -> int:
        """The number of offsets of the batch: last offset delta + 1."""
        return int(self.header[at.LAST_OFFSET_DELTA]) + 1

    @property
    def size(self) -> int:
        """The bytes of the columns."""
        return len(self.body) + (0 if self.values is None else len(self.values))

    @property
    def timestamps(self) -> Int64s:
        """The timestamps of the records, in ms since 1970: a view of the body."""
        begin = self.layout.item(at.FIRST_BUFFER + 2 * at.TIMESTAMP_DATA)
        return self.body[begin : begin + 8 * self.rows].view(np.int64)

    def to_arrow(self) -> pa.RecordBatch:
        """Return the rows with schema `SCHEMA`. Offsets count from 0 within the batch."""
        whole = self.whole()
        return body_to_arrow(whole.body, whole.layout)

    def whole(self) -> ProducerBatch:
        """Return the batch with its values in the body: itself if they are."""
        if self.values is None:
            return self
        value, *following = range(at.FIRST_BUFFER + 2 * at.VALUE_DATA, at.LAYOUT_SIZE, 2)
        begin, padding = self.layout.item(value), -len(self.values) % 8
        parts = [self.body[:begin], self.values, np.zeros(padding, dtype=np.uint8), self.body[begin:]]
        layout = self.layout.copy()
        layout[following] += len(self.values) + padding
        return ProducerBatch(np.concatenate(parts), layout, self.header)


def body_to_arrow(body: Buffer | Bytes, layout: Int64s, columns: int = at.ALL_COLUMNS) -> pa.RecordBatch:
    """Return the columns of bit mask `columns` (bit c: field c of `SCHEMA`) of a plain body. No copy: keeps `body` alive."""
    buffer = pa.py_buffer(body)
    numbers = layout.tolist()
    rows, inner, key_nulls, value_nulls, header_nulls = numbers[: at.FIRST_BUFFER]
    make = pa.Array.from_buffers

    def part(index: int) -> pa.Buffer:
        return buffer.slice(numbers[at.FIRST_BUFFER + 2 * index], numbers[at.FIRST_BUFFER + 2 * index + 1])

    def binary(first: int, length: int, nulls: int, arrow_type: pa.DataType) -> pa.Array:
        validity = part(first) if nulls else None
        return make(arrow_type, length, [validity, part(first + 1), part(first + 2)], nulls)

    def headers() -> pa.Array:
        keys = binary(at.HEADER_KEY_OFFSETS - 1, inner, 0, pa.utf8())
        values = binary(at.HEADER_VALUE_VALIDITY, inner, header_nulls, pa.binary())
        pairs = make(HEADERS_TYPE.value_type, inner, [None], 0, children=[keys, values])
        return make(HEADERS_TYPE, rows, [None, part(at.HEADERS_OFFSETS)], 0, children=[pairs])

    build = [
        lambda: make(pa.int64(), rows, [None, part(at.OFFSET_DATA)], 0),
        lambda: make(SCHEMA.field("timestamp").type, rows, [None, part(at.TIMESTAMP_DATA)], 0),
        lambda: binary(at.KEY_VALIDITY, rows, key_nulls, pa.binary()),
        lambda: binary(at.VALUE_VALIDITY, rows, value_nulls, pa.binary()),
        headers,
    ]
    wanted = [column for column in range(at.COLUMNS) if (columns >> column) & 1]
    schema = pa.schema([SCHEMA.field(column) for column in wanted])
    return pa.RecordBatch.from_arrays([build[column]() for column in wanted], schema=schema)
