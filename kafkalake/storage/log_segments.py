"""The segments of a log as they change: begun, rolled, removed, replaced by a job's, cut, and forced to disk.

Owns the data files, their indexes, and `state`, which tells other processes where the readable bytes end. All of it needs the
log's lock, except `listed`, the segments as they are read.
"""

from __future__ import annotations

import contextlib
import logging
from bisect import bisect_right
from collections.abc import Sequence

from kafkalake.storage.active_segment import MAXIMUM_RELATIVE_OFFSET, ActiveSegment
from kafkalake.storage.append_group import AppendGroup
from kafkalake.storage.deleted_files import DeletedFiles
from kafkalake.storage.durability import Durability, Forcing
from kafkalake.storage.generations import RewrittenSegment, with_swapped
from kafkalake.storage.log_access import LogAccess
from kafkalake.storage.log_events import LogEvents, NoEvents
from kafkalake.storage.log_state import LogState
from kafkalake.storage.open_files import OpenFile
from kafkalake.storage.recovery import Recovered, Recovery, is_whole
from kafkalake.storage.sealed_segment import describe
from kafkalake.storage.segment import Segment
from kafkalake.storage.segment_names import SUFFIXES, file_name
from kafkalake.storage.segments import Segments
from kafkalake.storage.state import STATE_FILE, PartitionState, StateFile, boot_id

logger = logging.getLogger(__name__)


