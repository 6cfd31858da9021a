"""The tables of `metadata.store` in memory, for tests: the same rules and versions, no disk.

The time of a version is the store's clock at the commit, where Delta uses the file's time.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from memory_control_store import MemoryControlStore

from kafkalake.clock import Clock, SystemClock
from kafkalake.cluster.control_store import ControlStore
from kafkalake.errors import KafkaStorageError, LakeError, NotControllerError, SegmentsChangedError
from kafkalake.metadata import changes
from kafkalake.metadata.store import (
    NONE_PUBLISHED,
    BrokerTable,
    CleaningTable,
    GroupOffsetTable,
    JobPosition,
    MetadataSnapshot,
    PublishedOffsets,
    PublishedPartitions,
    PublishedState,
    PublishedTables,
    SwappedSegments,
    TopicTable,
    Transactions,
    TransactionTable,
)
from kafkalake.metadata.tables.schemas import (
    BrokerRow,
    CleaningRow,
    GroupOffsetRow,
    PartitionRow,
    SegmentKey,
    SegmentRow,
    TopicRow,
    TransactionRow,
)
from kafkalake.topic_partition import PartitionId

_Segments = dict[SegmentKey, SegmentRow]


class MetadataStore(
    TopicTable, BrokerTable, PublishedTables, GroupOffsetTable, TransactionTable, CleaningTable, Protocol
):
    """All tables, and what the contract tests ask of them besides."""

    @property
    def control_store(self) -> ControlStore: ...

    def load_snapshot(self, version: int | None = None, timestamp_ms: int | None = None) -> MetadataSnapshot: ...

    def maintain(self, retention_ms: int | None = None) -> None: ...

    def close(self) -> None: ...


class MemoryMetadataStore:
    """An in-memory store that keeps every version. Thread-safe. `fail_next` makes the next writes raise, in order."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._topics: list[TopicRow] = []
        self._controller_epoch = -1
        self._brokers: list[BrokerRow] = []
        self._partitions: list[tuple[int, list[PartitionRow]]] = [(self._clock.now_ms(), [])]
        self._segments: list[_Segments] = [{}]
        self._transactions: dict[str, int] = {}
        self._group_offsets: list[tuple[int, list[GroupOffsetRow]]] = [(self._clock.now_ms(), [])]
        self._group_positions: dict[int, int] = {}
        self._transaction_rows: list[list[TransactionRow]] = [[]]
        self._transaction_positions: dict[int, int] = {}
        self._raised = False
        self._cleaning: list[list[CleaningRow]] = [[]]
        self.fail_next: list[Exception] = []
        self.control_store: ControlStore = MemoryControlStore()

    def load_topics(self) -> list[TopicRow]:
        with self._lock:
            return sorted(self._topics, key=lambda row: row.topic)

    def claim_topics(self, controller_epoch: int) -> None:
        with self._changing_topics(controller_epoch):
            pass

    def create_topics(self, rows: Sequence[TopicRow], controller_epoch: int | None = None) -> None:
        with self._changing_topics(controller_epoch):
            self._topics = changes.with_topics_created(self._topics, rows)

    def delete_topics(self, topic_ids: Collection[str], controller_epoch: int | None = None) -> None:
        with self._changing_topics(controller_epoch):
            self._topics = changes.with_topics_deleted(self._topics, topic_ids)

    def alter_topics(self, rows: Sequence[TopicRow], controller_epoch: int | None = None) -> None:
        with self._changing_topics(controller_epoch):
            self._topics = changes.with_topics_altered(self._topics, rows)

    @contextlib.contextmanager
    def _changing_topics(self, controller_epoch: int | None) -> Iterator[None]:
        with self._lock:
            self._fail()
            if controller_epoch is not None and controller_epoch < self._controller_epoch:
                raise NotControllerError()
            yield
            self._controller_epoch = max(self._controller_epoch, controller_epoch or 0)

    def load_brokers(self) -> list[BrokerRow]:
        with self._lock:
            return sorted(self._brokers, key=lambda row: row.broker_id)

    def acquire_broker(self, row: BrokerRow, replacing: BrokerRow | None) -> None:
        with self._lock:
            self._fail()
            self._brokers = changes.with_broker_acquired(self._brokers, row, replacing)

    def renew_broker(self, row: BrokerRow) -> None:
        with self._lock:
            self._fail()
            self._brokers = changes.with_broker_renewed(self._brokers, row)

    def release_broker(self, broker_id: int, lease_id: str) -> None:
        with self._lock:
            self._fail()
            self._brokers = changes.with_broker_released(self._brokers, broker_id, lease_id)

    def publish(self, state: PublishedState) -> int:
        with self._lock:
            last = self._transactions.get(state.app_id, state.version - 1)
            if last > state.version:
                raise KafkaStorageError(f"publish {state.version} of {state.app_id} is late: {last} is there already")
            if last == state.version:
                return len(self._partitions) - 1
            if state.follows not in (None, self._transactions.get(state.app_id, NONE_PUBLISHED)):
                raise KafkaStorageError(
                    f"publish {state.version} of {state.app_id} follows {state.follows}, not {last}"
                )
            self._fail()
            segments = _segments_after(self._segments[-1], state)
            if segments != self._segments[-1]:
                self._segments.append(segments)
            stamped = [
                replace(
                    row,
                    published_at_ms=state.published_at_ms,
                    segments_version=len(self._segments) - 1,
                )
                for row in state.partitions
            ]
            led = [row for row in self._partitions[-1][1] if row.leader in state.leaders]
            stamped = changes.newest_rows({(row.topic_id, row.partition): row for row in led}, stamped)
            others = [row for row in self._partitions[-1][1] if row.leader not in state.leaders]
            self._partitions.append((self._clock.now_ms(), [*others, *stamped]))
            self._transactions[state.app_id] = state.version
            return len(self._partitions) - 1

    def raise_log_starts(self, log_starts: Mapping[PartitionId[str], int]) -> int:
        with self._lock:
            self._fail()
            rows = changes.with_log_starts(self._partitions[-1][1], log_starts)
            if rows != self._partitions[-1][1]:
                self._partitions.append((self._clock.now_ms(), rows))
                self._raised = True
            return len(self._partitions) - 1

    def raised_log_starts(self, leader: int) -> dict[PartitionId[str], int]:
        with self._lock:
            raised, self._raised = self._raised, False
            rows = self._partitions[-1][1] if raised else []
            return {(row.topic_id, row.partition): row.log_start_offset for row in rows if row.leader == leader}

    def remove_segments(self, keys: Collection[SegmentKey]) -> int:
        with self._lock:
            self._fail()
            segments = {key: row for key, row in self._segments[-1].items() if key not in set(keys)}
            if segments != self._segments[-1]:
                self._segments.append(segments)
            return len(self._segments) - 1

    def load_published(self, app_id: str) -> PublishedPartitions:
        with self._lock:
            rows = changes.current_partitions(self._partitions[-1][1])
            return PublishedPartitions(rows, self._transactions.get(app_id, NONE_PUBLISHED))

    def last_published_version(self, app_id: str) -> int | None:
        with self._lock:
            return self._transactions.get(app_id)

    def load_partitions(self, version: int | None = None, timestamp_ms: int | None = None) -> list[PartitionRow]:
        return self.load_snapshot(version, timestamp_ms).partitions

    def load_segments(
        self, topic: str | None = None, version: int | None = None, timestamp_ms: int | None = None
    ) -> list[SegmentRow]:
        if version is None and timestamp_ms is None:
            with self._lock:
                rows = _sorted(self._segments[-1])
        else:
            rows = self.load_snapshot(version, timestamp_ms).segments
        return [row for row in rows if topic is None or row.topic == topic]

    def load_snapshot(self, version: int | None = None, timestamp_ms: int | None = None) -> MetadataSnapshot:
        with self._lock:
            found = _version("partitions", self._partitions, version, timestamp_ms)
            partitions = changes.current_partitions(self._partitions[found][1])
            segments: list[SegmentRow] = []
            for segments_version in sorted({row.segments_version for row in partitions}):
                owners = [row for row in partitions if row.segments_version == segments_version]
                segments.extend(changes.segments_of(owners, _sorted(self._segments[segments_version])))
            return MetadataSnapshot(found, partitions, segments)

    def swap_segments(self, old: Sequence[SegmentRow], new: Sequence[SegmentRow]) -> int:
        with self._lock:
            self._fail()
            segments = dict(self._segments[-1])
            for row in old:
                found = segments.pop(row.key, None)
                if found is None or not found.same_content(row):
                    raise SegmentsChangedError(f"{row.topic}-{row.partition}: segment {row.base_offset} was changed")
            segments.update({row.key: row for row in new})
            self._segments.append(segments)
            return len(self._segments) - 1

    def update_cleaning(self, updates: Sequence[CleaningRow]) -> int:
        with self._lock:
            self._fail()
            rows = changes.with_cleaning(self._cleaning[-1], updates)
            if rows != self._cleaning[-1]:
                self._cleaning.append(rows)
            return len(self._cleaning) - 1

    def load_cleaning(self) -> list[CleaningRow]:
        with self._lock:
            return list(self._cleaning[-1])

    def stamp_partitions(self, leader: int) -> None:
        with self._lock:
            version = len(self._segments) - 1
            rows = self._partitions[-1][1]
            stamped = [replace(row, segments_version=version) if row.leader == leader else row for row in rows]
            if stamped != rows:
                self._partitions.append((self._clock.now_ms(), stamped))

    def load_swapped(self, since: JobPosition | None) -> SwappedSegments | None:
        with self._lock:
            position = JobPosition(len(self._segments) - 1, frozenset())
            if position == since:
                return None
            rows = [row for row in self._segments[-1].values() if row.generation > 0]
            return SwappedSegments(rows, position)

    def publish_group_offsets(self, offsets: PublishedOffsets) -> int:
        with self._lock:
            self._fail()
            rows = changes.unpublished(offsets.rows, self._group_positions)
            if rows:
                self._group_offsets.append((self._clock.now_ms(), [*self._group_offsets[-1][1], *rows]))
            for partition, position in offsets.positions.items():
                self._group_positions[partition] = max(position, self._group_positions.get(partition, 0))
            return len(self._group_offsets) - 1

    def load_group_offsets(self, version: int | None = None, timestamp_ms: int | None = None) -> PublishedOffsets:
        with self._lock:
            found = _version("group_offsets", self._group_offsets, version, timestamp_ms)
            rows = changes.newest_offsets(self._group_offsets[found][1])
            return PublishedOffsets(
                rows, dict(self._group_positions) if version is None and timestamp_ms is None else {}
            )

    def publish_transactions(self, transactions: Transactions) -> int:
        with self._lock:
            self._fail()
            rows = {row.transactional_id: row for row in self._transaction_rows[-1]}
            for row in transactions.rows:
                if row.journal_offset >= self._transaction_positions.get(row.journal_partition, 0):
                    rows[row.transactional_id] = row
            left = (row for row in rows.values() if row.state != changes.GONE)
            self._transaction_rows.append(sorted(left, key=lambda row: row.transactional_id))
            for partition, position in transactions.positions.items():
                known = self._transaction_positions.get(partition, 0)
                self._transaction_positions[partition] = max(position, known)
            return len(self._transaction_rows) - 1

    def load_transactions(self, timestamp_ms: int | None = None) -> Transactions:
        with self._lock:
            return Transactions(self._transaction_rows[-1], dict(self._transaction_positions))

    def maintain(self, retention_ms: int | None = None) -> None:
        """Do nothing, as this store keeps every version."""

    def close(self) -> None:
        """Do nothing."""

    def _fail(self) -> None:
        if self.fail_next:
            raise self.fail_next.pop(0)


