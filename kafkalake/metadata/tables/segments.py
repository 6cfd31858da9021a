"""The Delta table `segments`. Its files are kept few and the rewrites small.

New rows go to one new file. A file that loses a row is rewritten without it. Once there are `FILES_MAX` other files, the small
ones join the new file, so tens of thousands of segments load from a few dozen files. A file holds at most `FILE_ROWS` rows, which
bounds the rewrite of one removal (about 0.3 MB).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.errors import SegmentsChangedError
from kafkalake.metadata import paths
from kafkalake.metadata.store import JobPosition, PublishedState, SwappedSegments
from kafkalake.metadata.tables.data_files import DataFile
from kafkalake.metadata.tables.delta_table import OpenDeltaTable, TableChange
from kafkalake.metadata.tables.lake_tables import LakeTables, is_published
from kafkalake.metadata.tables.schemas import (
    SEGMENTS_SCHEMA,
    SegmentKey,
    SegmentRow,
    from_table,
    segment_keys,
    to_table,
)

FILES_MAX = 32
FILE_ROWS = 8192
_ORDER = ("topic", "partition", "base_offset", "generation")


class DeltaSegments(LakeTables):
    """Changes of `segments` by jobs, and the part of a publish that concerns it."""

    @cached_property
    def _segment_files(self) -> SegmentFiles:
        return SegmentFiles(self._tables[paths.SEGMENTS])

    def remove_segments(self, keys: Collection[SegmentKey]) -> int:
        table = self._tables[paths.SEGMENTS]
        with self._locks[paths.SEGMENTS]:
            table.refresh()
            self._commit(table, lambda: self._segment_files.removal_of(keys), durable=True)
            return table.version

    def swap_segments(self, old: Sequence[SegmentRow], new: Sequence[SegmentRow]) -> int:
        table = self._tables[paths.SEGMENTS]
        with self._locks[paths.SEGMENTS]:
            table.refresh()
            self._commit(table, lambda: self._segment_files.swap_for(old, new), durable=True)
            return table.version

    def load_swapped(self, since: JobPosition | None) -> SwappedSegments | None:
        table = self._tables[paths.SEGMENTS]
        with self._locks[paths.SEGMENTS]:
            table.refresh_if_outdated()
            if since is not None and table.version == since.version:
                return None
            files = frozenset(file.path for file in table.files())
            rows = self._segment_files.rewritten(since.files if since is not None else ())
            return SwappedSegments(rows, JobPosition(table.version, files))

    def _publish_segments(self, state: PublishedState) -> int:
        """Commit the segments of a publish, if any, and return the version of `segments` for its rows."""
        table = self._tables[paths.SEGMENTS]
        with self._locks[paths.SEGMENTS]:
            table.refresh()
            self._commit(table, lambda: self._segment_files.change_for(state), durable=True)
            return table.version

    def _segments_at(self, version: int | None = None, topic: str | None = None) -> list[SegmentRow]:
        """Return the rows of a version of `segments`, or the newest, of one topic or all."""
        with self._locks[paths.SEGMENTS]:
            table = self._tables[paths.SEGMENTS]
            table.refresh_if_outdated()
            rows = table.read() if version is None else table.read_version(version)
        if topic is not None:
            rows = rows.filter(pc.equal(rows.column("topic"), topic))
        return from_table(SegmentRow, rows.sort_by([(name, "ascending") for name in _ORDER]))


class SegmentFiles:
    """The files of the open table `segments`: lookup of segments and planning of commits."""

    def __init__(self, table: OpenDeltaTable) -> None:
        self._table = table
        self._rows_by_key: dict[str, dict[SegmentKey, int]] = {}  # by file path: key -> row in the file

    def change_for(self, state: PublishedState) -> TableChange | None:
        """Return the commit of a publish, or None if the table already has all its changes.

        Decided by content, not by `txn`: after a crash between the two commits of a publish, the next one repeats the same
        segments, perhaps with more, under another version. A segment present with other content (sealed again after a recovery
        that cut it) is replaced. The `txn` keeps out those that are late. A segment is not added again after a job has rewritten
        it, neither by a repetition nor by a leader that lacks the new file yet, unless the leader has refused that file, which is
        among those removed.
        """
        is_there = is_published(self._table, state)
        removed = set(state.removed)
        added = {row.key: row for row in state.sealed if row.key not in removed}
        obsolete: dict[str, set[int]] = {}
        for file in self._table.files() if removed or added else ():
            here = self._keys(file)
            gone = {here[key] for key in removed & here.keys()}
            for key in added.keys() & here.keys():
                if self._row(file, here[key]).same_content(added[key]):
                    del added[key]
                else:
                    gone.add(here[key])
            if gone:
                obsolete[file.path] = gone
        for key in self._rewritten_among(added, removed):
            del added[key]
        transactions = [(state.app_id, state.version)]
        if added or obsolete:
            return self._rewrite(obsolete, added.values(), transactions)
        return TableChange(transactions=transactions) if state.claims and not is_there else None

    def removal_of(self, keys: Collection[SegmentKey]) -> TableChange | None:
        """Return the commit that removes rows, or None if none of them exists."""
        wanted = set(keys)
        obsolete = {}
        for file in self._table.files():
            here = self._keys(file)
            if gone := {here[key] for key in wanted & here.keys()}:
                obsolete[file.path] = gone
        if not obsolete:
            return None
        replaced = [file for file in self._table.files() if file.path in obsolete]
        kept = pa.concat_tables([_without(self._table.rows(file), obsolete[file.path]) for file in replaced])
        kept = kept.combine_chunks()
        return TableChange(
            add=[kept.slice(start, FILE_ROWS) for start in range(0, kept.num_rows, FILE_ROWS)], remove=replaced
        )

    def swap_for(self, old: Collection[SegmentRow], new: Collection[SegmentRow]) -> TableChange:
        """Return the commit that replaces `old` by `new`. Raise `SegmentsChangedError` if a row of `old` changed or is gone."""
        missing = {row.key: row for row in old}
        obsolete: dict[str, set[int]] = {}
        for file in self._table.files():
            here = self._keys(file)
            for key in missing.keys() & here.keys():
                if self._row(file, here[key]).same_content(missing[key]):
                    del missing[key]
                    obsolete.setdefault(file.path, set()).add(here[key])
        if missing:
            row = next(iter(missing.values()))
            raise SegmentsChangedError(
                f"{row.topic}-{row.partition}: the segment with offsets [{row.base_offset}, {row.next_offset}) was "
                "removed or replaced meanwhile"
            )
        return self._rewrite(obsolete, new, [])

    def rewritten(self, known: Collection[str]) -> list[SegmentRow]:
        """Return the segments with a generation above 0 in files not in `known`."""
        tables = [self._table.rows(file) for file in self._table.files() if file.path not in known]
        found = [table.filter(pc.greater(table.column("generation"), 0)) for table in tables]
        return [row for table in found if table.num_rows for row in from_table(SegmentRow, table)]

    def _rewritten_among(
        self, added: Mapping[SegmentKey, SegmentRow], removed: Collection[SegmentKey]
    ) -> list[SegmentKey]:
        """Return the keys of those that another one, or a segment in the table and not in `removed`, replaces."""
        if not added:
            return []
        rows = added.values()
        concerned = (
            (pc.field("generation") > 0)
            & pc.field("topic_id").isin(sorted({row.topic_id for row in rows}))
            & (pc.field("base_offset") <= max(row.base_offset for row in rows))
            & (pc.field("next_offset") > min(row.base_offset for row in rows))
        )
        known = from_table(SegmentRow, self._table.read().filter(concerned))
        newer = [row for row in known if row.key not in removed and row.key not in added]
        newer += [row for row in rows if row.generation > 0]
        return [row.key for row in rows if any(other.replaces(row) for other in newer)]

    def _rewrite(
        self,
        obsolete: dict[str, set[int]],
        added: Collection[SegmentRow],
        transactions: Sequence[tuple[str, int]],
    ) -> TableChange:
        """Return the commit that adds `added` and rewrites files that lose rows, and the small ones if there are too many."""
        files = self._table.files()
        replaced = [file for file in files if file.path in obsolete]
        if len(files) - len(replaced) >= FILES_MAX:
            replaced = [file for file in files if file.path in obsolete or file.records < FILE_ROWS // 2]
        kept = [_without(self._table.rows(file), obsolete.get(file.path, set())) for file in replaced]
        rows = pa.concat_tables([*kept, to_table(SEGMENTS_SCHEMA, list(added))]).combine_chunks()
        return TableChange(
            add=[rows.slice(start, FILE_ROWS) for start in range(0, rows.num_rows, FILE_ROWS)],
            remove=replaced,
            transactions=transactions,
        )

    def _keys(self, file: DataFile) -> dict[SegmentKey, int]:
        if file.path not in self._rows_by_key:
            current = {file.path for file in self._table.files()}
            self._rows_by_key = {path: keys for path, keys in self._rows_by_key.items() if path in current}
            self._rows_by_key[file.path] = {key: row for row, key in enumerate(segment_keys(self._table.rows(file)))}
        return self._rows_by_key[file.path]

    def _row(self, file: DataFile, index: int) -> SegmentRow:
        return from_table(SegmentRow, self._table.rows(file).slice(index, 1))[0]


def _without(rows: pa.Table, indexes: Iterable[int]) -> pa.Table:
    gone = set(indexes)
    return rows.take(pa.array([index for index in range(rows.num_rows) if index not in gone], pa.int64()))
