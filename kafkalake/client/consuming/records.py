"""Records as the application gets them: one at a time as objects, or batches of Arrow columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise, repeat
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.schema import SCHEMA

K = TypeVar("K")
V = TypeVar("V")

TimestampType = Literal["CreateTime", "LogAppendTime"]
Headers = tuple[tuple[str, bytes | None], ...]


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """A record. timestamp: ms since 1970. leader_epoch: -1 if the broker keeps none.

    A tuple, which is made in a third of the time of any other immutable object.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: K
    value: V
    headers: Headers
    leader_epoch: int


DeserializedRecord: TypeAlias = ConsumerRecord[Any, Any]
"""A record with the key and the value that the deserializers return."""

ARROW_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.dictionary(pa.int32(), pa.utf8()), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        *SCHEMA,
    ]
)
"""Columns of the batches of `poll_arrow`: topic and partition before those of `record.schema.SCHEMA`."""

TIMESTAMP_TYPE = b"timestamp.type"
"""Key of the schema's metadata in batches with the broker's timestamps, for which it is `LogAppendTime`."""
_LOG_APPEND_SCHEMA = ARROW_SCHEMA.with_metadata({TIMESTAMP_TYPE: b"LogAppendTime"})

_NO_HEADERS: Headers = ()


def timestamp_type(batch: ProducerBatch) -> TimestampType:
    """Return the type of all timestamps of a batch."""
    return "LogAppendTime" if batch.header.item(at.ATTRIBUTES) & at.ATTRIBUTE_LOG_APPEND_TIME else "CreateTime"


def timestamp_type_of(batch: pa.RecordBatch) -> TimestampType:
    """Return the type of the timestamps of a batch of `poll_arrow`."""
    return "LogAppendTime" if TIMESTAMP_TYPE in (batch.schema.metadata or {}) else "CreateTime"


_make: Callable[[Iterable[object]], ConsumerRecord[bytes | None, bytes | None]] = partial(tuple.__new__, ConsumerRecord)


class BatchRecords:
    """The records of a decoded batch as objects, made a few at a time: those to come cost the garbage collector nothing."""

    def __init__(self, topic: str, partition: int, batch: ProducerBatch) -> None:
        self._topic = topic
        self._partition = partition
        self._layout = batch.layout.tolist()
        self._data = memoryview(batch.body)  # type: ignore[arg-type]
        self._timestamp_type = timestamp_type(batch)
        self._epoch: int = batch.header.item(at.LEADER_EPOCH)
        self.rows: int = self._layout[at.ROWS]
        self._offsets = np.frombuffer(self._buffer(at.OFFSET_DATA), np.int64, self.rows)
        self._timestamps = np.frombuffer(self._buffer(at.TIMESTAMP_DATA), np.int64, self.rows)

    def first_from(self, offset: int) -> int:
        """Return the first row at or after an offset."""
        return int(self._offsets.searchsorted(offset))

    def read(self, first: int, last: int) -> list[ConsumerRecord[bytes | None, bytes | None]]:
        """Return the records of rows [first, last)."""
        layout = self._layout
        columns = zip(
            repeat(self._topic, last - first),
            repeat(self._partition),
            self._offsets[first:last].tolist(),
            self._timestamps[first:last].tolist(),
            repeat(self._timestamp_type),
            self._binary(at.KEY_VALIDITY, first, last, self.rows, layout[at.KEY_NULLS]),
            self._binary(at.VALUE_VALIDITY, first, last, self.rows, layout[at.VALUE_NULLS]),
            self._headers(first, last),
            repeat(self._epoch),
            strict=False,
        )
        return list(map(_make, columns))

    def _buffer(self, index: int) -> memoryview:
        start = self._layout[at.FIRST_BUFFER + 2 * index]
        return self._data[start : start + self._layout[at.FIRST_BUFFER + 2 * index + 1]]

    def _bounds(self, index: int, first: int, last: int) -> list[int]:
        """Return where the elements of rows [first, last) begin, and the end of the last one."""
        found: list[int] = np.frombuffer(self._buffer(index), np.int32)[first : last + 1].tolist()
        return found

    def _binary(self, validity: int, first: int, last: int, rows: int, nulls: int) -> Iterable[bytes | None]:
        """Return rows [first, last) of the column whose validity buffer has that index."""
        if nulls == rows:
            return repeat(None, last - first)
        bounds = self._bounds(validity + 1, first, last)
        base = bounds[0]
        values = bytes(self._buffer(validity + 2)[base : bounds[-1]])
        if base:
            bounds = [bound - base for bound in bounds]
        found = [values[start:end] for start, end in pairwise(bounds)]
        if not nulls:
            return found
        bits = np.unpackbits(np.frombuffer(self._buffer(validity), np.uint8), bitorder="little")[first:last]
        return [value if is_valid else None for value, is_valid in zip(found, bits.tolist(), strict=True)]

    def _headers(self, first: int, last: int) -> Iterable[Headers]:
        if not self._layout[at.HEADER_ROWS]:
            return repeat(_NO_HEADERS, last - first)
        bounds = self._bounds(at.HEADERS_OFFSETS, first, last)
        begin, end, inner = bounds[0], bounds[-1], self._layout[at.HEADER_ROWS]
        keys = self._binary(at.HEADER_KEY_OFFSETS - 1, begin, end, inner, 0)
        nulls = self._layout[at.HEADER_VALUE_NULLS]
        values = self._binary(at.HEADER_VALUE_VALIDITY, begin, end, inner, nulls)
        pairs = [((key or b"").decode(), value) for key, value in zip(keys, values, strict=True)]
        return [tuple(pairs[start - begin : stop - begin]) for start, stop in pairwise(bounds)]


def arrow_of(topic: str, partition: int, batch: ProducerBatch, from_offset: int) -> pa.RecordBatch:
    """Return the rows of a decoded batch from an offset on, with `ARROW_SCHEMA`. No column of the batch is copied.

    The schema's metadata has `TIMESTAMP_TYPE` if the timestamps are the broker's.
    """
    found = batch.to_arrow()
    first = int(found.column(0).to_numpy().searchsorted(from_offset))
    rows = batch.rows - first
    columns = (found.slice(first) if first else found).columns
    indexes = pa.array(np.zeros(rows, dtype=np.int32))
    topics = pa.DictionaryArray.from_arrays(indexes, pa.array([topic], pa.utf8()), safe=False)
    partitions = pa.array(np.full(rows, partition, dtype=np.int32))
    schema = ARROW_SCHEMA if timestamp_type(batch) == "CreateTime" else _LOG_APPEND_SCHEMA
    return pa.RecordBatch.from_arrays([topics, partitions, *columns], schema=schema)
