"""Compaction in Spark: finds the newest offset of each key, then rewrites each group of segments.

    segments, cut into tasks               each key becomes a 128-bit hash (record/key_hash.py), so that keys need not fit in memory
    group by hash, largest offset          Spark's own aggregation, which spills to disk if memory is short
    by group of segments                   the offsets to keep, 8 bytes each, for one output segment at a time
    rewrite                                storage/rewrite.py, into a directory of the task's own

None of this is visible to readers until the driver moves and commits the resulting files (`command.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kafkalake.reader.opened_segment import open_segment
from kafkalake.record import layout as at
from kafkalake.storage.segment_hints import index_entries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIECE_BYTES = 64 << 20
TASK_BYTES_MAX = 256 << 20
_TASKS_PER_CORE = 3
_SLOTS = 1 << 21
_KEYS_MAX = _SLOTS * 5 // 8
"""Keys that a task of the first step buffers before it emits them: 48 MiB."""
_BATCH_ROWS = 1 << 16

KEYS_SCHEMA = "first long, second long, offset long, group int"
FOUND_SCHEMA = "segment int, producer long, last_batch long, open boolean, ended boolean"
RESULT_SCHEMA = (
    "group int, directory string, base_offset long, next_offset long, records long, bytes long, "
    "min_timestamp long, max_timestamp long, changed boolean"
)


@dataclass(frozen=True, slots=True)
class Source:
    """A segment to read: its `number` in the partition, and its `group` of segments that become one."""

    number: int
    group: int
    path: str
    base_offset: int
    next_offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Output:
    """A group of segments that become one: the input of `storage.rewrite.RewriteRule`, except for the offsets."""

    paths: tuple[str, ...]
    open_producers: frozenset[int]
    last_batches: dict[int, int]


@dataclass(frozen=True, slots=True)
class Work:
    """The rewrite of one partition. directory: parent of the tasks' directories. secret: key of the hash. Times in ms."""

    directory: str
    generation: int
    sources: tuple[Source, ...]
    aborted: tuple[tuple[int, int, int], ...]
    secret: tuple[int, int]
    now_ms: int
    delete_retention_ms: int
    index_interval_bytes: int
    compression: str


@dataclass(frozen=True, slots=True)
class ProducerEvents:
    """A producer in a segment's headers: base offset of its last batch with records (-1: none), whether records of a
    transaction follow its last marker here, and whether there is a marker."""

    last_batch: int
    open: bool
    ended: bool


def producer_events(spark: SparkSession, sources: Sequence[Source]) -> dict[int, dict[int, ProducerEvents]]:
    """Return the producers of each segment by number. Reads headers only."""
    tasks = _tasks(spark, sources)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for source in _of_task(batches, tasks):
            found = _events(source)
            yield pa.RecordBatch.from_pydict(
                {
                    "segment": pa.array([source.number] * len(found), pa.int32()),
                    "producer": pa.array(list(found), pa.int64()),
                    "last_batch": pa.array([each.last_batch for each in found.values()], pa.int64()),
                    "open": pa.array([each.open for each in found.values()], pa.bool_()),
                    "ended": pa.array([each.ended for each in found.values()], pa.bool_()),
                }
            )

    events: dict[int, dict[int, ProducerEvents]] = {}
    for row in spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(read, FOUND_SCHEMA).collect():
        found = ProducerEvents(row["last_batch"], row["open"], row["ended"])
        events.setdefault(row["segment"], {})[row["producer"]] = found
    return events