def _segments_after(segments: _Segments, state: PublishedState) -> _Segments:
    sealed = {row.key: row for row in state.sealed if row.key not in state.removed}
    kept = {key: row for key, row in segments.items() if key not in state.removed and key not in sealed}
    newer = [*kept.values(), *sealed.values()]
    after = dict(kept)
    for key, row in sealed.items():
        before = segments.get(key)
        if before is not None and before.same_content(row):
            after[key] = before
        elif not any(other.replaces(row) for other in newer):
            after[key] = row
    return after


def _sorted(segments: _Segments) -> list[SegmentRow]:
    return sorted(segments.values(), key=lambda row: (row.topic, row.partition, row.base_offset, row.generation))


def _version(table: str, versions: Sequence[tuple[int, object]], version: int | None, timestamp_ms: int | None) -> int:
    if version is not None and timestamp_ms is not None:
        raise ValueError("a version and a time cannot both be asked for")
    if timestamp_ms is not None:
        candidates = [index for index, (committed_ms, _) in enumerate(versions) if committed_ms <= timestamp_ms]
        if not candidates:
            raise LakeError(f"no version of {table} at {changes.utc_text(timestamp_ms)}")
        return candidates[-1]
    if version is None:
        return len(versions) - 1
    if not 0 <= version < len(versions):
        raise LakeError(f"version {version} of {table} cannot be read: the newest is {len(versions) - 1}")
    return version
