"""The Delta table `transactions`: one file with the newest state of each transactional id, replaced by each publish.

Unchanged rows are copied as Arrow columns, so a publish takes milliseconds with many thousands of ids.
"""

from __future__ import annotations

from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.metadata import paths
from kafkalake.metadata.changes import GONE
from kafkalake.metadata.store import Transactions
from kafkalake.metadata.tables.delta_table import OpenDeltaTable, TableChange
from kafkalake.metadata.tables.journal_positions import JournalPositions
from kafkalake.metadata.tables.lake_tables import LakeTables
from kafkalake.metadata.tables.schemas import TRANSACTIONS_SCHEMA, TransactionRow, from_table, to_table


class DeltaTransactions(LakeTables):
    """`TransactionTable` on Delta."""

    @cached_property
    def _transaction_files(self) -> TransactionFiles:
        return TransactionFiles(self._tables[paths.TRANSACTIONS])

    def publish_transactions(self, transactions: Transactions) -> int:
        with self._locks[paths.TRANSACTIONS]:
            table = self._tables[paths.TRANSACTIONS]
            # Durable, because the journal is then trimmed up to here.
            self._commit(table, lambda: self._transaction_files.change_for(transactions), durable=True)
            return table.version

    def load_transactions(self, timestamp_ms: int | None = None) -> Transactions:
        if not self._exists(paths.TRANSACTIONS):
            return Transactions([], {})
        with self._locks[paths.TRANSACTIONS]:
            table = self._tables[paths.TRANSACTIONS]
            table.refresh()
            found = table.read() if timestamp_ms is None else table.read_version(table.version_at(timestamp_ms))
            rows = from_table(TransactionRow, found.sort_by("transactional_id"))
            return Transactions(rows, self._transaction_files.journal.all() if timestamp_ms is None else {})


class TransactionFiles:
    """The planning of commits to the open table `transactions`."""

    def __init__(self, table: OpenDeltaTable) -> None:
        self._table = table
        self.journal = JournalPositions(table, "kafkalake-transactions")

    def change_for(self, transactions: Transactions) -> TableChange | None:
        """Return the commit of the changes not yet published, or None if there are none."""
        published = self.journal.of(transactions.positions)
        rows = [row for row in transactions.rows if row.journal_offset >= published.get(row.journal_partition, 0)]
        if not rows:
            return None
        known = self._table.read()
        replaced = pc.is_in(known.column("transactional_id"), pa.array([row.transactional_id for row in rows]))
        live = to_table(TRANSACTIONS_SCHEMA, [row for row in rows if row.state != GONE])
        return TableChange(
            add=[pa.concat_tables([known.filter(pc.invert(replaced)), live])],
            remove=self._table.files(),
            transactions=self.journal.moved(transactions.positions, published),
        )