class LogSegments:
    """The segments of one log. `events`: the receiver of what happens after the log is open."""

    def __init__(
        self,
        access: LogAccess,
        state: LogState,
        recovered: Recovered,
        swapped: Sequence[RewrittenSegment],
        events: LogEvents,
    ) -> None:
        self._access = access
        self._state = state
        self._swapped = swapped
        self._events: LogEvents = NoEvents()
        self.deleted = DeletedFiles(access.clock, access.open_files)
        self.load(recovered)
        self._events = events

    def load(self, recovered: Recovered) -> None:
        """Begin with what recovery found, after `LogState.load`. Raise `OSError` if I/O fails."""
        access, state, listing = self._access, recovered.state, recovered.listing
        directory, open_files = access.directory, access.open_files
        self.listed = Segments(directory, open_files, listing.bases, recovered.active, listing.generations)
        for name in listing.superseded:
            self.deleted.add(f"{directory}/{name}", access.config.file_delete_delay_ms)
        self.durability = Durability(directory, access.clock, open_files, state.recovery_point)
        for segment in self.listed.ending_above(state.recovery_point, state.log_end_offset):
            self.durability.segment_began(segment.path)
        self.durability.appended(state.log_end_offset - state.recovery_point)
        self._state_file = StateFile(f"{directory}/{STATE_FILE}", open_files, recovered.sequence)
        if not recovered.intact:
            self._state.snapshots.remove_above(state.log_end_offset)
            self._state_file.trim()
            self.write_state(sync=recovered.start_moved)
            if recovered.start_moved:  # the log start must not move back after it was visible
                access.files.sync_directory(directory)
        self.remove_before_start()

    @property
    def sealed_end(self) -> int:
        """The offset after the last sealed segment."""
        active = self.listed.active
        return self._state.log_end_offset if active is None else active.base_offset

    def generation_of(self, base_offset: int) -> int:
        """Return the generation of a sealed or just removed segment: above 0 if a job rewrote it."""
        return self.listed.generations.get(base_offset, 0)

    def active_for(self, size: int, group: AppendGroup) -> ActiveSegment:
        """Return the segment for a message of `size` bytes, rolling a full or old one. Raise `OSError` if I/O fails."""
        active, config = self.listed.active, self._access.config
        if active is not None and not active.empty:
            full = active.end() + size > config.segment_bytes
            far = group.next_offset - active.base_offset > MAXIMUM_RELATIVE_OFFSET
            if full or far or active.age_ms(group.max_timestamp, group.now_ms) >= config.segment_ms:
                self.roll()
                active = None
        if active is None:
            active = ActiveSegment(
                self._access.directory,
                self._state.log_end_offset,
                self._access.open_files,
                index_interval_bytes=config.index_interval_bytes,
                earlier_max_timestamp=self._state.max_timestamp,
            )
            self.listed.begin_active(active)
            self.durability.segment_began(active.path)
        if active.empty:
            active.begin(group.now_ms, group.max_timestamp)
        return active

    def roll(self) -> None:
        """Seal the active segment, if there is something in it. Raise `OSError` if I/O fails."""
        active = self.listed.active
        self.deleted.unlink_due()
        if active is None or active.empty:
            return
        self._state.save_snapshot()
        size = active.seal()
        self.listed.seal_active()
        # No I/O from here on: if the event were skipped, the segment would be missing in Delta until the next start.
        sealed = self.listed.sealed(active.base_offset)
        self._events.segment_sealed(describe(sealed, active.content, size, self._access.clock.now_ms()))

    def write_state(
        self,
        high_watermark: int | None = None,
        last_stable_offset: int | None = None,
        *,
        clean: bool = False,
        sync: bool = False,
    ) -> OpenFile:
        """Publish the log's offsets, or these in their place, to other processes. Raise `OSError` if I/O fails."""
        state, active = self._state, self.listed.active
        return self._state_file.write(
            PartitionState(
                state.log_start_offset,
                state.high_watermark if high_watermark is None else high_watermark,
                state.last_stable_offset if last_stable_offset is None else last_stable_offset,
                state.log_end_offset,
                state.leader_epoch,
                state.log_end_offset if active is None else active.base_offset,
                0 if active is None else active.end(),
                clean,
                self.durability.recovery_point,
                state.max_timestamp,
                state.max_timestamp_offset,
                0 if active is None else active.created_ms,
                boot_id(),
            ),
            sync=sync,
        )

    def remove_before_start(self) -> None:
        """Remove segments that end at or below the log start from the log. Their files are deleted later."""
        bases = self.listed.bases
        following = [*bases[1:], self.sealed_end] if bases else []
        for base in self.listed.remove_first(bisect_right(following, self._state.log_start_offset)):
            self._delete_files(base, self.generation_of(base))
            self._events.segment_removed(base, self.generation_of(base))
        self.deleted.unlink_due()

    def whole_ones(self, swapped: Sequence[RewrittenSegment]) -> list[RewrittenSegment]:
        """Return those that are in use or whole, in order. Reads files, without the log's lock."""
        return [new for new in sorted(swapped) if self._is_read(new) or self._is_whole(new)]

    def swap(self, swapped: Sequence[RewrittenSegment]) -> list[RewrittenSegment]:
        """Replace sealed segments by these whole ones. Return those that do not belong to this log."""
        foreign = []
        for new in swapped:
            if self._is_read(new):
                continue
            old = self.listed.swap(new)
            if old is None:
                foreign.append(new)
                self._delete_files(new.base_offset, new.generation)
                continue
            self._swapped = with_swapped(self._swapped, new)
            for segment in old:
                self._delete_files(segment.base_offset, segment.generation)
        self.deleted.unlink_due()
        return foreign

    def _is_read(self, new: RewrittenSegment) -> bool:
        return new.base_offset in self.listed.bases and self.generation_of(new.base_offset) >= new.generation

    def _is_whole(self, new: RewrittenSegment) -> bool:
        if new.next_offset <= self._state.log_start_offset:
            return True  # never read, so its file may be missing
        return is_whole(self._access.directory, new, self._access.open_files)

    def _delete_files(self, base_offset: int, generation: int) -> None:
        for suffix in SUFFIXES:
            path = f"{self._access.directory}/{file_name(base_offset, suffix, generation)}"
            self.deleted.add(path, self._access.config.file_delete_delay_ms)

    def forcing(self, *, sealed_only: bool = False) -> Forcing:
        """Return the plan to fsync all files, or those of sealed segments."""
        path = "" if self.listed.active is None else self.listed.active.path
        if sealed_only:
            return self.durability.sealed(path, self.sealed_end)
        return self.durability.all(path, self._state.log_end_offset)

    def truncate(self, offset: int) -> Recovered:
        """Remove the bytes of records at and above `offset`, by whole messages, and return what recovery finds then.

        Raise `OSError` if I/O fails. A retry or a restart then completes the truncation.
        """
        access, listed = self._access, self.listed
        cut, position = listed.cut_position(offset)
        end = self._state.log_end_offset
        logger.warning("truncating: directory=%s from=%d to=%d", access.directory, end, offset)
        dropped = False
        for segment in reversed(list(listed.in_order())):
            if segment.base_offset <= cut.base_offset:
                break
            self._drop(segment)
            dropped = True
        if dropped:
            access.files.sync_directory(access.directory)  # a crash must not bring one back after the log grew past it
        self._no_longer_sealed(cut)
        file = access.open_files.get(cut.path, write=True)
        access.files.truncate(file.descriptor, position)
        if isinstance(cut, ActiveSegment):
            cut.ends_at(position)  # for a retry, if a later step fails
        listed.forget()
        self._state.truncate(cut.base_offset, offset)
        self.write_state()
        return Recovery(access.directory, access.config, access.clock, access.open_files, self._swapped).run()

    def _drop(self, segment: Segment) -> None:
        access = self._access
        for suffix in SUFFIXES:
            path = f"{access.directory}/{file_name(segment.base_offset, suffix)}"
            access.open_files.forget(path)
            with contextlib.suppress(FileNotFoundError):
                access.files.unlink(path)
        self._no_longer_sealed(segment)

    def _no_longer_sealed(self, segment: Segment) -> None:
        if segment.base_offset in self.listed.bases:
            self._events.segment_removed(segment.base_offset, self.generation_of(segment.base_offset))
