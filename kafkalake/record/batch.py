"""A producer's batch on its way through the broker: Arrow columns and one batch header.

What the wire codec makes of a record batch v2, what the log appends. The columns stand in one buffer, laid out as an Arrow
message body, so that nothing is built per column; `to_arrow` shows them as pyarrow sees them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalake.record import layout as at
from kafkalake.record.schema import SCHEMA

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]


@dataclass(slots=True, eq=False)
class RecordBatch:
    """One producer batch.

    body: uint8[], Arrow buffers of the 5 columns of `SCHEMA`, each on an 8-byte boundary; column `offset` counts from 0.
    layout: int64[LAYOUT_SIZE], rows, null counts and where each buffer stands in `body`.
    header: int64[HEADER_FIELDS], the batch header (`record.layout`); the log fills in base offset and leader epoch.
    """

    body: Bytes
    layout: Int64s
    header: Int64s

    @property
    def rows(self) -> int:
        """Records in the batch; 0 for a control batch."""
        return int(self.layout[at.ROWS])

    @property
    def offsets(self) -> int:
        """Offsets that the batch occupies: last offset delta + 1."""
        return int(self.header[at.LAST_OFFSET_DELTA]) + 1

    def to_arrow(self) -> pa.RecordBatch:
        """The rows with schema `SCHEMA`; offsets are absolute once the log has assigned the base offset."""
        return body_to_arrow(self.body, self.layout)


def body_to_arrow(body: Any, layout: Int64s) -> pa.RecordBatch:
    """An uncompressed message body as a pyarrow record batch that keeps `body` alive; no copy."""
    buffer = pa.py_buffer(body)
    numbers = layout.tolist()

    def part(index: int) -> pa.Buffer | None:
        offset, length = numbers[at.FIRST_BUFFER + 2 * index], numbers[at.FIRST_BUFFER + 2 * index + 1]
        return buffer.slice(offset, length)

    def validity(index: int, nulls: int) -> pa.Buffer | None:
        return part(index) if nulls else None

    rows, inner, key_nulls, value_nulls, header_nulls = numbers[: at.FIRST_BUFFER]
    make = pa.Array.from_buffers
    struct_type = SCHEMA.field("headers").type.value_type
    header_key = make(pa.utf8(), inner, [None, part(at.HEADER_KEY_OFFSETS), part(at.HEADER_KEY_DATA)], 0)
    header_value = make(
        pa.binary(),
        inner,
        [
            validity(at.HEADER_VALUE_VALIDITY, header_nulls),
            part(at.HEADER_VALUE_OFFSETS),
            part(at.HEADER_VALUE_DATA),
        ],
        header_nulls,
    )
    struct = make(struct_type, inner, [None], 0, children=[header_key, header_value])
    columns = [
        make(pa.int64(), rows, [None, part(at.OFFSET_DATA)], 0),
        make(SCHEMA.field("timestamp").type, rows, [None, part(at.TIMESTAMP_DATA)], 0),
        make(
            pa.binary(),
            rows,
            [validity(at.KEY_VALIDITY, key_nulls), part(at.KEY_OFFSETS), part(at.KEY_DATA)],
            key_nulls,
        ),
        make(
            pa.binary(),
            rows,
            [validity(at.VALUE_VALIDITY, value_nulls), part(at.VALUE_OFFSETS), part(at.VALUE_DATA)],
            value_nulls,
        ),
        make(SCHEMA.field("headers").type, rows, [None, part(at.HEADERS_OFFSETS)], 0, children=[struct]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
