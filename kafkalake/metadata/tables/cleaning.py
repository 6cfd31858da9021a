"""The Delta table `cleaning`: one small file, replaced by every change. A job creates it in a lake older than the table."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalake.metadata import changes, paths
from kafkalake.metadata.tables.lake_tables import LakeTables
from kafkalake.metadata.tables.schemas import CleaningRow


class DeltaCleaning(LakeTables):
    """`CleaningTable` on Delta."""

    def update_cleaning(self, updates: Sequence[CleaningRow]) -> int:
        with self._locks[paths.CLEANING]:
            if paths.CLEANING not in self._tables:
                self._tables[paths.CLEANING] = self._open(paths.CLEANING, create=True)
        self._replace_rows(paths.CLEANING, CleaningRow, lambda rows: changes.with_cleaning(rows, updates))
        return self._tables[paths.CLEANING].version

    def load_cleaning(self) -> list[CleaningRow]:
        return self._load(paths.CLEANING, CleaningRow) if self._exists(paths.CLEANING) else []
