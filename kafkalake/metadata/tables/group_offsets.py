"""The Delta table `group_offsets`, the committed offsets of groups: rows are appended and the files are kept few.

A publish adds one file and, as Delta's `txn`, the position in each partition of the journal. Once there are `FILES_MAX` files, the
small ones are joined. Superseded rows are the lag's history. When they outnumber the current rows (and `HISTORY_ROWS`), the oldest
are removed, so that a broker loads its groups in seconds however long it has run. Removed rows remain in older versions of the
table until Delta's retention ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.metadata import paths
from kafkalake.metadata.changes import unpublished
from kafkalake.metadata.store import PublishedOffsets
from kafkalake.metadata.tables.data_files import DataFile
from kafkalake.metadata.tables.delta_table import OpenDeltaTable, TableChange
from kafkalake.metadata.tables.journal_positions import JournalPositions
from kafkalake.metadata.tables.lake_tables import LakeTables
from kafkalake.metadata.tables.schemas import GROUP_OFFSETS_SCHEMA, GroupOffsetRow, from_table, to_table

FILES_MAX = 48
SMALL_FILE_ROWS = 20_000
HISTORY_ROWS = 100_000

_ORDER = [("journal_offset", "ascending"), ("committed_at", "ascending")]
_KEY = ("group", "topic", "partition")


class DeltaGroupOffsets(LakeTables):
    """`GroupOffsetTable` on Delta."""

    @cached_property
    def _group_offset_files(self) -> GroupOffsetFiles:
        return GroupOffsetFiles(self._tables[paths.GROUP_OFFSETS])

    def publish_group_offsets(self, offsets: PublishedOffsets) -> int:
        with self._locks[paths.GROUP_OFFSETS]:
            table = self._tables[paths.GROUP_OFFSETS]
            # Durable, because the journal is then trimmed up to here.
            self._commit(table, lambda: self._group_offset_files.change_for(offsets), durable=True)
            return table.version

    def load_group_offsets(self, version: int | None = None, timestamp_ms: int | None = None) -> PublishedOffsets:
        if version is not None and timestamp_ms is not None:
            raise ValueError("a version and a time cannot both be asked for")
        if version is None and timestamp_ms is None and not self._exists(paths.GROUP_OFFSETS):
            return PublishedOffsets([], {})  # a lake older than groups: no commits
        with self._locks[paths.GROUP_OFFSETS]:
            table = self._tables[paths.GROUP_OFFSETS]
            table.refresh()
            positions = self._group_offset_files.journal.all() if version is None and timestamp_ms is None else {}
            if timestamp_ms is not None:
                version = table.version_at(timestamp_ms)
            rows = newest_offsets(table.read_version(table.version if version is None else version))
        return PublishedOffsets(from_table(GroupOffsetRow, rows), positions)


class GroupOffsetFiles:
    """The planning of commits to the open table `group_offsets`."""

    def __init__(self, table: OpenDeltaTable) -> None:
        self._table = table
        self.journal = JournalPositions(table, "kafkalake-group-offsets")

    def change_for(self, offsets: PublishedOffsets) -> TableChange | None:
        """Return the commit that adds rows not yet published, or None if there are none."""
        published = self.journal.of(offsets.positions)
        rows = unpublished(offsets.rows, published)
        if not rows:
            return None  # a position without rows needs no version: rereading the journal finds nothing
        replaced = self._replaced()
        added = pa.concat_tables([*(self._table.rows(file) for file in replaced), to_table(GROUP_OFFSETS_SCHEMA, rows)])
        if replaced and len(replaced) == len(self._table.files()):
            added = without_old_history(added, HISTORY_ROWS)
        return TableChange(
            add=[added],
            remove=replaced,
            transactions=self.journal.moved(offsets.positions, published),
        )

    def _replaced(self) -> Sequence[DataFile]:
        """Return the files to be joined with the new one."""
        files = self._table.files()
        if len(files) < FILES_MAX:
            return ()
        records = [file.records for file in files]
        if sum(records) - max(records) > max(HISTORY_ROWS, max(records)):
            return files
        return [file for file in files if file.records < SMALL_FILE_ROWS]


def newest_offsets(rows: pa.Table) -> pa.Table:
    """Return the newest row of each group, topic and partition if it has an offset, by group, topic, partition."""
    rows = rows.sort_by(_ORDER)
    live = [index for index, is_live in _newest(rows).values() if is_live]
    return rows.take(pa.array(live, pa.int64())).sort_by([(name, "ascending") for name in _KEY])


def without_old_history(rows: pa.Table, history_rows: int) -> pa.Table:
    """Return the current rows and those among the latest `history_rows`.

    If this drops a row that marks an offset as removed, drop all rows of that group and partition. Otherwise the offset would
    reappear.
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
    """Return by key the index of its last row and whether that row has an offset."""
    has_offset = rows.column("offset").is_valid().to_pylist()
    return {key: (index, has_offset[index]) for index, key in enumerate(_keys(rows))}
