"""What of the rows counts, by partition: the one answer for readers, jobs and the broker. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from typing import Protocol
from uuid import UUID

from kafkalake.cluster.image import ClusterImage, PartitionRegistration
from kafkalake.metadata import paths
from kafkalake.metadata.tables.schemas import PartitionRow, SegmentRow
from kafkalake.topic_partition import PartitionId

_by_offset = attrgetter("base_offset", "generation")


class Committed(Protocol):
    """A committed offset: a row of `group_offsets`, or what a coordinator has."""

    @property
    def topic_id(self) -> object: ...
    @property
    def committed_at_ms(self) -> int: ...


class Created(Protocol):
    """A topic: a row of `topics`, or what a broker serves. The type of its id is that of the offset's."""

    @property
    def topic_id(self) -> object: ...
    @property
    def created_at_ms(self) -> int: ...


def is_committed_to(offset: Committed, topic: Created | None) -> bool:
    """Return whether an offset is one of this topic, the one of its name now, if any, and of no earlier one of that name.

    kafkalake 0.1 wrote a time but no topic id.
    """
    if topic is None:
        return False
    if offset.topic_id is None:
        return offset.committed_at_ms >= topic.created_at_ms
    return offset.topic_id == topic.topic_id


def partitions_by_id(rows: Iterable[PartitionRow]) -> dict[PartitionId[str], PartitionRow]:
    """Return rows as `load_partitions` has them, one a partition, by topic id and partition."""
    return {(row.topic_id, row.partition): row for row in rows}


def registration_of(
    image: ClusterImage, topic_id: str, partition: int, row: PartitionRow | None
) -> PartitionRegistration:
    """Return who leads and replicates a partition: as in the table `cluster`, else as published in `row` (a lake of 0.1).

    If neither knows the partition, it has no replicas.
    """
    registered = image.partition((UUID(topic_id), partition))
    if registered is not None:
        return registered
    if row is None:
        return PartitionRegistration()
    return PartitionRegistration(row.leader, row.leader_epoch, row.replicas, row.isr)


def directories_of(lake: Path, registration: PartitionRegistration, topic: str, partition: int) -> dict[int, Path]:
    """Return where the replicas of a partition have their files, by broker: the leader first, the others in order of preference.

    A segment's file has the same name in each of them, and the same bytes.
    """
    brokers = sorted(registration.replicas, key=lambda broker_id: broker_id != registration.leader)
    return {broker_id: paths.partition_path(lake, broker_id, topic, partition) for broker_id in brokers}


def segments_by_id(rows: Iterable[SegmentRow]) -> dict[PartitionId[str], list[SegmentRow]]:
    """Return the newest generation of each segment, by topic id and partition, ascending by base offset."""
    newest: dict[PartitionId[str], dict[int, SegmentRow]] = {}
    for row in sorted(rows, key=_by_offset):
        newest.setdefault((row.topic_id, row.partition), {})[row.base_offset] = row
    return {key: list(segments.values()) for key, segments in newest.items()}
