"""Checks a whole lake on disk for consistency with itself and with Delta, for `kafkalake log verify`.

Works beside a running broker: `state` of each partition is read first, and only data up to its offsets is checked. Delta's rows
are passed as plain values, so that storage does not depend on Delta.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from kafkalake.log_starts import raised_log_start
from kafkalake.storage.files import REAL_FILES, read_file
from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.leader_epochs import LEADER_EPOCHS_FILE, decode_leader_epochs
from kafkalake.storage.listing import Listing, list_directory, with_generations
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.partition_metadata import PARTITION_METADATA_FILE, decode_partition_metadata
from kafkalake.storage.producer_state import Producers
from kafkalake.storage.sealed_segment import smallest_of
from kafkalake.storage.segment import Segment
from kafkalake.storage.segment_names import TIME_INDEX_SUFFIX, parse_name
from kafkalake.storage.snapshot import decode_snapshot, snapshot_path
from kafkalake.storage.state import SLOT_BYTES, STATE_BYTES, STATE_FILE, PartitionState, decode_slot, decode_state
from kafkalake.storage.verify_segment import Problem, SegmentVerifier, Verified, overlaps

__all__ = ["Problem", "PublishedPartition", "PublishedSegment", "verify_lake", "verify_partition"]

_ATTEMPTS = 16


class PublishedSegment(NamedTuple):
    """A row of Delta's `segments`. `path` is relative to the lake. Timestamps in ms or None."""

    path: str
    base_offset: int
    next_offset: int
    records: int
    bytes: int
    min_timestamp: int | None
    max_timestamp: int | None


class PublishedPartition(NamedTuple):
    """A row of Delta's `partitions`. `directory`: of its leader's log, relative to the lake."""

    directory: str
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int


def verify_lake(
    lake_path: str | os.PathLike[str],
    segments_published: Iterable[PublishedSegment] = (),
    partitions_published: Iterable[PublishedPartition] = (),
    topics: Collection[str] | None = None,
) -> Iterator[Problem]:
    """Yield all problems in the lake's logs, or in those of some topics, ordered by directory."""
    lake = Path(lake_path)
    segments: dict[str, list[PublishedSegment]] = defaultdict(list)
    for row in segments_published:
        segments[os.path.dirname(row.path)].append(row)
    partitions = {row.directory: row for row in partitions_published}
    found = {str(path.relative_to(lake)): path for path in _partition_directories(lake)}
    for name in sorted({*found, *segments, *partitions}):
        if topics is not None and os.path.basename(name).rpartition("-")[0] not in topics:
            continue
        if name in found:
            yield from verify_partition(found[name], segments.get(name, []), partitions.get(name))
        elif name in segments or partitions[name].log_end_offset > 0:
            yield Problem(str(lake / name), -1, "Delta knows this partition, and its directory is missing")


def segment_files(lake: Path) -> list[Path]:
    """Return the data files of all segments of a lake."""
    return [
        path for directory in _partition_directories(lake) for path in _within(directory) if path.suffix == ".arrow"
    ]


def _partition_directories(lake: Path) -> Iterator[Path]:
    for path in (path for broker in _within(lake / "logs") for path in _within(broker)):
        stem, dash, number = path.name.rpartition("-")
        if path.is_dir() and stem and dash and number.isdigit():
            yield path


def _within(directory: Path) -> list[Path]:
    return [directory / name for name in sorted(REAL_FILES.list(str(directory)))] if directory.is_dir() else []


def verify_partition(
    directory: Path, segments: Iterable[PublishedSegment] = (), partition: PublishedPartition | None = None
) -> list[Problem]:
    """Return the problems of one partition's directory, including differences from its published rows."""
    rows = list(segments)
    for _ in range(_ATTEMPTS):
        check = _PartitionCheck(directory)
        try:
            check.run(rows, partition)
        except OSError as error:
            check.add(error.filename or str(directory), -1, f"cannot be read: {error.strerror}")
        if not check.problems or not check.is_outdated():
            break
    return check.problems


