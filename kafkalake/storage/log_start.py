"""The log start: moved by requests to delete records and by retention, durably before a segment goes."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafkalake.errors import KafkaStorageError, OffsetOutOfRangeError
from kafkalake.storage.durability import Durability, Forcing
from kafkalake.storage.log_access import LogAccess
from kafkalake.storage.log_force import LogForce
from kafkalake.storage.log_segments import LogSegments
from kafkalake.storage.log_state import LogState
from kafkalake.storage.open_files import OpenFile
from kafkalake.storage.retention import PartitionRetention, RetentionRule, SealedRange, decide_retention
from kafkalake.storage.segment_ages import SegmentAges, range_of_active


class _MovedStart(NamedTuple):
    """A log start that is not yet durable: the previous start, and the files and names to fsync."""

    before: int
    state: OpenFile
    durability: Durability
    names: Forcing


class LogStart:
    """The start of one log. Its calls block on the disk, while appends continue."""

    def __init__(self, access: LogAccess, state: LogState, segments: LogSegments, force: LogForce) -> None:
        self._access = access
        self._state = state
        self._segments = segments
        self._to_disk = force
        self._moving = threading.Lock()
        """Held while the log start moves, including the fsync. Taken before the log's lock."""
        self._ages = SegmentAges()

    def move_to(self, offset: int) -> None:
        """Move the log start durably to `offset` and remove whole segments below it from the log."""
        with self._moving:
            if offset == self._state.log_end_offset:
                self._list_messages("delete records")
            with self._access.lock:
                moved = self._move(offset)
            self._force(moved)

    def raise_to(self, offset: int) -> None:
        """Raise the log start as `move_to`, at most to the high watermark, and keep the last segment."""
        with self._moving:
            with self._access.lock:
                moved = self._move(min(offset, self._state.high_watermark), rolls=False)
            self._force(moved, keeps_last=True)

    def enforce_retention(
        self, rule: RetentionRule, committed: Mapping[str, int], end: int | None = None
    ) -> PartitionRetention:
        """Remove the segments that `rule` expires and return the decision. end: what is beyond it stays."""
        with self._moving:
            return self._enforce(rule, committed, end)

    def _move(self, offset: int, *, rolls: bool = True) -> _MovedStart | None:
        """Publish `offset` as log start to readers. Return None if the log starts there or later. Deletes nothing yet."""
        access, state, segments = self._access, self._state, self._segments
        access.check_open()
        if not 0 <= offset <= state.high_watermark:
            raise OffsetOutOfRangeError(f"offset {offset} is outside of [0, {state.high_watermark}]")
        before = state.log_start_offset
        if offset <= before:
            return None
        try:
            with access.guarded("delete records"):
                if rolls and offset == state.log_end_offset:
                    segments.roll()
                state.move_start(offset)
                written = segments.write_state()
                return _MovedStart(before, written, segments.durability, segments.durability.new_names())
        except KafkaStorageError:
            state.take_back_start(before)
            raise

    def _list_messages(self, doing: str) -> None:
        """Make the roll that follows short: an append waits for the log's lock. Call it without that."""
        with self._access.guarded(doing):
            self._segments.list_messages()

    def _force(self, moved: _MovedStart | None, *, keeps_last: bool = False) -> None:
        """Force the log start to disk, then remove the segments before it. Call it without the log's lock."""
        if moved is None:
            return
        access, state = self._access, self._state
        try:
            with access.guarded("delete records"):
                access.files.sync(moved.state.descriptor)
                self._to_disk.carry_out(moved.durability, moved.names)  # the first time, also the name of `state`
        except KafkaStorageError:
            # A flush that has failed meanwhile may have reloaded the log, without what was before its start.
            with access.lock:
                state.take_back_start(max(moved.before, self._segments.listed.begin(state.log_end_offset)))
            raise
        with access.lock:
            access.check_open()
            state.forget_epochs_before_start()
            self._segments.remove_before_start(keeps_last=keeps_last)

    def _enforce(self, rule: RetentionRule, committed: Mapping[str, int], end_offset: int | None) -> PartitionRetention:
        access, state = self._access, self._state
        with access.lock:
            access.check_open()
            listed = self._segments.listed
            bases, active, end = list(listed.bases), listed.active, state.log_end_offset
            ends = [*bases[1:], self._segments.sealed_end] if bases else []
            sealed = list(zip(map(listed.sealed, bases), ends, strict=True))
            start, high_watermark = state.log_start_offset, state.high_watermark
            now_ms = access.clock.now_ms()
            with access.guarded("look at segments"):
                growing = [] if active is None or active.empty else [range_of_active(active, end)]
        with access.guarded("look at segments"):
            ranges = self._ages.of(sealed)

        def decide(segments: Sequence[SealedRange], active_bytes: int) -> PartitionRetention:
            return decide_retention(
                segments,
                rule,
                committed,
                now_ms=now_ms,
                log_start_offset=start,
                end_offset=high_watermark if end_offset is None else min(high_watermark, end_offset),
                active_bytes=active_bytes,
            )

        decision = decide([*ranges, *growing], 0)
        if growing and decision.segments[-1:] == tuple(growing):
            self._list_messages("retention")
        with access.lock:
            access.check_open()
            if growing and decision.segments[-1:] == tuple(growing) and state.log_end_offset != end:
                decision = decide(ranges, growing[0].bytes)  # the active segment grew meanwhile
            moved = self._move(decision.log_start_offset) if decision.segments else None
        self._force(moved)
        return decision
