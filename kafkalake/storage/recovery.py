"""Recovers a partition from its directory after a clean shutdown, a kill, or a power failure.

After a clean shutdown (`state` is clean and nothing was written since), `state` is used as it is and no segment is opened.

Otherwise the last segment, the only unsealed one, is scanned and every checksum verified. After a machine restart, earlier
segments that may not have reached the disk are verified too (`sealed_segment_recovery.py`):

    whole messages to the end of the file               append there
    followed by exactly their footer                    sealed
    anything else at position p, offset o:
      o is below the high watermark in `state`, no      the records up to the high watermark are **lost**: seal the file and cover
      whole message follows, and the file is shorter    the lost offsets with a segment that marks them (`lost_records.py`)
      than `state` says or the machine restarted since
      o is below the high watermark in `state`          acknowledged records are damaged: **refuse**. The file stays, reads of
                                                        that range raise CorruptSegmentError, later whole messages stay
                                                        readable, appends continue in a new segment at an unused offset
      whole messages follow, and `state` may be old     the same: they may have been acknowledged
      (missing, or written in another boot)
      else                                              never acknowledged, or a torn footer: truncate at p, and log it

With other replicas nothing is refused or marked as lost: the log is cut where the first record is missing or damaged, later
segments included, because the leader has the records, and offsets that mean something else here would never be noticed. Whether
the removed bytes may have been acknowledged says `Recovered.was_cut`.

Then the data is truncated, the indexes are rebuilt from the data, and `state` is written. In this order a crash in between
recovers to the same result. Producer state is the newest whole snapshot plus a replay of the batch headers from there.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from kafkalake.clock import Clock
from kafkalake.errors import as_value
from kafkalake.record.message import REASONS, TORN
from kafkalake.record.schema import PREAMBLE, footer
from kafkalake.storage.active_segment import ActiveSegment
from kafkalake.storage.config import LogConfig
from kafkalake.storage.files import read_file, write_all
from kafkalake.storage.generations import RewrittenSegment, covering
from kafkalake.storage.leader_epochs import LEADER_EPOCHS_FILE, LeaderEpochs, decode_leader_epochs
from kafkalake.storage.listing import Listing, list_directory, removed_generations, with_generations
from kafkalake.storage.lost_records_marker import drop_segment, record_loss
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.producer_state import Producers
from kafkalake.storage.replay import Replay
from kafkalake.storage.rewritten_check import is_usable
from kafkalake.storage.scanner import SegmentScan, good_message_after, scan_segment
from kafkalake.storage.sealed_segment_recovery import (
    SealedSegmentRecovery,
    after,
    past_damage,
    resumed,
    rewrite_indexes,
)
from kafkalake.storage.segment import FIRST_MESSAGE, Segment
from kafkalake.storage.segment_names import begins_from, parse_name
from kafkalake.storage.segment_reader import Stop
from kafkalake.storage.snapshot import Snapshot
from kafkalake.storage.state import PartitionState, boot_id, load_state

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Recovered:
    """The recovery result. `state`: the state to write. `sequence`: of the state file. `intact`: nothing had to be recovered.
    `start_moved`: the log start differs from the state file's, or from 0 without a state file."""

    state: PartitionState
    sequence: int
    intact: bool
    start_moved: bool
    listing: Listing
    active: ActiveSegment | None
    producers: Producers
    epochs: LeaderEpochs
    was_cut: bool = False
    """Whether records that may have been acknowledged are missing or damaged."""


class Tail(Enum):
    """The decision on the last segment."""

    APPEND = "go on appending"
    SEALED = "it is sealed"
    CUT = "cut off what was never acknowledged"
    LOST = "acknowledged records are gone: seal what is there, write down what is lost"
    REFUSE = "keep what was acknowledged and is damaged, and go on in a new segment"


def decide_tail(
    found: SegmentScan,
    state: PartitionState | None,
    *,
    base: int,
    footer_right: bool,
    follows: bool,
    trusted: bool,
    is_replicated: bool = False,
) -> Tail:
    """Decide as the table in the module's docstring.

    footer_right: the messages are followed by exactly their footer. follows: a message with valid metadata follows the damage.
    trusted: `state` was written in this boot, so nothing in the page cache is newer. base: base offset of the segment.
    """
    if found.stop is Stop.END_OF_FILE:
        return Tail.APPEND
    if footer_right:
        return Tail.SEALED
    if is_replicated:
        return Tail.CUT
    if state is not None and found.content.next_offset < state.high_watermark:
        is_short = state.active_base_offset == base and found.size < state.active_position
        return Tail.LOST if not follows and (is_short or not trusted) else Tail.REFUSE
    if follows and not trusted:
        return Tail.REFUSE
    return Tail.CUT


