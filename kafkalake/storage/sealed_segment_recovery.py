"""Recovers producer state from the segments before the last one, and verifies those that may not have reached the disk.

Producer state at an offset is the newest whole snapshot not above it plus a replay of the batch headers from there.

A sealed segment is trusted unless the machine stopped before it was fsynced (`recovery_point`). Then its messages are
verified, and its footer and indexes are rebuilt. Damaged data stays, and reads of it fail.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping

from kafkalake.errors import CorruptSegmentError
from kafkalake.record import layout as at
from kafkalake.record.schema import footer
from kafkalake.storage.active_segment import ActiveSegment, reset_txn_index
from kafkalake.storage.config import LogConfig
from kafkalake.storage.files import read_file
from kafkalake.storage.leader_epochs import LeaderEpochs
from kafkalake.storage.lost_records_marker import record_loss
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.producer_state import Producers
from kafkalake.storage.replay import Replay, replay_epochs
from kafkalake.storage.scanner import SegmentScan, good_message_after, scan_segment
from kafkalake.storage.segment import FIRST_MESSAGE, Segment
from kafkalake.storage.segment_names import TXN_INDEX_SUFFIX
from kafkalake.storage.segment_reader import Stop
from kafkalake.storage.snapshot import Snapshot, decode_snapshot, snapshot_path

logger = logging.getLogger(__name__)


class SealedSegmentRecovery:
    """The segments with base offsets `bases` and the snapshots at `snapshots`, both ascending, during recovery."""

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        open_files: OpenFiles,
        now_ms: int,
        *,
        bases: list[int],
        snapshots: list[int],
        generations: Mapping[int, int],
        is_replicated: bool = False,
    ) -> None:
        self._directory = directory
        self._config = config
        self._open_files = open_files
        self._now_ms = now_ms
        self._bases = list(bases) if is_replicated else bases
        self._is_replicated = is_replicated
        self._snapshots = snapshots
        self._generations = generations
        self._lost: list[int] = []

    @property
    def bases(self) -> list[int]:
        """The base offsets of the segments, with other replicas only up to the one that has lost records."""
        return self._bases

    def epochs(self) -> LeaderEpochs:
        """Return the leader epochs of the messages, from the first and the last one of each segment, which rarely differ.

        Damaged segments are left out. Raise `OSError` if I/O fails.
        """
        epochs = LeaderEpochs()
        for base in self._bases:
            segment = self._segment(base)
            with contextlib.suppress(CorruptSegmentError):
                _add_epochs(segment, epochs)
            segment.forget()
        return epochs

    def snapshot_at(self, offset: int) -> Snapshot:
        """Return the producers as of log end `offset`. Raise `OSError` if I/O fails."""
        snapshot = self._newest_snapshot(offset)
        earlier = [base for base in self._bases if base < offset]
        if snapshot is None:
            snapshot = Snapshot(-1, Producers())
        if snapshot.offset == offset or not earlier:
            return snapshot
        from_offset = snapshot.offset
        first = max((number for number, base in enumerate(earlier) if base <= from_offset), default=0)
        logger.info("replaying producers: directory=%s from=%d to=%d", self._directory, from_offset, offset)
        for base in earlier[first:]:
            segment = self._segment(base)
            replay = Replay(base, 1 << 62, snapshot.producers, from_offset, LeaderEpochs(), self._now_ms)
            snapshot = after(snapshot, scan_segment(segment, replay, columns=0))
            segment.forget()
        return Snapshot(offset, snapshot.producers, snapshot.max_timestamp, snapshot.max_timestamp_offset)

    def _segment(self, base: int) -> Segment:
        return Segment(self._directory, base, self._open_files, self._generations.get(base, 0))

    def _newest_snapshot(self, offset: int) -> Snapshot | None:
        for candidate in reversed(self._snapshots):
            if candidate > offset:
                continue
            path = snapshot_path(self._directory, candidate)
            try:
                snapshot = decode_snapshot(read_file(self._open_files.files, path))
            except OSError as error:  # the one before it, with a longer replay, gives the same
                logger.warning("a snapshot of producers cannot be read: file=%s error=%s", path, error)
                continue
            if snapshot is not None and snapshot.offset == candidate:
                return snapshot
            logger.warning("a damaged snapshot of producers is not used: file=%s", path)
        return None

    def verify_from(self, recovery_point: int, epochs: LeaderEpochs) -> Snapshot:
        """Verify and reseal segments beyond `recovery_point` and return the producers at the base of the last segment.

        `recovery_point`: offsets below it are on disk. Raise `OSError` if I/O fails.
        """
        ends = self._bases[1:]
        # A segment that ends exactly there may have been sealed after the fsync.
        first = sum(end < recovery_point for end in ends)
        epochs.truncate_end(self._bases[first])
        snapshot = self.snapshot_at(self._bases[first])
        for base, end in zip(self._bases[first:-1], ends[first:], strict=True):
            segment = self._segment(base)
            replay = Replay(
                base, self._config.index_interval_bytes, snapshot.producers, snapshot.offset, epochs, self._now_ms
            )
            found = scan_segment(segment, replay)
            if segment.generation:
                pass  # the job fsynced it before committing it to Delta
            elif found.content.next_offset == end:
                self._seal_again(base, snapshot, replay, found)
            elif self._is_replicated:
                segment.forget()
                del self._bases[self._bases.index(base) + 1 :]
                return self.snapshot_at(base)
            elif found.content.next_offset < end and self._is_gone(segment, found):
                self._seal_again(base, snapshot, replay, found)
                self._record_loss(base, snapshot, found, end, epochs.latest)
            else:
                found = past_damage(segment, found, replay)
                lost = resumed(self._directory, base, self._open_files, self._config, snapshot, replay, found)
                rewrite_indexes(self._open_files, lost, replay, found, sealed=True)
            segment.forget()
            snapshot = after(snapshot, found)
        self._bases += self._lost
        self._bases.sort()
        return Snapshot(self._bases[-1], snapshot.producers, snapshot.max_timestamp, snapshot.max_timestamp_offset)

    def _is_gone(self, segment: Segment, found: SegmentScan) -> bool:
        return good_message_after(segment, found.end, found.size, found.content.next_offset) is None

    def _record_loss(self, base: int, snapshot: Snapshot, found: SegmentScan, end: int, leader_epoch: int) -> None:
        """Add a segment that marks lost offsets after the one at `base`, or in its place if nothing of it is left."""
        content = found.content
        logger.error(
            "acknowledged records are lost: directory=%s offsets=[%d, %d)", self._directory, content.next_offset, end
        )
        earlier_max = max(snapshot.max_timestamp, content.max_timestamp)
        made = record_loss(
            self._open_files,
            self._directory,
            content.next_offset,
            end,
            leader_epoch=leader_epoch,
            earlier_max=earlier_max,
        )
        self._lost += [each for each in made if each != base]

    def _seal_again(self, base: int, snapshot: Snapshot, replay: Replay, found: SegmentScan) -> None:
        segment = resumed(self._directory, base, self._open_files, self._config, snapshot, replay, found)
        if found.stop is Stop.END_OF_STREAM:
            rest = segment.read_bytes(found.end, found.size - found.end).tobytes()
            if rest == footer(segment.blocks()):
                rewrite_indexes(self._open_files, segment, replay, found, sealed=True)
                return
        logger.warning("sealing again: file=%s", segment.path)
        rewrite_indexes(self._open_files, segment, replay, found, sealed=False)
        file = self._open_files.get(segment.path, write=True)
        self._open_files.files.truncate(file.descriptor, found.end)
        segment.seal()


def _add_epochs(segment: Segment, epochs: LeaderEpochs) -> None:
    """Add the leader epochs of a segment. Raise `CorruptSegmentError` on damage, `OSError` if I/O fails."""
    first = segment.read(FIRST_MESSAGE, 1, 1 << 62, 0)
    if first is None:
        return
    entry = segment.index.last()
    position = FIRST_MESSAGE if entry is None else entry[1]
    last = segment.read(position, segment.end() - position, 1 << 62, 0)
    replay_epochs(first.messages.headers, epochs)
    if last is None or last.messages.headers[-1, at.LEADER_EPOCH] != epochs.latest:
        scan_segment(segment, lambda messages, _: replay_epochs(messages.headers, epochs), columns=0)


def after(snapshot: Snapshot, found: SegmentScan) -> Snapshot:
    """Return the snapshot updated with a scanned segment's largest timestamp."""
    content = found.content
    if content.max_timestamp > snapshot.max_timestamp:
        return Snapshot(snapshot.offset, snapshot.producers, content.max_timestamp, content.max_timestamp_offset)
    return snapshot


