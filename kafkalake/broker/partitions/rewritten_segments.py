"""Finds the segments that jobs have rewritten in logs which are followed here, and has them copied.

A job writes into the leader's directory and names the new segments in Delta. Once the leader reads them, followers copy them.
Before that it answers that it has none, and they ask again at the next look.
"""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from kafkalake.broker.partitions.fetchers import Fetchers
from kafkalake.broker.partitions.followers import Follower
from kafkalake.broker.partitions.leader_replicas import ReplicaId
from kafkalake.metadata.store import JobPosition, SwappedSegments
from kafkalake.run_blocking import RunBlocking


class SwappedTable(Protocol):
    """The table of segments, as far as it is needed here."""

    def load_swapped(self, since: JobPosition | None) -> SwappedSegments | None: ...


class RewrittenSegments:
    """See the module. `on_metadata` runs a function in a thread for Delta."""

    def __init__(self, table: SwappedTable, fetchers: Fetchers, on_metadata: RunBlocking) -> None:
        self._table = table
        self._fetchers = fetchers
        self._on_metadata = on_metadata
        self._position: JobPosition | None = None
        self._generations: dict[ReplicaId, dict[int, int]] = {}
        """By partition the generation of each rewritten segment, by base offset, as large as the table."""

    async def look(self) -> None:
        """Look for rewritten segments, if anything is followed. Raise `LakeError` if Delta cannot be read."""
        if not self._fetchers.followers():
            return
        found: SwappedSegments | None = await self._on_metadata(lambda: self._table.load_swapped(self._position))
        if found is not None:
            self._position = found.position
            for row in found.rows:
                self._generations.setdefault((UUID(row.topic_id), row.partition), {})[row.base_offset] = row.generation
        for replica, generations in self._generations.items():
            if (follower := self._fetchers.find(replica)) is not None:
                self._copy_newer(follower, generations)

    def _copy_newer(self, follower: Follower, generations: dict[int, int]) -> None:
        """Have the first segment copied of which the follower has an older generation. The others follow at later looks."""
        for base_offset in follower.log.sealed_base_offsets:
            generation = generations.get(base_offset, 0)
            if generation > follower.log.generation_of(base_offset):
                self._fetchers.copy_rewritten(follower, base_offset, generation)
                return
