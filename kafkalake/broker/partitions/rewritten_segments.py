"""Finds the segments that jobs have rewritten and replicas here lack, and has them copied.

A job writes into the leader's directory and names the new segments in Delta. Once the leader reads them, followers copy them.
Before that it answers that it has none, and they ask again at the next look. A replica that led when the job
wrote has them already; if another one leads now, that one copies them from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol
from uuid import UUID

from kafkalake.broker.partitions.leader_replicas import ReplicaId
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.replicas import Replicas
from kafkalake.metadata.store import JobPosition, SwappedSegments
from kafkalake.run_blocking import RunBlocking
from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.log import Log


class SwappedTable(Protocol):
    """The table of segments, as far as it is needed here."""

    def load_swapped(self, since: JobPosition | None) -> SwappedSegments | None: ...


class RewrittenSegments:
    """See the module. `on_metadata` runs a function in a thread for Delta."""

    def __init__(self, table: SwappedTable, replicas: Replicas, on_metadata: RunBlocking) -> None:
        self._table = table
        self._replicas = replicas
        self._on_metadata = on_metadata
        self._position: JobPosition | None = None
        self._rewritten: dict[ReplicaId, dict[int, RewrittenSegment]] = {}
        """By partition the newest generation of each rewritten segment, by base offset, as large as the table."""

    async def look(self) -> None:
        """Look for rewritten segments, if there are other replicas. Raise `LakeError` if Delta cannot be read."""
        replicas = self._replicas
        if not replicas.fetchers.followers() and not any(map(_has_others, replicas.led())):
            return
        found: SwappedSegments | None = await self._on_metadata(lambda: self._table.load_swapped(self._position))
        if found is not None:
            self._position = found.position
            for row in found.rows:
                new = RewrittenSegment(row.base_offset, row.next_offset, row.generation)
                self._rewritten.setdefault((UUID(row.topic_id), row.partition), {})[new.base_offset] = new
        if not self._rewritten:
            return
        led = {(each.topic.topic_id, each.index): each for each in replicas.led() if _has_others(each)}
        for replica, rewritten in self._rewritten.items():
            if (follower := replicas.fetchers.find(replica)) is not None:
                if newer := _newer(follower.log, rewritten):
                    replicas.fetchers.take_rewritten(follower, newer)
            elif (partition := led.get(replica)) is not None and (newer := _newer(partition.log, rewritten)):
                replicas.missing.take(partition, newer)


def _has_others(partition: Partition) -> bool:
    return len(partition.leadership.replicas) > 1


def _newer(log: Log, rewritten: Mapping[int, RewrittenSegment]) -> list[RewrittenSegment]:
    """Return the segments of which a log has an older generation."""
    found = [rewritten[base] for base in log.sealed_base_offsets if base in rewritten]
    return [each for each in found if each.generation > log.generation_of(each.base_offset)]
