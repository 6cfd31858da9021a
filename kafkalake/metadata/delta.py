"""`MetadataStore` on Delta tables, readable by Spark with `format("delta")`.

`topics` and `brokers` are one small file each, replaced by every change. `partitions` is partitioned by leader, and a publish
replaces its leader's one file. `segments` is managed by `SegmentFiles`, `group_offsets` by `GroupOffsetFiles`, `transactions` by
`TransactionFiles`.

Every write is decided on the rows of one version and committed on top of exactly that version. After a lost race it is decided
again, in at most `delta_table.ATTEMPTS_MAX` attempts.

Commits are fsynced, except publishes of `partitions`: the next publish rewrites those rows, and an fsync every second is too
expensive. Entries damaged by a power loss are set aside when a broker opens the lake. Its first publish restores the state of the
logs.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.errors import KafkaStorageError
from kafkalake.metadata import changes, paths
from kafkalake.metadata.disk import DISK, Disk
from kafkalake.metadata.store import (
    GroupOffsets,
    JobPosition,
    MetadataSnapshot,
    PublishedState,
    SwappedSegments,
    Transactions,
)
from kafkalake.metadata.tables.delta_table import Change, OpenDeltaTable, TableDefinition, TableSize
from kafkalake.metadata.tables.group_offset_files import GroupOffsetFiles, newest_offsets
from kafkalake.metadata.tables.schemas import (
    BROKERS_SCHEMA,
    CLEANING_SCHEMA,
    GROUP_OFFSETS_SCHEMA,
    PARTITIONS_SCHEMA,
    SEGMENTS_SCHEMA,
    TIMESTAMP,
    TOPICS_SCHEMA,
    TRANSACTIONS_SCHEMA,
    BrokerRow,
    CleaningRow,
    GroupOffsetRow,
    PartitionRow,
    SegmentKey,
    SegmentRow,
    TopicRow,
    TransactionRow,
    from_table,
    to_table,
)
from kafkalake.metadata.tables.segment_files import SegmentFiles, check_paths
from kafkalake.metadata.tables.transaction_files import TransactionFiles
from kafkalake.ownership import Ownership
from kafkalake.topic_partition import PartitionId

TABLE_DEFINITIONS = {
    # A broker renews its lease every ten seconds.
    paths.BROKERS: TableDefinition(BROKERS_SCHEMA, history="interval 1 hours", expendable=True),
    # Longer than `partitions`, whose readable versions each need the version of `segments` they name.
    paths.SEGMENTS: TableDefinition(SEGMENTS_SCHEMA, history="interval 2 days", check=check_paths),
    # Expendable, because a broker publishes all its partitions again at startup.
    paths.PARTITIONS: TableDefinition(
        PARTITIONS_SCHEMA, history="interval 1 days", partition_by=("leader",), expendable=True
    ),
    paths.GROUP_OFFSETS: TableDefinition(GROUP_OFFSETS_SCHEMA, history="interval 7 days"),
    paths.CLEANING: TableDefinition(CLEANING_SCHEMA, history="interval 7 days"),
    paths.TRANSACTIONS: TableDefinition(TRANSACTIONS_SCHEMA, history="interval 1 days"),
    paths.TOPICS: TableDefinition(TOPICS_SCHEMA, history="interval 30 days"),
}

_DAY_S = 86_400

_Row = TypeVar("_Row", TopicRow, BrokerRow, CleaningRow)


class DeltaMetadataStore:
    """The metadata of the lake at `lake_path`.

    With `create` (a broker), missing tables are created. Without (a reader), a path that is no lake raises `LakeError`, and tables
    are opened on first use, so a reader does not need tables introduced by a later version. With `ownership` (a broker), only the
    lease is committed while ownership is not certain.
    """

    def __init__(
        self,
        lake_path: str | Path,
        *,
        create: bool = True,
        randomness: random.Random | None = None,
        disk: Disk = DISK,
        ownership: Ownership | None = None,
    ) -> None:
        self.lake = Path(lake_path)
        if create:
            paths.prepare_lake(self.lake, disk)
        else:
            paths.require_lake(self.lake)
        self._randomness = randomness or random.Random()
        self._ownership = ownership
        self._locks = {name: threading.Lock() for name in paths.TABLES}
        self._tables = _Tables(self.lake, disk, create=create)
        # For the broker of this store: its partitions' log starts and epochs as set by other writers.
        self._published_version = -1
        self._log_starts: dict[PartitionId[str], int] = {}
        self._log_starts_changed = False
        self._leader_epochs: dict[PartitionId[str], int] = {}

    @cached_property
    def _segment_files(self) -> SegmentFiles:
        return SegmentFiles(self._tables[paths.SEGMENTS])

    @cached_property
    def _group_offset_files(self) -> GroupOffsetFiles:
        return GroupOffsetFiles(self._tables[paths.GROUP_OFFSETS])

    @cached_property
    def _transaction_files(self) -> TransactionFiles:
        return TransactionFiles(self._tables[paths.TRANSACTIONS])

    # Topics.

    def load_topics(self) -> list[TopicRow]:
        return sorted(self._load(paths.TOPICS, TopicRow), key=lambda row: row.topic)

    def create_topic(self, row: TopicRow) -> None:
        self._replace_rows(paths.TOPICS, TopicRow, lambda rows: changes.with_topic_created(rows, row))

    def delete_topic(self, topic: str) -> None:
        self._replace_rows(paths.TOPICS, TopicRow, lambda rows: changes.with_topic_deleted(rows, topic))

    def alter_topic(self, row: TopicRow) -> None:
        self._replace_rows(paths.TOPICS, TopicRow, lambda rows: changes.with_topic_altered(rows, row))

    # Brokers.

    def load_brokers(self) -> list[BrokerRow]:
        return sorted(self._load(paths.BROKERS, BrokerRow), key=lambda row: row.broker_id)

    def acquire_broker(self, row: BrokerRow, replacing: BrokerRow | None) -> None:
        self._replace_rows(paths.BROKERS, BrokerRow, lambda rows: changes.with_broker_acquired(rows, row, replacing))

    def renew_broker(self, row: BrokerRow) -> None:
        self._replace_rows(paths.BROKERS, BrokerRow, lambda rows: changes.with_broker_renewed(rows, row))

    def release_broker(self, broker_id: int, lease_id: str) -> None:
        self._replace_rows(
            paths.BROKERS, BrokerRow, lambda rows: changes.with_broker_released(rows, broker_id, lease_id)
        )

    # Partitions and segments.

    def publish(self, state: PublishedState) -> int:
        with self._locks[paths.PARTITIONS]:
            partitions = self._tables[paths.PARTITIONS]
            if _is_published(partitions, state):
                return partitions.version
        segments_version = self._publish_segments(state)
        with self._locks[paths.PARTITIONS]:
            rows: Sequence[PartitionRow] = ()

            def change() -> Change | None:
                nonlocal rows
                self._look_for_log_starts(state.leader)
                self._refuse_older_epochs(state)
                rows = changes.with_kept_log_starts(state.partitions, self._log_starts)
                return _partitions_change(partitions, state, segments_version, rows)

            self._commit(partitions, change)
            self._published_version = partitions.version
            self._log_starts = _log_starts_of(rows)
            return partitions.version

    def raise_log_starts(self, log_starts: Mapping[PartitionId[str], int]) -> int:
        table = self._tables[paths.PARTITIONS]
        with self._locks[paths.PARTITIONS]:
            table.refresh()
            while _log_starts_change(table, log_starts) is not None:
                self._commit(table, lambda: _log_starts_change(table, log_starts), durable=True)
            table.force()
            return table.version

    def raised_log_starts(self, leader: int) -> dict[PartitionId[str], int]:
        table = self._tables[paths.PARTITIONS]
        with self._locks[paths.PARTITIONS]:
            if table.is_outdated():
                table.refresh()
            self._look_for_log_starts(leader)
            changed, self._log_starts_changed = self._log_starts_changed, False
            return dict(self._log_starts) if changed else {}

    def remove_segments(self, keys: Collection[SegmentKey]) -> int:
        table = self._tables[paths.SEGMENTS]
        with self._locks[paths.SEGMENTS]:
            table.refresh()
            self._commit(table, lambda: self._segment_files.removal_of(keys), durable=True)
            return table.version

    def last_published_version(self, app_id: str) -> int | None:
        versions = []
        for name in (paths.SEGMENTS, paths.PARTITIONS):
            with self._locks[name]:
                table = self._tables[name]
                table.refresh()
                version = table.transaction_version(app_id)
            if version is not None:
                versions.append(version)
        return max(versions, default=None)

    def load_partitions(self, version: int | None = None, timestamp_ms: int | None = None) -> list[PartitionRow]:
        _, rows = self._partitions_at(version, timestamp_ms)
        return rows

    def load_segments(
        self, topic: str | None = None, version: int | None = None, timestamp_ms: int | None = None
    ) -> list[SegmentRow]:
        if version is None and timestamp_ms is None:
            with self._locks[paths.SEGMENTS]:
                self._tables[paths.SEGMENTS].refresh()
                return _sorted_segments(self._tables[paths.SEGMENTS].read(), topic)
        segments = self.load_snapshot(version, timestamp_ms).segments
        return [row for row in segments if topic is None or row.topic == topic]

    def load_snapshot(self, version: int | None = None, timestamp_ms: int | None = None) -> MetadataSnapshot:
        found, partitions = self._partitions_at(version, timestamp_ms)
        segments: list[SegmentRow] = []
        for segments_version in sorted({row.segments_version for row in partitions}):
            with self._locks[paths.SEGMENTS]:
                self._tables[paths.SEGMENTS].refresh()
                rows = _sorted_segments(self._tables[paths.SEGMENTS].read_version(segments_version), None)
            owners = [row for row in partitions if row.segments_version == segments_version]
            segments.extend(changes.segments_of(owners, rows))
        return MetadataSnapshot(found, partitions, segments)

    # Changes of sealed segments by jobs.

    def swap_segments(self, old: Sequence[SegmentRow], new: Sequence[SegmentRow]) -> int:
        segments = self._tables[paths.SEGMENTS]
        with self._locks[paths.SEGMENTS]:
            segments.refresh()
            self._commit(segments, lambda: self._segment_files.swap_for(old, new), durable=True)
            return segments.version

    def update_cleaning(self, updates: Sequence[CleaningRow]) -> int:
        with self._locks[paths.CLEANING]:
            if paths.CLEANING not in self._tables:
                path, definition = paths.table_path(self.lake, paths.CLEANING), TABLE_DEFINITIONS[paths.CLEANING]
                self._tables[paths.CLEANING] = OpenDeltaTable(path, definition, create=True, disk=self._tables.disk)
        self._replace_rows(paths.CLEANING, CleaningRow, lambda rows: changes.with_cleaning(rows, updates))
        return self._tables[paths.CLEANING].version

    def load_cleaning(self) -> list[CleaningRow]:
        return self._load(paths.CLEANING, CleaningRow) if self._tables.exists(paths.CLEANING) else []

    def stamp_partitions(self, leader: int) -> None:
        partitions = self._tables[paths.PARTITIONS]
        segments = self._tables[paths.SEGMENTS]
        with self._locks[paths.PARTITIONS], self._locks[paths.SEGMENTS]:
            segments.refresh()
            partitions.refresh()
            self._commit(partitions, lambda: _stamp(partitions, leader, segments.version))

    def load_swapped(self, since: JobPosition | None) -> SwappedSegments | None:
        segments = self._tables[paths.SEGMENTS]
        with self._locks[paths.SEGMENTS]:
            if since is None or segments.is_outdated():
                segments.refresh()
            if since is not None and segments.version == since.version:
                return None
            files = frozenset(file.path for file in segments.files())
            rows = self._segment_files.rewritten(since.files if since is not None else ())
            return SwappedSegments(rows, JobPosition(segments.version, files))

    # Committed offsets of groups.

    def publish_group_offsets(self, offsets: GroupOffsets) -> int:
        with self._locks[paths.GROUP_OFFSETS]:
            table = self._tables[paths.GROUP_OFFSETS]
            # Durable, because the journal is then trimmed up to here.
            self._commit(table, lambda: self._group_offset_files.change_for(offsets), durable=True)
            return table.version

    def load_group_offsets(self, version: int | None = None, timestamp_ms: int | None = None) -> GroupOffsets:
        if version is not None and timestamp_ms is not None:
            raise ValueError("a version and a time cannot both be asked for")
        if version is None and timestamp_ms is None and not self._tables.exists(paths.GROUP_OFFSETS):
            return GroupOffsets([], {})  # a lake older than groups: no commits
        with self._locks[paths.GROUP_OFFSETS]:
            table = self._tables[paths.GROUP_OFFSETS]
            table.refresh()
            positions = self._group_offset_files.journal.all() if version is None and timestamp_ms is None else {}
            if timestamp_ms is not None:
                version = table.version_at(timestamp_ms)
            rows = newest_offsets(table.read_version(table.version if version is None else version))
        return GroupOffsets(from_table(GroupOffsetRow, rows), positions)

    # Transactional ids.

    def publish_transactions(self, transactions: Transactions) -> int:
        with self._locks[paths.TRANSACTIONS]:
            table = self._tables[paths.TRANSACTIONS]
            # Durable, because the journal is then trimmed up to here.
            self._commit(table, lambda: self._transaction_files.change_for(transactions), durable=True)
            return table.version

    def load_transactions(self) -> Transactions:
        if not self._tables.exists(paths.TRANSACTIONS):
            return Transactions([], {})
        with self._locks[paths.TRANSACTIONS]:
            table = self._tables[paths.TRANSACTIONS]
            table.refresh()
            rows = from_table(TransactionRow, table.read().sort_by("transactional_id"))
            return Transactions(rows, self._transaction_files.journal.all())

    def maintain(self, retention_ms: int | None = None) -> None:
        for name in filter(self._tables.exists, paths.TABLES):
            self.maintain_table(name, retention_ms)

    def maintain_table(self, name: str, retention_ms: int | None = None) -> tuple[TableSize, TableSize]:
        """Maintain one table and return its sizes before and after. Raise `KafkaStorageError` if that fails."""
        with self._locks[name]:
            before = self._tables[name].size()
            self._tables[name].maintain(_history(name, retention_ms))
            return before, self._tables[name].size()

    def close(self) -> None:
        self._tables.clear()

    # Internals.

    def _load(self, name: str, row_class: type[_Row]) -> list[_Row]:
        with self._locks[name]:
            self._tables[name].refresh()
            return from_table(row_class, self._tables[name].read())

    def _replace_rows(
        self, name: str, row_class: type[_Row], decide: Callable[[Sequence[_Row]], Sequence[_Row]]
    ) -> None:
        """Replace the rows of a small table by the result of `decide` on the newest rows. Durable on return."""
        table = self._tables[name]
        schema = TABLE_DEFINITIONS[name].schema

        def change() -> Change | None:
            rows = from_table(row_class, table.read())
            decided = decide(rows)
            if list(decided) == rows:
                return None
            return Change(add=[to_table(schema, decided)], remove=table.files())

        with self._locks[name]:
            table.refresh()
            self._commit(table, change, durable=True)

    def _publish_segments(self, state: PublishedState) -> int:
        """Commit the segments of a publish, if any, and return the version of `segments` for its rows."""
        segments = self._tables[paths.SEGMENTS]
        with self._locks[paths.SEGMENTS]:
            segments.refresh()
            self._commit(segments, lambda: self._segment_files.change_for(state), durable=True)
            return segments.version

    def _look_for_log_starts(self, leader: int) -> None:
        """Read the log starts and epochs of a leader's partitions if another writer has committed since the last read."""
        table = self._tables[paths.PARTITIONS]
        if table.version == self._published_version:
            return
        self._published_version = table.version
        self._log_starts_changed = True
        rows = [row for row in from_table(PartitionRow, table.read()) if row.leader == leader]
        self._log_starts = _log_starts_of(rows)
        self._leader_epochs = {(row.topic_id, row.partition): row.leader_epoch for row in rows}

    def _refuse_older_epochs(self, state: PublishedState) -> None:
        """Raise `KafkaStorageError` if a partition has a newer epoch: this publish of its former leader is late."""
        for row in state.partitions:
            newer = self._leader_epochs.get((row.topic_id, row.partition), -1)
            if row.leader_epoch < newer:
                raise KafkaStorageError(
                    f"{row.topic}-{row.partition} is led in epoch {newer}; what epoch {row.leader_epoch} says is late"
                )

    def _partitions_at(self, version: int | None, timestamp_ms: int | None) -> tuple[int, list[PartitionRow]]:
        if version is not None and timestamp_ms is not None:
            raise ValueError("a version and a time cannot both be asked for")
        with self._locks[paths.PARTITIONS]:
            partitions = self._tables[paths.PARTITIONS]
            partitions.refresh()
            if timestamp_ms is not None:
                version = partitions.version_at(timestamp_ms)
            found = partitions.version if version is None else version
            table = partitions.read_version(found)
        return found, changes.current_partitions(from_table(PartitionRow, table))

    def _commit(self, table: OpenDeltaTable, decide: Callable[[], Change | None], *, durable: bool = False) -> None:
        def decide_as_owner() -> Change | None:
            if ownership is not None and not ownership.is_certain():
                raise KafkaStorageError(f"nothing is committed to {table.path}: the lease was not renewed in time")
            return decide()

        ownership = None if table is self._tables.get(paths.BROKERS) else self._ownership
        table.commit_decided(decide_as_owner, durable=durable, randomness=self._randomness)