def _swapped(segments: Iterable[PublishedSegment]) -> list[RewrittenSegment]:
    """Return the segments rewritten by jobs, ascending: those with a generation in their file name."""
    found = []
    for row in segments:
        name = parse_name(os.path.basename(row.path))
        if name is not None and name.generation:
            found.append(RewrittenSegment(row.base_offset, row.next_offset, name.generation))
    return sorted(found)


class _PartitionCheck:
    def __init__(self, directory: Path) -> None:
        self.problems: list[Problem] = []
        self._directory = str(directory)
        self._state_path = f"{self._directory}/{STATE_FILE}"
        self._verified: dict[int, Verified] = {}
        self._start = self._end = -1

    def is_outdated(self) -> bool:
        """Return whether a broker has removed segments or truncated the log since the check began."""
        with contextlib.suppress(OSError):
            found = decode_state(read_file(REAL_FILES, self._state_path))
            return found is not None and (
                found[1].log_start_offset != self._start or found[1].log_end_offset < self._end
            )
        return False

    def add(self, file: str, position: int, what: str) -> None:
        self.problems.append(Problem(file, position, what))

    def run(self, segments: list[PublishedSegment], partition: PublishedPartition | None) -> None:
        state = self._check_state()
        names = REAL_FILES.list(self._directory)
        listing = with_generations(list_directory(names), names, _swapped(segments))
        self._check_small_files(listing)
        if state is None:
            return
        if partition is not None:
            start = raised_log_start(state.log_start_offset, partition.log_start_offset, state.high_watermark)
            state = state._replace(log_start_offset=start, last_stable_offset=max(start, state.last_stable_offset))
        self._start, self._end = state.log_start_offset, state.log_end_offset
        self._check_log(state, listing)
        self._check_published_segments(state, segments)
        if partition is not None:
            self._check_published_partition(state, partition)

    def _check_state(self) -> PartitionState | None:
        """Return the newest state. Reads again if a slot is damaged, because a broker may be writing it."""
        for _ in range(_ATTEMPTS):
            data = read_file(REAL_FILES, self._state_path)
            found = decode_state(data)
            damaged = [
                position
                for position in (0, SLOT_BYTES)
                if decode_slot(slot := data[position : position + SLOT_BYTES]) is None and (any(slot) or found is None)
            ]
            if not damaged and len(data) == STATE_BYTES:
                break
        for position in damaged:
            self.add(self._state_path, position, "the checksum of a slot does not match")
        if len(data) != STATE_BYTES:
            self.add(self._state_path, len(data), f"has {len(data)} bytes, not {STATE_BYTES}")
        if found is None:
            return None
        state = found[1]
        offsets = (0, state.log_start_offset, state.last_stable_offset, state.high_watermark, state.log_end_offset)
        if list(offsets) != sorted(offsets):
            self.add(self._state_path, -1, f"the offsets are not in order: {state}")
        return state

    def _check_small_files(self, listing: Listing) -> None:
        for offset in listing.snapshots:
            path = snapshot_path(self._directory, offset)
            with contextlib.suppress(FileNotFoundError):  # a running broker keeps the last two
                snapshot = decode_snapshot(read_file(REAL_FILES, path))
                if snapshot is None or snapshot.offset != offset:
                    self.add(path, 0, "the snapshot of producers is damaged")
        path = f"{self._directory}/{LEADER_EPOCHS_FILE}"
        if os.path.exists(path) and decode_leader_epochs(read_file(REAL_FILES, path)) is None:
            self.add(path, 0, "the list of leader epochs is damaged")
        path = f"{self._directory}/{PARTITION_METADATA_FILE}"
        if os.path.exists(path) and decode_partition_metadata(read_file(REAL_FILES, path)) is None:
            self.add(path, 0, "the topic's id is damaged")

    def _check_log(self, state: PartitionState, listing: Listing) -> None:
        """Check the segments one by one and against each other, up to the log end in `state`, ignoring later appends."""
        written = [base for base in listing.bases if base < state.log_end_offset]
        kept = [
            base
            for base, after in zip(written, [*written[1:], state.log_end_offset], strict=False)  # none in an empty log
            if after > state.log_start_offset
        ]
        if not kept:
            if state.log_start_offset < state.log_end_offset:
                self.add(
                    self._directory, -1, f"there are no segments for [{state.log_start_offset}, {state.log_end_offset})"
                )
            return
        if kept[0] > state.log_start_offset:
            self.add(
                self._state_path, -1, f"the log starts at {state.log_start_offset}, its first segment at {kept[0]}"
            )
        producers = Producers()
        open_files = OpenFiles(limit=8)
        # Aborted records are gone from a compacted segment, but its index still lists them.
        compacted = max(listing.generations, default=-1)
        known_from = next((base for base in kept if base > compacted), state.log_end_offset)
        earlier: int | None = -1 if kept[0] == 0 else None
        for base, after in zip(kept, [*kept[1:], state.log_end_offset], strict=True):
            growing = base == state.active_base_offset and state.active_position > 0
            generation = listing.generations.get(base, 0)
            segment = Segment(self._directory, base, open_files, generation)
            verifier = SegmentVerifier(segment, producers, known_from)
            result = verifier.verify(end=state.active_position if growing else None, sealed=not growing)
            self.problems += verifier.problems
            self._verified[base] = result
            path = segment.path
            if growing and result.scan.end < state.active_position:
                self.add(path, result.scan.end, f"state says that there are {state.active_position} bytes of messages")
            if result.content.next_offset != after:
                self.add(path, result.scan.end, f"the offsets [{result.content.next_offset}, {after}) are missing")
            # After compaction the largest timestamp of the earlier segments may be that of a removed record.
            known = result.content.next_offset == after and not generation
            earlier = self._check_earlier(segment, result, earlier) if known else None

    def _check_earlier(self, segment: Segment, result: Verified, earlier: int | None) -> int | None:
        """Check the time index's first entry against the earlier segments and return the value for the next one.

        The entry may be too low if a snapshot was lost after the log's beginning was deleted.
        """
        first = result.earlier_max_timestamp
        if first is not None and earlier is not None and first > earlier:
            path = segment.path_of(TIME_INDEX_SUFFIX)
            self.add(path, 0, f"{first} is above the largest timestamp of the segments before, {earlier}")
        known = max((value for value in (first, earlier) if value is not None), default=None)
        return None if known is None else max(known, result.content.max_timestamp)

    def _check_published_segments(self, state: PartitionState, segments: list[PublishedSegment]) -> None:
        for first, last in overlaps([(row.base_offset, row.next_offset) for row in segments]):
            self.add(self._directory, -1, f"Delta has the offsets [{first}, {last}) or a part of them twice")
        for row in segments:
            path = f"{self._directory}/{os.path.basename(row.path)}"
            result = self._verified.get(row.base_offset)
            if result is None:
                if row.next_offset > state.log_start_offset and not os.path.exists(path):
                    self.add(path, -1, "Delta knows this segment, and the file is missing")
                continue
            content = result.content
            actual = {
                "next offset": content.next_offset,
                "records": content.records,
                "bytes": result.scan.size,
                "smallest timestamp": smallest_of(content),
                "largest timestamp": content.max_timestamp if content.max_timestamp >= 0 else None,
            }
            published = (row.next_offset, row.records, row.bytes, row.min_timestamp, row.max_timestamp)
            for (name, here), there in zip(actual.items(), published, strict=True):
                if here != there:
                    self.add(path, -1, f"{name} is {here} here and {there} in Delta")

    def _check_published_partition(self, state: PartitionState, row: PublishedPartition) -> None:
        """Check that no published offset is ahead of the disk."""
        for name in PublishedPartition._fields[1:]:
            here, there = getattr(state, name), getattr(row, name)
            if there > here:
                self.add(self._state_path, -1, f"{name.replace('_', ' ')} is {here} here and {there} in Delta")
