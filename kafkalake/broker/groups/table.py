"""All groups of this broker as the journal defines them, with the same steps at run time and while loading.

`follow` applies journal records in order, `end_transaction` a commit or abort marker. `take_changes` returns the changes that
`group_offsets` in Delta lacks. A journal partition is loading while its history is read, then active. Requests for groups of a
loading partition are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from kafkalake.broker.coordination import shards
from kafkalake.broker.coordination.automata import Automaton, Seat
from kafkalake.broker.coordination.shards import NAME_BYTES_MAX, Shards
from kafkalake.broker.groups.classic import ClassicGroup
from kafkalake.broker.groups.consumer import ConsumerGroup
from kafkalake.broker.groups.consumer_records import ConsumerRecord, EpochRecord
from kafkalake.broker.groups.journal_format import Record
from kafkalake.broker.groups.offsets import GroupOffsets
from kafkalake.broker.groups.records import CommittedOffset, GroupRecord, GroupTombstone, OffsetRecord
from kafkalake.broker.groups.roster import MetadataMemory
from kafkalake.errors import InvalidGroupIdError
from kafkalake.topic_partition import TopicPartition

Group: TypeAlias = ClassicGroup | ConsumerGroup
"""A group of either protocol. One that has never had a member counts as classic."""


class Written(NamedTuple):
    """A record of a group and its position in the journal."""

    record: GroupRecord | ConsumerRecord
    position: int


@dataclass(slots=True, eq=False)
class GroupEntry(Seat):
    """A group, its offsets, and `written`: the newest record of each kind (and member) in the journal."""

    partition: int
    group: Group
    offsets: GroupOffsets = field(default_factory=GroupOffsets)
    written: dict[Hashable, Written] = field(default_factory=dict)

    @property
    def automaton(self) -> Automaton:
        return self.group


@dataclass(slots=True, eq=False)
class OpenTransaction:
    """A producer's open transaction with committed offsets: the position of its first record and the groups concerned."""

    first_position: int
    group_ids: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Shard(shards.Shard):
    """One journal partition and its open transactions."""

    open: dict[int, OpenTransaction] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChangedOffset:
    """A row for `group_offsets`: a group's current offset of a partition (None: deleted) and its journal position."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset | None
    journal_partition: int
    journal_offset: int


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes since the last `take_changes`.

    `resume_at`: journal partition -> the offset to read the journal from, once `rows` are published. It does not pass the
    first record of an open transaction.
    """

    rows: list[ChangedOffset]
    resume_at: dict[int, int]


