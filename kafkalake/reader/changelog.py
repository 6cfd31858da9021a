"""The changes of one topic between versions of the lake's table `partitions`.

A record is the change of the version that was the first to show it. So a version's records are those between the ends of two
versions, and a range of versions is a range of offsets of each partition, which stays the same for ever. Records that no
version shows yet are in no range: the broker publishes a version within `metadata.publish.interval.ms`.

    begin_changes   a range that was asked for, as two points
    next_point      the point after one, for a stream
    plan_changes    the slices between two points, and which version committed which offsets

In a compacted topic a record is the state of its key, and its change needs the state before: the records below the range, of
which compaction leaves the newest of each key. Where compaction or retention has removed records of the range itself, or
compaction may have removed those below it because the range has newer ones, the range is refused, as Delta refuses versions whose
files were vacuumed, unless `failOnDataLoss` is false.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from kafkalake.cluster.image import ConfigOf
from kafkalake.errors import ConfigurationError, LakeError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.tables.schemas import PartitionRow, TopicRow
from kafkalake.metadata.tables.topic_commits import TopicCommit
from kafkalake.reader.live_partitions import readable_end, topic_id_of
from kafkalake.reader.plan import SegmentSlice, plan_slices
from kafkalake.reader.predicate import Selection
from kafkalake.reader.read import PartitionSnapshot, Read
from kafkalake.reader.read_options import ReadOptions
from kafkalake.reader.snapshot import check_past, take_snapshot
from kafkalake.reader.topic_settings import topic_configs

Ends = Mapping[int, int]
"""The end of each partition's readable offsets. A partition without records may be absent."""
EVERY_RECORD, EVERY_VERSION = Selection(), range(2**63 - 1)
EVERYTHING = -2
"""The version of the point before all records, whose next point has all records there are as its own change."""


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """The changes up to and in a version (-1: none), by the ends of the topic's partitions in it."""

    version: int
    topic_id: str
    ends: Ends

    @staticmethod
    def of_json(point: Mapping[str, Any]) -> ChangePoint:
        """Return the point that `json` returned."""
        ends = {int(partition): int(end) for partition, end in point["ends"].items()}
        return ChangePoint(int(point["version"]), str(point["topicId"]), ends)

    @property
    def json(self) -> dict[str, object]:
        """The point as JSON. Spark compares the text."""
        ends = {str(partition): self.ends[partition] for partition in sorted(self.ends)}
        return {"version": self.version, "topicId": self.topic_id, "ends": ends}


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """The range that was asked for, as versions or as times in ms. None as `last`: the newest version.

    is_after_first, is_before_last: the version `first`, or `last`, is not in the range.
    """

    first: int | None = None
    last: int | None = None
    first_ms: int | None = None
    last_ms: int | None = None
    is_after_first: bool = False
    is_before_last: bool = False


@dataclass(frozen=True, slots=True)
class Changes:
    """The slices with the records of a range, in groups, and of a keyed topic with those before it.

    commits: of each partition, ascending, the end of the offsets that a version committed, the version and its time in ms.
    """

    groups: Sequence[Sequence[SegmentSlice]]
    before: Sequence[Sequence[SegmentSlice]]
    commits: Mapping[int, Sequence[tuple[int, int, int]]]


def is_keyed(lake: Path, config: ConfigOf, topic: TopicRow) -> bool:
    """Return whether records of a topic are the states of their keys: whether it is compacted.

    `config`: the dynamic settings of the cluster.
    """
    return topic_configs(lake, config, [topic])[topic.topic].compacts


def begin_changes(
    options: ReadOptions, wanted: ChangeRange, tables: DeltaMetadataStore
) -> tuple[ChangePoint, ChangePoint]:
    """Return the points between which the changes of a range lie.

    Raise `LakeError` for versions and times that are not there (any more), `ConfigurationError` if the range ends before it begins,
    `OffsetOutOfRangeError` if it begins with another topic of the name.
    """
    topic = the_topic(options, tables)
    newest, rows = tables.partitions_at(None, None)
    for version in (wanted.first, wanted.last):
        if version is not None and version > newest:
            raise LakeError(f"there is no version {version} of {options.lake} yet: the newest is {newest}")
    first = _first(options, wanted, tables)
    last = newest if wanted.last is None else wanted.last - wanted.is_before_last
    if wanted.last_ms is not None:
        check_past(replace(options, as_of_ms=wanted.last_ms))
        last, _ = tables.partitions_at(None, wanted.last_ms)
    end = _point(topic, newest, rows, options)
    if last != newest:
        _, rows = tables.partitions_at(last, None)
        if options.fail_on_data_loss and any(_is_of_earlier(row, topic) for row in rows):
            raise _of_an_earlier_topic(topic, last)
        end = _point(topic, last, rows, options)
    if first is None:
        return ChangePoint(EVERYTHING, topic_id_of(topic), {}), end
    is_backwards = wanted.first is not None and wanted.last is not None and wanted.first > wanted.last
    if is_backwards or first > last + 1:
        raise ConfigurationError(f"the changes from version {first} to version {last} end before they begin")
    return _point_at(topic, first - 1, tables, options), end


