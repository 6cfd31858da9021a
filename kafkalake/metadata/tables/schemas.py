"""The Delta tables of the metadata: their Arrow schemas, and one frozen dataclass per row.

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
from kafkalake.topic_partition import TopicPartition

TIMESTAMP = pa.timestamp("us", tz="UTC")

TOPICS_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partitions", pa.int32()),
        ("config", pa.map_(pa.string(), pa.string())),
        ("created_at", TIMESTAMP),
    ]
)

BROKERS_SCHEMA = pa.schema(
    [
        ("broker_id", pa.int32()),
        ("host", pa.string()),
        ("port", pa.int32()),
        ("machine", pa.string()),
        ("log_dir", pa.string()),
        ("lease_id", pa.string()),
        ("pid", pa.int32()),
        ("started_at", TIMESTAMP),
        ("lease_expires_at", TIMESTAMP),
        ("controller_epoch", pa.int32()),
        ("boot_id", pa.string()),
        ("lease_duration", pa.int32()),
    ]
)

PARTITIONS_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("leader", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("replicas", pa.list_(pa.int32())),
        ("isr", pa.list_(pa.int32())),
        ("log_start_offset", pa.int64()),
        ("high_watermark", pa.int64()),
        ("last_stable_offset", pa.int64()),
        ("log_end_offset", pa.int64()),
        ("published_at", TIMESTAMP),
        ("segments_version", pa.int64()),
    ]
)

SEGMENTS_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("base_offset", pa.int64()),
        ("next_offset", pa.int64()),
        ("generation", pa.int32()),
        ("path", pa.string()),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
        ("min_timestamp", TIMESTAMP),
        ("max_timestamp", TIMESTAMP),
        ("sealed_at", TIMESTAMP),
        ("broker_id", pa.int32()),
    ]
)

GROUP_OFFSETS_SCHEMA = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("metadata", pa.string()),
        ("committed_at", TIMESTAMP),
        ("expires_at", TIMESTAMP),
        ("journal_partition", pa.int32()),
        ("journal_offset", pa.int64()),
    ]
)

CLEANING_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("cleaned_offset", pa.int64()),
        ("generation", pa.int32()),
        ("updated_at", TIMESTAMP),
    ]
)

TRANSACTIONS_SCHEMA = pa.schema(
    [
        ("transactional_id", pa.string()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("state", pa.string()),
        ("partitions", pa.list_(pa.struct([("topic", pa.string()), ("partition", pa.int32())]))),
        ("timeout", pa.int32()),
        ("updated_at", TIMESTAMP),
        ("started_at", TIMESTAMP),
        ("previous_producer_id", pa.int64()),
        ("next_producer_id", pa.int64()),
        ("client_version", pa.int32()),
        ("journal_partition", pa.int32()),
        ("journal_offset", pa.int64()),
    ]
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
    partitions: int
    config: Mapping[str, str]
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker and its lease. `host` is the clients' address, `machine` the host name of the machine it runs on.

    boot_id: of that machine's kernel, in hexadecimal. lease_duration: ms from a renewal to `lease_expires_at_ms`. Both are None
    for a broker of version 0.1.
    """

    broker_id: int
    host: str
    port: int
    machine: str
    log_dir: str
    lease_id: str
    pid: int
    started_at_ms: int
    lease_expires_at_ms: int
    controller_epoch: int = 0
    boot_id: str | None = None
    lease_duration: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition's state at a publish.

    `published_at_ms` and `segments_version` (the version of the table `segments` that belongs to this state) are set by the store
    at the commit. The caller's values are ignored.
    """

    topic: str
    topic_id: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    published_at_ms: int = -1
    segments_version: int = -1


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """A sealed segment: offsets [base_offset, next_offset), `bytes` of the segment file.

    It is the file `path`, relative to the lake, among the logs of the broker `broker_id`.

    `min_timestamp_ms` and `max_timestamp_ms` are None for a segment without rows.
    """

    topic: str
    topic_id: str
    partition: int
    base_offset: int
    next_offset: int
    generation: int
    path: str
    records: int
    bytes: int
    min_timestamp_ms: int | None
    max_timestamp_ms: int | None
    sealed_at_ms: int
    broker_id: int

    @property
    def key(self) -> SegmentKey:
        return SegmentKey(self.topic_id, self.partition, self.base_offset, self.generation)

    def same_content(self, other: SegmentRow) -> bool:
        """Return whether both describe the same file, ignoring timestamps."""
        return (self.key, self.next_offset, self.path, self.records, self.bytes) == (
            other.key,
            other.next_offset,
            other.path,
            other.records,
            other.bytes,
        )


@dataclass(frozen=True, slots=True)
class GroupOffsetRow:
    """A group's committed offset of a partition, and its position in the journal (`__consumer_offsets`).

    Of several rows of one group, topic and partition the one with the largest `journal_offset` counts, among equals the one with
    the latest `committed_at_ms`. `offset` None: the offset was removed. `topic_id`: set if the commit named the topic by id.
    `expires_at_ms` None: the broker's `offsets.retention.minutes` applies.
    """

    group: str
    topic: str
    topic_id: str | None
    partition: int
    offset: int | None
    leader_epoch: int
    metadata: str
    committed_at_ms: int
    expires_at_ms: int | None
    journal_partition: int
    journal_offset: int

    def is_for(self, topic_id: str | None) -> bool:
        """Return whether the offset is for this topic, not an earlier one of the same name. True if the row has no topic id."""
        return self.topic_id in (None, topic_id)


@dataclass(frozen=True, slots=True)
class CleaningRow:
    """The progress of compaction in a partition. It never goes back.

    Offsets below `cleaned_offset` were compacted (Kafka's first dirty offset). `generation` is the highest one used.
    """

    topic: str
    topic_id: str
    partition: int
    cleaned_offset: int = 0
    generation: int = 0
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
    producer_id: int
    producer_epoch: int
    state: str
    partitions: tuple[TopicPartition, ...]
    timeout: int
    updated_at_ms: int
    started_at_ms: int | None
    previous_producer_id: int
    next_producer_id: int
    client_version: int
    journal_partition: int
    journal_offset: int


Row = TypeVar("Row", TopicRow, BrokerRow, PartitionRow, SegmentRow, GroupOffsetRow, CleaningRow, TransactionRow)

# Producers may send any int64 as a timestamp in ms. Microseconds in an int64 hold a thousandth of that range.
_TIMESTAMP_MS_MAX = (2**63 - 1) // 1000


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


def _to_column(field: pa.Field, rows: Sequence[Any]) -> pa.Array:
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
    return max(-_TIMESTAMP_MS_MAX, min(_TIMESTAMP_MS_MAX, timestamp_ms)) * 1000


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


def _shared_strings(column: pa.ChunkedArray) -> list[Any]:
    """Return the strings with equal ones shared, because a topic's name occurs once per segment."""
    seen: dict[str, str] = {}
    return [value if value is None else seen.setdefault(value, value) for value in column.to_pylist()]
