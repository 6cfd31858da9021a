"""What the broker asks of the metadata: topics, broker leases, and what the publisher copies out of the logs.

All calls block and may be made from any thread; the broker makes them on an executor. Every write is committed before
the call returns. Implementations: `DeltaMetadataStore` (the lake) and `MemoryMetadataStore` (tests).

**How `partitions` and `segments` belong together.** A publish first commits `segments` (when sealed segments came or
went), then `partitions`, and every row of `partitions` carries `segments_version`, the version of `segments` that this
state was published with. A reader at any version of `partitions` finds the segments in a column it has already read:
no look into Delta's history, which log cleanup thins out, and no broker. In Spark:

    partitions = spark.read.format("delta").option("versionAsOf", v).load(f"{lake}/metadata/partitions")
    for s in {row.segments_version for row in partitions.select("segments_version").distinct().collect()}:
        segments = spark.read.format("delta").option("versionAsOf", s).load(f"{lake}/metadata/segments")

With several brokers each one's rows name their own version; rows of `segments` are then taken for the partitions whose
row names it. `load_snapshot` does exactly this.
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


@dataclass(frozen=True, slots=True)
class PublishedState:
    """One publish of one leader.

    `partitions` are all partitions that `leader` leads now; they replace what it published before. `sealed` are
    segments to add (one that is there already is not added twice), `removed` the keys of segments to take out (one that
    is not there is passed over). `app_id` and `version` are Delta's `txn`: a publish whose version is not above the last
    one of its app id changes nothing.
    """

    leader: int
    partitions: Sequence[PartitionRow]
    sealed: Sequence[SegmentRow]
    removed: Sequence[SegmentKey]
    app_id: str
    version: int
    published_at_ms: int


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """Partitions at one version and the segments that belong to them."""

    version: int
    partitions: list[PartitionRow]
    segments: list[SegmentRow]


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """`rows`, and per journal partition the position up to which they say all that the journal says (see `publish`).

    As a publish: rows to add. As an answer: the newest row of each group, topic and partition that has an offset.
    """

    rows: Sequence[GroupOffsetRow]
    positions: Mapping[int, int]


PartitionId = tuple[str, int]
"""(topic id, partition): the partition of this very topic, not of one that has its name later."""


@dataclass(frozen=True, slots=True)
class JobPosition:
    """Up to where a reader of `load_swapped` has read: a version of `segments` and the files it has looked into."""

    version: int
    files: frozenset[str]


@dataclass(frozen=True, slots=True)
class SwappedSegments:
    """Rows of `segments` with a generation above 0 that jobs have put there since a `JobPosition`; some may repeat."""

    rows: Sequence[SegmentRow]
    position: JobPosition


@dataclass(frozen=True, slots=True)
class Transactions:
    """`rows`, and per journal partition the position up to which they say all that the journal says.

    As a publish: the rows that changed. As an answer: one row for each transactional id.
    """

    rows: Sequence[TransactionRow]
    positions: Mapping[int, int]


class MetadataStore(Protocol):
    """The calls. Each may raise `KafkaStorageError` (retriable) when the disk or too many other writers prevent it."""

    def load_topics(self) -> list[TopicRow]:
        """All topics."""
        ...

    def create_topic(self, row: TopicRow) -> None:
        """Add a topic. Raises `TopicAlreadyExistsError`; of two writers that create one name, one gets it."""
        ...

    def delete_topic(self, topic: str) -> None:
        """Take a topic out. Raises `UnknownTopicOrPartitionError`."""
        ...

    def alter_topic(self, row: TopicRow) -> None:
        """Replace the row of the topic with this name and topic id.

        Raises `UnknownTopicOrPartitionError` (no such name), `InconsistentTopicIdError` (deleted and made anew
        meanwhile), `InvalidPartitionsError` (fewer partitions than there are).
        """
        ...

    def load_brokers(self) -> list[BrokerRow]:
        """All brokers that hold a lease or did not release it."""
        ...

    def acquire_broker(self, row: BrokerRow, replacing: BrokerRow | None) -> None:
        """Write `row` if the broker has no row, or one that is equal to `replacing`.

        Raises `LeaseHeldError` when another lease is there, or the same one was renewed meanwhile.
        """
        ...

    def renew_broker(self, row: BrokerRow) -> None:
        """Replace the row that has the same lease id. Raises `LeaseHeldError` when it is gone or another's."""
        ...

    def release_broker(self, broker_id: int, lease_id: str) -> None:
        """Take the row out if it has this lease id; otherwise there is nothing to release."""
        ...

    def publish(self, state: PublishedState) -> int:
        """Commit one publish; returns the version of `partitions` that holds it."""
        ...

    def raise_log_starts(self, log_starts: Mapping[PartitionId, int]) -> int:
        """Say that partitions begin at these offsets, where they began lower; returns the version of `partitions` that says so.

        For jobs. The partition's broker takes it over (`raised_log_starts`, or at its next start); no publish lowers it.
        """
        ...

    def raised_log_starts(self, leader: int) -> dict[PartitionId, int]:
        """The log starts of a leader's partitions, if another writer changed the table since this was last asked; else nothing."""
        ...

    def remove_segments(self, keys: Collection[SegmentKey]) -> int:
        """Take rows out of `segments`, those of them that are there; returns the version of `segments` without them. For jobs."""
        ...

    def last_published_version(self, app_id: str) -> int | None:
        """The largest `txn` version that any publish of `app_id` has committed, even in part; None before the first."""
        ...

    def load_partitions(self, version: int | None = None, timestamp_ms: int | None = None) -> list[PartitionRow]:
        """Partitions now, at a version, or as they were at a time (both at once is a `ValueError`).

        Raises `LakeError` when that version or time is not kept any more or not there yet.
        """
        ...

    def load_segments(
        self, topic: str | None = None, version: int | None = None, timestamp_ms: int | None = None
    ) -> list[SegmentRow]:
        """Sealed segments now, or as they belong to `partitions` at `version` or at a time; of one topic or of all."""
        ...

    def load_snapshot(self, version: int | None = None, timestamp_ms: int | None = None) -> MetadataSnapshot:
        """Partitions and the segments that belong to them: now, at a version of `partitions`, or at a time."""
        ...

    def swap_segments(self, old: Sequence[SegmentRow], new: Sequence[SegmentRow]) -> int:
        """Put `new` in place of `old` in one commit; returns the version of `segments` that says so.

        Raises `SegmentsChangedError` where any of `old` is not there (any more): then nothing is changed.
        """
        ...

    def update_cleaning(self, updates: Sequence[CleaningRow]) -> int:
        """Say what a job has decided on partitions: the version of `cleaning` that says so. Nothing in it ever goes back."""
        ...

    def load_cleaning(self) -> list[CleaningRow]:
        """What jobs have decided on partitions; none in a lake that no job has worked on."""
        ...

    def stamp_partitions(self, leader: int) -> None:
        """Have a leader's rows of `partitions` name the newest version of `segments`.

        For jobs, while that broker does not run: one that runs publishes itself.
        """
        ...

    def load_swapped(self, since: JobPosition | None) -> SwappedSegments | None:
        """What jobs have rewritten since then, or ever; None where `segments` has not changed: that costs next to nothing."""
        ...

    def publish_group_offsets(self, offsets: GroupOffsets) -> int:
        """Commit rows and, as Delta's `txn`, the positions; returns the version of `group_offsets` that holds them.

        A row of a journal partition that is published already to its position or beyond is not added again.
        """
        ...

    def load_group_offsets(self, version: int | None = None, timestamp_ms: int | None = None) -> GroupOffsets:
        """Committed offsets now, at a version of `group_offsets`, or at a time; positions only for now."""
        ...

    def publish_transactions(self, transactions: Transactions) -> int:
        """Replace rows by what became of them ("Dead": take it out) and commit, as Delta's `txn`, the positions.

        Returns the version of `transactions` that holds it. A row that was published to its position or beyond changes nothing.
        """
        ...

    def load_transactions(self) -> Transactions:
        """The transactional ids now, by name."""
        ...

    def maintain(self, retention_ms: int | None = None) -> None:
        """Drop what only versions past their retention still need. Safe at any time; costs about a listing.

        retention_ms: how long versions of `partitions` stay readable from now on (None: as they do).
        """
        ...

    def close(self) -> None:
        """Let go of open tables; further calls are not allowed."""
        ...
