"""The metadata of a lake on Delta tables, readable by Spark with `format("delta")`.

`DeltaMetadataStore` is all tables of `tables/`, one module each, and here what concerns two of them: a publish, and a version of
`partitions` with the segments that belong to it. The table `cluster` is its `control_store`.

Commits are fsynced, except publishes of `partitions`. Entries damaged by a power loss are set aside when a broker opens the lake.
"""

from __future__ import annotations

import random
from pathlib import Path

from kafkalake.cluster.image import ClusterImage
from kafkalake.metadata import changes, paths
from kafkalake.metadata.disk import DISK, Disk
from kafkalake.metadata.store import MetadataSnapshot, PublishedState
from kafkalake.metadata.tables.brokers import DeltaBrokers
from kafkalake.metadata.tables.cleaning import DeltaCleaning
from kafkalake.metadata.tables.cluster import DeltaClusterTable
from kafkalake.metadata.tables.group_offsets import DeltaGroupOffsets
from kafkalake.metadata.tables.lake_tables import is_published
from kafkalake.metadata.tables.partitions import DeltaPartitions, stamp_change
from kafkalake.metadata.tables.schemas import SegmentRow
from kafkalake.metadata.tables.segments import DeltaSegments
from kafkalake.metadata.tables.topics import DeltaTopics
from kafkalake.metadata.tables.transactions import DeltaTransactions
from kafkalake.ownership import Ownership

_DAY_S = 86_400


class DeltaMetadataStore(
    DeltaTopics, DeltaBrokers, DeltaPartitions, DeltaSegments, DeltaGroupOffsets, DeltaTransactions, DeltaCleaning
):
    """The metadata of the lake at `lake_path`.

    With `create` (a broker), missing tables are created. Without (a reader), a path that is no lake raises `LakeError`, and tables
    are opened on first use, so a reader does not need tables introduced by a later version. With `ownership` (a broker), only the
    lease is committed while ownership is not certain.
    """

    def __init__(
        self,
        lake_path: str | Path,
        *,
        create: bool = True,
        randomness: random.Random | None = None,
        disk: Disk = DISK,
        ownership: Ownership | None = None,
    ) -> None:
        lake = Path(lake_path)
        if create:
            paths.prepare_lake(lake, disk)
        else:
            paths.require_lake(lake)
        super().__init__(lake, create=create, disk=disk, ownership=ownership, randomness=randomness)
        self.control_store = DeltaClusterTable(
            lambda: self._tables[paths.CLUSTER] if self._exists(paths.CLUSTER) else None, self._locks[paths.CLUSTER]
        )

    def newest_image(self) -> ClusterImage:
        """Return the newest version of the cluster, for readers (`DeltaClusterTable.newest`); empty without the table."""
        return self.control_store.newest()

    def publish(self, state: PublishedState) -> int:
        with self._locks[paths.PARTITIONS]:
            partitions = self._tables[paths.PARTITIONS]
            if is_published(partitions, state):
                return partitions.version
        return self._publish_partitions(state, self._publish_segments(state))

    def last_published_version(self, app_id: str) -> int | None:
        versions = []
        for name in (paths.SEGMENTS, paths.PARTITIONS):
            with self._locks[name]:
                table = self._tables[name]
                table.refresh()
                version = table.transaction_version(app_id)
            if version is not None:
                versions.append(version)
        return max(versions, default=None)

    def stamp_partitions(self, leader: int) -> None:
        partitions, segments = self._tables[paths.PARTITIONS], self._tables[paths.SEGMENTS]
        with self._locks[paths.PARTITIONS], self._locks[paths.SEGMENTS]:
            segments.refresh()
            partitions.refresh()
            self._commit(partitions, lambda: stamp_change(partitions, leader, segments.version))

    def load_segments(
        self, topic: str | None = None, version: int | None = None, timestamp_ms: int | None = None
    ) -> list[SegmentRow]:
        if version is None and timestamp_ms is None:
            return self._segments_at(topic=topic)
        segments = self.load_snapshot(version, timestamp_ms).segments
        return [row for row in segments if topic is None or row.topic == topic]

    def load_snapshot(self, version: int | None = None, timestamp_ms: int | None = None) -> MetadataSnapshot:
        """Return partitions and their segments: now, at a version of `partitions`, or at a time."""
        found, partitions = self.partitions_at(version, timestamp_ms)
        segments: list[SegmentRow] = []
        for segments_version in sorted({row.segments_version for row in partitions}):
            owners = [row for row in partitions if row.segments_version == segments_version]
            segments.extend(changes.segments_of(owners, self._segments_at(segments_version)))
        return MetadataSnapshot(found, partitions, segments)

    def maintain(self, retention_ms: int | None = None) -> None:
        """Remove log entries and files needed only by versions past their retention. Safe at any time, costs about a listing.

        retention_ms: how long versions of `partitions` stay readable from now on (None: unchanged).
        """
        for name in filter(self._exists, paths.TABLES):
            self.maintain_table(name, retention_ms)

    def maintain_table(self, name: str, retention_ms: int | None = None) -> None:
        """Maintain one table. Raise `KafkaStorageError` if that fails."""
        with self._locks[name]:
            self._tables[name].maintain(_history(name, retention_ms))


def _history(name: str, retention_ms: int | None) -> str | None:
    """Return a table's retention as a Delta interval: `retention_ms` for `partitions`, a day more for `segments`, else None."""
    if retention_ms is None or name not in (paths.PARTITIONS, paths.SEGMENTS):
        return None
    seconds = max(retention_ms // 1000, 1) + (_DAY_S if name == paths.SEGMENTS else 0)
    return f"interval {seconds // _DAY_S} days" if seconds % _DAY_S == 0 else f"interval {seconds} seconds"
