"""The segments of a log as they change: begun, rolled, removed, replaced by a job's, cut, and forced to disk.

Owns the data files, their indexes, and `state`, which tells other processes where the readable bytes end. All of it needs the
log's lock, except `listed`, the segments as they are read.
"""

from __future__ import annotations

import contextlib
import logging
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from kafkalake.errors import DivergedLogError
from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.storage.active_segment import MAXIMUM_RELATIVE_OFFSET, ActiveSegment, SegmentContent
from kafkalake.storage.append_group import AppendGroup
from kafkalake.storage.deleted_files import DeletedFiles
from kafkalake.storage.durability import Durability, Forcing
from kafkalake.storage.generations import RewrittenSegment, with_swapped
from kafkalake.storage.log_access import LogAccess
from kafkalake.storage.log_events import LogEvents, NoEvents
from kafkalake.storage.log_state import LogState
from kafkalake.storage.open_files import OpenFile
from kafkalake.storage.recovery import Recovered, Recovery
from kafkalake.storage.rewritten_check import is_whole
from kafkalake.storage.sealed_segment import describe
from kafkalake.storage.segment import Segment
from kafkalake.storage.segment_names import begins_from
from kafkalake.storage.segments import Cut, Segments
from kafkalake.storage.state import STATE_FILE, PartitionState, StateFile, boot_id

logger = logging.getLogger(__name__)