def past_damage(segment: Segment, found: SegmentScan, replay: Replay) -> SegmentScan:
    """Scan past damaged bytes, which stay in the file, and return a scan that covers all later whole messages.

    The message after each damage is indexed, so that reads get past it.
    """
    logger.error(
        "acknowledged records are damaged and will not be served: file=%s position=%d offset=%d reason=%s",
        segment.path,
        found.end,
        found.content.next_offset,
        found.reason or found.stop.value,
    )
    while True:
        follows = good_message_after(segment, found.end, found.size, found.content.next_offset)
        # If only the body is damaged, the headers are still valid for producer state.
        end = found.size if follows is None else follows.position
        found = scan_segment(segment, replay, start=found.end, end=end, columns=0, content=found.content)
        if follows is None:
            return found
        replay.force_entry()
        found.content.next_offset = follows.offset
        found = scan_segment(segment, replay, start=follows.position, content=found.content)
        if found.stop is Stop.END_OF_FILE or found.end == found.size:
            return found


def resumed(
    directory: str,
    base: int,
    open_files: OpenFiles,
    config: LogConfig,
    snapshot: Snapshot,
    replay: Replay,
    found: SegmentScan,
    generation: int = 0,
) -> ActiveSegment:
    """Return the segment with base offset `base` as after appending the found messages."""
    segment = ActiveSegment(
        directory,
        base,
        open_files,
        index_interval_bytes=config.index_interval_bytes,
        earlier_max_timestamp=snapshot.max_timestamp,
        generation=generation,
    )
    end = found.end if found.size >= FIRST_MESSAGE else 0
    segment.resume(end, found.content, replay.indexed_at, len(replay.aborted), 0)
    return segment


def rewrite_indexes(
    open_files: OpenFiles, segment: ActiveSegment, replay: Replay, found: SegmentScan, *, sealed: bool
) -> None:
    """Rebuild the index files of a segment from its messages. Raise `OSError` if I/O fails."""
    rewrite_hints(segment, replay, found, sealed=sealed)
    reset_txn_index(open_files, segment.path_of(TXN_INDEX_SUFFIX), replay.aborted, sealed=sealed)


def rewrite_hints(segment: ActiveSegment, replay: Replay, found: SegmentScan, *, sealed: bool) -> None:
    """Rebuild the indexes of a segment that are hints from its messages. Raise `OSError` if I/O fails."""
    first = [(segment.earlier_max_timestamp, 0)] if found.end > 0 else []
    last = [(found.content.max_timestamp, found.content.next_offset - segment.base_offset)] if sealed else []
    segment.index.rewrite(replay.offset_entries)
    segment.time_index.rewrite(first + replay.time_entries + last)