def is_suspect(found: SegmentScan, tail: Tail, state: PartitionState | None, *, trusted: bool) -> bool:
    """Return whether records may be missing or damaged that were acknowledged. Arguments as of `decide_tail`.

    Only a write that the end of the process has interrupted leaves a message that is cut short and was not: nothing was
    acknowledged of it, and the page cache has all that was written before.
    """
    if state is None or found.content.next_offset < state.log_end_offset or tail in (Tail.LOST, Tail.REFUSE):
        return True
    if tail is not Tail.CUT or found.stop is not Stop.DAMAGE:
        return False
    return not (trusted and found.reason == REASONS[TORN])


class Recovery:
    """The recovery of one partition."""

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        clock: Clock,
        open_files: OpenFiles,
        swapped: Sequence[RewrittenSegment] = (),
        *,
        is_replicated: bool = False,
        is_counted: bool = False,
    ) -> None:
        """`is_counted`: the cluster counts this replica as one with all records, so that it has lost them if nothing is there."""
        self._directory = directory
        self._swapped = swapped
        self._is_replicated = is_replicated
        self._is_counted = is_counted
        self._config = config
        self._open_files = open_files
        self._files = open_files.files
        self._now_ms = clock.now_ms()

    def run(self) -> Recovered:
        """Read the directory once, recover, and return the result. Raise `OSError` if I/O fails."""
        self._files.make_directory(self._directory)
        names = self._files.list(self._directory)
        listing = list_directory(names)
        if self._swapped:
            listing = self._with_whole_generations(listing, names)
        for name in listing.leftovers:
            with contextlib.suppress(OSError):
                self._files.unlink(f"{self._directory}/{name}")
        loaded = load_state(self._files, self._directory, is_required=self._is_replicated)
        sequence, state = loaded if loaded is not None else (0, None)
        listing.superseded += removed_generations(names, listing.bases, (state or PartitionState()).log_start_offset)
        epochs = self._load_epochs(listing)
        if state is not None and state.clean and self._untouched(state, listing):
            producers = self._earlier(listing).snapshot_at(state.log_end_offset).producers
            return Recovered(state, sequence, True, False, listing, None, producers, epochs, state.was_cut)
        if state is None and listing.bases:
            logger.warning("state is missing or damaged, recovered from the log: directory=%s", self._directory)
        if self._is_replicated and listing.bases and listing.bases[0] > (state or PartitionState()).log_start_offset:
            self._drop(listing, listing.bases[0])  # the first segment is missing: the log start moves durably, or is 0
        recover = self._with_segments if listing.bases else self._without_segments
        recovered = recover(state, sequence, listing, epochs)
        recovered.was_cut |= state is not None and state.was_cut
        return recovered

    def _with_whole_generations(self, listing: Listing, names: list[str]) -> Listing:
        """Apply `with_generations`, ignoring rewritten segments that are not usable and whose predecessors still exist."""
        swapped = sorted(self._swapped)
        found = with_generations(listing, names, swapped)
        replaced = {covering(swapped, parsed.base_offset) for name in found.superseded if (parsed := parse_name(name))}
        refused = [each for each in replaced if each and not is_usable(self._directory, each, self._open_files)]
        return with_generations(listing, names, [each for each in swapped if each not in refused]) if refused else found

    def _earlier(self, listing: Listing) -> SealedSegmentRecovery:
        return SealedSegmentRecovery(
            self._directory,
            self._config,
            self._open_files,
            self._now_ms,
            bases=listing.bases,
            snapshots=listing.snapshots,
            generations=listing.generations,
            is_replicated=self._is_replicated,
        )

    def _untouched(self, state: PartitionState, listing: Listing) -> bool:
        if listing.bases and listing.bases[-1] >= state.log_end_offset:
            return False
        return bool(listing.bases) or state.log_start_offset == state.log_end_offset

    def _without_segments(
        self, state: PartitionState | None, sequence: int, listing: Listing, epochs: LeaderEpochs
    ) -> Recovered:
        """Recover a new partition, or one whose segments were all deleted or lost. A leader alone never reuses assigned offsets."""
        end = state.log_end_offset if state is not None else max(listing.snapshots, default=0)
        start = state.log_start_offset if state is not None else 0 if self._is_replicated else end
        are_missing = start < end or (state is None and self._is_counted)
        if are_missing:
            logger.error("segments are missing: directory=%s offsets=[%d, %d)", self._directory, start, end)
        if self._is_replicated:
            end = start
            epochs.truncate_end(end)
        epoch = max(epochs.latest, state.leader_epoch if state is not None else -1)
        new = PartitionState(end, end, end, end, epoch, active_base_offset=end, recovery_point=end)
        producers = self._earlier(listing).snapshot_at(end).producers
        moved = _start_moved(state, new)
        return Recovered(new, sequence, False, moved, listing, None, producers, epochs, are_missing)

    def _with_segments(
        self, state: PartitionState | None, sequence: int, listing: Listing, epochs: LeaderEpochs
    ) -> Recovered:
        trusted = state is not None and state.boot_id == boot_id() != bytes(16)
        snapshot, lost = self._verify_earlier(state, listing, epochs, trusted=trusted)
        base = listing.bases[-1]
        generation = listing.generations.get(base, 0)
        segment = Segment(self._directory, base, self._open_files, generation)
        replay = Replay(
            base, self._config.index_interval_bytes, snapshot.producers, snapshot.offset, epochs, self._now_ms
        )
        found = scan_segment(segment, replay)
        if not found.preamble_right and found.size > 0:
            self._repair_preamble(segment, found)
        rest = (
            segment.read_bytes(found.end, found.size - found.end).tobytes() if found.stop is Stop.END_OF_STREAM else b""
        )
        active = resumed(self._directory, base, self._open_files, self._config, snapshot, replay, found, generation)
        footer_right = bool(rest) and rest == footer(active.blocks())
        follows = None
        if found.stop is not Stop.END_OF_FILE and not footer_right:
            follows = good_message_after(segment, found.end, found.size, found.content.next_offset)
        tail = decide_tail(
            found,
            state,
            base=base,
            footer_right=footer_right,
            follows=follows is not None,
            trusted=trusted,
            is_replicated=self._is_replicated,
        )
        was_cut = bool(lost) or is_suspect(found, tail, state, trusted=trusted)
        if tail is Tail.REFUSE:
            found = past_damage(segment, found, replay)
        elif tail in (Tail.CUT, Tail.LOST) or (tail is Tail.APPEND and found.size < FIRST_MESSAGE):
            self._cut(segment, found)
        segment.forget()
        end = found.content.next_offset
        if state is not None and not self._is_replicated:
            end = max(end, state.high_watermark)
        # A segment that marks lost records holds nothing else. Seal it also if a crash came before its footer.
        unsealed_loss = tail is Tail.APPEND and replay.has_losses
        goes_on = tail in (Tail.APPEND, Tail.CUT) and end == found.content.next_offset and not unsealed_loss
        is_short = end > found.content.next_offset
        to_be_sealed = goes_on or unsealed_loss or (is_short and tail in (Tail.APPEND, Tail.LOST))
        is_lost = is_short and tail is not Tail.REFUSE
        if is_short:
            self._log_loss(active, found, end)
        if not generation:  # a job's files are whole, and its `.txnindex` has entries whose records compaction removed
            rewrite_indexes(self._open_files, active, replay, found, sealed=not to_be_sealed)
        # Without a state, a leader alone has shown its whole log. Others learn the high watermark again.
        unknown = PartitionState(listing.bases[0], listing.bases[0] if self._is_replicated else end)
        if goes_on:
            listing.bases.pop()
            known_ms = state.active_created_ms if state is not None else 0
            active.begin(known_ms or self._now_ms, active.first_timestamp)
        if unsealed_loss and not is_lost:
            active.seal()
            active.forget()
        if is_lost:
            epoch = max(replay.epochs.latest, state.leader_epoch if state else -1)
            self._record_loss(listing, active, tail, end, epoch)
        new = _state_after(state or unknown, found, after(snapshot, found), replay.epochs, end, trusted=trusted)
        moved = _start_moved(state, new)
        growing = active if goes_on else None
        return Recovered(new, sequence, False, moved, listing, growing, replay.producers, replay.epochs, was_cut)

    def _verify_earlier(
        self, state: PartitionState | None, listing: Listing, epochs: LeaderEpochs, *, trusted: bool
    ) -> tuple[Snapshot, list[int]]:
        """Verify the segments before the last one as far as `state` does not vouch for them. Return the producers before the last
        one, and the segments that are gone because records before them are lost (with followers)."""
        earlier = self._earlier(listing)
        if trusted:
            snapshot = earlier.snapshot_at(listing.bases[-1])
            epochs.truncate_end(listing.bases[-1])
        else:
            snapshot = earlier.verify_from(state.recovery_point if state is not None else 0, epochs)
        lost = listing.bases[len(earlier.bases) :] if self._is_replicated else []
        if lost:
            self._drop(listing, lost[0])
        return snapshot, lost

    def _log_loss(self, active: ActiveSegment, found: SegmentScan, end: int) -> None:
        lost = f"[{found.content.next_offset}, {end})"
        logger.error(
            "acknowledged records are lost, their offsets are not used again: file=%s offsets=%s", active.path, lost
        )

    def _drop(self, listing: Listing, base: int) -> None:
        """Remove the segments from the one at `base` on, which follow one that has lost records, the last ones first."""
        logger.error("segments behind lost records are removed: directory=%s from=%d", self._directory, base)
        names = [name for name in self._files.list(self._directory) if begins_from(name, base)]
        for name in sorted(names, reverse=True):
            self._open_files.unlink(f"{self._directory}/{name}")
        self._files.sync_directory(self._directory)
        listing.bases[:] = [each for each in listing.bases if each < base]

    def _record_loss(self, listing: Listing, last: ActiveSegment, tail: Tail, end: int, leader_epoch: int) -> None:
        """Seal the last segment and add one that marks the lost offsets."""
        if last.content.next_offset == last.base_offset:
            listing.bases.pop()
            drop_segment(self._open_files, last)
        elif tail is not Tail.SEALED:
            last.seal()
            last.forget()
        earlier_max = max(last.earlier_max_timestamp, last.content.max_timestamp)
        listing.bases += record_loss(
            self._open_files,
            self._directory,
            last.content.next_offset,
            end,
            leader_epoch=leader_epoch,
            earlier_max=earlier_max,
        )

    def _cut(self, segment: Segment, found: SegmentScan) -> None:
        end = found.end if found.size >= FIRST_MESSAGE else 0
        lost = found.size - end
        what = "footer" if found.stop is Stop.END_OF_STREAM else "tail"
        logger.warning(
            "cut off a torn %s: file=%s position=%d bytes=%d reason=%s", what, segment.path, end, lost, found.reason
        )
        file = self._open_files.get(segment.path, write=True)
        self._files.truncate(file.descriptor, end)

    def _repair_preamble(self, segment: Segment, found: SegmentScan) -> None:
        """Write the preamble again: it is the same in every segment."""
        if found.size < FIRST_MESSAGE:
            return
        logger.warning("rewrote the damaged schema at the start of a segment: file=%s", segment.path)
        file = self._open_files.get(segment.path, write=True)
        write_all(self._files, file.descriptor, PREAMBLE, 0)

    def _load_epochs(self, listing: Listing) -> LeaderEpochs:
        path = f"{self._directory}/{LEADER_EPOCHS_FILE}"
        epochs = None
        try:
            epochs = decode_leader_epochs(read_file(self._files, path))
            reason: object = "damaged"
        except OSError as error:
            reason = as_value(error)
        if epochs is None and listing.bases:
            logger.warning("leader epochs are taken from the segments: file=%s reason=%s", path, reason)
            return self._earlier(listing).epochs()
        return epochs or LeaderEpochs()


def _start_moved(before: PartitionState | None, now: PartitionState) -> bool:
    return now.log_start_offset != (before.log_start_offset if before is not None else 0)


def _state_after(
    old: PartitionState, found: SegmentScan, newest: Snapshot, epochs: LeaderEpochs, end: int, *, trusted: bool
) -> PartitionState:
    """Return the state of the recovered log that ends at `end`. The log itself fills in the active segment."""
    start = min(old.log_start_offset, end)
    high_watermark = max(start, min(old.high_watermark, end))
    return PartitionState(
        log_start_offset=start,
        high_watermark=high_watermark,
        last_stable_offset=start,
        log_end_offset=end,
        leader_epoch=max(epochs.latest, old.leader_epoch),
        fsync_failed=old.fsync_failed and trusted,
        recovery_point=min(old.recovery_point, found.content.next_offset),
        max_timestamp=newest.max_timestamp,
        max_timestamp_offset=newest.max_timestamp_offset,
        takeover_offset=old.takeover_offset if high_watermark < old.takeover_offset <= end else 0,
    )