def next_point(options: ReadOptions, start: ChangePoint, tables: DeltaMetadataStore) -> ChangePoint:
    """Return the newest point, or `start` if the topic has not grown since.

    Raise `OffsetOutOfRangeError` if the topic was deleted and created again.
    """
    topic = the_topic(options, tables)
    _check_same(topic, start)
    found = _point(topic, *tables.partitions_at(None, None), options)
    return start if found.ends == start.ends else found


def plan_changes(
    options: ReadOptions,
    start: ChangePoint,
    end: ChangePoint,
    tables: DeltaMetadataStore,
    *,
    keyed: bool,
    selection: Selection = EVERY_RECORD,
    versions: range = EVERY_VERSION,
) -> Changes:
    """Return the changes after `start`, up to and in `end`, of which `selection` and `versions` may leave out others.

    Of a keyed topic they leave out whole partitions only, as a change needs the records before. Raise `OffsetOutOfRangeError` if
    some of the range's records are gone, unless `failOnDataLoss` is false, `LakeError` if the history of the versions is gone, and
    the errors of `take_snapshot` and `plan_slices`.
    """
    topic = the_topic(options, tables)
    _check_same(topic, end)
    grown = tuple(partition for partition in sorted(end.ends) if end.ends[partition] > start.ends.get(partition, 0))
    if not grown:
        return Changes([], [], {})
    commits = _commits(start, end, topic, tables, options)
    exact = replace(options, topics=None, pattern=None, assigned={topic.topic: grown})
    snapshots = take_snapshot(exact, tables).partitions
    if start.version != EVERYTHING and options.fail_on_data_loss:
        cleaned = _cleaned_ends(topic, snapshots, tables) if keyed else {}
        _refuse_removed(topic.topic, snapshots, cleaned, start, end, commits)
    changed = [_between(each, *_bounds(each.partition, start, end, commits, versions)) for each in snapshots]
    earlier = [_between(each, 0, start.ends.get(each.partition, 0)) for each in snapshots] if keyed else []
    return Changes(
        plan_slices(Read(options, changed), selection),
        plan_slices(Read(options, earlier), selection) if earlier else [],
        {partition: _of_partition(partition, commits) for partition in grown},
    )


def _bounds(
    partition: int, start: ChangePoint, end: ChangePoint, commits: Sequence[_Commit], versions: range
) -> tuple[int, int]:
    """Return the offsets of a partition, [first, end), that the versions among `versions` committed."""

    def end_before(version: int) -> int:
        ends = (commit.ends.get(partition, 0) for commit in commits if commit.version < version)
        return max(start.ends.get(partition, 0), *ends, 0)

    last = end.ends[partition]
    return min(end_before(versions.start), last), min(end_before(versions.stop), last)


def the_topic(options: ReadOptions, tables: DeltaMetadataStore) -> TopicRow:
    """Return the one topic of the options, as it is now. Raise `UnknownTopicOrPartitionError` if there is none."""
    (name,) = options.topics or ("",)
    found = next((topic for topic in tables.load_topics() if topic.topic == name), None)
    if found is None:
        raise UnknownTopicOrPartitionError(f"no topic {name!r} in {options.lake}")
    return found


def _first(options: ReadOptions, wanted: ChangeRange, tables: DeltaMetadataStore) -> int | None:
    if wanted.first_ms is None:
        return None if wanted.first is None else wanted.first + wanted.is_after_first
    check_past(replace(options, as_of_ms=wanted.first_ms))
    return tables.first_version_since(wanted.first_ms)


def _point_at(topic: TopicRow, version: int, tables: DeltaMetadataStore, options: ReadOptions) -> ChangePoint:
    if version < 0:
        return ChangePoint(version, topic_id_of(topic), {})
    return _point(topic, *tables.partitions_at(version, None), options)


def _point(topic: TopicRow, version: int, rows: Iterable[PartitionRow], options: ReadOptions) -> ChangePoint:
    ends = {row.partition: readable_end(row, options.isolation) for row in rows if row.topic_id == topic.topic_id}
    return ChangePoint(version, topic_id_of(topic), {partition: end for partition, end in ends.items() if end > 0})


def _is_of_earlier(row: PartitionRow, topic: TopicRow) -> bool:
    return row.topic == topic.topic and row.topic_id != topic.topic_id


def _of_an_earlier_topic(topic: TopicRow, version: int) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        f"version {version} has an earlier topic {topic.topic}, which was deleted and created again since: its changes are gone, "
        "and those of the new one are in later versions"
    )