class GroupTable:
    """Groups by id. `new_group` makes an empty one of the classic protocol.

    `new_consumer_group(group_id, replaces_classic)` makes one of the consumer protocol.
    """

    def __init__(
        self,
        partitions: Callable[[], int],
        new_group: Callable[[str], ClassicGroup],
        new_consumer_group: Callable[[str, bool], ConsumerGroup],
        memory: MetadataMemory | None = None,
    ) -> None:
        self.memory = memory or MetadataMemory()
        """Memory of the members' metadata and the groups' names."""
        self._new_group = new_group
        self._new_consumer_group = new_consumer_group
        self._entries: dict[str, GroupEntry] = {}
        self._shards: Shards[Shard] = Shards(partitions)
        self._changed: dict[tuple[str, TopicPartition], None] = {}

    def __iter__(self) -> Iterator[GroupEntry]:
        """Iterate over the groups of active partitions."""
        return iter([entry for entry in self._entries.values() if not self._shards[entry.partition].loading])

    def __len__(self) -> int:
        return len(self._entries)

    def check(self, group_id: str, *, may_be_empty: bool = False) -> int:
        """Return the journal partition of a group that this broker serves.

        Raise `InvalidGroupIdError`, `NotCoordinatorError` or `CoordinatorLoadInProgressError`.
        """
        if (not group_id and not may_be_empty) or len(group_id.encode()) > NAME_BYTES_MAX:
            raise InvalidGroupIdError
        return self._shards.check(group_id)

    @property
    def is_loading(self) -> bool:
        """Whether a partition is still loading."""
        return self._shards.is_loading

    def find(self, group_id: str) -> GroupEntry | None:
        return self._entries.get(group_id)

    def find_or_create(self, group_id: str, partition: int) -> GroupEntry:
        entry = self._entries.get(group_id)
        if entry is None:
            entry = self._entries[group_id] = GroupEntry(partition, self._new_group(group_id))
            self.memory.bytes += len(group_id)
        return entry

    def forget(self, entry: GroupEntry) -> None:
        """Remove a group without members, offsets or journal records."""
        if self._entries.pop(entry.group.group_id, None) is not None:
            self.memory.bytes -= len(entry.group.group_id)

    def become_consumer_group(self, entry: GroupEntry, *, is_on_its_way: bool = False) -> ConsumerGroup:
        """Replace a group by one of the consumer protocol. Its first records establish that in the journal.

        is_on_its_way: a record of the classic group may still be on its way to the journal.
        """
        entry.group = self._new_consumer_group(entry.group.group_id, is_on_its_way or GroupRecord in entry.written)
        return entry.group

    def become_classic(self, entry: GroupEntry) -> None:
        """Replace a group by the classic one in the journal. Without a record it is empty, and removed if it has no offsets."""
        entry.group = self._new_group(entry.group.group_id)
        written = entry.written.get(GroupRecord)
        if written is not None:
            assert isinstance(written.record, GroupRecord)
            entry.group.restore(written.record)
        elif not len(entry.offsets) and not entry.offsets.has_pending:
            self.forget(entry)

    # Partitions of the journal

    def begin(self, partition: int, position: int = 0) -> None:
        """Begin to load a partition that this broker coordinates. Its history follows, from `position`."""
        self._shards.begin(partition, Shard(position))

    def finish(self, partition: int, end: int = 0) -> list[GroupEntry]:
        """End loading at the offset `end` and return the partition's groups, restored."""
        self._shards.finish(partition, end)
        entries = [entry for entry in self._entries.values() if entry.partition == partition]
        for entry in entries:
            if isinstance(entry.group, ClassicGroup) or not entry.group.exists:
                self.become_classic(entry)
        return [entry for entry in entries if self._entries.get(entry.group.group_id) is entry]

    def end(self, partition: int) -> list[GroupEntry]:
        """Remove and return the groups of a partition that this broker no longer coordinates."""
        self._shards.end(partition)
        gone = [entry for entry in self._entries.values() if entry.partition == partition]
        for entry in gone:
            self.forget(entry)
        self._changed = {key: None for key in self._changed if key[0] in self._entries}
        return gone

    @property
    def partitions(self) -> list[int]:
        """The journal partitions that are loaded or loading."""
        return list(self._shards)

    # Following the journal

    def load_published(self, rows: Iterable[ChangedOffset]) -> None:
        """Load the rows of `group_offsets` as of the journal position to read from. Call between `begin` and `follow`."""
        for row in rows:
            if row.committed is not None and self._shards.get(row.journal_partition) is not None:
                entry = self.find_or_create(row.group_id, row.journal_partition)
                entry.offsets.commit((row.topic, row.partition), row.committed, row.journal_offset)

    def follow(self, partition: int, position: int, record: Record, producer_id: int | None = None) -> None:
        """Apply one journal record. `producer_id` is set if it is part of a transaction."""
        shard = self._shards.get(partition)
        if shard is None:
            return  # written while this broker still coordinated it
        shard.passed(position)
        if isinstance(record, OffsetRecord):
            self._follow_offset(shard, partition, position, record, producer_id)
        elif isinstance(record, GroupRecord):
            entry = self.find_or_create(record.group_id, partition)
            if shard.loading and isinstance(entry.group, ConsumerGroup):  # the records that end it are lost to damage
                entry.written.clear()
                entry.group = self._new_group(record.group_id)
            entry.written[GroupRecord] = Written(record, position)
        elif isinstance(record, GroupTombstone):
            self._follow_classic_end(record.group_id)
        else:
            self._follow_consumer(shard, partition, position, record)

    def open_transactions(self, partition: int) -> list[int]:
        """Return the producer ids of open transactions with committed offsets in this journal partition."""
        shard = self._shards.get(partition)
        return [] if shard is None else list(shard.open)

    def end_transaction(self, partition: int, producer_id: int, *, committed: bool, position: int) -> None:
        """Apply a commit or abort marker at `position` of the journal."""
        shard = self._shards.get(partition)
        if shard is None:
            return
        shard.passed(position)
        transaction = shard.open.pop(producer_id, None)
        for group_id in transaction.group_ids if transaction is not None else ():
            entry = self._entries.get(group_id)
            if entry is not None:
                for key in entry.offsets.complete(producer_id, committed=committed):
                    self._changed[group_id, key] = None

    def _follow_offset(
        self, shard: Shard, partition: int, position: int, record: OffsetRecord, producer_id: int | None
    ) -> None:
        group_id, key = record.group_id, (record.topic, record.partition)
        if record.committed is None:
            entry = self._entries.get(group_id)
            if entry is not None and entry.offsets.remove(key):
                self._changed[group_id, key] = None
            return
        entry = self.find_or_create(group_id, partition)
        if producer_id is not None:
            transaction = shard.open.setdefault(producer_id, OpenTransaction(position))
            transaction.group_ids[group_id] = None
            entry.offsets.commit_pending(producer_id, key, record.committed, position)
        elif entry.offsets.commit(key, record.committed, position):
            self._changed[group_id, key] = None

    def _follow_classic_end(self, group_id: str) -> None:
        """Apply the end of a classic group: deleted, or replaced by one of the consumer protocol."""
        entry = self._entries.get(group_id)
        if entry is not None:
            entry.written.pop(GroupRecord, None)
            if isinstance(entry.group, ClassicGroup):
                self.become_classic(entry)

    def _follow_consumer(self, shard: Shard, partition: int, position: int, record: ConsumerRecord) -> None:
        """Apply a consumer group's record. At run time the group applies its own records."""
        entry = self.find_or_create(record.group_id, partition)
        if shard.loading:
            if isinstance(entry.group, ClassicGroup):
                self.become_consumer_group(entry)
            assert isinstance(entry.group, ConsumerGroup)
            entry.group.follow(record)
        key = (type(record), getattr(record, "member_id", ""))
        if record.value is not None:
            entry.written[key] = Written(record, position)
            return
        entry.written.pop(key, None)
        if isinstance(record, EpochRecord):
            self.become_classic(entry)

    # For Delta

    def take_changes(self) -> Changes:
        """Return the changes that `group_offsets` lacks. After a failed publish, pass them to `put_back`."""
        changed, self._changed = self._changed, {}
        rows = []
        for group_id, key in changed:
            partition = self._shards.partition_of(group_id)
            shard = self._shards.get(partition)
            if shard is None:
                continue
            entry = self._entries.get(group_id)
            positioned = None if entry is None else entry.offsets.get(key)
            committed, position = (None, shard.next_position - 1) if positioned is None else positioned
            rows.append(ChangedOffset(group_id, *key, committed, partition, position))
        return Changes(rows, {partition: self.resume_at(partition) for partition in self._shards})

    def put_back(self, changes: Changes) -> None:
        """Restore `changes` after a failed publish."""
        self._changed.update(((row.group_id, (row.topic, row.partition)), None) for row in changes.rows)

    def resume_at(self, partition: int) -> int:
        """Return the first journal offset that a coordinator has to read if all changes are published."""
        shard = self._shards[partition]
        return min((one.first_position for one in shard.open.values()), default=shard.next_position)

    def records_before(self, partition: int, position: int) -> list[GroupRecord | ConsumerRecord]:
        """Return the group records that a trim to `position` would lose, to be written again before it."""
        return [
            written.record
            for entry in self._entries.values()
            if entry.partition == partition
            for written in entry.written.values()
            if written.position < position
        ]
