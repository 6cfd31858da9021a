"""The interface to the metadata, a protocol for each table. A consumer takes the tables that it uses.

All calls block and are safe in any thread. The broker makes them on an executor. Every write is committed before the call returns.
Each may raise `KafkaStorageError` (retriable) on I/O errors or after too many lost races. `DeltaMetadataStore` implements all of
them on the lake's tables.

**How `partitions` and `segments` belong together.** A publish first commits `segments` (if sealed segments were added or removed),
then `partitions`. Every row of `partitions` carries `segments_version`, the version of `segments` published with this state. A
reader at any version of `partitions` finds the segments by a column it has already read, without Delta's history, which log
cleanup truncates, and without a broker. In Spark:

    partitions = spark.read.format("delta").option("versionAsOf", v).load(f"{lake}/metadata/partitions")
    for s in {row.segments_version for row in partitions.select("segments_version").distinct().collect()}:
        segments = spark.read.format("delta").option("versionAsOf", s).load(f"{lake}/metadata/segments")

The rows of several leaders may name several versions. Rows of a version of `segments` then apply to the partitions whose row names
it. `load_snapshot` does exactly this.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

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

NONE_PUBLISHED = -1
"""Instead of the version of a publish, where there was none."""


@dataclass(frozen=True, slots=True)
class PublishedState:
    """One publish of the partitions of some leaders.

    `partitions` are all rows of `leaders` and replace those published before. `sealed` are segments to add (existing ones are not
    added twice), `removed` the keys of segments to remove (missing ones are ignored). `app_id` and `version` are Delta's `txn`: a
    publish of the last version of its app id changes nothing, an older one is refused. `claims`: `segments` is to refuse older ones
    from now on, even if nothing is sealed or removed. follows: the version of the publish that the rows continue (`NONE_PUBLISHED`:
    they are the first): after another one this one is refused. None: after any.
    """

    leaders: Collection[int]
    partitions: Sequence[PartitionRow]
    sealed: Sequence[SegmentRow]
    removed: Sequence[SegmentKey]
    app_id: str
    version: int
    published_at_ms: int
    claims: bool = False
    follows: int | None = None


@dataclass(frozen=True, slots=True)
class PublishedPartitions:
    """The partitions, and the version of the publish that they are of, `NONE_PUBLISHED` before the first."""

    rows: Sequence[PartitionRow]
    version: int


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """Partitions at one version and the segments that belong to them."""

    version: int
    partitions: list[PartitionRow]
    segments: list[SegmentRow]


@dataclass(frozen=True, slots=True)
class PublishedOffsets:
    """Committed offsets, and the position in each journal partition up to which they are complete.

    In a publish, `rows` are the rows to add. In a result, they are the newest row of each group, topic and partition that has an
    offset.
    """

    rows: Sequence[GroupOffsetRow]
    positions: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class JobPosition:
    """The position of a reader of `load_swapped`: a version of `segments` and the files read."""

    version: int
    files: frozenset[str]


@dataclass(frozen=True, slots=True)
class SwappedSegments:
    """Rows of `segments` with a generation above 0 written by jobs since a `JobPosition`. Some may repeat."""

    rows: Sequence[SegmentRow]
    position: JobPosition


@dataclass(frozen=True, slots=True)
class Transactions:
    """Transactional ids, and the position in each journal partition up to which they are complete.

    In a publish, `rows` are the changed rows. In a result, there is one row for each transactional id.
    """

    rows: Sequence[TransactionRow]
    positions: Mapping[int, int]


class TopicTable(Protocol):
    """The topics: names, ids, partition counts and settings.

    Each change has the epoch of the controller that makes it, and raises `NotControllerError` if the table has a newer one: it is
    late. None: a change of no controller, which is never late.
    """

    def load_topics(self) -> list[TopicRow]:
        """Return all topics, sorted by name."""
        ...

    def claim_topics(self, controller_epoch: int) -> None:
        """Have changes of earlier epochs refused from now on. What is read then is not changed by them any more."""
        ...

    def create_topics(self, rows: Sequence[TopicRow], controller_epoch: int | None = None) -> None:
        """Add topics of different names, in one commit.

        Raise `TopicAlreadyExistsError`, and add none, if a name exists. Of two concurrent creations, one succeeds.
        """
        ...

    def delete_topics(self, topic_ids: Collection[str], controller_epoch: int | None = None) -> None:
        """Remove the topics with these ids, in one commit; others may have their names by now.

        Raise `UnknownTopicOrPartitionError` if none of them is there.
        """
        ...

    def alter_topics(self, rows: Sequence[TopicRow], controller_epoch: int | None = None) -> None:
        """Replace the rows of the topics with these names and topic ids, in one commit.

        Raise, and replace none, `UnknownTopicOrPartitionError` if a name does not exist, `InconsistentTopicIdError` if a topic was
        deleted and created again meanwhile, `InvalidPartitionsError` if one would lose partitions.
        """
        ...


class BrokerTable(Protocol):
    """The brokers and their leases."""

    def load_brokers(self) -> list[BrokerRow]:
        """Return all brokers that hold a lease or did not release it."""
        ...

    def acquire_broker(self, row: BrokerRow, replacing: BrokerRow | None) -> None:
        """Write `row` if the broker has no row or one equal to `replacing`.

        Raise `LeaseHeldError` if there is another lease or the same one was renewed meanwhile.
        """
        ...

    def renew_broker(self, row: BrokerRow) -> None:
        """Replace the row with the same lease id. Raise `LeaseHeldError` if the row is gone or has another lease id."""
        ...

    def release_broker(self, broker_id: int, lease_id: str) -> None:
        """Remove the row if it has this lease id. Otherwise do nothing."""
        ...


class PartitionTable(Protocol):
    """The partitions: leaders and offsets."""

    def load_partitions(self, version: int | None = None, timestamp_ms: int | None = None) -> list[PartitionRow]:
        """Return partitions now, at a version or at a time. Raise `ValueError` if both are given.

        Raise `LakeError` if that version or time is no longer kept or not there yet.
        """
        ...

    def raise_log_starts(self, log_starts: Mapping[PartitionId[str], int]) -> int:
        """Raise lower log starts to these offsets and return the version of `partitions` that includes them.

        For jobs. The partition's broker applies them (`raised_log_starts`, or at its next start). No publish lowers them.
        """
        ...

    def raised_log_starts(self, leader: int) -> dict[PartitionId[str], int]:
        """Return the log starts of a leader's partitions if another writer changed the table since the last call, else nothing."""
        ...


