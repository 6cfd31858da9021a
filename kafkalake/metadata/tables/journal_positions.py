"""How far a Delta table follows the partitions of a coordinator's journal, kept as Delta's `txn` of the commits that add to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow.compute as pc

from kafkalake.metadata.tables.delta_table import OpenDeltaTable

PARTITIONS_ASKED = 50
"""Kafka's default of both journals; more are asked for where a row names one."""


class JournalPositions:
    """Of a table with a column `journal_partition`. `name`: what the `txn` application ids begin with."""

    def __init__(self, table: OpenDeltaTable, name: str) -> None:
        self._table = table
        self._name = name

    def application_id(self, partition: int) -> str:
        """Delta's `txn` application id for what is published of one partition of the journal."""
        return f"{self._name}-{partition}"

    def position(self, partition: int) -> int:
        """Up to which offset of the journal's partition the rows say everything; 0 before the first publish."""
        return self._table.transaction_version(self.application_id(partition)) or 0

    def of(self, partitions: Iterable[int]) -> dict[int, int]:
        """The positions of these partitions."""
        return {partition: self.position(partition) for partition in partitions}

    def all(self) -> dict[int, int]:
        """The positions of the partitions from 0 on."""
        last = pc.max(self._table.read().column("journal_partition")).as_py() if self._table.files() else None
        return self.of(range(max(PARTITIONS_ASKED, 0 if last is None else last + 1)))

    def moved(self, positions: Mapping[int, int], published: Mapping[int, int]) -> list[tuple[str, int]]:
        """What a commit that brings the table to `positions` says as its `txn`."""
        return [
            (self.application_id(partition), position)
            for partition, position in positions.items()
            if position > published[partition]
        ]
