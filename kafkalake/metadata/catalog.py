"""What of the rows counts, by partition: the one answer for readers, jobs and the broker. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path

from kafkalake.metadata import paths
from kafkalake.metadata.tables.schemas import PartitionRow, SegmentRow
from kafkalake.topic_partition import PartitionId

_by_offset = attrgetter("base_offset", "generation")


def partitions_by_id(rows: Iterable[PartitionRow]) -> dict[PartitionId[str], PartitionRow]:
    """Return rows as `load_partitions` has them, one a partition, by topic id and partition."""
    return {(row.topic_id, row.partition): row for row in rows}


def directory_of(lake: Path, row: PartitionRow) -> Path:
    """Return the directory of a partition, among the logs of its leader."""
    return paths.partition_path(lake, row.leader, row.topic, row.partition)


def segments_by_id(rows: Iterable[SegmentRow]) -> dict[PartitionId[str], list[SegmentRow]]:
    """Return the newest generation of each segment, by topic id and partition, ascending by base offset."""
    newest: dict[PartitionId[str], dict[int, SegmentRow]] = {}
    for row in sorted(rows, key=_by_offset):
        newest.setdefault((row.topic_id, row.partition), {})[row.base_offset] = row
    return {key: list(segments.values()) for key, segments in newest.items()}
