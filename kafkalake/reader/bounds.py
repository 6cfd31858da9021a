"""Begins a read: takes its snapshot and applies its start and end options.

Offsets by time are found as in Kafka: the first record with a timestamp at or after the requested one. Delta's
timestamps select the segment, batch headers the message, so one message per partition is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kafkalake.errors import ConfigurationError, OffsetOutOfRangeError
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.reader.offset_by_time import first_offset_at
from kafkalake.reader.positions import is_another
from kafkalake.reader.read import PartitionSnapshot, Read
from kafkalake.reader.read_options import EARLIEST, LATEST, OffsetRule, ReadOptions, TopicOffsets
from kafkalake.reader.snapshot import take_snapshot
from kafkalake.topic_partition import TopicPartition


def begin_read(
    options: ReadOptions,
    tables: DeltaMetadataStore | None = None,
    *,
    agreed: Callable[[Read], Read] = lambda read: read,
) -> Read:
    """Take the snapshot of a read and bound it. Raise the errors of `take_snapshot` and `bounded`.

    tables: of the lake, if they are already open. agreed: maps the snapshot to the one shared by all scans of the same query.
    """
    tables = tables or DeltaMetadataStore(Path(options.lake).absolute(), create=False)
    read = agreed(take_snapshot(options, tables))
    return bounded(read, None if options.group is None else _group(options.lake, options.group, tables))


def bounded(read: Read, committed: Mapping[TopicPartition, int] | None = None) -> Read:
    """Return the read with the start and end offsets that its options define.

    `committed`: the group's committed offsets by topic and partition, if a group is named. A partition starts there.

    Raise `ConfigurationError` (offsets for partitions that are not read, or not for all), `OffsetOutOfRangeError` (the topic was
    deleted and created again; or below the log start or above the end, unless `failOnDataLoss` is false) or `CorruptSegmentError`.
    """
    snapshots, options = read.partitions, read.options
    for option, rule in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        for snapshot in snapshots:
            if is_another(snapshot.topic, snapshot.topic_id, rule.topic_ids):
                raise OffsetOutOfRangeError(
                    f"{option} are those of an earlier topic {snapshot.topic}, which was deleted and created again since"
                )
        for offsets in (rule.offsets, rule.timestamps_ms):
            if offsets is not None:
                _check_partitions(option, offsets, snapshots)
    found = []
    for snapshot in snapshots:
        start = _start(snapshot, options, (committed or {}).get((snapshot.topic, snapshot.partition)))
        end = max(start, _end(snapshot, options))
        found.append(replace(snapshot, start_offset=start, end_offset=end))
    return read.of(found)


def _check_partitions(option: str, offsets: TopicOffsets, snapshots: Sequence[PartitionSnapshot]) -> None:
    named = {(topic, partition) for topic, numbers in offsets.items() for partition in numbers}
    read = {(snapshot.topic, snapshot.partition) for snapshot in snapshots}
    for what, wrong in (("names", named - read), ("does not name", read - named)):
        if wrong:
            topic, partition = sorted(wrong)[0]
            rest = ", which is not read" if what == "names" else " (-2 is earliest, -1 latest)"
            raise ConfigurationError(f"{option} {what} {topic}-{partition}{rest}")


def _start(snapshot: PartitionSnapshot, options: ReadOptions, committed: int | None) -> int:
    rule = options.starting
    if committed is not None:
        what = f"the offset that group {options.group} has committed"
        return _there(committed, what, snapshot, options.fail_on_data_loss)
    timestamp = _timestamp(rule, snapshot)
    if timestamp is not None:
        offset = first_offset_at(snapshot, timestamp)
        if offset is not None:
            return offset
        if options.latest_where_no_timestamp or snapshot.start_offset == snapshot.end_offset:
            return snapshot.end_offset
        raise ConfigurationError(
            f"{snapshot.topic}-{snapshot.partition} has no record at or after timestamp {timestamp}; with "
            "startingOffsetsByTimestampStrategy=latest such a partition is read from its end"
        )
    return _offset(rule, "startingOffsets", snapshot, options.fail_on_data_loss)


def _end(snapshot: PartitionSnapshot, options: ReadOptions) -> int:
    rule = options.ending
    timestamp = _timestamp(rule, snapshot)
    if timestamp is not None:
        offset = first_offset_at(snapshot, timestamp)
        return snapshot.end_offset if offset is None else offset
    return _offset(rule, "endingOffsets", snapshot, options.fail_on_data_loss)


def _timestamp(rule: OffsetRule, snapshot: PartitionSnapshot) -> int | None:
    if rule.timestamp_ms is not None or rule.timestamps_ms is None:
        return rule.timestamp_ms
    return rule.timestamps_ms[snapshot.topic][snapshot.partition]


def _offset(rule: OffsetRule, option: str, snapshot: PartitionSnapshot, fail: bool) -> int:
    offset = rule.everywhere
    if rule.offsets is not None:
        offset = rule.offsets[snapshot.topic][snapshot.partition]
    if offset == EARLIEST:
        return snapshot.start_offset
    if offset == LATEST:
        return snapshot.end_offset
    return _there(offset, option, snapshot, fail)


def _there(offset: int, what: str, snapshot: PartitionSnapshot, fail: bool) -> int:
    """Return `offset`, or the nearest available one. Raise `OffsetOutOfRangeError` if `fail` and it is not available."""
    if fail and not snapshot.start_offset <= offset <= snapshot.end_offset:
        raise OffsetOutOfRangeError(
            f"{what}: {offset} of {snapshot.topic}-{snapshot.partition} is not there: offsets {snapshot.start_offset} to "
            f"{snapshot.end_offset} are; with failOnDataLoss=false what is there is read"
        )
    return min(max(offset, snapshot.start_offset), snapshot.end_offset)


def _group(lake: str, group: str, tables: DeltaMetadataStore) -> Mapping[TopicPartition, int]:
    """Return the committed offsets of the group. Raise `LakeError` or `KafkaError` if they cannot be read."""
    # Imported here: reading without a group needs no client.
    from kafkalake.reader.group_positions import GroupPositions

    return GroupPositions(lake, group, tables).committed()