class _Tables(dict[str, OpenDeltaTable]):
    """The lake's tables by name. A broker creates and opens all at once, a reader opens each on first use."""

    def __init__(self, lake: Path, disk: Disk, *, create: bool) -> None:
        self._lake = lake
        self.disk = disk
        super().__init__({name: self._open(name, create=True) for name in paths.TABLES} if create else {})

    def __missing__(self, name: str) -> OpenDeltaTable:
        return self.setdefault(name, self._open(name, create=False))

    def exists(self, name: str) -> bool:
        return name in self or paths.table_path(self._lake, name).exists()

    def _open(self, name: str, *, create: bool) -> OpenDeltaTable:
        path = paths.table_path(self._lake, name)
        return OpenDeltaTable(path, TABLE_DEFINITIONS[name], create=create, disk=self.disk)


def _history(name: str, retention_ms: int | None) -> str | None:
    """Return a table's retention as a Delta interval: `retention_ms` for `partitions`, a day more for `segments`, else None."""
    if retention_ms is None or name not in (paths.PARTITIONS, paths.SEGMENTS):
        return None
    seconds = max(retention_ms // 1000, 1) + (_DAY_S if name == paths.SEGMENTS else 0)
    return f"interval {seconds // _DAY_S} days" if seconds % _DAY_S == 0 else f"interval {seconds} seconds"


def _is_published(partitions: OpenDeltaTable, state: PublishedState) -> bool:
    last = partitions.transaction_version(state.app_id)
    return last is not None and last >= state.version


def _partitions_change(
    partitions: OpenDeltaTable, state: PublishedState, segments_version: int, published: Sequence[PartitionRow]
) -> Change | None:
    """Return the commit that replaces the leader's rows, stamped with the publish time and version of `segments`.

    Log starts raised by a job stay raised, even if the broker has not applied them yet.
    """
    if _is_published(partitions, state):
        return None
    leader = {"leader": str(state.leader)}
    rows = to_table(PARTITIONS_SCHEMA, published)
    stamps = {
        "leader": pa.scalar(state.leader, pa.int32()),
        "published_at": pa.scalar(state.published_at_ms * 1000, TIMESTAMP),
        "segments_version": pa.scalar(segments_version, pa.int64()),
    }
    for name, value in stamps.items():
        index = PARTITIONS_SCHEMA.get_field_index(name)
        rows = rows.set_column(index, PARTITIONS_SCHEMA.field(index), pa.repeat(value, rows.num_rows))
    replaced = [file for file in partitions.files() if file.partition == leader]
    return Change(add=[rows], remove=replaced, transactions=[(state.app_id, state.version)], partition=leader)


def _log_starts_of(rows: Iterable[PartitionRow]) -> dict[PartitionId[str], int]:
    return {(row.topic_id, row.partition): row.log_start_offset for row in rows if row.log_start_offset > 0}


def _log_starts_change(partitions: OpenDeltaTable, log_starts: Mapping[PartitionId[str], int]) -> Change | None:
    """Return the commit that rewrites one file with raised log starts, or None. A file has one leader, given by its path."""
    for file in partitions.files():
        rows = from_table(PartitionRow, partitions.rows(file))
        raised = changes.with_log_starts(rows, log_starts)
        if raised != rows:
            return Change(add=[to_table(PARTITIONS_SCHEMA, raised)], remove=[file], partition=file.partition)
    return None


def _stamp(partitions: OpenDeltaTable, leader: int, segments_version: int) -> Change | None:
    """Return the commit that sets `segments_version` in a leader's rows, or None if nothing changes."""
    of_leader = {"leader": str(leader)}
    replaced = [file for file in partitions.files() if file.partition == of_leader]
    rows = [row for file in replaced for row in from_table(PartitionRow, partitions.rows(file))]
    stamped = [replace(row, segments_version=segments_version) for row in rows]
    if stamped == rows:
        return None
    return Change(add=[to_table(PARTITIONS_SCHEMA, stamped)], remove=replaced, partition=of_leader)


def _sorted_segments(table: pa.Table, topic: str | None) -> list[SegmentRow]:
    if topic is not None:
        table = table.filter(pc.equal(table.column("topic"), topic))
    order = [(name, "ascending") for name in ("topic", "partition", "base_offset", "generation")]
    return from_table(SegmentRow, table.sort_by(order))
