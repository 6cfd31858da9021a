"""Converts slices of segments to Arrow batches, on an executor or in a process that uses `kafkalake.dataset`.

A chunk of a segment (a few MiB) becomes one batch in a handful of calls, however many messages it holds. `SegmentReader` reads
and verifies the projected columns, and `to_arrow` joins them. This module trims the edges, drops aborted
transactions, applies the selection, and adds the constant columns (topic, partition).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalake.reader.columns import HEADERS_TYPE, TIMESTAMP_US, TOPIC_ID, Projection
from kafkalake.reader.opened_segment import open_segment
from kafkalake.reader.predicate import Selection
from kafkalake.reader.value_columns import value_columns
from kafkalake.record import layout as at
from kafkalake.record.arrays import Int64s
from kafkalake.timestamp_range import EARLIEST_TIMESTAMP_MS, LATEST_TIMESTAMP_MS

if TYPE_CHECKING:
    from kafkalake.reader.plan import SegmentSlice
    from kafkalake.record.message_set import MessageSet

Rows = slice | npt.NDArray[np.bool_]


class SliceReader:
    """Reads slices with one projection and selection. `bytes_read` and `rows_read` count its work."""

    def __init__(self, projection: Projection, selection: Selection) -> None:
        self._projection = projection
        self._selection = selection
        self._columns = projection.record_columns
        if selection.has_time:
            self._columns |= at.TIMESTAMP_COLUMN
        if selection.offsets is not None:
            self._columns |= at.OFFSET_COLUMN
        self._fields = value_columns(projection)
        self.bytes_read = 0
        self.rows_read = 0

    def read(self, slices: Sequence[SegmentSlice]) -> Iterator[pa.RecordBatch]:
        """Yield batches with exactly the projection's schema. Raise `CorruptSegmentError` or `LakeError` (no such file here)."""
        for piece in slices:
            with open_segment(piece.path, piece.size, topic_id=piece.topic_id) as opened:
                # Always verify offsets: they decide which rows of the first and the last message are selected.
                for messages in opened.messages(piece.from_offset, piece.to_offset, self._columns | at.OFFSET_COLUMN):
                    batch = self._batch(messages, piece)
                    if len(messages) == 1:
                        opened.give_away_buffer()
                    if batch is not None and batch.num_rows:
                        yield batch
                self.bytes_read += opened.bytes_read

    def _batch(self, messages: MessageSet, piece: SegmentSlice) -> pa.RecordBatch | None:
        """Return the selected rows of the messages with the projected columns, or None if there are none."""
        from kafkalake.record.message_set import to_arrow

        if self._selection.has_time:
            messages = _late_enough(messages, self._selection.time_min_us)
        if not len(messages):
            return None
        self.rows_read += messages.rows
        straddles = messages.base_offset < piece.from_offset or messages.next_offset > piece.to_offset
        columns = self._columns | (at.OFFSET_COLUMN if straddles else 0)
        raw = to_arrow(messages, columns)
        wanted = self._wanted(messages, raw, piece, straddles)
        if wanted is None:
            return None
        arrays = [self._column(field, raw, messages, piece, wanted) for field in self._projection.schema]
        if self._fields is not None:
            arrays = self._fields.filled(arrays, _taken(raw.column("value"), wanted))
        return pa.RecordBatch.from_arrays(arrays, schema=self._projection.schema)

    def _wanted(self, messages: MessageSet, raw: pa.RecordBatch, piece: SegmentSlice, straddles: bool) -> Rows | None:
        """Return the selected rows as a slice, as a mask if the selection or aborted transactions leave gaps, or None."""
        first, end = 0, messages.rows
        if straddles:
            offsets = raw.column("offset").to_numpy()
            first, end = np.searchsorted(offsets, (piece.from_offset, piece.to_offset)).tolist()
        masks = []
        if self._selection.offsets is not None:
            masks.append(np.isin(raw.column("offset").to_numpy(), self._selection.offsets, assume_unique=True))
        if self._selection.has_time:
            times = _microseconds(raw.column("timestamp"))
            masks.append((times >= self._selection.time_min_us) & (times < self._selection.time_end_us))
        if piece.aborted:
            masks.append(_not_aborted(messages, piece.aborted))
        if first >= end:
            return None
        if not masks:
            return slice(first, end)
        mask = np.logical_and.reduce(masks)
        mask[:first] = False
        mask[end:] = False
        if mask.all():
            return slice(0, messages.rows)
        return mask if mask.any() else None

    def _column(
        self, field: pa.Field, raw: pa.RecordBatch, messages: MessageSet, piece: SegmentSlice, wanted: Rows
    ) -> object:
        """Return one column of the result, or None for a field of a value, which is filled in later."""
        if field.name in self._projection.fields:
            return None
        name = self._projection.kafka_columns[field.name]
        rows = wanted.stop - wanted.start if isinstance(wanted, slice) else int(np.count_nonzero(wanted))
        if name == "topic":
            return _repeated(piece.topic, rows)
        if name == TOPIC_ID:
            return _repeated(piece.topic_id, rows)
        if name == "partition":
            return pa.array(np.full(rows, piece.partition, dtype=np.int32))
        if name == "timestampType":
            return _taken(pa.array(_timestamp_types(messages)), wanted)
        column = _taken(raw.column(name), wanted)
        if name == "timestamp":
            return pa.array(_microseconds(column)).view(TIMESTAMP_US)
        if name == "headers":
            return _headers(column, field.type)
        return column if column.type == field.type else column.view(field.type)


