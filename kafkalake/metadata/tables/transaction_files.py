"""Plans publishes of transactional ids: `transactions` has one file with the newest state of each id, replaced each time.

Unchanged rows are copied as Arrow columns, so a publish takes milliseconds with many thousands of ids.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.metadata.changes import GONE
from kafkalake.metadata.store import Transactions
from kafkalake.metadata.tables.delta_table import Change, OpenDeltaTable
from kafkalake.metadata.tables.journal_positions import JournalPositions
from kafkalake.metadata.tables.schemas import TRANSACTIONS_SCHEMA, to_table


class TransactionFiles:
    """The planning of commits to the open table `transactions`."""

    def __init__(self, table: OpenDeltaTable) -> None:
        self._table = table
        self.journal = JournalPositions(table, "kafkalake-transactions")

    def change_for(self, transactions: Transactions) -> Change | None:
        """Return the commit of the changes not yet published, or None if there are none."""
        published = self.journal.of(transactions.positions)
        rows = [row for row in transactions.rows if row.journal_offset >= published.get(row.journal_partition, 0)]
        if not rows:
            return None
        known = self._table.read()
        replaced = pc.is_in(known.column("transactional_id"), pa.array([row.transactional_id for row in rows]))
        live = to_table(TRANSACTIONS_SCHEMA, [row for row in rows if row.state != GONE])
        return Change(
            add=[pa.concat_tables([known.filter(pc.invert(replaced)), live])],
            remove=self._table.files(),
            transactions=self.journal.moved(transactions.positions, published),
        )
