"""What waits to be delivered later, read from its journal `__delayed` with no broker.

    1. the notes       which records wait no longer, and which ids were cancelled
    2. the records     those that wait, without the ones of the notes, a few MiB at a time

Both are read from one snapshot, so that a record that was carried to the end of the journal in between is there once. What was
written in a transaction that is not committed does not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.delayed_journal import Kind, cancels, delay_ids, finished_offsets, read_fields, source_of
from kafkalake.errors import ConfigurationError
from kafkalake.internal_topics import DELAYED_JOURNAL
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.reader.bounds import begin_read
from kafkalake.reader.columns import KAFKA_SCHEMA, TIMESTAMP_US, project
from kafkalake.reader.plan import plan_slices
from kafkalake.reader.predicate import INT64_MAX, INT64_MIN, Selection
from kafkalake.reader.read_options import parse_options
from kafkalake.reader.slice_reader import SliceReader
from kafkalake.reader.snapshot import require_topics
from kafkalake.record.arrays import Int64s
from kafkalake.uuid_text import encode_uuid, is_uuid_text

DELAYED_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("due", TIMESTAMP_US),
        pa.field("key", pa.binary()),
        pa.field("size", pa.int64()),
        pa.field("delay_id", pa.string()),
        pa.field("sent", TIMESTAMP_US),
        pa.field("source", pa.string()),
        pa.field("source_partition", pa.int32()),
        pa.field("journal_partition", pa.int32()),
        pa.field("journal_offset", pa.int64()),
    ]
)
"""A record that waits. topic, partition: where it will be. size: of its value in bytes, null for a null value. sent: its timestamp.
source: the topic that it was sent to, which is another one for topics of a level. journal_*: where it is in `__delayed`. A topic
that was deleted has its id instead of a name."""

_COLUMNS = DELAYED_SCHEMA.append(pa.field("id", pa.binary()))

Mask = npt.NDArray[np.bool_]
Scan = Callable[[Sequence[str], Selection], Iterator[tuple[int, pa.RecordBatch]]]
"""Yields the committed records of `__delayed` with these of Kafka's columns that a selection may take, by journal partition. It is
called twice, and has the same end each time."""


def delayed_records(
    lake: Path,
    columns: Sequence[str] = tuple(DELAYED_SCHEMA.names),
    *,
    topic: str | None = None,
    due_end_us: int = INT64_MAX,
) -> pa.RecordBatchReader:
    """Return what waits in a lake, with these columns of `DELAYED_SCHEMA`, by journal partition and offset. Readable once.

    topic: only what was sent to this topic or will be delivered to it. due_end_us: only what is due before (us since 1970). Raise
    `ConfigurationError` for another column, `UnknownTopicOrPartitionError` for a topic that is not there (the id of a deleted one
    is no name), and `LakeError` or `CorruptSegmentError`, also while it is read.
    """
    scan, names = scan_lake(lake)
    if topic is not None and not is_uuid_text(topic):
        require_topics([topic], set(names.values()), str(lake))
    return waiting(scan, names, columns, topic=topic, due_end_us=due_end_us)


def waiting(
    scan: Scan,
    names: Mapping[UUID, str],
    columns: Sequence[str] = tuple(DELAYED_SCHEMA.names),
    *,
    topic: str | None = None,
    due_end_us: int = INT64_MAX,
) -> pa.RecordBatchReader:
    """Return what waits in the journal that `scan` reads, as `delayed_records`. names: of the topics, by id.

    There is one more column, `id`: the delay id as it was sent, of which `delay_id` is the text.
    """
    unknown = next((name for name in columns if name not in _COLUMNS.names), None)
    if unknown is not None:
        raise ConfigurationError(f"there is no column {unknown!r} but {', '.join(DELAYED_SCHEMA.names)}")
    schema = pa.schema([_COLUMNS.field(name) for name in columns])
    wanted = ["offset", "timestamp", "headers"]
    wanted += [name for name, source in (("key", "key"), ("value", "size")) if source in columns]
    selection = Selection().with_time_range(0, due_end_us)

    def batches() -> Iterator[pa.RecordBatch]:
        settled = _settled(scan)
        for partition, batch in scan(wanted, selection):
            rows = _Rows(batch, names)
            found = settled.waiting(partition, rows) & rows.due_before(due_end_us)
            if topic is not None:
                found &= rows.of_topic(topic)
            if found.any():
                yield rows.columns(schema, partition).filter(pa.array(found))

    return pa.RecordBatchReader.from_batches(schema, batches())


def scan_nothing(columns: Sequence[str], selection: Selection) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield nothing: there is no journal before something waits."""
    return iter(())


def scan_lake(lake: Path) -> tuple[Scan, Mapping[UUID, str]]:
    """Return the scan of a lake's files as they are now, and the names of the topics by id. Raise `LakeError`."""
    tables = DeltaMetadataStore(lake.absolute(), create=False)
    names = {UUID(each.topic_id): each.topic for each in tables.load_topics()}
    return _scan_files(lake, tables) if DELAYED_JOURNAL in names.values() else scan_nothing, names


