"""Cuts Arrow records into encoded batches, each for one partition, without a Python object for a record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.client.arguments import checked_number, checked_timestamp
from kafkalake.client.partitioner import partitions_of_keys
from kafkalake.client.producing.partitioners import Partitioner
from kafkalake.client.record_sizes import RECORD_OVERHEAD_BYTES, cut, record_bytes
from kafkalake.errors import MessageTooLargeError, UnknownTopicOrPartitionError, with_retriable
from kafkalake.record.schema import SCHEMA
from kafkalake.wire.arrow_batch import batch_from_arrow, cast_column
from kafkalake.wire.column_writer import ColumnWriter
from kafkalake.wire.record_batch import encode_batch

STICKY = -1
"""In place of a partition: the sticky partitioner chooses."""

_NAMES = ("value", "key", "headers", "timestamp", "partition")
_PIECE_BYTES = 2**30

Int32Array = npt.NDArray[np.int32]


class Topic(Protocol):
    """The topic that records go to."""

    name: str
    count: int
    available: list[int]


class EncodedBatch(NamedTuple):
    """An encoded batch of `records` records for a partition, or for `STICKY`."""

    partition: int
    data: bytearray | memoryview
    records: int


class ArrowEncoder:
    """Makes batches of at most `batch_size` bytes."""

    def __init__(
        self,
        batch_size: int,
        largest_record: int,
        codec: int,
        partitioner: Partitioner | None,
        *,
        is_transactional: bool,
        ignores_keys: bool = False,
    ) -> None:
        """partitioner: None for Kafka's. ignores_keys: `partitioner.ignore.keys`."""
        self._batch_size = batch_size
        self._largest_record = largest_record
        self._codec = codec
        self._partitioner = partitioner
        self._is_transactional = is_transactional
        self._ignores_keys = ignores_keys

    def encode(
        self,
        topic: Topic,
        records: pa.RecordBatch | pa.Table,
        partition: int | None,
        now_ms: int,
        *,
        as_columns: bool = False,
    ) -> Iterator[EncodedBatch]:
        """Yield the batches of the columns `value` and, if there are, `key`, `headers`, `timestamp` and `partition`.

        as_columns: whether brokers probably take batches of columns, as which records without headers are encoded then.
        partition: for all records. Without it and without such a column keys decide, as for single records. Raise `ValueError`
        or `pyarrow.ArrowException` for columns that are no records, `MessageTooLargeError` for a record that is too large, and
        `UnknownTopicOrPartitionError`; then nothing was yielded.
        """
        if partition is not None and type(partition) is not int:
            partition = checked_number(partition, "a partition")
        pieces = list(_pieces(_columns(records)))
        if len(pieces) == 1:
            whole, partitions = self._checked(topic, pieces[0], partition, now_ms)
            return self._batches(whole, partitions, now_ms, as_columns)
        of_each = [self._checked(topic, piece, partition, now_ms)[1] for piece in pieces]
        return chain.from_iterable(
            self._batches(_records(piece, now_ms), partitions, now_ms, as_columns)
            for piece, partitions in zip(pieces, of_each, strict=True)
        )

    def _checked(
        self, topic: Topic, piece: pa.Table, partition: int | None, now_ms: int
    ) -> tuple[pa.RecordBatch, Int32Array | int]:
        """Return the records of a piece, and the partition of all, or of each."""
        whole = _records(piece, now_ms)
        self._check_sizes(whole)
        return whole, self._partitions(topic, piece, whole, partition)

    def _check_sizes(self, records: pa.RecordBatch) -> None:
        if not len(records) or _largest(records) <= self._largest_record:
            return
        size = int(record_bytes(records).max())
        if size > self._largest_record:
            text = f"a record of up to {size} bytes is larger than max.request.size, {self._largest_record}"
            raise MessageTooLargeError(text)

    def _batches(
        self, records: pa.RecordBatch, partitions: Int32Array | int, now_ms: int, as_columns: bool
    ) -> Iterator[EncodedBatch]:
        if isinstance(partitions, int):
            yield from self._encoded(partitions, records, now_ms, as_columns)
            return
        order = np.argsort(partitions, kind="stable")
        records = records.take(pa.array(order))
        numbers, counts = np.unique(partitions, return_counts=True)
        start = 0
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            yield from self._encoded(number, records.slice(start, count), now_ms, as_columns)
            start += count

    def _encoded(
        self, partition: int, records: pa.RecordBatch, now_ms: int, as_columns: bool
    ) -> Iterator[EncodedBatch]:
        names = records.schema.names
        if "headers" in names:
            for part in cut(records, record_bytes(records), self._batch_size):
                batch = batch_from_arrow(part, timestamp_ms=now_ms, transactional=self._is_transactional)
                yield EncodedBatch(partition, bytearray(encode_batch(batch, self._codec)), part.num_rows)
            return
        writer = ColumnWriter(
            records.column("value"),
            records.column("key") if "key" in names else None,
            records.column("timestamp") if "timestamp" in names else None,
            timestamp_ms=now_ms,
            codec=self._codec,
            transactional=self._is_transactional,
            as_columns=as_columns,
        )
        while writer.rows_left:
            yield EncodedBatch(partition, *writer.write(self._batch_size, self._largest_record))

    def _partitions(
        self, topic: Topic, given: pa.Table, records: pa.RecordBatch, partition: int | None
    ) -> Int32Array | int:
        """Return the partition of all records, or of each."""
        if partition is not None:
            _check(topic, np.array([partition]))
            return partition
        if "partition" in given.column_names:
            column = pc.cast(given.column("partition"), pa.int32())
            if column.null_count:
                raise ValueError("the column `partition` has nulls")
            return _check(topic, np.asarray(column.to_numpy(), dtype=np.int32))
        if self._partitioner is not None:
            return _check(topic, self._chosen(self._partitioner, topic, records))
        if topic.count == 1:
            return 0  # rows with and without a key keep their order
        if self._ignores_keys or "key" not in records.schema.names or records.column("key").null_count == len(records):
            return STICKY
        keys = records.column("key")
        found = partitions_of_keys(keys, topic.count)
        if keys.null_count:
            found[pc.is_null(keys).to_numpy(zero_copy_only=False)] = STICKY
        return found

    def _chosen(self, partitioner: Partitioner, topic: Topic, records: pa.RecordBatch) -> Int32Array:
        values = records.column("value").to_pylist()
        keys: Sequence[Any] = [None] * len(values)
        if "key" in records.schema.names:
            keys = records.column("key").to_pylist()
        pairs = zip(keys, values, strict=True)
        each = [partitioner.partition(topic.name, key, value, topic.count, topic.available) for key, value in pairs]
        return np.array(each, dtype=np.int32)


