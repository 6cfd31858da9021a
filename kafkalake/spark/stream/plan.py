"""Plans the start of a stream and the tasks of its batches: snapshots, bounded by positions, planned like batch queries."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kafkalake.errors import OffsetNotAvailableError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.reader.bounds import begin_read
from kafkalake.reader.partition_edges import PartitionBounds
from kafkalake.reader.plan import SegmentSlice, plan_slices
from kafkalake.reader.positions import Positions, TopicIds, is_another
from kafkalake.reader.predicate import Selection
from kafkalake.reader.read import PartitionSnapshot, Read
from kafkalake.reader.read_options import ReadOptions
from kafkalake.reader.snapshot import take_snapshot
from kafkalake.topic_partition import TopicPartition


def first_positions(options: ReadOptions, tables: DeltaMetadataStore) -> tuple[Positions, TopicIds]:
    """Return the start of a new stream, and its topic ids. Raise the errors of `begin_read`."""
    try:
        read = begin_read(options, tables)
    except UnknownTopicOrPartitionError:
        if options.pattern is None:
            raise
        return {}, {}  # a matching topic may be created later, and is read from its first record
    return read.starts, read.topic_ids


def plan_batch(
    options: ReadOptions,
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    tables: DeltaMetadataStore,
    *,
    start_ids: Mapping[str, str] | None = None,
    end_ids: Mapping[str, str] | None = None,
) -> list[list[SegmentSlice]]:
    """Return groups of slices with exactly the records from `start` to `end`. Raise the errors of `batch_partitions`."""
    pieces = batch_partitions(options, start, end, tables, start_ids=start_ids, end_ids=end_ids)
    return plan_slices(Read(options, pieces), Selection())


def batch_partitions(
    options: ReadOptions,
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    tables: DeltaMetadataStore,
    *,
    start_ids: Mapping[str, str] | None = None,
    end_ids: Mapping[str, str] | None = None,
) -> list[PartitionSnapshot]:
    """Return the partitions with records from `start` to `end`, and exactly those records.

    A partition absent from `start` begins at 0, and so does one whose topic id at `end` differs from that at `start`.
    Raise `OffsetOutOfRangeError` if some of them are no longer available, unless `failOnDataLoss` is false,
    `OffsetNotAvailableError` if they cannot be read yet, and the errors of `take_snapshot`.
    """
    known = end_ids or {}
    anew = {topic for topic, topic_id in known.items() if is_another(topic, topic_id, start_ids or {})}
    start = {partition: offset for partition, offset in start.items() if partition[0] not in anew}
    wanted = {partition: (start.get(partition, 0), stop) for partition, stop in end.items()}
    wanted = {partition: (first, stop) for partition, (first, stop) in wanted.items() if first != stop}
    if not wanted:
        return []
    found = {(each.topic, each.partition): each for each in _snapshots(options, list(wanted), tables)}
    pieces = []
    for partition, (first, stop) in sorted(wanted.items()):
        snapshot = found.get(partition)
        if snapshot is None:
            _lost(partition, "it is gone", options)
        elif is_another(partition[0], snapshot.topic_id, known):
            _lost(partition, "its topic was deleted and created again since the batch was planned", options)
        else:
            if stop > snapshot.end_offset:
                _check_end(partition, stop, snapshot.end_offset, options, tables)
            pieces.append(_within(snapshot, first, stop, options))
    return pieces


def _check_end(
    partition: TopicPartition, stop: int, readable_end: int, options: ReadOptions, tables: DeltaMetadataStore
) -> None:
    """Raise `OffsetNotAvailableError` if the offsets up to `stop` are in the log, and not readable yet: none is lost."""
    edge = PartitionBounds(_of_partitions(options, [partition]), tables).look()[partition]
    if stop <= edge.log_end:
        raise OffsetNotAvailableError(
            f"{partition[0]}-{partition[1]}: the batch ends at offset {stop}, and {options.isolation} reads up to {readable_end} "
            "now: a transaction is open there, or was when the batch was planned; start the stream again once it has ended"
        )


def _of_partitions(options: ReadOptions, partitions: Sequence[TopicPartition]) -> ReadOptions:
    assigned: dict[str, tuple[int, ...]] = {}
    for topic, partition in partitions:
        assigned[topic] = (*assigned.get(topic, ()), partition)
    return replace(options, topics=None, pattern=None, assigned=assigned)


def _snapshots(
    options: ReadOptions, partitions: Sequence[TopicPartition], tables: DeltaMetadataStore
) -> Sequence[PartitionSnapshot]:
    exact = _of_partitions(options, partitions)
    try:
        return take_snapshot(exact, tables).partitions
    except UnknownTopicOrPartitionError:
        if options.fail_on_data_loss:
            raise
    found: list[PartitionSnapshot] = []
    for topic, partition in partitions:
        with contextlib.suppress(UnknownTopicOrPartitionError):
            found += take_snapshot(replace(exact, assigned={topic: (partition,)}), tables).partitions
    return found


def _within(snapshot: PartitionSnapshot, first: int, stop: int, options: ReadOptions) -> PartitionSnapshot:
    """Return the snapshot from `first` to `stop`. A `stop` before `first` means that the topic was created again."""
    partition = (snapshot.topic, snapshot.partition)
    if stop < first:
        _lost(partition, f"offset {stop} follows offset {first}: it was made anew", options)
        first = snapshot.start_offset
    if first < snapshot.start_offset:
        _lost(
            partition,
            f"offsets {first} to {min(stop, snapshot.start_offset) - 1} were removed before they were read",
            options,
        )
    if stop > snapshot.end_offset:
        _lost(partition, f"offsets {snapshot.end_offset} to {stop - 1} are not there any more", options)
    first, stop = (min(max(offset, snapshot.start_offset), snapshot.end_offset) for offset in (first, stop))
    return replace(snapshot, start_offset=first, end_offset=stop)


def _lost(partition: TopicPartition, what: str, options: ReadOptions) -> None:
    if options.fail_on_data_loss:
        raise OffsetOutOfRangeError(
            f"{partition[0]}-{partition[1]}: {what}; with failOnDataLoss=false the stream goes on with what is there"
        )
