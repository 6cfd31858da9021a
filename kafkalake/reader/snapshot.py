"""Takes a snapshot of a topic on disk: the start and end of each partition, and the segment files between.

Live: sealed segments from Delta, then the later ones in the directory of the partition's leader, up to the end given by its `state`
file. The broker writes `state` when it acknowledges a record, so a query that starts later sees it, and no broker need run.

    1. read `segments` from Delta            segments removed by retention meanwhile lie below the log start, read next
    2. read `state`                          records below the high watermark were in a file before `state` was written
    3. list the directory                    so every such file is found here

A row of `segments` is true of every replica. Its file is read from the leader's directory, or from another one that has it: a job
writes in one of them, and the others get the file later.

As of a version: offsets and segments that were published together. Records that were in the active segment then are
read from their present place, because a log is append-only.
"""

from __future__ import annotations

import os
import re
import time
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from operator import attrgetter
from pathlib import Path

from kafkalake.errors import LakeError, UnknownTopicOrPartitionError
from kafkalake.internal_topics import INTERNAL
from kafkalake.metadata.catalog import segments_by_id
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.tables.schemas import PartitionRow, SegmentRow, TopicRow
from kafkalake.reader.live_partitions import (
    LivePartition,
    LivePartitions,
    file_names,
    files_of,
    readable_end,
    topic_id_of,
)
from kafkalake.reader.read import PartitionSnapshot, Read, SegmentFile
from kafkalake.reader.read_options import ReadOptions
from kafkalake.reader.session_time import EPOCH
from kafkalake.storage.state import PartitionState
from kafkalake.topic_partition import PartitionId

_SEGMENT_NAME = re.compile(r"\d{20}\.arrow")
_ATTEMPTS = 5
_FIRST_MS, _LAST_MS = (
    (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1) for moment in (datetime.min, datetime.max)
)


def take_snapshot(options: ReadOptions, tables: DeltaMetadataStore) -> Read:
    """Return the partitions that `options` name, whole, by topic and partition. `tables`: of their lake.

    Raise `LakeError` (parts of the lake are missing), `UnknownTopicOrPartitionError` or `CorruptSegmentError`.
    """
    lake = Path(options.lake).absolute()
    check_past(options)
    as_of = options.version is not None or options.as_of_ms is not None
    names = options.topics if options.topics is not None or options.assigned is None else tuple(options.assigned)
    version, rows, topics = _rows(options, tables, names)
    if names is not None and not {topic.topic for topic in topics}.issuperset(names):
        version, rows, topics = _rows(options, tables, None)  # to say which there are
    snapshots = []
    live = LivePartitions(lake, rows, tables.newest_image)
    for topic, partitions in wanted_partitions(options, topics):
        now = segments_by_id(tables.load_segments(topic.topic))
        then: dict[PartitionId[str], list[SegmentRow]] = {}
        if as_of:
            then = segments_by_id(tables.load_segments(topic.topic, options.version, options.as_of_ms))
        for partition in partitions:
            key = (topic.topic_id, partition)
            sealed = now.get(key, [])
            if not as_of:
                snapshots.append(partition_now(lake, live.of(topic, partition), sealed, options.isolation))
            elif (found := live.of_version(topic, partition)).row is not None:
                snapshots.append(_partition_then(lake, found, found.row, then.get(key, []), sealed, options.isolation))
    return Read(options, snapshots, version)


def _rows(
    options: ReadOptions, tables: DeltaMetadataStore, names: Collection[str] | None
) -> tuple[int, list[PartitionRow], list[TopicRow]]:
    """Return the version that is read, with the partitions and topics in it: those of `names`, or all."""
    version, rows = tables.partitions_at(options.version, options.as_of_ms, names)
    topics = tables.load_topics() if names is None else tables.find_topics(names)
    if options.version is not None or options.as_of_ms is not None:
        topics = topics_at(topics, rows)
    return version, rows, topics


def check_past(options: ReadOptions) -> None:
    """Raise `LakeError` if the requested time is in the future, as Delta does: the newest state would be a guess.

    A time beyond the years 1 to 9999 is refused as well: neither Delta's log nor `datetime` has it.
    """
    now_ms = time.time_ns() // 1_000_000
    if options.as_of_ms is not None and not _FIRST_MS <= options.as_of_ms <= _LAST_MS:
        raise LakeError(f"timestampAsOf is {options.as_of_ms} ms since 1970, which is not in the years 1 to 9999")
    if options.as_of_ms is not None and options.as_of_ms > now_ms:
        wanted, now = (
            datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat(timespec="milliseconds")
            for moment_ms in (options.as_of_ms, now_ms)
        )
        raise LakeError(f"timestampAsOf is {wanted}, after the latest version of {options.lake}: it is {now}")


