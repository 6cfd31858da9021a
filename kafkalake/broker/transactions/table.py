"""All transactional ids of this broker as the journal defines them, and the changes that Delta's `transactions` lacks.

`follow` applies one record in order, at run time and while loading. A journal partition is loading while its history is read, then
active. Requests for ids of a loading partition are refused. The records of a partition may be trimmed below `resume_at` once the
changes are published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from kafkalake.broker.coordination import shards
from kafkalake.broker.coordination.automata import Automaton, Seat
from kafkalake.broker.coordination.shards import NAME_BYTES_MAX, Shards
from kafkalake.broker.transactions.records import Record, TransactionRecord
from kafkalake.broker.transactions.transaction import Transaction
from kafkalake.errors import InvalidRequestError


@dataclass(slots=True, eq=False)
class TransactionEntry(Seat):
    """A transactional id and its journal partition."""

    partition: int
    transaction: Transaction
    position: int = field(default=-1, init=False)
    """Position of the id's newest record in the journal."""
    waiting: list[Callable[[], None]] = field(default_factory=list, init=False)
    """Requests to retry when no step is being written."""

    @property
    def automaton(self) -> Automaton:
        return self.transaction


@dataclass(slots=True, eq=False)
class Shard(shards.Shard):
    """One journal partition and its leader epoch (the coordinator epoch of markers)."""

    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class ChangedTransaction:
    """A row for `transactions`: the id's current state (None: removed), and the last journal offset when it was taken."""

    transactional_id: str
    record: TransactionRecord | None
    journal_partition: int
    journal_offset: int


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes since the last `take_changes`. `resume_at`: journal partition -> the offset to read on from, once published."""

    rows: list[ChangedTransaction]
    resume_at: dict[int, int]


class TransactionTable:
    """Transactional ids. `new_transaction` makes one without state."""

    def __init__(self, partitions: Callable[[], int], new_transaction: Callable[[str], Transaction]) -> None:
        self._new_transaction = new_transaction
        self.name_bytes = 0
        """Total length of the ids."""
        self._entries: dict[str, TransactionEntry] = {}
        self._shards: Shards[Shard] = Shards(partitions)
        self._changed: dict[str, None] = {}

    def __iter__(self) -> Iterator[TransactionEntry]:
        """Iterate over the ids of active partitions."""
        return iter([entry for entry in self._entries.values() if not self._shards[entry.partition].loading])

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_loading(self) -> bool:
        """Whether a partition is still loading."""
        return self._shards.is_loading

    def check(self, transactional_id: str) -> int:
        """Return the journal partition of an id that this broker serves.

        Raise `InvalidRequestError` (empty or too long), `NotCoordinatorError` or `CoordinatorLoadInProgressError`.
        """
        if not transactional_id or len(transactional_id.encode()) > NAME_BYTES_MAX:
            raise InvalidRequestError
        return self._shards.check(transactional_id)

    def find(self, transactional_id: str) -> TransactionEntry | None:
        return self._entries.get(transactional_id)

    def find_or_create(self, transactional_id: str, partition: int) -> TransactionEntry:
        entry = self._entries.get(transactional_id)
        if entry is None:
            entry = TransactionEntry(partition, self._new_transaction(transactional_id))
            self._entries[transactional_id] = entry
            self.name_bytes += len(transactional_id)
        return entry

    def forget(self, entry: TransactionEntry) -> None:
        """Remove an id that has no state."""
        assert entry.transaction.is_vacant
        self._drop(entry.transaction.transactional_id)

    def _drop(self, transactional_id: str) -> None:
        if self._entries.pop(transactional_id, None) is not None:
            self.name_bytes -= len(transactional_id)

    # Partitions of the journal

    def begin(self, partition: int, coordinator_epoch: int, position: int) -> None:
        """Begin to load a partition that this broker coordinates. Its history follows, from `position`."""
        self._shards.begin(partition, Shard(position, coordinator_epoch))

    def load_published(self, partition: int, rows: Iterable[TransactionRecord]) -> None:
        """Load Delta's rows of the partition's ids."""
        for record in rows:
            entry = self.find_or_create(record.transactional_id, partition)
            entry.transaction.restore(record)
            entry.position = self._shards[partition].next_position - 1

    def load(self, partition: int, position: int, record: Record) -> None:
        """Apply one record of the history."""
        assert self._shards[partition].loading
        entry = self.find_or_create(record.transactional_id, partition)
        entry.transaction.restore(record if isinstance(record, TransactionRecord) else None)
        self.follow(partition, position, record)
        if entry.transaction.is_vacant:
            self.forget(entry)

    def follow(self, partition: int, position: int, record: Record) -> None:
        """Note that the journal has the record at `position`."""
        shard = self._shards.get(partition)
        if shard is not None:
            shard.passed(position)
            self._changed[record.transactional_id] = None
            entry = self._entries.get(record.transactional_id)
            if entry is not None:
                entry.position = position

    def finish(self, partition: int, end: int = 0) -> list[TransactionEntry]:
        """End loading at the offset `end` and return the partition's ids."""
        self._shards.finish(partition, end)
        return [entry for entry in self._entries.values() if entry.partition == partition]

    def end(self, partition: int) -> list[TransactionEntry]:
        """Remove and return the ids of a partition that this broker no longer coordinates."""
        self._shards.end(partition)
        entries = [entry for entry in self._entries.values() if entry.partition == partition]
        for entry in entries:
            self._drop(entry.transaction.transactional_id)
        return entries

    def coordinator_epoch(self, partition: int) -> int:
        return self._shards[partition].coordinator_epoch

    @property
    def partitions(self) -> list[int]:
        """The journal partitions that are loaded or loading."""
        return list(self._shards)

    # For Delta

    def take_changes(self) -> Changes:
        """Return the changes that `transactions` lacks. After a failed publish, pass them to `put_back`."""
        changed, self._changed = self._changed, {}
        rows = []
        for transactional_id in changed:
            partition = self._shards.partition_of(transactional_id)
            shard = self._shards.get(partition)
            if shard is None:
                continue
            entry = self._entries.get(transactional_id)
            record = None if entry is None else entry.transaction.current
            rows.append(ChangedTransaction(transactional_id, record, partition, shard.next_position - 1))
        return Changes(rows, {partition: self._shards[partition].next_position for partition in self._shards})

    def put_back(self, changes: Changes) -> None:
        """Restore `changes` after a failed publish."""
        self._changed.update((row.transactional_id, None) for row in changes.rows)
