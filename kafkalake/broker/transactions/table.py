"""All transactional ids of this broker as the journal defines them, and the changes that Delta's `transactions` lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from kafkalake.broker.coordination.automata import MachineSlot
from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.coordination.table import JournaledTable
from kafkalake.broker.transactions.records import Record, TransactionRecord
from kafkalake.broker.transactions.states import State
from kafkalake.broker.transactions.transaction import Transaction
from kafkalake.broker.transactions.waves import Waves
from kafkalake.errors import InvalidRequestError


@dataclass(slots=True, eq=False)
class TransactionEntry(MachineSlot):
    """A transactional id."""

    transaction: Transaction
    position: int = field(default=-1, init=False)
    """Position of the id's newest record in the journal."""
    waiting: dict[Callable[[], None], None] = field(default_factory=dict, init=False)
    """Requests to retry when no step is being written, in order."""

    @property
    def automaton(self) -> Transaction:
        return self.transaction

    @property
    def name(self) -> str:
        return self.transaction.transactional_id

    def restored(self, lost: Sequence[range]) -> None:
        # Each record gives out at most one epoch.
        self.transaction.restored(sum(len(offsets) for offsets in lost if offsets.start > self.position))

    def close(self, error: ErrorClass) -> None:
        self.transaction.close(error)


@dataclass(frozen=True, slots=True)
class ChangedTransaction:
    """A row for `transactions`: the id's current state (None: removed), and the last journal offset when it was taken."""

    transactional_id: str
    record: TransactionRecord | None
    journal_partition: int
    journal_offset: int


class TransactionTable(JournaledTable[TransactionEntry, ChangedTransaction]):
    """Transactional ids. `new_transaction` makes one without state."""

    def __init__(
        self, partitions: Callable[[], int], new_transaction: Callable[[str], Transaction], waves: Waves
    ) -> None:
        """`waves` notes the transactions whose markers are to be written, and those that have them."""
        self._waves = waves
        super().__init__(
            partitions, lambda name, partition: TransactionEntry(partition, new_transaction(name)), InvalidRequestError
        )

    def load_published(self, rows: Iterable[ChangedTransaction]) -> None:
        for row in rows:
            if row.record is not None:
                entry = self.find_or_create(row.transactional_id, row.journal_partition)
                entry.transaction.restore(row.record)
                entry.position = self._shards[row.journal_partition].next_position - 1

    def follow(self, partition: int, position: int, record: Record, producer_id: int | None = None) -> None:
        """Apply one journal record. At run time the transaction applies its own records."""
        shard = self._shards.get(partition)
        if shard is None:
            return  # written while this broker still coordinated it
        shard.passed(position)
        self._changed[partition][record.transactional_id, None] = None
        entry = self.find(record.transactional_id)
        if shard.loading:
            entry = self.find_or_create(record.transactional_id, partition)
            entry.transaction.restore(record if isinstance(record, TransactionRecord) else None)
            if entry.transaction.is_vacant:
                self.forget(entry)
        if entry is not None:
            entry.position = position
        if not isinstance(record, TransactionRecord) or record.state.is_settled:
            self._waves.beginnings.ended(partition, record.transactional_id)
        else:
            self._waves.beginnings.began(partition, record.transactional_id)
        if isinstance(record, TransactionRecord):
            self._note_wave(partition, position, record, loading=shard.loading)

    def _note_wave(self, partition: int, position: int, record: TransactionRecord, *, loading: bool) -> None:
        if record.state is State.PREPARE_COMMIT:
            self._waves.committed(partition, position, record.producer_id, record.partitions, loading=loading)
        elif record.state.is_settled:
            for producer_id in (record.producer_id, record.previous_producer_id):
                self._waves.completed(partition, producer_id)

    def end(self, partition: int) -> list[TransactionEntry]:
        self._waves.forget(partition)
        return super().end(partition)

    def resume_at(self, partition: int) -> int:
        """Return the first offset to read on from. It does not pass a transaction whose partitions are not published together."""
        return self._waves.first_unpublished(partition, super().resume_at(partition))

    def coordinator_epoch(self, partition: int) -> int:
        return self._shards[partition].leader_epoch

    def _row_of(self, name: str, detail: None) -> Callable[[int, int], ChangedTransaction]:
        entry = self.find(name)
        return partial(ChangedTransaction, name, None if entry is None else entry.transaction.current)
