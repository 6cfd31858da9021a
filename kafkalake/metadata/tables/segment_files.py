"""Plans changes to the files of `segments`, keeping the files few and the rewrites small.

New rows go to one new file. A file that loses a row is rewritten without it. Once there are `FILES_MAX` other files, the small
ones join the new file, so tens of thousands of segments load from a few dozen files. A file holds at most `FILE_ROWS` rows, which
bounds the rewrite of one removal (about 0.3 MB).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.errors import LakeError, SegmentsChangedError
from kafkalake.metadata.paths import SEGMENT_PATH
from kafkalake.metadata.store import PublishedState
from kafkalake.metadata.tables.delta_table import Change, DataFile, OpenDeltaTable
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


class SegmentFiles:
    """The files of the open table `segments`: lookup of segments and planning of commits."""

    def __init__(self, table: OpenDeltaTable) -> None:
        self._table = table
        self._rows_by_key: dict[str, dict[SegmentKey, int]] = {}  # by file path: key -> row in the file

    def change_for(self, state: PublishedState) -> Change | None:
        """Return the commit of a publish, or None if the table already has all its changes.

        Decided by content, not by `txn`: after a crash between the two commits of a publish, the next one repeats the same
        segments, perhaps with more, under another version. A segment present with other content (sealed again after a recovery
        that cut it) is replaced.
        """
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
        if not added and not obsolete:
            return None
        return self._rewrite(obsolete, added.values(), [(state.app_id, state.version)])

    def removal_of(self, keys: Collection[SegmentKey]) -> Change | None:
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
        return Change(
            add=[kept.slice(start, FILE_ROWS) for start in range(0, kept.num_rows, FILE_ROWS)], remove=replaced
        )

    def swap_for(self, old: Collection[SegmentRow], new: Collection[SegmentRow]) -> Change:
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

    def _rewrite(
        self,
        obsolete: dict[str, set[int]],
        added: Collection[SegmentRow],
        transactions: Sequence[tuple[str, int]],
    ) -> Change:
        """Return the commit that adds `added` and rewrites files that lose rows, and the small ones if there are too many."""
        files = self._table.files()
        replaced = [file for file in files if file.path in obsolete]
        if len(files) - len(replaced) >= FILES_MAX:
            replaced = [file for file in files if file.path in obsolete or file.records < FILE_ROWS // 2]
        kept = [_without(self._table.rows(file), obsolete.get(file.path, set())) for file in replaced]
        rows = pa.concat_tables([*kept, to_table(SEGMENTS_SCHEMA, list(added))]).combine_chunks()
        return Change(
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


def check_paths(rows: pa.Table) -> None:
    """Raise `LakeError` if a row names a file outside the partition directories of this lake."""
    inside = pc.match_substring_regex(rows.column("path"), SEGMENT_PATH)
    if not pc.all(inside, min_count=0).as_py():
        foreign = rows.filter(pc.invert(inside)).column("path")[0].as_py()
        raise LakeError(f"the Delta table `segments` names a file outside of the lake's logs: {foreign!r}")


def _without(rows: pa.Table, indexes: Iterable[int]) -> pa.Table:
    gone = set(indexes)
    return rows.take(pa.array([index for index in range(rows.num_rows) if index not in gone], pa.int64()))
