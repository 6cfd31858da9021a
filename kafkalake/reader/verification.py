"""Verifies the files of a lake against themselves, against its Delta tables, and those of replicas against their leader's."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from kafkalake.errors import LakeError
from kafkalake.metadata import paths
from kafkalake.metadata.catalog import segments_by_id
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.tables.schemas import PartitionRow, SegmentRow, TopicRow
from kafkalake.reader.live_partitions import LivePartition, LivePartitions
from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.replica_comparison import compare_replicas
from kafkalake.storage.segment_names import file_name
from kafkalake.storage.state import STATE_FILE, read_state
from kafkalake.storage.verify import Problem, PublishedPartition, PublishedSegment, verify_lake
from kafkalake.topic_partition import PartitionId

_ATTEMPTS = 4
_LOOK_AGAIN_S = 0.1


def verify(store: DeltaMetadataStore, topics: Collection[str] | None = None) -> Iterator[Problem]:
    """Yield inconsistencies of a lake's logs, or of some topics': in themselves, with its Delta tables, between replicas.

    Replicas are compared below the high watermark. Brokers may run meanwhile: what they are about to mend is not reported.
    """
    # Read Delta first: the disk, read later, is then never behind what was published.
    segments = segments_by_id(store.load_segments())
    rows = [row for row in store.load_partitions() if topics is None or row.topic in topics]
    live = LivePartitions(store.lake, rows, store.newest_image)
    found = [live.of_version(TopicRow(row.topic, row.topic_id, 0, {}, 0), row.partition) for row in rows]
    yield from verify_lake(
        store.lake,
        [each for partition in found for each in _published_segments(store.lake, partition, segments)],
        [_published(store.lake, partition, row) for partition, row in zip(found, rows, strict=True)],
        topics,
    )
    for partition in found:
        yield from _compare(partition, segments.get((partition.topic.topic_id, partition.number), []))


def _directory(partition: LivePartition) -> Path:
    """Return the directory that is read, or where it should be."""
    return partition.directory or next(iter(partition.replicas.values()))


def _published_segments(
    lake: Path, partition: LivePartition, segments: dict[PartitionId[str], list[SegmentRow]]
) -> Iterator[PublishedSegment]:
    """Yield the rows of a partition's segments for each replica that has their files. The one that is read must have all."""
    rows = segments.get((partition.topic.topic_id, partition.number), [])
    for row in rows:
        yield _published_segment(lake, _directory(partition), row)
    for directory in partition.other_directories():
        active = _active_base(directory)
        for row in rows:
            is_sealed = row.generation or row.base_offset != active
            if is_sealed and (directory / file_name(row.base_offset, generation=row.generation)).exists():
                yield _published_segment(lake, directory, row)


def _active_base(directory: Path) -> int:
    try:
        return read_state(directory).active_base_offset
    except LakeError:
        return -1  # verified and reported as every replica


def _published_segment(lake: Path, directory: Path, row: SegmentRow) -> PublishedSegment:
    return PublishedSegment(
        paths.relative_path(lake, directory / file_name(row.base_offset, generation=row.generation)),
        row.base_offset,
        row.next_offset,
        row.records,
        row.bytes,
        row.min_timestamp_ms,
        row.max_timestamp_ms,
    )


def _published(lake: Path, partition: LivePartition, row: PartitionRow) -> PublishedPartition:
    """Return the published row of a partition. Of an earlier leader's row only the acknowledged records must be there."""
    directory = paths.relative_path(lake, _directory(partition))
    if len(partition.replicas) > 1 and row.leader_epoch != partition.state.leader_epoch:
        return PublishedPartition(directory, row.log_start_offset, 0, 0, row.high_watermark)
    return PublishedPartition(
        directory, row.log_start_offset, row.high_watermark, row.last_stable_offset, row.log_end_offset
    )


def _compare(partition: LivePartition, rows: Sequence[SegmentRow]) -> Iterator[Problem]:
    """Yield what another replica has otherwise than the one that is read. A difference counts if it lasts."""
    rewritten = [RewrittenSegment(row.base_offset, row.next_offset, row.generation) for row in rows if row.generation]
    for broker_id in partition.replicas:
        for attempt in range(_ATTEMPTS):
            time.sleep(_LOOK_AGAIN_S if attempt else 0)
            now = partition.look_again()
            problems = [] if broker_id == now.broker_id else list(_differences(now, broker_id, rewritten))
            if not problems:
                break
        yield from problems


def _differences(partition: LivePartition, broker_id: int, rewritten: Sequence[RewrittenSegment]) -> Iterator[Problem]:
    leader, follower = partition.directory, partition.replicas.get(broker_id)
    if leader is None or follower is None:
        return
    watermark = partition.state.high_watermark
    must_have = broker_id in partition.registration.isr and watermark > partition.state.log_start_offset
    if not (follower / STATE_FILE).exists():
        if must_have:
            yield Problem(str(follower), -1, "the directory of a replica in the ISR is missing")
        return
    try:
        state = read_state(follower)
        start = max(partition.state.log_start_offset, state.log_start_offset)
        yield from compare_replicas(leader, follower, start, min(watermark, state.log_end_offset), rewritten)
    except (OSError, LakeError) as error:
        yield Problem(str(follower), -1, f"cannot be compared with {leader}: {error}")
        return
    if must_have and state.log_end_offset < watermark:
        what = f"it is in the ISR and ends at offset {state.log_end_offset}, and {leader} has acknowledged up to {watermark}"
        yield Problem(os.path.join(follower, STATE_FILE), -1, what)