def _taken(column: pa.Array, wanted: Rows) -> pa.Array:
    if isinstance(wanted, slice):
        if wanted.start == 0 and wanted.stop == len(column):
            return column
        return column.slice(wanted.start, wanted.stop - wanted.start)
    return column.filter(pa.array(wanted))


def _late_enough(messages: MessageSet, time_min_us: int) -> MessageSet:
    """Return the messages from the first to the last with a batch whose largest timestamp is not too early."""
    from kafkalake.record import layout as at

    late = np.flatnonzero(messages.headers[:, at.MAX_TIMESTAMP] >= -(-time_min_us // 1000))
    if not len(late):
        return messages.slice(0, 0)
    first, last = np.searchsorted(messages.first_batch, late[[0, -1]], side="right").tolist()
    return messages.slice(first - 1, last)


def _not_aborted(messages: MessageSet, aborted: Sequence[tuple[int, int, int]]) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows outside aborted transactions (a producer's batches between their first and last offset)."""
    from kafkalake.record import layout as at
    from kafkalake.storage.txn_index import in_aborted

    dropped = in_aborted(messages.headers, aborted)
    return np.repeat(~dropped, messages.headers[:, at.RECORDS])


def _microseconds(timestamps: pa.Array) -> Int64s:
    """Convert a column of milliseconds to int64 microseconds. What lies beyond, as in a foreign segment, is clipped."""
    milliseconds: Int64s = timestamps.view(pa.int64()).to_numpy()
    return np.clip(milliseconds, EARLIEST_TIMESTAMP_MS, LATEST_TIMESTAMP_MS) * 1000


def _timestamp_types(messages: MessageSet) -> npt.NDArray[np.int32]:
    """Return 0 (CreateTime) or 1 (LogAppendTime) for each row, as Spark's Kafka source does."""
    from kafkalake.record import layout as at

    types = (messages.headers[:, at.ATTRIBUTES] & at.ATTRIBUTE_LOG_APPEND_TIME) != 0
    return np.repeat(types.astype(np.int32), messages.headers[:, at.RECORDS])


def _repeated(text: str, rows: int) -> pa.Array:
    """Return a string column of one repeated text."""
    data = text.encode()
    offsets = np.arange(rows + 1, dtype=np.int32) * len(data)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(data * rows))


def _headers(column: pa.ListArray, wanted: pa.DataType) -> pa.Array:
    """Convert headers as Spark's Kafka source does: null, not an empty list, for a record without headers."""
    offsets = column.offsets
    present = np.diff(offsets.to_numpy()) > 0
    struct = column.values
    parts = [struct.field(0), struct.field(1)]
    values = pa.StructArray.from_arrays(
        parts, fields=[HEADERS_TYPE.value_type.field(0), HEADERS_TYPE.value_type.field(1)]
    )
    validity = pa.array(present).buffers()[1]
    buffers = [validity, offsets.buffers()[1].slice(4 * offsets.offset, 4 * len(offsets))]
    built = pa.Array.from_buffers(HEADERS_TYPE, len(column), buffers, children=[values])
    return built if built.type == wanted else built.cast(wanted)
