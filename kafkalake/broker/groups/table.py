"""All groups of this broker as the journal defines them, with the same steps at run time and while loading.

Beside `coordination.table`: a commit or abort marker ends the pending offsets of a transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

from kafkalake.broker.coordination.automata import MachineSlot
from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.coordination.table import JournaledTable, MetadataMemory, Shard
from kafkalake.broker.groups.classic import ClassicGroup
from kafkalake.broker.groups.consumer import ConsumerGroup
from kafkalake.broker.groups.consumer_records import ConsumerRecord, EpochRecord
from kafkalake.broker.groups.journal_format import Record
from kafkalake.broker.groups.offsets import GroupOffsets, Positioned
from kafkalake.broker.groups.records import CommittedOffset, GroupRecord, GroupTombstone, OffsetRecord
from kafkalake.errors import InvalidGroupIdError
from kafkalake.topic_partition import TopicPartition

Group: TypeAlias = ClassicGroup | ConsumerGroup
"""A group of either protocol. One that has never had a member counts as classic."""


class JournalEntry(NamedTuple):
    """A record of a group and its position in the journal."""

    record: GroupRecord | ConsumerRecord
    position: int


@dataclass(slots=True, eq=False)
class GroupEntry(MachineSlot):
    """A group, its offsets, and `written`: the newest record of each kind (and member) in the journal."""

    group: Group
    offsets: GroupOffsets = field(default_factory=GroupOffsets)
    written: dict[Hashable, JournalEntry] = field(default_factory=dict)

    @property
    def automaton(self) -> Group:
        return self.group

    @property
    def name(self) -> str:
        return self.group.group_id

    def restored(self, lost: Sequence[range]) -> None:
        self.group.restored()

    def close(self, error: ErrorClass) -> None:
        self.group.die(error)


@dataclass(slots=True, eq=False)
class OpenTransaction:
    """A producer's open transaction with committed offsets: the position of its first record and the groups concerned."""

    first_position: int
    group_ids: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChangedOffset:
    """A row for `group_offsets`: a group's current offset of a partition (None: deleted) and its journal position."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset | None
    journal_partition: int
    journal_offset: int


class GroupTable(JournaledTable[GroupEntry, ChangedOffset]):
    """Groups by id. `new_group` makes an empty one of the classic protocol.

    `new_consumer_group(group_id, replaces_classic)` makes one of the consumer protocol. `memory`: of the groups' names and their
    members' metadata.
    """

    def __init__(
        self,
        partitions: Callable[[], int],
        new_group: Callable[[str], ClassicGroup],
        new_consumer_group: Callable[[str, bool], ConsumerGroup],
        memory: MetadataMemory | None = None,
    ) -> None:
        self.offset_memory = MetadataMemory()
        """Memory of the committed offsets of all groups."""
        super().__init__(
            partitions,
            lambda name, partition: GroupEntry(partition, new_group(name), GroupOffsets(self.offset_memory)),
            InvalidGroupIdError,
            memory,
        )
        self._new_group = new_group
        self._new_consumer_group = new_consumer_group
        self._open: dict[int, dict[int, OpenTransaction]] = defaultdict(dict)
        """Journal partition -> producer id -> its open transaction."""

    def forget(self, entry: GroupEntry) -> None:
        super().forget(entry)
        entry.offsets.release()

    def become_consumer_group(self, entry: GroupEntry, *, is_on_its_way: bool = False) -> ConsumerGroup:
        """Replace a group by one of the consumer protocol. Its first records establish that in the journal.

        is_on_its_way: a record of the classic group may still be on its way to the journal.
        """
        group = self._new_consumer_group(entry.group.group_id, is_on_its_way or GroupRecord in entry.written)
        self._replace(entry, group)
        return group

    def become_classic(self, entry: GroupEntry) -> None:
        """Replace a group by the classic one in the journal. Without a record it is empty, and removed if it has no offsets."""
        group = self._new_group(entry.group.group_id)
        self._replace(entry, group)
        written = entry.written.get(GroupRecord)
        if written is not None:
            assert isinstance(written.record, GroupRecord)
            group.restore(written.record)
        elif not len(entry.offsets) and not entry.offsets.has_pending:
            self.forget(entry)

    @staticmethod
    def _replace(entry: GroupEntry, group: Group) -> None:
        """Put another group in the place of one, which takes no memory any more."""
        entry.group.release()
        entry.group = group

    # Partitions of the journal

    def finish(self, partition: int, end: int = 0, lost: Sequence[range] = ()) -> list[GroupEntry]:
        """End loading at the offset `end` and return the partition's groups, restored."""
        for entry in super().finish(partition, end, lost):
            if isinstance(entry.group, ClassicGroup) or not entry.group.exists:
                self.become_classic(entry)
        return self._entries_of(partition)

    def end(self, partition: int) -> list[GroupEntry]:
        self._open.pop(partition, None)
        return super().end(partition)

    # Following the journal

    def load_published(self, rows: Iterable[ChangedOffset]) -> None:
        for row in rows:
            if row.committed is not None:
                entry = self.find_or_create(row.group_id, row.journal_partition)
                entry.offsets.commit((row.topic, row.partition), row.committed, row.journal_offset)

    def follow(self, partition: int, position: int, record: Record, producer_id: int | None = None) -> None:
        shard = self._shards.get(partition)
        if shard is None:
            return  # written while this broker still coordinated it
        shard.passed(position)
        if isinstance(record, OffsetRecord):
            self._follow_offset(partition, position, record, producer_id)
        elif isinstance(record, GroupRecord):
            entry = self.find_or_create(record.group_id, partition)
            if shard.loading and isinstance(entry.group, ConsumerGroup):  # the records that end it are lost to damage
                entry.written.clear()
                self._replace(entry, self._new_group(record.group_id))
            entry.written[GroupRecord] = JournalEntry(record, position)
        elif isinstance(record, GroupTombstone):
            self._follow_classic_end(record.group_id)
        else:
            self._follow_consumer(shard, partition, position, record)

    def open_transactions(self, partition: int) -> list[int]:
        """Return the producer ids of open transactions with committed offsets in this journal partition."""
        return list(self._open[partition])

    def _complete(self, partition: int, producer_id: int, *, committed: bool) -> None:
        transaction = self._open[partition].pop(producer_id, None)
        for group_id in transaction.group_ids if transaction is not None else ():
            entry = self._entries.get(group_id)
            if entry is not None:
                for key in entry.offsets.complete(producer_id, committed=committed):
                    self._changed[partition][group_id, key] = None

    def _follow_offset(self, partition: int, position: int, record: OffsetRecord, producer_id: int | None) -> None:
        group_id, key = record.group_id, (record.topic, record.partition)
        if record.committed is None:
            entry = self._entries.get(group_id)
            if entry is not None and entry.offsets.remove(key):
                self._changed[partition][group_id, key] = None
            return
        entry = self.find_or_create(group_id, partition)
        if producer_id is not None:
            transaction = self._open[partition].setdefault(producer_id, OpenTransaction(position))
            transaction.group_ids[group_id] = None
            entry.offsets.commit_pending(producer_id, key, record.committed, position)
        elif entry.offsets.commit(key, record.committed, position):
            self._changed[partition][group_id, key] = None

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
            entry.written[key] = JournalEntry(record, position)
            return
        entry.written.pop(key, None)
        if isinstance(record, EpochRecord):
            self.become_classic(entry)

    # For Delta

    def _row_of(self, name: str, detail: TopicPartition) -> Callable[[int, int], ChangedOffset]:
        entry = self._entries.get(name)
        return partial(_make_row, name, detail, None if entry is None else entry.offsets.get(detail))

    def resume_at(self, partition: int) -> int:
        """Return the first offset to read on from. It does not pass the first record of an open transaction."""
        first = (one.first_position for one in self._open[partition].values())
        return min(first, default=super().resume_at(partition))

    def records_before(self, partition: int, position: int) -> Iterator[GroupRecord | ConsumerRecord]:
        """Yield the group records that a trim to `position` would lose, to be written again before it.

        Each as of the moment at which it is asked for, however much has changed since the one before.
        """
        for entry in self._entries_of(partition):
            for key in list(entry.written):
                written = entry.written.get(key)
                if written is not None and written.position < position and self._entries.get(entry.name) is entry:
                    yield written.record


def _make_row(
    name: str, detail: TopicPartition, state: Positioned | None, partition: int, position: int
) -> ChangedOffset:
    committed, position = (None, position) if state is None else state
    return ChangedOffset(name, *detail, committed, partition, position)
