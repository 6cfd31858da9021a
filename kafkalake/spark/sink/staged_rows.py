"""Converts rows of a Spark task to staged batches: selects topic and partition of each row, and fills batches per partition.

Arrow in, Arrow out: a whole batch of rows is hashed in one compiled call, sorted by partition, and cut. Partitions are selected as
in Java's producer: the column `partition` if it has a value, else murmur2 of the key, else (no key) one partition after
another, a batch each. Independent of Spark.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.client.partitioner import partitions_of_keys, sticky_partitions
from kafkalake.client.record_sizes import record_bytes
from kafkalake.errors import (
    ConfigurationError,
    InvalidRecordError,
    MessageTooLargeError,
    UnknownTopicOrPartitionError,
)
from kafkalake.record.schema import HEADERS_TYPE, SCHEMA
from kafkalake.spark.sink.write_target import BATCH_BYTES, BATCH_OVERHEAD_BYTES, HELD_BYTES, Target
from kafkalake.storage.staged_file import StagedWriter
from kafkalake.wire.arrow_batch import batch_from_arrow

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


def first_partition(directory: str, task: int) -> int:
    """Return where a task begins with records without a key, to be taken modulo their topic's partitions.

    directory: the name of the write's, so that small writes spread over the partitions, while all attempts of a task agree.
    """
    return zlib.crc32(directory.encode()) + task


@dataclass(slots=True, eq=False)
class _Pile:
    """Rows buffered for one partition."""

    slices: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = BATCH_OVERHEAD_BYTES


class RowStager:
    """Stages the rows of one task. Call `add` with each batch of rows, then `finish`.

    targets: the available topics. topic: the topic of all rows, or None to use the column `topic`. bytes_max: limit of the bytes
    that the task may stage. first: the partition that records without a key begin with (`first_partition`).
    """

    def __init__(
        self, writer: StagedWriter, targets: Mapping[str, Target], topic: str | None, bytes_max: int, first: int
    ) -> None:
        self.used: set[tuple[int, int]] = set()
        self._writer = writer
        self._targets = targets
        self._topic = topic
        self._bytes_max = bytes_max
        self._unkeyed_bytes: dict[int, int] = {}
        self._first = first
        self._piles: dict[tuple[int, int], _Pile] = {}
        self._held_bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add a batch of rows. Raise `ConfigurationError` or `KafkaError` with one sentence if they are invalid."""
        if not rows.num_rows:
            return
        records = _records(rows)
        chosen = rows.column("partition") if "partition" in rows.schema.names else None
        for target, part in self._by_topic(rows):
            if part is None:
                self._spread(target, records, chosen)
            else:
                self._spread(target, records.take(part), None if chosen is None else chosen.take(part))
        self._held_bytes += records.nbytes
        if self._held_bytes >= HELD_BYTES:
            self.finish()

    def finish(self) -> None:
        """Write the buffered rows."""
        for (number, partition), pile in self._piles.items():
            self._write(number, partition, pile)
        self._held_bytes = 0

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[Target, pa.Array | None]]:
        """Yield the topics of the rows, with the indices of their rows (None: all)."""
        if self._topic is not None:
            yield self._target(self._topic), None
            return
        column = rows.column("topic")
        if column.null_count:
            raise InvalidRecordError('a row has no topic: fill the column, or name the topic with option("topic", ...)')
        encoded = column.dictionary_encode()
        numbers = encoded.indices.to_numpy(zero_copy_only=False)
        for number, name in enumerate(encoded.dictionary.to_pylist()):
            yield self._target(name), pa.array(np.flatnonzero(numbers == number))

    def _target(self, name: str) -> Target:
        target = self._targets.get(name)
        if target is None:
            raise UnknownTopicOrPartitionError(f"there is no topic {name!r} in the lake")
        return target

    def _spread(self, target: Target, records: pa.RecordBatch, chosen: pa.Array | None) -> None:
        sizes = record_bytes(records)
        largest = int(sizes.max()) + BATCH_OVERHEAD_BYTES
        if largest > target.message_bytes_max:
            raise MessageTooLargeError(
                f"a record of {largest} bytes is larger than topic {target.name} takes "
                f"(max.message.bytes is {target.message_bytes_max})"
            )
        keys = records.column("key") if "key" in records.schema.names else None
        if target.key_required and (keys is None or keys.null_count):
            raise InvalidRecordError(f"topic {target.name} is compacted: every record needs a key, and one has none")
        if target.partitions == 1 and chosen is None:
            self._pile(target, 0, records, sizes)
            return
        partitions = self._partitions(target, keys, sizes, chosen)
        starts = np.concatenate(([0], np.flatnonzero(np.diff(partitions)) + 1, [len(partitions)]))
        if len(starts) > 2 * target.partitions + 2:
            # A stable sort keeps the order within each partition. 16-bit numbers are sorted by radix.
            order = np.argsort(
                partitions.astype(np.uint16) if target.partitions <= 1 << 16 else partitions, kind="stable"
            )
            records, sizes, partitions = records.take(pa.array(order)), sizes[order], partitions[order]
            starts = np.concatenate(([0], np.flatnonzero(np.diff(partitions)) + 1, [len(partitions)]))
        for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            self._pile(target, int(partitions[begin]), records.slice(begin, end - begin), sizes[begin:end])

    def _partitions(self, target: Target, keys: pa.Array | None, sizes: Int64s, chosen: pa.Array | None) -> Int32s:
        """Return the partition of each record as int32[N]. Raise `UnknownTopicOrPartitionError` if a given one does not exist."""
        rows = len(sizes)
        if chosen is not None and not chosen.null_count:
            return self._chosen(target, chosen)
        if keys is None or keys.null_count == rows:
            unkeyed = np.arange(rows)
            partitions = np.empty(rows, dtype=np.int32)
        else:
            partitions = partitions_of_keys(keys, target.partitions)
            unkeyed = np.flatnonzero(pc.is_null(keys).to_numpy(zero_copy_only=False)) if keys.null_count else _NONE
        if len(unkeyed):
            of_unkeyed = sizes[unkeyed]
            before = self._unkeyed_bytes.setdefault(target.number, self._first * BATCH_BYTES)
            partitions[unkeyed] = sticky_partitions(of_unkeyed, before, BATCH_BYTES, target.partitions)
            self._unkeyed_bytes[target.number] = before + int(of_unkeyed.sum())
        if chosen is not None:
            given = np.flatnonzero(pc.is_valid(chosen).to_numpy(zero_copy_only=False))
            partitions[given] = self._chosen(target, chosen.drop_null())
        return partitions

    def _chosen(self, target: Target, chosen: pa.Array) -> Int32s:
        wanted: Int64s = chosen.cast(pa.int64()).to_numpy(zero_copy_only=False)
        wrong = wanted[(wanted < 0) | (wanted >= target.partitions)]
        if len(wrong):
            raise UnknownTopicOrPartitionError(
                f"a row is for partition {wrong[0]} of topic {target.name}, which has {target.partitions} partitions"
            )
        return wanted.astype(np.int32)

    def _pile(self, target: Target, partition: int, records: pa.RecordBatch, sizes: Int64s) -> None:
        """Buffer records of one partition, and write each full batch."""
        key = (target.number, partition)
        pile = self._piles.get(key)
        if pile is None:
            pile = self._piles[key] = _Pile()
        limit = min(BATCH_BYTES, target.message_bytes_max)
        ends = np.cumsum(sizes)
        begin, rows, before = 0, len(sizes), 0
        while begin < rows:
            end = int(np.searchsorted(ends, before + limit - pile.bytes, side="right"))
            if end <= begin and pile.slices:
                self._write(target.number, partition, pile)
                continue
            end = max(end, begin + 1)
            pile.slices.append(records.slice(begin, end - begin))
            pile.bytes += int(ends[end - 1]) - before
            begin, before = end, int(ends[end - 1])

    def _write(self, number: int, partition: int, pile: _Pile) -> None:
        if not pile.slices:
            return
        batch = batch_from_arrow(pa.Table.from_batches(pile.slices), timestamp_ms=time.time_ns() // 1_000_000)
        pile.slices, pile.bytes = [], BATCH_OVERHEAD_BYTES
        self.used.add((number, partition))
        self._writer.append(batch, number, partition)
        if self._writer.bytes > self._bytes_max:
            raise ConfigurationError(
                f"a task has staged more than the broker takes at once (staged.append.max.bytes is {self._bytes_max})"
            )


_NONE = np.empty(0, dtype=np.int64)


def _records(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the record columns present in the rows, with their types in a log."""
    columns: dict[str, pa.Array] = {}
    for name in ("key", "value"):
        if name in rows.schema.names:
            columns[name] = rows.column(name).cast(pa.binary())
    if "timestamp" in rows.schema.names:
        columns["timestamp"] = _timestamps(rows.column("timestamp"))
    if "headers" in rows.schema.names:
        columns["headers"] = _headers(rows.column("headers"))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _timestamps(column: pa.Array) -> pa.Array:
    """Return the milliseconds that the times lie in, before 1970 too, where a cast would round up."""
    if column.type.tz is None:
        column = pc.assume_timezone(column, "UTC")
    kind = SCHEMA.field("timestamp").type
    if column.type.unit != "us":
        return column.cast(kind, safe=False)
    microseconds = column.view(pa.int64())
    milliseconds = microseconds.fill_null(0).to_numpy() // 1_000
    return pa.array(milliseconds, mask=microseconds.is_null().to_numpy(zero_copy_only=False)).view(kind)


def _headers(column: pa.Array) -> pa.Array:
    if column.flatten().field("key").null_count:
        raise InvalidRecordError("a header has no key")
    # Arrow refuses to cast a list to one with non-nullable fields, so rebuild the same arrays under the other type.
    inner = column.flatten()
    pairs = pa.StructArray.from_arrays(
        [inner.field("key").cast(pa.string()), inner.field("value").cast(pa.binary())],
        fields=list(HEADERS_TYPE.value_type),
    )
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=HEADERS_TYPE)