def rewrite_segments(spark: SparkSession, work: Work, outputs: Sequence[Output]) -> list[Any]:
    """Rewrite each group of segments in its own directory below `work.directory`. Return rows of `RESULT_SCHEMA`."""
    from pyspark.sql import functions as F

    tasks = _tasks(spark, [piece for source in work.sources for piece in _pieces(source)])
    keys = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_hasher(work, tasks), KEYS_SCHEMA)
    # Groups are in offset order, so the group of the largest offset is the largest group.
    newest = keys.groupBy("first", "second").agg(F.max("offset").alias("offset"), F.max("group").alias("group"))
    by_group = newest.select("group", "offset").repartition(len(outputs), "group")
    return by_group.mapInArrow(_rewriter(work, outputs), RESULT_SCHEMA).collect()


def _tasks(spark: SparkSession, pieces: Sequence[Source]) -> list[list[Source]]:
    """Combine pieces into tasks of about equal size, at least one for each core if there is enough data."""
    total = sum(piece.bytes for piece in pieces)
    cores = max(1, spark.sparkContext.defaultParallelism)
    target = max(4 << 20, min(TASK_BYTES_MAX, total // (_TASKS_PER_CORE * cores)))
    tasks: list[list[Source]] = []
    room = 0
    for piece in pieces:
        if not tasks or room < piece.bytes:
            tasks.append([])
            room = target
        tasks[-1].append(piece)
        room -= piece.bytes
    return tasks


def _of_task(batches: Iterable[pa.RecordBatch], tasks: Sequence[Sequence[Source]]) -> Iterator[Source]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from tasks[number]


def _pieces(source: Source) -> Iterator[Source]:
    """Cut a large segment at entries of its index."""
    count = round(source.bytes / PIECE_BYTES)
    offsets, positions = index_entries(source.path)
    if count < 2 or len(offsets) < count:
        yield source
        return
    wanted = [source.bytes * number // count for number in range(1, count)]
    cuts = sorted({int(offsets[min(i, len(offsets) - 1)]) for i in positions.searchsorted(wanted)})
    edges = [source.base_offset, *(cut for cut in cuts if cut > source.base_offset), source.next_offset]
    for begin, end in pairwise(edges):
        size = source.bytes // (len(edges) - 1)
        yield dataclasses.replace(source, base_offset=begin, next_offset=end, bytes=size)


def _events(source: Source) -> dict[int, ProducerEvents]:
    found: dict[int, ProducerEvents] = {}
    with open_segment(source.path) as opened:
        for messages in opened.messages(source.base_offset, source.next_offset, 0):
            headers = messages.headers
            for header in headers[headers[:, at.PRODUCER_ID] >= 0].tolist():
                producer, attributes = header[at.PRODUCER_ID], header[at.ATTRIBUTES]
                known = found.get(producer, ProducerEvents(-1, False, False))
                if attributes & at.ATTRIBUTE_CONTROL:
                    found[producer] = ProducerEvents(known.last_batch, False, True)
                else:
                    is_open = known.open or bool(attributes & at.ATTRIBUTE_TRANSACTIONAL and header[at.RECORDS])
                    found[producer] = ProducerEvents(header[at.BASE_OFFSET], is_open, known.ended)
    return found


def _hasher(
    work: Work, tasks: Sequence[Sequence[Source]]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    aborted, (first, second) = work.aborted, work.secret

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from kafkalake.record.key_hash import hash_keys
        from kafkalake.spark.source.tasks import load_compiled_code
        from kafkalake.storage.txn_index import in_aborted

        load_compiled_code()
        pieces = list(_of_task(batches, tasks))
        newest = _Newest([piece.base_offset for piece in pieces], [piece.group for piece in pieces])
        for piece in pieces:
            # Emit a row for every group, even one that keeps no record.
            yield _key_rows(np.array([[piece.group, -1, -1]], dtype=np.int64), np.array([piece.group]))
            here = [each for each in aborted if each[2] >= piece.base_offset and each[1] < piece.next_offset]
            with open_segment(piece.path) as opened:
                for messages in opened.messages(piece.base_offset, piece.next_offset, at.OFFSET_COLUMN | at.KEY_COLUMN):
                    skipped = in_aborted(messages.headers, here).astype(np.uint8)
                    out = np.empty((3, messages.rows), dtype=np.int64)
                    arrays = messages.starts, messages.layouts, messages.headers, messages.first_batch
                    count = hash_keys(messages.data, *arrays, skipped, first, second, out)
                    yield from newest.add(out, count)
        yield from newest.take()

    return read


class _Newest:
    """The newest offset of each key of a task, as far as they fit, which reduces the rows for Spark to group.

    bases, groups: the first offset of each piece of the task, ascending, and its group.
    """

    def __init__(self, bases: Sequence[int], groups: Sequence[int]) -> None:
        self._bases = np.array(bases, dtype=np.int64)
        self._groups = np.array(groups, dtype=np.int64)
        self._table = np.full((_SLOTS, 3), -1, dtype=np.int64)
        self._room = _KEYS_MAX

    def add(self, keys: Any, count: int) -> Iterator[pa.RecordBatch]:
        """Add the first `count` columns of keys. Yield buffered rows whenever the table is full."""
        from kafkalake.record.key_hash import keep_newest

        begin = 0
        while begin < count:
            self._room -= keep_newest(keys, begin, count, self._table, self._room)
            begin = int(self._table[-1, 0])
            if not self._room:
                yield from self.take()

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yield all buffered rows, and empty the table."""
        rows = self._table[:-1]
        rows = rows[rows[:, 2] >= 0]
        groups = self._groups[np.searchsorted(self._bases, rows[:, 2], side="right") - 1]
        for begin in range(0, len(rows), _BATCH_ROWS):
            yield _key_rows(rows[begin : begin + _BATCH_ROWS], groups[begin : begin + _BATCH_ROWS])
        self._table.fill(-1)
        self._room = _KEYS_MAX


def _key_rows(rows: Any, groups: Any) -> pa.RecordBatch:
    columns = [pa.array(np.ascontiguousarray(rows[:, column])) for column in range(3)]
    return pa.RecordBatch.from_arrays(
        [*columns, pa.array(groups.astype(np.int32))], names=["first", "second", "offset", "group"]
    )


def _rewriter(work: Work, outputs: Sequence[Output]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    settings = dataclasses.replace(work, sources=(), aborted=())

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from kafkalake.spark.source.tasks import load_compiled_code

        load_compiled_code()
        kept: dict[int, list[Any]] = {}
        for batch in batches:
            groups, offsets = batch.column(0).to_numpy(), batch.column(1).to_numpy()
            for group in np.unique(groups).tolist():
                kept.setdefault(group, []).append(offsets[groups == group])
        for group in sorted(kept):
            yield _rewritten(settings, group, outputs[group], np.sort(np.concatenate(kept.pop(group))))

    return write


def _rewritten(work: Work, group: int, output: Output, kept: Any) -> pa.RecordBatch:
    from kafkalake.storage.rewrite import RewriteRule, rewrite
    from kafkalake.storage.rewritten_files import task_directory

    directory = task_directory(work.directory)
    rule = RewriteRule(
        kept[kept >= 0],
        output.open_producers,
        output.last_batches,
        work.now_ms,
        work.delete_retention_ms,
        work.index_interval_bytes,
        work.compression,
    )
    written, changed = rewrite(output.paths, directory, work.generation, rule)
    values: dict[str, Any] = {
        "group": pa.array([group], pa.int32()),
        "directory": pa.array([directory]),
        "base_offset": pa.array([written.base_offset], pa.int64()),
        "next_offset": pa.array([written.next_offset], pa.int64()),
        "records": pa.array([written.records], pa.int64()),
        "bytes": pa.array([written.bytes], pa.int64()),
        "min_timestamp": pa.array([written.min_timestamp], pa.int64()),
        "max_timestamp": pa.array([written.max_timestamp], pa.int64()),
        "changed": pa.array([changed], pa.bool_()),
    }
    return pa.RecordBatch.from_pydict(values)
