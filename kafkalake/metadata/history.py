"""History from the Delta tables: partition offsets at a past time, and committed offsets of groups over time.

`partitions` is read at older versions (kept for a day). `group_offsets` keeps at least the latest 100,000 commits as rows, so one
read covers all times.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc

from kafkalake.metadata import paths
from kafkalake.metadata.changes import current_partitions
from kafkalake.metadata.tables.delta_table import OpenDeltaTable
from kafkalake.metadata.tables.lake_tables import TABLE_DEFINITIONS
from kafkalake.metadata.tables.schemas import GroupOffsetRow, PartitionRow, from_table


class PastPartitions(NamedTuple):
    """The partitions at `time_ms`."""

    time_ms: int
    rows: list[PartitionRow]


class History:
    """The tables of one lake, opened once."""

    def __init__(self, lake: Path) -> None:
        """Raise `LakeError` if a table cannot be opened."""
        self._partitions = OpenDeltaTable(
            paths.table_path(lake, paths.PARTITIONS), TABLE_DEFINITIONS[paths.PARTITIONS], create=False
        )
        self._group_offsets = OpenDeltaTable(
            paths.table_path(lake, paths.GROUP_OFFSETS), TABLE_DEFINITIONS[paths.GROUP_OFFSETS], create=False
        )

    def partitions_at(self, time_ms: int) -> PastPartitions:
        """Return the partitions at a time, or at the oldest version (with its time) if that is later.

        Raise `LakeError` if the history cannot be read.
        """
        version = self._partitions.version_at_or_oldest(time_ms)
        rows = current_partitions(from_table(PartitionRow, self._partitions.read_version(version)))
        published_ms = max((row.published_at_ms for row in rows), default=time_ms)
        return PastPartitions(max(time_ms, published_ms), rows)

    def committed(self) -> list[GroupOffsetRow]:
        """Return every row of `group_offsets`, oldest commit first. The last of a group and partition counts."""
        self._group_offsets.refresh()
        rows = self._group_offsets.read()
        order = pc.sort_indices(rows, sort_keys=[("journal_offset", "ascending"), ("committed_at", "ascending")])
        return from_table(GroupOffsetRow, rows.take(order))