def _check_same(topic: TopicRow, point: ChangePoint) -> None:
    if topic_id_of(topic) != point.topic_id:
        raise OffsetOutOfRangeError(
            f"topic {topic.topic} was deleted and created again since it was read: the changes of the earlier one are gone"
        )


def _commits(
    start: ChangePoint, end: ChangePoint, topic: TopicRow, tables: DeltaMetadataStore, options: ReadOptions
) -> list[_Commit]:
    """Return the commits after `start`, up to `end`. Raise `OffsetOutOfRangeError` if some are of an earlier topic of the name."""

    def end_of(row: PartitionRow) -> int:
        return readable_end(row, options.isolation)

    if start.version == EVERYTHING:
        return [_Commit(end.version, tables.committed_ms(end.version), end.ends)]
    try:
        found = tables.topic_commits(topic.topic, start.version, end.version, end_of)
    except LakeError:
        oldest = tables.oldest_version()
        if not 0 <= start.version < oldest or _point_at(topic, oldest, tables, options).ends != start.ends:
            raise
        # Nothing was committed in the versions that are gone.
        found = tables.topic_commits(topic.topic, oldest, end.version, end_of)
    # Also where both ends are of this topic: one may have come and gone between.
    earlier = [commit.version for commit in found if any(topic_id != topic.topic_id for topic_id, _ in commit.ends)]
    if earlier and options.fail_on_data_loss:
        raise _of_an_earlier_topic(topic, earlier[-1])
    return [_Commit.of(commit, topic) for commit in found]


class _Commit(NamedTuple):
    """A version that showed new records of the topic."""

    version: int
    committed_ms: int
    ends: Ends

    @staticmethod
    def of(commit: TopicCommit, topic: TopicRow) -> _Commit:
        ends = {partition: end for (topic_id, partition), end in commit.ends.items() if topic_id == topic.topic_id}
        return _Commit(commit.version, commit.committed_ms, ends)


def _of_partition(partition: int, commits: Iterable[_Commit]) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    for commit in commits:
        end = commit.ends.get(partition, 0)
        if end > (found[-1][0] if found else 0):
            found.append((end, commit.version, commit.committed_ms))
    return found


def _cleaned_ends(
    topic: TopicRow, snapshots: Iterable[PartitionSnapshot], tables: DeltaMetadataStore
) -> Mapping[int, int]:
    """Return by partition the end of the offsets for whose keys compaction may have removed an earlier record.

    The segment with the newer record need not be rewritten. A run that was killed has not said how far it went.
    """
    said = {row.partition: row for row in tables.load_cleaning() if row.topic_id == topic.topic_id}
    ends = {}
    for each in snapshots:
        sealed = [segment for segment in each.segments if segment.sealed]
        generation = max((segment.generation for segment in sealed), default=0)
        if generation > 0:
            row = said.get(each.partition)
            known = row is not None and row.generation >= generation
            ends[each.partition] = row.cleaned_offset if row and known else sealed[-1].next_offset
    return ends


def _refuse_removed(
    topic: str,
    snapshots: Iterable[PartitionSnapshot],
    cleaned: Mapping[int, int],
    start: ChangePoint,
    end: ChangePoint,
    commits: Sequence[_Commit],
) -> None:
    """Raise `OffsetOutOfRangeError` if records of the range were removed, with the first version whose changes are whole."""
    lost = ""
    whole = start.version + 1
    for each in snapshots:
        first = start.ends.get(each.partition, 0)
        rewritten = [segment.next_offset for segment in each.segments if segment.generation > 0]
        whole_from = max([each.start_offset, cleaned.get(each.partition, 0), *rewritten])
        if whole_from <= first:
            continue
        how = "deleted" if whole_from == each.start_offset else "compacted"
        lost = (
            lost
            or f"offsets {first} to {min(whole_from, end.ends[each.partition]) - 1} of {topic}-{each.partition} were {how}"
        )
        whole = max(whole, _version_after(each.partition, whole_from, commits, end.version))
    if lost:
        after = (
            f"from version {whole} on they are"
            if whole <= end.version
            else f"those after version {end.version} will be"
        )
        raise OffsetOutOfRangeError(
            f"the changes of {topic} from version {start.version + 1} on are not whole: {lost}; {after}, and with "
            "failOnDataLoss=false the range is read as far as it is there"
        )


def _version_after(partition: int, offset: int, commits: Iterable[_Commit], last: int) -> int:
    """Return the first version before which the partition ended at or after `offset`."""
    return 1 + next((commit.version for commit in commits if commit.ends.get(partition, 0) >= offset), last)


def _between(snapshot: PartitionSnapshot, first: int, end: int) -> PartitionSnapshot:
    """Return the snapshot from `first` to `end`, as far as it is there."""
    first, end = (min(max(offset, snapshot.start_offset), snapshot.end_offset) for offset in (first, end))
    return replace(snapshot, start_offset=first, end_offset=end)
