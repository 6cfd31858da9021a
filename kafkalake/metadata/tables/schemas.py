"""The Delta tables of the metadata: one frozen dataclass per row, from which the Arrow schemas are made.

Rows are converted to and from Arrow column by column, so that ten thousand partitions take milliseconds. A timestamp column
(microseconds, UTC, as read by Spark) is an attribute with the suffix `_ms` (milliseconds since the epoch, Kafka's unit) in the
dataclass. All other columns and attributes have the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.errors import LakeError
from kafkalake.metadata.paths import SEGMENT_PATH
from kafkalake.timestamp_range import EARLIEST_TIMESTAMP_MS, LATEST_TIMESTAMP_MS
from kafkalake.topic_partition import TopicPartition

TIMESTAMP = pa.timestamp("us", tz="UTC")

Int32 = int
Int64 = int
"""Annotations of whole numbers, by their columns' width."""

_COLUMN_TYPES = {
    "str": pa.string(),
    "Int32": pa.int32(),
    "Int64": pa.int64(),
    "Mapping[str, str]": pa.map_(pa.string(), pa.string()),
    "tuple[Int32, ...]": pa.list_(pa.int32()),
    "tuple[TopicPartition, ...]": pa.list_(pa.struct([("topic", pa.string()), ("partition", pa.int32())])),
}


def _schema_of(row_class: type) -> pa.Schema:
    """Return the columns of a table from the attributes of its rows and their annotations."""
    return pa.schema(
        (each.name.removesuffix("_ms"), TIMESTAMP)
        if each.name.endswith("_ms")
        else (each.name, _COLUMN_TYPES[str(each.type).removesuffix(" | None")])
        for each in fields(row_class)
    )


def optional_columns(*row_classes: type) -> frozenset[str]:
    """Return the names of the columns that may have no value in rows of these classes."""
    return frozenset(
        each.name.removesuffix("_ms")
        for row_class in row_classes
        for each in fields(row_class)
        if str(each.type).endswith(" | None")
    )


class SegmentKey(NamedTuple):
    """The key of a sealed segment. A compacted segment is a new generation of the same range."""

    topic_id: str
    partition: int
    base_offset: int
    generation: int


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic: its id (uuid text), number of partitions and settings that differ from the broker's."""

    topic: str
    topic_id: str
    partitions: Int32
    config: Mapping[str, str]
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker and its lease. `host` is the clients' address, `machine` the host name of the machine it runs on.

    boot_id: of that machine's kernel, in hexadecimal. lease_duration: ms from a renewal to `lease_expires_at_ms`. Both are None
    for a broker of version 0.1.
    """

    broker_id: Int32
    host: str
    port: Int32
    machine: str
    log_dir: str
    lease_id: str
    pid: Int32
    started_at_ms: int
    lease_expires_at_ms: int
    controller_epoch: Int32 = 0
    boot_id: str | None = None
    lease_duration: Int32 | None = None


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition's state at a publish.

    `published_at_ms` and `segments_version` (the version of the table `segments` that belongs to this state) are set by the store
    at the commit. The caller's values are ignored.
    """

    topic: str
    topic_id: str
    partition: Int32
    leader: Int32
    leader_epoch: Int32
    replicas: tuple[Int32, ...]
    isr: tuple[Int32, ...]
    log_start_offset: Int64
    high_watermark: Int64
    last_stable_offset: Int64
    log_end_offset: Int64
    published_at_ms: int = -1
    segments_version: Int64 = -1


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """A sealed segment: offsets [base_offset, next_offset), `bytes` of the segment file.

    It is the file `path`, relative to the lake, among the logs of the broker `broker_id`. Other replicas of the partition have a
    file of the same name and content: `metadata.catalog.directories_of` says where.

    `min_timestamp_ms` and `max_timestamp_ms` are None for a segment without rows.
    """

    topic: str
    topic_id: str
    partition: Int32
    base_offset: Int64
    next_offset: Int64
    generation: Int32
    path: str
    records: Int64
    bytes: Int64
    min_timestamp_ms: int | None
    max_timestamp_ms: int | None
    sealed_at_ms: int
    broker_id: Int32

    @property
    def key(self) -> SegmentKey:
        return SegmentKey(self.topic_id, self.partition, self.base_offset, self.generation)

    def same_content(self, other: SegmentRow) -> bool:
        """Return whether both describe the same segment, whichever replica's file they name, ignoring timestamps."""
        return (self.key, self.next_offset, self.records, self.bytes) == (
            other.key,
            other.next_offset,
            other.records,
            other.bytes,
        )

    def replaces(self, other: SegmentRow) -> bool:
        """Return whether a job has rewritten `other`, with others perhaps, to this segment."""
        return (
            (self.topic_id, self.partition) == (other.topic_id, other.partition)
            and self.generation > other.generation
            and self.base_offset <= other.base_offset < self.next_offset
        )


@dataclass(frozen=True, slots=True)
class GroupOffsetRow:
    """A group's committed offset of a partition, and its position in the journal (`__consumer_offsets`).

    Of several rows of one group, topic and partition the one with the largest `journal_offset` counts, among equals the one with
    the latest `committed_at_ms`. `offset` None: the offset was removed. `topic_id`: of the topic that had the name then, None in
    rows of kafkalake 0.1.
    `expires_at_ms` None: the broker's `offsets.retention.minutes` applies.
    """

    group: str
    topic: str
    topic_id: str | None
    partition: Int32
    offset: Int64 | None
    leader_epoch: Int32
    metadata: str
    committed_at_ms: int
    expires_at_ms: int | None
    journal_partition: Int32
    journal_offset: Int64