def wanted_partitions(options: ReadOptions, topics: Iterable[TopicRow]) -> list[tuple[TopicRow, Iterable[int]]]:
    """Return the named topics and partitions, in order. A pattern matches no internal topic, as in Kafka's consumers."""
    by_name = {topic.topic: topic for topic in topics}
    if options.pattern is not None:
        matching = [
            topic
            for name, topic in sorted(by_name.items())
            if name not in INTERNAL and re.fullmatch(options.pattern, name)
        ]
        if not matching:
            raise UnknownTopicOrPartitionError(
                f"no topic of {options.lake} matches subscribePattern {options.pattern!r}"
            )
        return [(topic, range(topic.partitions)) for topic in matching]
    names = options.topics if options.topics is not None else tuple(options.assigned or ())
    require_topics(names, by_name.keys(), options.lake)
    if options.assigned is None:
        return [(by_name[name], range(by_name[name].partitions)) for name in names]
    for name, numbers in options.assigned.items():
        for number in numbers:
            if not 0 <= number < by_name[name].partitions:
                raise UnknownTopicOrPartitionError(
                    f"{name} has no partition {number}, but 0 to {by_name[name].partitions - 1}"
                )
    return [(by_name[name], sorted(set(numbers))) for name, numbers in options.assigned.items()]


def require_topics(names: Iterable[str], known: Set[str], lake: str) -> None:
    """Raise `UnknownTopicOrPartitionError` for the first name that is none of the `known` topics of a lake."""
    missing = next((name for name in names if name not in known), None)
    if missing is not None:
        there = ", ".join(sorted(known - INTERNAL)[:10]) or "none"
        raise UnknownTopicOrPartitionError(f"topic {missing!r} is not in {lake}; its topics: {there}")


def topics_at(topics: Iterable[TopicRow], rows: Sequence[PartitionRow]) -> list[TopicRow]:
    """Return the topics as of the version of `partitions`: perhaps with fewer partitions, or deleted since."""
    now = {topic.topic_id: topic for topic in topics}
    counts: dict[tuple[str, str], int] = {}
    for row in rows:
        key = (row.topic, row.topic_id)
        counts[key] = max(counts.get(key, 0), row.partition + 1)
    return [
        TopicRow(name, topic_id, count, {}, now[topic_id].created_at_ms if topic_id in now else 0)
        for (name, topic_id), count in counts.items()
    ]


def partition_now(
    lake: Path, partition: LivePartition, sealed: Sequence[SegmentRow], isolation: str
) -> PartitionSnapshot:
    """Return the current snapshot of a partition. `sealed`: the Delta rows of its sealed segments.

    Raise `LakeError` if files of the lake are missing.
    """
    topic, number = partition.topic, partition.number
    for attempt in range(_ATTEMPTS):
        if partition.directory is None:
            return PartitionSnapshot(topic.topic, number, 0, 0, (), topic_id=topic_id_of(topic))
        state = partition.state
        try:
            segments = _segments_now(lake, partition, partition.directory, sealed)
            return _covering(topic, number, state.log_start_offset, readable_end(state, isolation), segments)
        except LakeError:
            # Retention may have moved on between reading `state` and listing the directory, or the replica was removed.
            if attempt == _ATTEMPTS - 1:
                raise
            partition = partition.look_again()
    raise AssertionError


def _segments_now(
    lake: Path, partition: LivePartition, directory: Path, sealed: Sequence[SegmentRow]
) -> list[SegmentFile]:
    """Return the segments of a partition: those in Delta, and what of the directory Delta does not have, at the end or between.

    A leader may end before it has published a segment that the next one does not publish at once. Raise `LakeError` if the
    directory cannot be listed.
    """
    state, names = partition.state, file_names(directory)
    inactive = [row for row in sealed if row.generation or row.base_offset != state.active_base_offset]
    known = [_from_row(row, path) for row, path in files_of(lake, partition, names, inactive)]
    if not known or _is_whole(known, state.log_start_offset):
        return known + _listed(directory, names, state, known[-1].next_offset if known else 0)
    unknown = [each for each in _listed(directory, names, state, 0) if not _covers(known, each.base_offset)]
    found = sorted([*known, *unknown], key=attrgetter("base_offset"))
    ends = [*(each.base_offset for each in found[1:]), found[-1].next_offset]
    return [replace(each, next_offset=min(each.next_offset, end)) for each, end in zip(found, ends, strict=True)]


def _is_whole(segments: Sequence[SegmentFile], start: int) -> bool:
    """Return whether segments have every offset from `start` to the end of the last one."""
    follows = all(first.next_offset == then.base_offset for first, then in pairwise(segments))
    return follows and segments[0].base_offset <= start


def _covers(segments: Sequence[SegmentFile], offset: int) -> bool:
    """Return whether one of the segments, ascending, has an offset."""
    number = bisect_right(segments, offset, key=attrgetter("base_offset")) - 1
    return number >= 0 and offset < segments[number].next_offset