def _check(topic: Topic, partitions: Int32Array) -> Int32Array:
    """Return partitions of a topic. Raise `UnknownTopicOrPartitionError` if one is not there."""
    wrong = partitions[(partitions < 0) | (partitions >= topic.count)]
    if len(wrong):
        text = f"topic '{topic.name}' has no partition {wrong[0]}; it has {topic.count}, numbered from 0"
        raise with_retriable(UnknownTopicOrPartitionError(text), False)
    return partitions


def _columns(given: pa.RecordBatch | pa.Table) -> pa.Table:
    """Return the columns that count. Raise `ValueError` without a column `value`, or if there are several of a name."""
    if not isinstance(given, pa.RecordBatch | pa.Table):
        raise TypeError(f"records are a pyarrow.RecordBatch or pyarrow.Table, not {type(given).__name__}")
    names = [name for name in given.column_names if name in _NAMES]
    if "value" not in names:
        raise ValueError("records need a column `value`")
    if twice := [name for name in _NAMES if names.count(name) > 1]:
        raise ValueError(f"there are several columns `{twice[0]}`")
    return pa.table({name: _of_plain_size(given.column(name)) for name in names})


def _of_plain_size(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return a column of which `nbytes` says how large its values are: neither of a dictionary nor of views."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        wide = pa.types.is_binary(kind) or pa.types.is_string(kind)
        return column.cast(pa.large_binary()) if wide else column.cast(kind)
    return column.cast(pa.large_binary()) if kind in (pa.binary_view(), pa.string_view()) else column


def _pieces(columns: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows in pieces whose columns can be arrays of `SCHEMA`, which have 32-bit offsets."""
    if columns.nbytes <= _PIECE_BYTES or columns.num_rows <= 1:
        yield columns
        return
    half = columns.num_rows // 2
    yield from _pieces(columns.slice(0, half))
    yield from _pieces(columns.slice(half))


def _records(given: pa.Table, now_ms: int) -> pa.RecordBatch:
    """Return the columns of records as one batch, with types as in `SCHEMA`."""
    columns = {
        name: _joined(cast_column(given.column(name), SCHEMA.field(name), now_ms))
        for name in ("timestamp", "key", "value", "headers")
        if name in given.column_names
    }
    if "timestamp" in columns:
        checked_timestamp((pc.min(columns["timestamp"].cast(pa.int64())).as_py()) or 0)
    if "headers" in columns and not len(columns["headers"].values):
        del columns["headers"]
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _joined(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    if isinstance(array, pa.ChunkedArray):
        if array.num_chunks == 1:
            return array.chunk(0)
        return pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array


def _largest(records: pa.RecordBatch) -> int:
    """Return an upper bound of the bytes of the largest record."""
    if "headers" in records.schema.names:
        return int(record_bytes(records).max())
    names = [name for name in ("key", "value") if name in records.schema.names]
    longest = [pc.max(pc.binary_length(records.column(name))).as_py() or 0 for name in names]
    return int(sum(longest)) + RECORD_OVERHEAD_BYTES
