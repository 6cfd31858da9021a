"""Records as the application gets them: one at a time as objects, or batches of Arrow columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise, repeat
from typing import Generic, Literal, NamedTuple, TypeVar

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


ARROW_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.dictionary(pa.int32(), pa.utf8()), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        *SCHEMA,
    ]
)
"""Columns of the batches of `poll_arrow`: topic and partition before those of `record.schema.SCHEMA`."""

_NO_HEADERS: Headers = ()


def timestamp_type(batch: ProducerBatch) -> TimestampType:
    """Return the type of all timestamps of a batch."""
    return "LogAppendTime" if batch.header.item(at.ATTRIBUTES) & at.ATTRIBUTE_LOG_APPEND_TIME else "CreateTime"


def records_of(topic: str, partition: int, batch: ProducerBatch) -> list[ConsumerRecord[bytes | None, bytes | None]]:
    """Return the records of a decoded batch as objects."""
    layout = batch.layout.tolist()
    rows = layout[at.ROWS]
    data = memoryview(batch.body)  # type: ignore[arg-type]
    columns = zip(
        repeat(topic, rows),
        repeat(partition),
        _longs(data, layout, at.OFFSET_DATA, rows),
        _longs(data, layout, at.TIMESTAMP_DATA, rows),
        repeat(timestamp_type(batch)),
        _binary(data, layout, at.KEY_VALIDITY, rows, layout[at.KEY_NULLS]),
        _binary(data, layout, at.VALUE_VALIDITY, rows, layout[at.VALUE_NULLS]),
        _headers(data, layout, rows),
        repeat(batch.header.item(at.LEADER_EPOCH)),
        strict=False,
    )
    make: Callable[[Iterable[object]], ConsumerRecord[bytes | None, bytes | None]]
    make = partial(tuple.__new__, ConsumerRecord)
    return list(map(make, columns))


def _buffer(data: memoryview, layout: Sequence[int], index: int) -> memoryview:
    start, length = layout[at.FIRST_BUFFER + 2 * index], layout[at.FIRST_BUFFER + 2 * index + 1]
    return data[start : start + length]


def _longs(data: memoryview, layout: Sequence[int], index: int, rows: int) -> list[int]:
    found: list[int] = np.frombuffer(_buffer(data, layout, index), np.int64, rows).tolist()
    return found


def _ends(data: memoryview, layout: Sequence[int], index: int, rows: int) -> list[int]:
    found: list[int] = np.frombuffer(_buffer(data, layout, index), np.int32, rows + 1).tolist()
    return found


def _binary(data: memoryview, layout: Sequence[int], first: int, rows: int, nulls: int) -> Iterable[bytes | None]:
    """Return the values of a column. first: index of its validity buffer."""
    if nulls == rows:
        return repeat(None, rows)
    values = bytes(_buffer(data, layout, first + 2))
    found = [values[start:end] for start, end in pairwise(_ends(data, layout, first + 1, rows))]
    if not nulls:
        return found
    bits = np.unpackbits(np.frombuffer(_buffer(data, layout, first), np.uint8), bitorder="little")
    return [value if valid else None for value, valid in zip(found, bits.tolist(), strict=False)]


def _text(data: memoryview, layout: Sequence[int], first: int, rows: int) -> Iterator[str]:
    values = bytes(_buffer(data, layout, first + 2))
    for start, end in pairwise(_ends(data, layout, first + 1, rows)):
        yield values[start:end].decode()


def _headers(data: memoryview, layout: Sequence[int], rows: int) -> Iterable[Headers]:
    inner = layout[at.HEADER_ROWS]
    if not inner:
        return repeat(_NO_HEADERS, rows)
    keys = _text(data, layout, at.HEADER_KEY_OFFSETS - 1, inner)
    values = _binary(data, layout, at.HEADER_VALUE_VALIDITY, inner, layout[at.HEADER_VALUE_NULLS])
    pairs = list(zip(keys, values, strict=True))
    return [tuple(pairs[start:end]) for start, end in pairwise(_ends(data, layout, at.HEADERS_OFFSETS, rows))]


def arrow_of(topic: str, partition: int, batch: ProducerBatch, first: int) -> pa.RecordBatch:
    """Return the rows of a decoded batch from row `first` on, with `ARROW_SCHEMA`. Nothing is copied."""
    rows = batch.rows - first
    found = batch.to_arrow()
    columns = (found.slice(first) if first else found).columns
    indexes = pa.array(np.zeros(rows, dtype=np.int32))
    topics = pa.DictionaryArray.from_arrays(indexes, pa.array([topic], pa.utf8()))
    partitions = pa.array(np.full(rows, partition, dtype=np.int32))
    return pa.RecordBatch.from_arrays([topics, partitions, *columns], schema=ARROW_SCHEMA)