class SegmentTable(Protocol):
    """The sealed segments."""

    def load_segments(
        self, topic: str | None = None, version: int | None = None, timestamp_ms: int | None = None
    ) -> list[SegmentRow]:
        """Return sealed segments now, or those belonging to `partitions` at `version` or at a time, of one topic or all."""
        ...

    def swap_segments(self, old: Sequence[SegmentRow], new: Sequence[SegmentRow]) -> int:
        """Replace `old` by `new` in one commit and return the new version of `segments`.

        Raise `SegmentsChangedError` without a change if any of `old` is missing or has changed.
        """
        ...

    def remove_segments(self, keys: Collection[SegmentKey]) -> int:
        """Remove rows from `segments`, ignoring missing ones, and return the version without them. For jobs."""
        ...

    def load_swapped(self, since: JobPosition | None) -> SwappedSegments | None:
        """Return segments rewritten by jobs since a position, or ever. Return None, cheaply, if `segments` has not changed."""
        ...


class PublishedTables(PartitionTable, SegmentTable, Protocol):
    """Partitions and their segments, as published together."""

    def publish(self, state: PublishedState) -> int:
        """Commit one publish and return the version of `partitions` that includes it.

        Raise `KafkaStorageError` if there is a later one, as that of another controller, or another than the one that it follows.
        """
        ...

    def load_published(self, app_id: str) -> PublishedPartitions:
        """Return the partitions now, and the version of the last publish of `app_id`."""
        ...

    def last_published_version(self, app_id: str) -> int | None:
        """Return the largest `txn` version committed by a publish of `app_id`, even partly, or None before the first."""
        ...

    def stamp_partitions(self, leader: int) -> None:
        """Set `segments_version` of a leader's rows of `partitions` to the newest version of `segments`.

        For jobs while that broker is down. A running broker publishes itself.
        """
        ...


class CleaningTable(Protocol):
    """The progress of compaction."""

    def update_cleaning(self, updates: Sequence[CleaningRow]) -> int:
        """Commit a job's compaction progress on partitions and return the version of `cleaning`. Progress never goes back."""
        ...

    def load_cleaning(self) -> list[CleaningRow]:
        """Return the compaction progress of partitions, empty if no job has written any."""
        ...


class GroupOffsetTable(Protocol):
    """The committed offsets of groups."""

    def publish_group_offsets(self, offsets: PublishedOffsets) -> int:
        """Commit rows and, as Delta's `txn`, the positions, and return the version of `group_offsets` that includes them.

        A row below the published position of its journal partition is not added again.
        """
        ...

    def load_group_offsets(self, version: int | None = None, timestamp_ms: int | None = None) -> PublishedOffsets:
        """Return committed offsets now, at a version of `group_offsets`, or at a time. Only the current ones have positions."""
        ...


class TransactionTable(Protocol):
    """The transactional ids."""

    def publish_transactions(self, transactions: Transactions) -> int:
        """Commit changed rows ("Dead": remove the row) and, as Delta's `txn`, the positions.

        Return the version of `transactions` that includes them. A row below the published position of its journal partition
        changes nothing.
        """
        ...

    def load_transactions(self, timestamp_ms: int | None = None) -> Transactions:
        """Return the transactional ids now or at a time, by name. Only the current ones have positions."""
        ...


class JournalTables(PartitionTable, GroupOffsetTable, TransactionTable, Protocol):
    """The tables from which coordinators are loaded."""


class BrokerTables(TopicTable, JournalTables, Protocol):
    """The tables that the parts of a broker use, except its publishing."""