def _scan_files(lake: Path, tables: DeltaMetadataStore) -> Scan:
    read = begin_read(parse_options({"lake": str(lake), "subscribe": DELAYED_JOURNAL}), tables)

    def scan(columns: Sequence[str], selection: Selection) -> Iterator[tuple[int, pa.RecordBatch]]:
        schema = pa.schema([KAFKA_SCHEMA.field(name) for name in columns])
        pieces = [piece for group in plan_slices(read, selection, cores=1) for piece in group]
        for partition, slices in groupby(pieces, lambda piece: piece.partition):
            for batch in SliceReader(project(schema, json_values=False), selection).read(list(slices)):
                yield partition, batch

    return scan


@dataclass(frozen=True)
class _Settled:
    """The notes of the journal.

    offsets: of records that wait no longer, sorted, by journal partition. cancelled: the order of the newest cancel of an id from a
    source. ids: those that were cancelled.
    """

    offsets: Mapping[int, Int64s]
    cancelled: Mapping[tuple[UUID, int, bytes], int]
    ids: pa.Array

    def waiting(self, partition: int, rows: _Rows) -> Mask:
        """Return which rows of a journal partition wait."""
        mask: Mask = rows.fields["kind"] == Kind.WAITING
        finished = self.offsets.get(partition)
        if finished is not None:
            offsets = rows.batch.column("offset").to_numpy()
            places = np.minimum(np.searchsorted(finished, offsets), len(finished) - 1)
            mask &= finished[places] != offsets
        if len(self.ids):
            for row in np.flatnonzero(
                pc.is_in(rows.delay_ids, value_set=self.ids).to_numpy(zero_copy_only=False)
            ).tolist():
                key = (*source_of(rows.fields[row]), rows.delay_ids[row].as_py())
                mask[row] &= rows.fields["order"][row] > self.cancelled.get(key, INT64_MIN)
        return mask


def _settled(scan: Scan) -> _Settled:
    offsets: dict[int, list[Int64s]] = defaultdict(list)
    cancelled: dict[tuple[UUID, int, bytes], int] = {}
    for partition, batch in scan(["offset", "timestamp", "headers"], Selection().with_time_range(INT64_MIN, 0)):
        found = finished_offsets(batch)
        if len(found):
            offsets[partition].append(found)
        for cancel in cancels(batch):
            key = (*cancel.source, cancel.delay_id)
            cancelled[key] = max(cancel.order, cancelled.get(key, INT64_MIN))
    ids = pa.array(sorted({delay_id for _, _, delay_id in cancelled}), pa.binary())
    return _Settled({each: np.unique(np.concatenate(parts)) for each, parts in offsets.items()}, cancelled, ids)


class _Rows:
    """Records of the journal, with Kafka's columns offset, timestamp and headers, and perhaps key and value."""

    def __init__(self, batch: pa.RecordBatch, names: Mapping[UUID, str]) -> None:
        """names: of topics, by id."""
        self.batch = batch
        self.fields = read_fields(batch.column("headers"))
        self.delay_ids = delay_ids(batch.column("headers"), self.fields)
        self._names = names

    def due_before(self, end_us: int) -> Mask:
        """Return which rows are due before this time."""
        due: Mask = self._due.view(pa.int64()).to_numpy() < end_us
        return due

    def of_topic(self, topic: str) -> Mask:
        """Return which rows were sent to a topic or will be delivered to it."""
        found = pc.or_(*(pc.equal(self._topics(field), topic) for field in ("target_id", "source_id")))
        mask: Mask = found.to_numpy(zero_copy_only=False)
        return mask

    def columns(self, schema: pa.Schema, partition: int) -> pa.RecordBatch:
        """Return these columns of `_COLUMNS` of all rows, which are of a journal partition."""
        of: dict[str, Callable[[], pa.Array]] = {
            "topic": lambda: self._topics("target_id"),
            "partition": lambda: self._field("target_partition"),
            "due": lambda: self._due,
            "key": lambda: self.batch.column("key"),
            "size": lambda: pc.binary_length(self.batch.column("value")).cast(pa.int64()),
            "delay_id": lambda: _as_text(self.delay_ids),
            "sent": lambda: pc.multiply(self._field("original_timestamp"), 1000).view(TIMESTAMP_US),
            "source": lambda: self._topics("source_id"),
            "source_partition": lambda: self._field("source_partition"),
            "journal_partition": lambda: pa.array(np.full(len(self.fields), partition, dtype=np.int32)),
            "journal_offset": lambda: self.batch.column("offset"),
            "id": lambda: self.delay_ids,
        }
        return pa.RecordBatch.from_arrays([of[name]() for name in schema.names], schema=schema)

    @property
    def _due(self) -> pa.Array:
        return self.batch.column("timestamp").cast(TIMESTAMP_US)

    def _field(self, name: str) -> pa.Array:
        return pa.array(np.ascontiguousarray(self.fields[name]))

    def _topics(self, field: str) -> pa.Array:
        """Return the names of the topics whose ids are in a field."""
        ids = pa.Array.from_buffers(pa.binary(16), len(self.fields), [None, pa.py_buffer(self.fields[field].tobytes())])
        encoded = ids.dictionary_encode()
        uuids = [UUID(bytes=each) for each in encoded.dictionary.to_pylist()]
        return pa.array([self._names.get(each) or encode_uuid(each) for each in uuids], pa.string()).take(
            encoded.indices
        )


def _as_text(ids: pa.Array) -> pa.Array:
    """Return ids as text. Bytes that are not UTF-8 are escaped, as in `\\xff`."""
    try:
        return ids.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if each is None else each.decode(errors="backslashreplace") for each in ids.to_pylist()])