@dataclass(frozen=True, slots=True)
class CleaningRow:
    """The progress of compaction in a partition. It never goes back.

    Offsets below `cleaned_offset` were compacted (Kafka's first dirty offset). `generation` is the highest one used.
    """

    topic: str
    topic_id: str
    partition: Int32
    cleaned_offset: Int64 = 0
    generation: Int32 = 0
    updated_at_ms: int = 0

    @property
    def key(self) -> tuple[str, int]:
        return self.topic_id, self.partition


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """The current state of a transactional id, with Kafka's name of the state ("Dead": expired, never in the table).

    `timeout`: ms. `started_at_ms` None: no transaction yet. `previous_producer_id`, `next_producer_id`: see `TransactionRecord`,
    -1 for none. `journal_offset`: the position in `__transaction_state` up to which this state is current.
    """

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int32
    state: str
    partitions: tuple[TopicPartition, ...]
    timeout: Int32
    updated_at_ms: int
    started_at_ms: int | None
    previous_producer_id: Int64
    next_producer_id: Int64
    client_version: Int32
    journal_partition: Int32
    journal_offset: Int64


TOPICS_SCHEMA = _schema_of(TopicRow)
BROKERS_SCHEMA = _schema_of(BrokerRow)
PARTITIONS_SCHEMA = _schema_of(PartitionRow)
SEGMENTS_SCHEMA = _schema_of(SegmentRow)
GROUP_OFFSETS_SCHEMA = _schema_of(GroupOffsetRow)
CLEANING_SCHEMA = _schema_of(CleaningRow)
TRANSACTIONS_SCHEMA = _schema_of(TransactionRow)

Row = TypeVar("Row", TopicRow, BrokerRow, PartitionRow, SegmentRow, GroupOffsetRow, CleaningRow, TransactionRow)


def to_table(
    schema: pa.Schema,
    rows: Sequence[TopicRow | BrokerRow | PartitionRow | SegmentRow | GroupOffsetRow | CleaningRow | TransactionRow],
) -> pa.Table:
    """Return `rows` as an Arrow table of exactly `schema`. Timestamps are clamped to the range of microseconds in an int64."""
    return pa.Table.from_arrays([_to_column(field, rows) for field in schema], schema=schema)


def from_table(row_class: type[Row], table: pa.Table) -> list[Row]:
    """Return the rows of `table` in order. Columns are found by name, and columns without an attribute are ignored."""
    columns = []
    for field in fields(row_class):
        name = field.name
        column = table.column(name.removesuffix("_ms") if name.endswith("_ms") else name)
        columns.append(_from_column(column))
    return [row_class(*values) for values in zip(*columns, strict=True)]


def located(rows: pa.Table) -> pa.Table:
    """Return the rows of a file of `segments` with `broker_id`, which lakes of earlier versions have only in the path.

    Raise `LakeError` if a row names a file outside the partition directories of this lake.
    """
    inside = pc.match_substring_regex(rows.column("path"), SEGMENT_PATH)
    if not pc.all(inside, min_count=0).as_py():
        foreign = rows.filter(pc.invert(inside)).column("path")[0].as_py()
        raise LakeError(f"the Delta table `segments` names a file outside of the lake's logs: {foreign!r}")
    column = rows.column("broker_id")
    if not column.null_count:
        return rows
    try:
        of_paths = pc.struct_field(pc.extract_regex(rows.column("path"), SEGMENT_PATH), "broker_id").cast(column.type)
    except pa.ArrowInvalid as error:
        raise LakeError(f"the Delta table `segments` names a broker that cannot be: {error}") from error
    index = rows.schema.get_field_index("broker_id")
    return rows.set_column(index, rows.schema.field(index), pc.coalesce(column, of_paths))


def segment_keys(table: pa.Table) -> list[SegmentKey]:
    """Return the keys of a `segments` table in order."""
    columns = [_from_column(table.column(name)) for name in SegmentKey._fields]
    return [SegmentKey(*values) for values in zip(*columns, strict=True)]


def _to_column(field: pa.Field, rows: Sequence[object]) -> pa.Array:
    if pa.types.is_timestamp(field.type):
        return pa.array(list(map(_clamped_us, map(attrgetter(f"{field.name}_ms"), rows))), field.type)
    values = list(map(attrgetter(field.name), rows))
    if pa.types.is_map(field.type):
        values = [list(value.items()) for value in values]
    elif _is_list_of_partitions(field.type):
        values = [[{"topic": topic, "partition": partition} for topic, partition in value] for value in values]
    return pa.array(values, field.type)


def _is_list_of_partitions(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) and pa.types.is_struct(kind.value_type))


def _clamped_us(timestamp_ms: int | None) -> int | None:
    if timestamp_ms is None:
        return None
    return max(EARLIEST_TIMESTAMP_MS, min(LATEST_TIMESTAMP_MS, timestamp_ms)) * 1000


def _from_column(column: pa.ChunkedArray) -> Iterable[Any]:
    column_type = column.type
    if pa.types.is_timestamp(column_type):
        return [None if value is None else value // 1000 for value in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_string(column_type) or pa.types.is_large_string(column_type):
        return _shared_strings(column)
    values: list[Any] = column.to_pylist()
    if pa.types.is_map(column_type):
        return [dict(value or ()) for value in values]
    if _is_list_of_partitions(column_type):
        return [tuple((each["topic"], each["partition"]) for each in value or ()) for value in values]
    if pa.types.is_list(column_type):
        return [tuple(value or ()) for value in values]
    return values


def _shared_strings(column: pa.ChunkedArray) -> list[object]:
    """Return the strings with equal ones shared, because a topic's name occurs once per segment."""
    seen: dict[str, str] = {}
    return [value if value is None else seen.setdefault(value, value) for value in column.to_pylist()]