def _partition_then(
    lake: Path,
    partition: LivePartition,
    row: PartitionRow,
    then: Sequence[SegmentRow],
    now: Sequence[SegmentRow],
    isolation: str,
) -> PartitionSnapshot:
    topic, directory = partition.topic, partition.directory
    if directory is None and row.log_start_offset < row.log_end_offset:
        raise LakeError(
            f"{topic.topic}-{row.partition}: the version asked for is of topic id {topic_id_of(topic)}, which was deleted since"
        )
    names = [] if directory is None else file_names(directory)
    segments = [_from_row(each, path) for each, path in files_of(lake, partition, names, then)]
    gone = next((segment.path for segment in segments if not os.path.exists(segment.path)), None)
    if gone is not None:
        raise LakeError(
            f"{topic.topic}-{row.partition}: the version asked for needs {gone}, which retention, compaction or the "
            "deletion of the topic has removed since"
        )
    row_end = segments[-1].next_offset if segments else 0
    # A segment that was unsealed then and rewritten since may lack records of that time. The old file is listed while it is kept.
    unchanged = takewhile(
        lambda segment: segment.generation == 0, (each for each in now if each.base_offset >= row_end)
    )
    segments = _joined(segments, [_from_row(each, path) for each, path in files_of(lake, partition, names, unchanged)])
    if directory is not None:
        segments += _listed(directory, names, partition.state, segments[-1].next_offset if segments else 0)
    begins = 0 if directory is None else partition.state.log_start_offset
    return _covering(topic, row.partition, row.log_start_offset, readable_end(row, isolation), segments, begins)


def _from_row(row: SegmentRow, path: str) -> SegmentFile:
    return SegmentFile(
        row.base_offset,
        row.next_offset,
        path,
        row.bytes,
        row.min_timestamp_ms,
        row.max_timestamp_ms,
        sealed=True,
        generation=row.generation,
        records=row.records,
    )


def _listed(directory: Path, names: Iterable[str], state: PartitionState, first_offset: int) -> list[SegmentFile]:
    """Return the directory's segments from `first_offset` on. Each ends where the next begins, the last at the log end."""
    first = f"{first_offset:020d}"
    names = sorted(name for name in names if name >= first and _SEGMENT_NAME.fullmatch(name))
    bases = [int(name[:20]) for name in names]
    ends = [*bases[1:], max(state.log_end_offset, bases[-1])] if bases else []
    listed = []
    for name, base, end in zip(names, bases, ends, strict=True):
        path = os.path.join(directory, name)
        active = base == state.active_base_offset
        listed.append(SegmentFile(base, end, path, state.active_position if active else -1))
    return listed


def _joined(first: list[SegmentFile], then: Sequence[SegmentFile]) -> list[SegmentFile]:
    """Return `first`, followed by the segments of `then` that begin at or after its end."""
    covered = first[-1].next_offset if first else 0
    return first + [segment for segment in then if segment.base_offset >= covered]


def _covering(
    topic: TopicRow, partition: int, start: int, end: int, segments: Sequence[SegmentFile], begins: int = 0
) -> PartitionSnapshot:
    """Return a snapshot with the segments that hold [start, end). Raise `LakeError` if an offset is missing.

    begins: where the log begins now, if the snapshot is of the past.
    """
    needed = [segment for segment in segments if segment.next_offset > start and segment.base_offset < end]
    expected = start
    for segment in needed:
        if segment.base_offset > expected:
            raise LakeError(_missing(topic.topic, partition, expected, segment.base_offset, begins))
        expected = segment.next_offset
    if expected < end:
        raise LakeError(_missing(topic.topic, partition, expected, end, begins))
    later = [segment for segment in segments if segment.base_offset >= max(end, expected)]
    return PartitionSnapshot(
        topic.topic,
        partition,
        start,
        max(start, end),
        [_with_size(segment) for segment in needed],
        later,
        topic_id_of(topic),
    )


def _missing(topic: str, partition: int, first: int, end: int, begins: int) -> str:
    if first < begins:
        return (
            f"{topic}-{partition}: the version asked for needs offsets {first} to {min(end, begins) - 1}, which were deleted "
            f"since: the partition begins at offset {begins}"
        )
    return f"{topic}-{partition}: no segment holds offsets {first} to {end - 1}; `kafkalake log verify` says more"


def _with_size(segment: SegmentFile) -> SegmentFile:
    """Return a segment with the size of its file. Raise `LakeError` if that is not there any more."""
    if segment.size >= 0:
        return segment
    try:
        size = os.path.getsize(segment.path)
    except OSError as error:
        raise LakeError(f"{segment.path} was removed while it was looked at: {error.strerror or error}") from error
    return SegmentFile(segment.base_offset, segment.next_offset, segment.path, size)
