"""Published positions in the partitions of a coordinator's journal, stored as Delta's `txn` of the table's commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow.compute as pc

from kafkalake.metadata.tables.delta_table import OpenDeltaTable

PARTITIONS_ASKED = 50
"""Kafka's default partition count of both journals. More are read if a row names a higher partition."""


class JournalPositions:
    """The journal positions of a table with a column `journal_partition`. `name`: the prefix of the `txn` application ids."""

    def __init__(self, table: OpenDeltaTable, name: str) -> None:
        self._table = table
        self._name = name

    def application_id(self, partition: int) -> str:
        """Return Delta's `txn` application id for one partition of the journal."""
        return f"{self._name}-{partition}"

    def position(self, partition: int) -> int:
        """Return the offset up to which the journal's partition is published, 0 before the first publish."""
        return self._table.transaction_version(self.application_id(partition)) or 0

    def of(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the positions of these partitions."""
        return {partition: self.position(partition) for partition in partitions}

    def all(self) -> dict[int, int]:
        """Return the positions of all partitions."""
        last = pc.max(self._table.read().column("journal_partition")).as_py() if self._table.files() else None
        return self.of(range(max(PARTITIONS_ASKED, 0 if last is None else last + 1)))

    def moved(self, positions: Mapping[int, int], published: Mapping[int, int]) -> list[tuple[str, int]]:
        """Return the `txn` entries of a commit that moves the table from `published` to `positions`."""
        return [
            (self.application_id(partition), position)
            for partition, position in positions.items()
            if position > published[partition]
        ]
