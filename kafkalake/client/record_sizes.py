"""Estimates record sizes and cuts record batches by them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

RECORD_OVERHEAD_BYTES = 24
"""Upper bound on a record's lengths, offset and timestamp on the wire."""
HEADER_OVERHEAD_BYTES = 4


def record_bytes(records: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the approximate bytes of each record on the wire, int64[N]. `key`, `value` and `headers` count if present."""
    total = np.full(records.num_rows, RECORD_OVERHEAD_BYTES, dtype=np.int64)
    names = records.schema.names
    for name in ("key", "value"):
        if name in names:
            total += _lengths(records.column(name))
    if "headers" not in names:
        return total
    headers = records.column("headers")
    inner = headers.flatten()
    if len(inner):
        of_each = _lengths(inner.field("key")) + _lengths(inner.field("value")) + HEADER_OVERHEAD_BYTES
        ends = np.concatenate(([0], np.cumsum(of_each)))
        lengths = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
        counts = np.concatenate(([0], np.cumsum(lengths)))
        total += np.diff(ends[counts])
    return total


def _lengths(values: pa.Array) -> npt.NDArray[np.int64]:
    lengths = pc.binary_length(values)
    if lengths.null_count:
        lengths = pc.fill_null(lengths, 0)
    found: npt.NDArray[np.int64] = lengths.to_numpy(zero_copy_only=False)
    return found


def cut(records: pa.RecordBatch, sizes: npt.NDArray[np.int64], batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield slices of at most `batch_bytes`. A larger record is a slice of its own."""
    ends = np.cumsum(sizes)
    start = 0
    while start < records.num_rows:
        before = int(ends[start - 1]) if start else 0
        end = max(int(np.searchsorted(ends, before + batch_bytes, side="right")), start + 1)
        yield records.slice(start, end - start)
        start = end
