"""Conversion of transactional ids to rows of Delta's `transactions`, and back."""

from __future__ import annotations

from kafkalake.broker.transactions.records import NO_PRODUCER_ID, NO_TIMESTAMP, TransactionRecord
from kafkalake.broker.transactions.states import BY_LABEL, State
from kafkalake.broker.transactions.table import ChangedTransaction
from kafkalake.metadata.tables.schemas import TransactionRow


def published_row(changed: ChangedTransaction, now_ms: int) -> TransactionRow:
    """Return a change as a row. A removed id is Dead since `now_ms`."""
    record = changed.record
    if record is None:
        record = TransactionRecord(changed.transactional_id, NO_PRODUCER_ID, -1, 0, State.DEAD, updated_at_ms=now_ms)
    return TransactionRow(
        transactional_id=record.transactional_id,
        producer_id=record.producer_id,
        producer_epoch=record.epoch,
        state=record.state.label,
        partitions=tuple(sorted(record.partitions)),
        timeout=record.timeout_ms,
        updated_at_ms=record.updated_at_ms,
        started_at_ms=None if record.started_at_ms == NO_TIMESTAMP else record.started_at_ms,
        previous_producer_id=record.previous_producer_id,
        next_producer_id=record.next_producer_id,
        client_version=record.client_version,
        journal_partition=changed.journal_partition,
        journal_offset=changed.journal_offset,
    )


def changed_transaction(row: TransactionRow) -> ChangedTransaction:
    """Return the state in a row."""
    record = TransactionRecord(
        row.transactional_id,
        row.producer_id,
        row.producer_epoch,
        row.timeout,
        BY_LABEL[row.state],
        frozenset(row.partitions),
        row.updated_at_ms,
        NO_TIMESTAMP if row.started_at_ms is None else row.started_at_ms,
        row.previous_producer_id,
        row.next_producer_id,
        row.client_version,
    )
    return ChangedTransaction(row.transactional_id, record, row.journal_partition, row.journal_offset)
