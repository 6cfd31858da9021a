"""How publishes of committed offsets change the files of `group_offsets`: rows are only ever added, and files stay few.

A publish adds one file and, as Delta's `txn`, how far the rows follow each partition of the journal. Once there are more
than `FILES_MAX` files, the small ones are joined. Rows that no longer count are the lag's history; when there are more of
them than rows that do count (and than `HISTORY_ROWS`), the oldest go, so that a broker loads its groups in seconds however
long it ran. What went is still in older versions of the table, until Delta's retention ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.metadata.changes import unpublished
from kafkalake.metadata.store import GroupOffsets
from kafkalake.metadata.tables.delta_table import Change, DataFile, OpenDeltaTable
from kafkalake.metadata.tables.journal_positions import JournalPositions
from kafkalake.metadata.tables.schemas import GROUP_OFFSETS_SCHEMA, to_table

FILES_MAX = 48
SMALL_FILE_ROWS = 20_000
HISTORY_ROWS = 100_000

_ORDER = [("journal_offset", "ascending"), ("committed_at", "ascending")]
_KEY = ("group", "topic", "partition")


class GroupOffsetFiles:
    """Plans the commits of the open table `group_offsets`."""

    def __init__(self, table: OpenDeltaTable) -> None:
        self._table = table
        self.journal = JournalPositions(table, "kafkalake-group-offsets")

    def change_for(self, offsets: GroupOffsets) -> Change | None:
        """The commit that adds what is not there yet; None when nothing is new."""
        published = self.journal.of(offsets.positions)
        rows = unpublished(offsets.rows, published)
        if not rows:
            return None  # without rows a position needs no version of its own: reading the journal again finds nothing
        replaced = self._replaced()
        added = pa.concat_tables([*(self._table.rows(file) for file in replaced), to_table(GROUP_OFFSETS_SCHEMA, rows)])
        if replaced and len(replaced) == len(self._table.files()):
            added = without_old_history(added, HISTORY_ROWS)
        return Change(
            add=[added],
            remove=replaced,
            transactions=self.journal.moved(offsets.positions, published),
        )

    def _replaced(self) -> Sequence[DataFile]:
        """The files that are joined with the new one."""
        files = self._table.files()
        if len(files) < FILES_MAX:
            return ()
        records = [file.records for file in files]
        if sum(records) - max(records) > max(HISTORY_ROWS, max(records)):
            return files
        return [file for file in files if file.records < SMALL_FILE_ROWS]


def newest_offsets(rows: pa.Table) -> pa.Table:
    """The row that counts for each group, topic and partition, where that has an offset; by group, topic, partition."""
    rows = rows.sort_by(_ORDER)
    live = [index for index, is_live in _newest(rows).values() if is_live]
    return rows.take(pa.array(live, pa.int64())).sort_by([(name, "ascending") for name in _KEY])


def without_old_history(rows: pa.Table, history_rows: int) -> pa.Table:
    """The rows that count, and of the others the latest `history_rows`.

    Where that would drop the row that says an offset is gone, all rows of that group and partition go: none comes back.
    """
    rows = rows.sort_by(_ORDER)
    newest = _newest(rows)
    recent = pc.sort_indices(rows, sort_keys=[("committed_at", "ascending")]).to_pylist()[-history_rows:]
    kept = {*recent, *(index for index, is_live in newest.values() if is_live)}
    gone = {key for key, (index, _) in newest.items() if index not in kept}
    stays = [index for index, key in enumerate(_keys(rows)) if index in kept and key not in gone]
    return rows.take(pa.array(stays, pa.int64()))


def _keys(rows: pa.Table) -> list[tuple[str, str, int]]:
    return list(zip(*(rows.column(name).to_pylist() for name in _KEY), strict=True))


def _newest(rows: pa.Table) -> dict[tuple[str, str, int], tuple[int, bool]]:
    """By key: the last of its rows, and whether that has an offset."""
    has_offset = rows.column("offset").is_valid().to_pylist()
    return {key: (index, has_offset[index]) for index, key in enumerate(_keys(rows))}
