"""`segments` and `partitions`: the files of a topic, and what its partitions hold."""

from __future__ import annotations

from dataclasses import replace

from kafkalake.cluster.image import NO_LEADER
from kafkalake.metadata import paths
from kafkalake.metadata.catalog import segments_by_id
from kafkalake.metadata.tables.schemas import PartitionRow, SegmentRow
from kafkalake.reader.live_partitions import LivePartition, LivePartitions
from kafkalake.reader.read_options import READ_UNCOMMITTED
from kafkalake.reader.snapshot import partition_now
from kafkalake.spark.metadata_tables.subject import Rows, Subject, micros
from kafkalake.storage.state import PartitionState
from kafkalake.topic_partition import PartitionId

SEGMENT_COLUMNS = (
    "partition INT, base_offset BIGINT, next_offset BIGINT, records BIGINT, bytes BIGINT, "
    "min_timestamp TIMESTAMP, max_timestamp TIMESTAMP, sealed_at TIMESTAMP, generation INT, path STRING"
)
"""records, sealed_at: null for a segment that is not sealed, or of which Delta has no row yet."""

PARTITION_COLUMNS = (
    "partition INT, leader INT, leader_epoch INT, replicas ARRAY<INT>, isr ARRAY<INT>, elr ARRAY<INT>, "
    "log_start_offset BIGINT, high_watermark BIGINT, last_stable_offset BIGINT, log_end_offset BIGINT, "
    "segments BIGINT, bytes BIGINT, published_at TIMESTAMP"
)
"""leader: null where none leads. elr: the brokers beside the ISR that may lead, null in the past. segments, bytes: of the past
without the segment that was active. published_at: null before a first publish."""


def segments(subject: Subject) -> Rows:
    """Yield the segments that hold the records, by topic, partition and offset."""
    sealed = _sealed(subject)
    live = LivePartitions(subject.lake, subject.partitions, subject.store.newest_image)
    for topic in subject.topics:
        for number in range(topic.partitions):
            rows = sealed.get((topic.topic_id, number), [])
            if subject.is_past:
                yield from ((topic.topic, *_segment(row)) for row in rows)
                continue
            of_file = {(row.base_offset, row.generation): row for row in rows}
            snapshot = partition_now(subject.lake, live.of(topic, number), rows, READ_UNCOMMITTED)
            for file in snapshot.segments:
                path = paths.relative_path(subject.lake, subject.lake / file.path)
                row = of_file.get((file.base_offset, file.generation)) if file.sealed else None
                if row is not None:
                    yield topic.topic, *_segment(replace(row, path=path))
                else:
                    yield (
                        topic.topic,
                        number,
                        file.base_offset,
                        file.next_offset,
                        None,
                        file.size,
                        None,
                        None,
                        None,
                        0,
                        path,
                    )


def _segment(row: SegmentRow) -> tuple[object, ...]:
    return (
        row.partition,
        row.base_offset,
        row.next_offset,
        row.records,
        row.bytes,
        micros(row.min_timestamp_ms),
        micros(row.max_timestamp_ms),
        micros(row.sealed_at_ms),
        row.generation,
        row.path,
    )


def partitions(subject: Subject) -> Rows:
    """Yield the partitions with their offsets: now those of their logs, in the past those published."""
    sealed = _sealed(subject)
    live = LivePartitions(subject.lake, subject.partitions, subject.store.newest_image)
    for topic in subject.topics:
        for number in range(topic.partitions):
            rows = sealed.get((topic.topic_id, number), [])
            found = live.of_version(topic, number) if subject.is_past else live.of(topic, number)
            offsets: PartitionRow | PartitionState
            if not subject.is_past:
                files = partition_now(subject.lake, found, rows, READ_UNCOMMITTED).segments
                offsets, sizes = found.state, [file.size for file in files]
            elif found.row is not None:
                offsets, sizes = found.row, [each.bytes for each in rows]
            else:
                continue
            row = found.row
            yield (
                topic.topic,
                number,
                *_leadership(found, is_past=subject.is_past),
                offsets.log_start_offset,
                offsets.high_watermark,
                offsets.last_stable_offset,
                offsets.log_end_offset,
                len(sizes),
                sum(sizes),
                micros(None if row is None else row.published_at_ms),
            )


def _leadership(found: LivePartition, *, is_past: bool) -> tuple[object, ...]:
    """Return leader, epoch, replicas, isr and elr as the cluster has them, of the past as published: without the elr."""
    row, now = found.row, found.registration
    if is_past and row is not None:
        return row.leader, row.leader_epoch, row.replicas, row.isr, None
    if not now.replicas:
        return (None,) * 5
    leader = None if now.leader == NO_LEADER else now.leader
    return leader, now.leader_epoch, now.replicas, now.isr, now.elr


def _sealed(subject: Subject) -> dict[PartitionId[str], list[SegmentRow]]:
    return segments_by_id(subject.store.load_segments(subject.topic, subject.version, subject.as_of_ms))
