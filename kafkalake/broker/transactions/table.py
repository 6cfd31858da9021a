"""All transactional ids of this broker, as the journal tells them, and what Delta's `transactions` does not say yet.

`follow` takes one record in its order, at run time and at start. A journal partition is loading while its past is read, then
active; requests for its ids are refused before that. The records of a partition may be trimmed below `resume_at` once the
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
    """Where in the journal the newest record of the id stands."""
    waiting: list[Callable[[], None]] = field(default_factory=list, init=False)
    """What is to be tried again when no step is under way."""

    @property
    def automaton(self) -> Automaton:
        return self.transaction


@dataclass(slots=True, eq=False)
class Shard(shards.Shard):
    """One journal partition and its leader epoch (the coordinator epoch of markers)."""

    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class ChangedTransaction:
    """A row for `transactions`: what the id is now (None: gone), and the end of the journal when it was so."""

    transactional_id: str
    record: TransactionRecord | None
    journal_partition: int
    journal_offset: int


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed since the last `take_changes`; `resume_at`: journal partition -> where to read on, once published."""

    rows: list[ChangedTransaction]
    resume_at: dict[int, int]


class TransactionTable:
    """Transactional ids. `new_transaction` makes one of which nothing is known."""

    def __init__(self, partitions: Callable[[], int], new_transaction: Callable[[str], Transaction]) -> None:
        self._new_transaction = new_transaction
        self.name_bytes = 0
        """How long the ids are together."""
        self._entries: dict[str, TransactionEntry] = {}
        self._shards: Shards[Shard] = Shards(partitions)
        self._changed: dict[str, None] = {}

    def __iter__(self) -> Iterator[TransactionEntry]:
        """The ids that are served now."""
        return iter([entry for entry in self._entries.values() if not self._shards[entry.partition].loading])

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_loading(self) -> bool:
        """Whether some ids are not served yet."""
        return self._shards.is_loading

    def check(self, transactional_id: str) -> int:
        """The journal partition of an id that we serve.

        Raises `InvalidRequestError` (empty or too long), `NotCoordinatorError`, `CoordinatorLoadInProgressError`.
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
        """Nothing is known of the id (any more)."""
        assert entry.transaction.is_vacant
        self._drop(entry.transaction.transactional_id)

    def _drop(self, transactional_id: str) -> None:
        if self._entries.pop(transactional_id, None) is not None:
            self.name_bytes -= len(transactional_id)

    # Partitions of the journal

    def begin(self, partition: int, coordinator_epoch: int, position: int) -> None:
        """This broker coordinates the partition's ids; its past follows, from `position`."""
        self._shards.begin(partition, Shard(position, coordinator_epoch))

    def load_published(self, partition: int, rows: Iterable[TransactionRecord]) -> None:
        """What Delta says of the partition's ids."""
        for record in rows:
            entry = self.find_or_create(record.transactional_id, partition)
            entry.transaction.restore(record)
            entry.position = self._shards[partition].next_position - 1

    def load(self, partition: int, position: int, record: Record) -> None:
        """One record of the past."""
        assert self._shards[partition].loading
        entry = self.find_or_create(record.transactional_id, partition)
        entry.transaction.restore(record if isinstance(record, TransactionRecord) else None)
        self.follow(partition, position, record)
        if entry.transaction.is_vacant:
            self.forget(entry)

    def follow(self, partition: int, position: int, record: Record) -> None:
        """The journal has the record at `position`."""
        shard = self._shards.get(partition)
        if shard is not None:
            shard.passed(position)
            self._changed[record.transactional_id] = None
            entry = self._entries.get(record.transactional_id)
            if entry is not None:
                entry.position = position

    def finish(self, partition: int, end: int = 0) -> list[TransactionEntry]:
        """The past has been read, up to the offset `end`; the partition's ids."""
        self._shards.finish(partition, end)
        return [entry for entry in self._entries.values() if entry.partition == partition]

    def end(self, partition: int) -> list[TransactionEntry]:
        """This broker does not coordinate the partition's ids any more; what they were."""
        self._shards.end(partition)
        entries = [entry for entry in self._entries.values() if entry.partition == partition]
        for entry in entries:
            self._drop(entry.transaction.transactional_id)
        return entries

    def coordinator_epoch(self, partition: int) -> int:
        return self._shards[partition].coordinator_epoch

    @property
    def partitions(self) -> list[int]:
        """The journal partitions that we follow."""
        return list(self._shards)

    # For Delta

    def take_changes(self) -> Changes:
        """The rows that `transactions` lacks. After a failed publish they are given back with `put_back`."""
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
        """`changes` were not published."""
        self._changed.update((row.transactional_id, None) for row in changes.rows)
