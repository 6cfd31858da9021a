"""All groups of this broker, as the journal tells them: the same steps at run time and at start.

`follow` takes one journal record in its order, `end_transaction` one commit or abort marker. What `group_offsets` in Delta
does not say yet is collected in `take_changes`. A journal partition is loading while its past is read, then active;
requests for its groups are refused before that.
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
from kafkalake.broker.groups.offsets import GroupOffsets, PartitionKey
from kafkalake.broker.groups.records import CommittedOffset, GroupRecord, GroupTombstone, OffsetRecord
from kafkalake.broker.groups.roster import MetadataMemory
from kafkalake.errors import InvalidGroupIdError

Group: TypeAlias = ClassicGroup | ConsumerGroup
"""A group of either protocol. One that has never had a member counts as classic."""


class Written(NamedTuple):
    """A record of a group and where in the journal it stands."""

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
    """A producer's transaction that has committed offsets: where its first one stands, and of which groups they are."""

    first_position: int
    group_ids: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Shard(shards.Shard):
    """One journal partition, and which transactions are open in it."""

    open: dict[int, OpenTransaction] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChangedOffset:
    """A row for `group_offsets`: what a group's offset of a partition is now (None: gone), and where the journal says it."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset | None
    journal_partition: int
    journal_offset: int


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed since the last `take_changes`.

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
        """What groups keep of their members, and the groups' names."""
        self._new_group = new_group
        self._new_consumer_group = new_consumer_group
        self._entries: dict[str, GroupEntry] = {}
        self._shards: Shards[Shard] = Shards(partitions)
        self._changed: dict[tuple[str, PartitionKey], None] = {}

    def __iter__(self) -> Iterator[GroupEntry]:
        """The groups that are served now."""
        return iter([entry for entry in self._entries.values() if not self._shards[entry.partition].loading])

    def __len__(self) -> int:
        return len(self._entries)

    def check(self, group_id: str, *, may_be_empty: bool = False) -> int:
        """The journal partition of a group that we serve.

        Raises `InvalidGroupIdError`, `NotCoordinatorError`, `CoordinatorLoadInProgressError`.
        """
        if (not group_id and not may_be_empty) or len(group_id.encode()) > NAME_BYTES_MAX:
            raise InvalidGroupIdError
        return self._shards.check(group_id)

    @property
    def is_loading(self) -> bool:
        """Whether some groups are not served yet."""
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
        """A group that nothing is known of any more, and that the journal does not know."""
        if self._entries.pop(entry.group.group_id, None) is not None:
            self.memory.bytes -= len(entry.group.group_id)

    def become_consumer_group(self, entry: GroupEntry, *, is_on_its_way: bool = False) -> ConsumerGroup:
        """Let a group be one of the consumer protocol from now on; its first records say so in the journal.

        is_on_its_way: a record of the classic group may be on its way to the journal.
        """
        entry.group = self._new_consumer_group(entry.group.group_id, is_on_its_way or GroupRecord in entry.written)
        return entry.group

    def become_classic(self, entry: GroupEntry) -> None:
        """Let a group be what the journal says of the classic protocol: empty, if anything. Forgotten where it says nothing."""
        entry.group = self._new_group(entry.group.group_id)
        written = entry.written.get(GroupRecord)
        if written is not None:
            assert isinstance(written.record, GroupRecord)
            entry.group.restore(written.record)
        elif not len(entry.offsets) and not entry.offsets.has_pending:
            self.forget(entry)

    # Partitions of the journal

    def begin(self, partition: int, position: int = 0) -> None:
        """This broker coordinates the partition's groups; its past follows, from `position`."""
        self._shards.begin(partition, Shard(position))

    def finish(self, partition: int, end: int = 0) -> list[GroupEntry]:
        """The past has been read, up to the offset `end`; the partition's groups, restored."""
        self._shards.finish(partition, end)
        entries = [entry for entry in self._entries.values() if entry.partition == partition]
        for entry in entries:
            if isinstance(entry.group, ClassicGroup) or not entry.group.exists:
                self.become_classic(entry)
        return [entry for entry in entries if self._entries.get(entry.group.group_id) is entry]

    def end(self, partition: int) -> list[GroupEntry]:
        """This broker does not coordinate the partition's groups any more; they are returned and forgotten."""
        self._shards.end(partition)
        gone = [entry for entry in self._entries.values() if entry.partition == partition]
        for entry in gone:
            self.forget(entry)
        self._changed = {key: None for key in self._changed if key[0] in self._entries}
        return gone

    @property
    def partitions(self) -> list[int]:
        """The journal partitions that we follow."""
        return list(self._shards)

    # Following the journal

    def load_published(self, rows: Iterable[ChangedOffset]) -> None:
        """What `group_offsets` said at the position that the journal is read from. Between `begin` and `follow`."""
        for row in rows:
            if row.committed is not None and self._shards.get(row.journal_partition) is not None:
                entry = self.find_or_create(row.group_id, row.journal_partition)
                entry.offsets.commit((row.topic, row.partition), row.committed, row.journal_offset)

    def follow(self, partition: int, position: int, record: Record, producer_id: int | None = None) -> None:
        """One record of the journal; `producer_id` where it is part of a transaction."""
        shard = self._shards.get(partition)
        if shard is None:
            return  # written while we still coordinated it
        shard.passed(position)
        if isinstance(record, OffsetRecord):
            self._follow_offset(shard, partition, position, record, producer_id)
        elif isinstance(record, GroupRecord):
            entry = self.find_or_create(record.group_id, partition)
            if shard.loading and isinstance(entry.group, ConsumerGroup):  # damage has taken the records that end it
                entry.written.clear()
                entry.group = self._new_group(record.group_id)
            entry.written[GroupRecord] = Written(record, position)
        elif isinstance(record, GroupTombstone):
            self._follow_classic_end(record.group_id)
        else:
            self._follow_consumer(shard, partition, position, record)

    def open_transactions(self, partition: int) -> list[int]:
        """Producer ids whose transactions have committed offsets in this partition of the journal and have not ended."""
        shard = self._shards.get(partition)
        return [] if shard is None else list(shard.open)

    def end_transaction(self, partition: int, producer_id: int, *, committed: bool, position: int) -> None:
        """A commit or abort marker at `position` of the journal."""
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
        """The classic group is deleted, or one of the consumer protocol takes its place."""
        entry = self._entries.get(group_id)
        if entry is not None:
            entry.written.pop(GroupRecord, None)
            if isinstance(entry.group, ClassicGroup):
                self.become_classic(entry)

    def _follow_consumer(self, shard: Shard, partition: int, position: int, record: ConsumerRecord) -> None:
        """At run time the group follows its records by itself."""
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
        """The rows that `group_offsets` lacks. After a failed publish they are given back with `put_back`."""
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
        """`changes` were not published."""
        self._changed.update(((row.group_id, (row.topic, row.partition)), None) for row in changes.rows)

    def resume_at(self, partition: int) -> int:
        """The first journal offset that a coordinator with all changes published has to read."""
        shard = self._shards[partition]
        return min((one.first_position for one in shard.open.values()), default=shard.next_position)

    def records_before(self, partition: int, position: int) -> list[GroupRecord | ConsumerRecord]:
        """Records of groups that would be lost if the journal began at `position`: to be written again before a trim."""
        return [
            written.record
            for entry in self._entries.values()
            if entry.partition == partition
            for written in entry.written.values()
            if written.position < position
        ]