_MESSAGE_BYTES_MAX = 4096
"""More than a message has beside the columns of its batches, for each of them."""


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
        self.deleted = DeletedFiles(access.directory, access.clock, access.open_files)
        self.load(recovered)
        self._events = events

    def load(self, recovered: Recovered) -> None:
        """Begin with what recovery found, after `LogState.load`. Raise `OSError` if I/O fails."""
        access, state, listing = self._access, recovered.state, recovered.listing
        directory, open_files = access.directory, access.open_files
        self.listed = Segments(directory, open_files, listing.bases, recovered.active, listing.generations)
        for name in listing.superseded:
            self.deleted.add(name, access.config.file_delete_delay_ms)
        self.durability = Durability(directory, access.clock, open_files, state)
        if not recovered.intact or state.recovery_point < state.log_end_offset:
            # One that ends at the recovery point may have been sealed after its records were forced.
            for segment in self.listed.ending_from(state.recovery_point, state.log_end_offset):
                self.durability.segment_began(segment.path)
        self.durability.appended(state.log_end_offset - state.recovery_point)
        self._state_file = StateFile(f"{directory}/{STATE_FILE}", open_files, recovered.sequence)
        self._is_touched = not recovered.intact
        """Whether the state on the disk cannot be a clean one, which would hide that a file became shorter."""
        if not recovered.intact:
            self._state.snapshots.remove_above(state.log_end_offset)
            self._state_file.trim()
            self.write_state(sync=recovered.start_moved or recovered.was_cut)
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
        active = self.listed.active
        if active is not None and self._ends_before(active, size, group.next_offset, group.max_timestamp, group.now_ms):
            self.roll()
            active = None
        active = active or self._begin_active()
        if active.empty:
            active.begin(group.now_ms, group.max_timestamp)
        return active

    def _ends_before(self, active: ActiveSegment, size: int, next_offset: int, max_timestamp: int, now_ms: int) -> bool:
        config, far = self._access.config, next_offset - active.base_offset > MAXIMUM_RELATIVE_OFFSET
        full = active.end() + size > config.segment_bytes
        old = active.age_ms(max_timestamp, now_ms) >= config.segment_ms
        return not active.empty and (full or far or old)

    def may_seal_many(self, batches: Iterable[ProducerBatch | None]) -> bool:
        """Return whether an append of `batches`, None for a marker, may seal a segment of many messages. Needs no lock."""
        active = self.listed.active
        if active is None or active.is_listed:
            return False
        size, next_offset, max_timestamp, now_ms = 0, self._state.log_end_offset, -1, self._access.clock.now_ms()
        for batch in batches:
            size += _MESSAGE_BYTES_MAX + (2 * batch.size if batch is not None else 0)
            next_offset += batch.offsets if batch is not None else 1
            max_timestamp = max(max_timestamp, batch.header.item(at.MAX_TIMESTAMP) if batch is not None else -1)
        # By the time of the producers, or that of this broker, which markers have, and all records where the topic says so.
        return any(self._ends_before(active, size, next_offset, each, now_ms) for each in (max_timestamp, -1))

    def list_messages(self) -> None:
        """List the messages of the active segment, so that it is sealed at once. Needs no lock. Raise `OSError` if I/O fails."""
        active = self.listed.active
        if active is not None:
            active.list_messages()

    def active_at(self, base_offset: int) -> ActiveSegment:
        """Return the segment for messages of the leader's segment at `base_offset`, rolling where the leader rolled.

        Raise DivergedLogError if this log has another segment there, `OSError` if I/O fails.
        """
        self.roll_at(base_offset)
        active = self.listed.active or self._begin_active()
        if active.base_offset != base_offset:
            raise DivergedLogError(
                f"{self._access.directory}: the segment is at offset {active.base_offset}, the leader's at {base_offset}"
            )
        if active.empty:
            active.begin(self._access.clock.now_ms(), -1)
        return active

    def roll_at(self, base_offset: int) -> None:
        """Seal the active segment if the leader's next one begins at the log end, `base_offset`. Raise `OSError` if I/O fails."""
        if base_offset == self._state.log_end_offset:
            self.roll()

    def _begin_active(self) -> ActiveSegment:
        active = ActiveSegment(
            self._access.directory,
            self._state.log_end_offset,
            self._access.open_files,
            index_interval_bytes=self._access.config.index_interval_bytes,
            earlier_max_timestamp=self._state.max_timestamp,
        )
        self.listed.begin_active(active)
        self.durability.segment_began(active.path)
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
        new_epoch: int | None = None,
        clean: bool = False,
        sync: bool = False,
    ) -> OpenFile:
        """Publish the log's offsets, or these in their place, to other processes.

        new_epoch: the leader epoch that begins at the log end. Raise `OSError` if I/O fails, KafkaStorageError, without a write, if
        the log is closed: the file may be another topic's by now.
        """
        self._access.check_open()
        state = self._present(high_watermark, last_stable_offset, new_epoch=new_epoch, clean=clean)
        return self._state_file.write(state, sync=sync)

    def _present(
        self,
        high_watermark: int | None = None,
        last_stable_offset: int | None = None,
        *,
        new_epoch: int | None = None,
        clean: bool = False,
    ) -> PartitionState:
        state, active = self._state, self.listed.active
        if high_watermark is None:
            high_watermark = state.high_watermark
        takeover_offset = state.takeover_offset if new_epoch is None else state.log_end_offset
        return PartitionState(
            state.log_start_offset,
            high_watermark,
            state.last_stable_offset if last_stable_offset is None else last_stable_offset,
            state.log_end_offset,
            state.leader_epoch if new_epoch is None else new_epoch,
            state.log_end_offset if active is None else active.base_offset,
            0 if active is None else active.end(),
            clean and not self.durability.failed_end,  # the next boot is to verify the records
            state.was_cut,
            self.durability.failed_end > 0,
            self.durability.recovery_point,
            state.max_timestamp,
            state.max_timestamp_offset,
            0 if active is None else active.created_ms,
            boot_id(),
            takeover_offset if high_watermark < takeover_offset else 0,
        )

    def remove_before_start(self, *, keeps_last: bool = False) -> None:
        """Remove segments that end at or below the log start from the log. Their files are deleted later.

        keeps_last: not the last one, which the leader may still append to.
        """
        bases = self.listed.bases
        following = bases[1:]
        if bases and not (keeps_last and self.listed.active is None):
            following = [*following, self.sealed_end]
        for base in self.listed.remove_first(bisect_right(following, self._state.log_start_offset)):
            self._delete_files(base, self.generation_of(base))
            self._events.segment_removed(base, self.generation_of(base))
        self.durability.begin_at(self._state.log_start_offset)
        self.deleted.unlink_due()

    def whole_ones(self, swapped: Sequence[RewrittenSegment]) -> list[RewrittenSegment]:
        """Return those that are in use or whole, in order. Reads files, without the log's lock. Raise as `is_whole`."""
        return [new for new in sorted(swapped) if self.is_read(new) or self._is_whole(new)]

    def swap(self, swapped: Sequence[RewrittenSegment]) -> list[RewrittenSegment]:
        """Replace sealed segments by these whole ones. Return those that do not belong to this log."""
        foreign = []
        for new in swapped:
            if self.is_read(new):
                continue
            old = self.listed.swap(new)
            if old is None:
                foreign.append(new)
                self._delete_files(new.base_offset, new.generation)
                continue
            self._swapped = with_swapped(self._swapped, new)
            self.deleted.leave_segment(new.base_offset, new.generation)
            for segment in old:
                self._delete_files(segment.base_offset, segment.generation)
        self.deleted.unlink_due()
        return foreign

    def fits(self, new: RewrittenSegment) -> bool:
        """Return whether a copied segment replaces whole segments, or continues the log from the border of a segment on."""
        listed, end = self.listed, self._state.log_end_offset
        if new.next_offset <= end:
            return bool(listed.replaced_by(new))
        active = [] if listed.active is None else [listed.active.base_offset]
        return new.base_offset in (end, *listed.bases, *active)

    def extend(self, new: RewrittenSegment, content: SegmentContent, size: int) -> None:
        """Continue the log with a copied segment of `size` bytes, which replaces those that begin in its range."""
        if new.generation:
            self._swapped = with_swapped(self._swapped, new)
            self.deleted.leave_segment(new.base_offset, new.generation)
        for old in self.listed.extend(new):
            if (old.base_offset, old.generation) != (new.base_offset, new.generation):
                self._delete_files(old.base_offset, old.generation)
        if not new.generation:
            self._extended(self.listed.sealed(new.base_offset), content, size)

    def _extended(self, segment: Segment, content: SegmentContent, size: int) -> None:
        """Note a segment of the leader's that was copied, whose bytes are not forced to disk."""
        self.durability.segment_began(segment.path)
        self.durability.appended(max(content.records, 1))
        self._events.segment_sealed(describe(segment, content, size, self._access.clock.now_ms()))

    def is_read(self, new: RewrittenSegment) -> bool:
        """Return whether the log has the segment in that generation or a newer one."""
        return new.base_offset in self.listed.bases and self.generation_of(new.base_offset) >= new.generation

    def _is_whole(self, new: RewrittenSegment) -> bool:
        if new.next_offset <= self._state.log_start_offset:
            return True  # never read, so its file may be missing
        return is_whole(self._access.directory, new, self._access.open_files)

    def _delete_files(self, base_offset: int, generation: int) -> None:
        self.deleted.add_segment(base_offset, generation, self._access.config.file_delete_delay_ms)

    def forcing(self, *, sealed_only: bool = False) -> Forcing:
        """Return the plan to fsync all files, or those of sealed segments."""
        path = "" if self.listed.active is None else self.listed.active.path
        if sealed_only:
            return self.durability.sealed(path, self.sealed_end)
        return self.durability.all(path, self._state.log_end_offset)

    def truncate(self, cut: Cut) -> Recovered:
        """Remove all records behind `cut` and return what recovery finds then.

        Raise `OSError` if I/O fails. A retry or a restart then completes the truncation.
        """
        access, state = self._access, self._state
        is_rewritten = bool(self.generation_of(cut.base_offset))
        if is_rewritten and self.listed.bases[0] == cut.base_offset:
            return self.restart(cut.base_offset)
        logger.warning("truncating: directory=%s from=%d to=%d", access.directory, state.log_end_offset, cut.offset)
        self._forget_above(cut.offset, cut.offset)
        self._drop_from(cut.base_offset + (not is_rewritten))
        if not is_rewritten:
            self._cut(cut)
        state.truncate(cut.base_offset, cut.offset)
        self._state_file.write(self._present()._replace(log_end_offset=cut.offset))
        return self.recover()

    def restart(self, offset: int) -> Recovered:
        """Remove all records and return an empty log that begins at `offset`. Raise as `truncate`."""
        access, state = self._access, self._state
        logger.warning("starting anew: directory=%s end=%d at=%d", access.directory, state.log_end_offset, offset)
        first = min([*self.listed.bases[:1], self.sealed_end])
        self._forget_above(first, first)
        self._drop_from(0)
        state.forget_all()
        empty = PartitionState(
            offset,
            offset,
            offset,
            offset,
            state.leader_epoch,
            offset,
            clean=True,
            was_cut=state.was_cut,
            recovery_point=offset,
            boot_id=boot_id(),
        )
        self._state_file.write(empty, sync=True)
        return self.recover()

    def ends_in_sealed(self, base_offset: int) -> bool:
        """Return whether the log ends with the sealed segment at `base_offset`, as after a close. The leader's may go on."""
        return (
            self.listed.active is None
            and self.listed.bases[-1:] == [base_offset]
            and not self.generation_of(base_offset)
        )

    def reopen(self) -> Recovered:
        """Take the footer off the last sealed segment and return the log that goes on in it. Raise as `truncate`."""
        last = self.listed.sealed(self.listed.bases[-1])
        return self.truncate(Cut(last.base_offset, last.end(), self._state.log_end_offset))

    def recover(self) -> Recovered:
        """Return what recovery finds in the directory. Raise `OSError` if I/O fails."""
        access = self._access
        self.listed.forget()
        directory, config, clock, files = access.directory, access.config, access.clock, access.open_files
        return Recovery(directory, config, clock, files, self._swapped, is_replicated=access.is_replicated).run()

    def _forget_above(self, offset: int, log_end_offset: int) -> None:
        """Write durably that neither the high watermark nor the recovery point is above `offset`, before a file is shorter.

        log_end_offset: the log end to write, which counts if no segment is left. What is missing below it counts as lost.
        """
        is_known = self._is_touched and max(self._state.high_watermark, self.durability.recovery_point) <= offset
        self._state.lower_high_watermark(offset)
        self.durability.lower(offset)
        if is_known and log_end_offset == self._state.log_end_offset:
            return
        sync = not is_known or log_end_offset <= self._state.log_start_offset
        self._state_file.write(self._present()._replace(log_end_offset=log_end_offset), sync=sync)
        self._is_touched = True

    def _drop_from(self, offset: int) -> None:
        """Remove the files of all segments that begin at or above `offset`, of any generation, the last ones first."""
        access = self._access
        for base in reversed([base for base in self.listed.bases if base >= offset]):
            self._events.segment_removed(base, self.generation_of(base))
        names = [name for name in access.files.list(access.directory) if begins_from(name, offset)]
        for name in sorted(names, reverse=True):
            path = f"{access.directory}/{name}"
            with contextlib.suppress(FileNotFoundError):
                access.open_files.unlink(path)
        if names:
            access.files.sync_directory(access.directory)  # a crash must not bring one back after the log grew past it

    def _cut(self, cut: Cut) -> None:
        """Truncate the segment in which the log ends from now on."""
        access, segment = self._access, self.listed.holding(cut.base_offset)
        if segment.base_offset in self.listed.bases:
            self._events.segment_removed(segment.base_offset, self.generation_of(segment.base_offset))
        file = access.open_files.get(segment.path, write=True)
        access.files.truncate(file.descriptor, cut.position)
        if isinstance(segment, ActiveSegment):
            segment.ends_at(cut.position)  # for a retry, if a later step fails
