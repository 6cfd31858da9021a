"""A partition's log: append, read, roll, high watermark.

`append` assigns offsets and writes. `advance_high_watermark` makes the records visible to consumers and, through `state`, to
every other process. The steps are separate because replication happens between them. Acknowledge only after the second.

Each log has one lock for its mutable state. Reads do not take it, so fetches may run in other threads. `flush` and moving
the log start do not hold it during fsync. Disk errors become KafkaStorageError and leave the log as it was before the call.

Here are opening, appending and closing, and the rules of a flush that failed. The log's offsets are in `log_state.py`, its
segments in `log_segments.py`, reading in `log_reader.py`, the log start and retention in `log_start.py`, the changes that a
follower makes to become equal to its leader in `log_follower.py` and `log_copy.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from uuid import UUID

from kafkalake.buffers import Buffer
from kafkalake.clock import Clock
from kafkalake.errors import KafkaStorageError, LakeError, as_value
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.message_set import CODECS
from kafkalake.storage.append_group import Answer, AppendGroup, AppendResult, control_batch
from kafkalake.storage.config import LogConfig
from kafkalake.storage.files import REAL_FILES, Files
from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.leader_epochs import LeaderEpochs
from kafkalake.storage.listing import Listing
from kafkalake.storage.log_access import LogAccess, storage_error
from kafkalake.storage.log_copy import Appended
from kafkalake.storage.log_events import LogEvents, NoEvents
from kafkalake.storage.log_follower import LogFollower
from kafkalake.storage.log_segments import LogSegments
from kafkalake.storage.log_state import LogState
from kafkalake.storage.message_writer import MESSAGE_BODY_BYTES, write_message
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.partition_metadata import claim_directory
from kafkalake.storage.producer_state import AbortedTransaction, EndMarker, Producers
from kafkalake.storage.recovery import Recovered, Recovery
from kafkalake.storage.retention import PartitionRetention, RetentionRule
from kafkalake.storage.state import PartitionState

_NOT_WRITTEN = KafkaStorageError("not written")


class Log(LogFollower):
    """The log of one partition. Create it with `Log.open`. A directory has at most one open log."""

    def __init__(
        self, access: LogAccess, recovered: Recovered, swapped: Sequence[RewrittenSegment], events: LogEvents
    ) -> None:
        state = LogState(access, recovered)
        segments = LogSegments(access, state, recovered, swapped, events)
        super().__init__(access, state, segments)
        self._discard_from: int | None = None
        """Whether records above the high watermark are to be discarded, because a flush failed and the clean-up did too."""

    @classmethod
    def open(
        cls,
        directory: object,
        config: LogConfig,
        clock: Clock,
        files: Files = REAL_FILES,
        open_files: OpenFiles | None = None,
        swapped: Sequence[RewrittenSegment] = (),
        topic_id: UUID | None = None,
        events: LogEvents | None = None,
        *,
        is_replicated: bool = False,
        is_counted: bool = False,
    ) -> Log:
        """Open the log in `directory` (a path), creating it if missing, and recover it after an unclean shutdown.

        The high watermark is the last one published in `state`, not the log end: a leader advances it once its in-sync
        replicas (itself, if alone) have the records. `swapped`: the segments rewritten by jobs, as named in Delta. They take
        the place of the segments they replace. Without `open_files` the log has its own over `files`. `topic_id`: the topic
        that must own the directory (None: unchecked). `events`: the receiver of what happens from now on, recovery excluded.
        is_replicated: other brokers have replicas, so that lost records are not marked here but copied again, see `was_cut`.
        is_counted: the cluster counts this replica as one with all records, so that an empty directory has lost them.
        Raise InconsistentTopicIdError if another topic owns it,
        KafkaStorageError if I/O fails or a file is damaged.
        """
        path, newer = str(directory), tuple(sorted(swapped))
        try:
            files_open = open_files if open_files is not None else OpenFiles(files)
            if topic_id is not None:
                claim_directory(files_open.files, path, topic_id)
            recovery = Recovery(
                path, config, clock, files_open, newer, is_replicated=is_replicated, is_counted=is_counted
            )
            recovered = recovery.run()
            access = LogAccess(path, config, clock, files_open, is_replicated=is_replicated)
            log = cls(access, recovered, newer, events or NoEvents())
        except (OSError, LakeError) as error:
            raise storage_error(path, "open", error) from error
        if log.flush_due():  # a retry of what was found is a duplicate, and acknowledged at once
            try:
                log.flush(log.log_end_offset if is_replicated else 0)
            except KafkaStorageError:
                log.discard()
                raise
        return log

    @classmethod
    def offline(cls, directory: object, config: LogConfig, clock: Clock, open_files: OpenFiles) -> Log:
        """Return a closed, empty log in place of one that could not be opened. Does no I/O."""
        listing = Listing([], [], [])
        recovered = Recovered(PartitionState(), 0, True, False, listing, None, Producers(), LeaderEpochs())
        access = LogAccess(str(directory), config, clock, open_files)
        log = cls(access, recovered, (), NoEvents())
        access.close()
        return log

    def configure(self, config: LogConfig) -> None:
        """Use other settings from now on."""
        self._access.configure(config)

    def append(self, batches: Sequence[ProducerBatch], leader_epoch: int, known_end: int = 0) -> list[Answer]:
        """Append batches in order, as one Arrow message (several when they are big), and return one answer for each.

        Sets base offset and leader epoch (and, with LogAppendTime, the timestamp) in their headers. A batch rejected by producer
        state gets its error. The others are still appended. If a write fails, its batches get KafkaStorageError. So do
        all if the log ends below `known_end`: a flush in another thread has discarded records that the caller counts.
        """
        answers: list[Answer] = [_NOT_WRITTEN] * len(batches)
        with self._access.lock:
            if (refusal := self._refusal_after_failed_flush(known_end)) is not None:
                return [refusal] * len(batches)
            limit = min(MESSAGE_BODY_BYTES, self._access.config.segment_bytes)
            group = self._group(leader_epoch)
            for number, batch in enumerate(batches):
                if group.batches and not group.has_room(batch, limit):
                    self._append_group(group, answers)
                    group = self._group(leader_epoch)
                answers[number] = group.accept(number, batch, self._state.producers)
            if group.batches:
                self._append_group(group, answers)
        return answers

    def append_control(self, marker: EndMarker, leader_epoch: int, known_end: int = 0) -> AppendResult:
        """Append the marker that ends a producer's transaction.

        Raise InvalidProducerEpochError or TransactionCoordinatorFencedError if the producer's or the coordinator's epoch is stale,
        KafkaStorageError if I/O fails, the log is closed, or it ends below `known_end`, see `append`.
        """
        with self._access.lock:
            if (refusal := self._refusal_after_failed_flush(known_end)) is not None:
                raise refusal
            self._state.producers.check_end(marker)
            group = self._group(leader_epoch)
            offset = group.add(control_batch(marker, group.now_ms), 0, 0)
            with self._access.guarded("append"):
                self._write(group, self._state.producers.aborted_by(marker, offset))
            ended = self._state.producers.range_of(marker.producer_id, offset)
            self._state.producers.end(marker, offset, group.now_ms)
            return AppendResult(offset, offset, -1, self._state.log_start_offset, ended=ended)

    def append_replica(self, messages: Buffer, segment_base_offset: int, *, ends_segment: bool = False) -> Appended:
        """Append whole messages of the leader (bytes-like, from `read_replica`) as they are, and return their place.

        They are in the leader's segment at `segment_base_offset`, and with `ends_segment` they are its last. The log rolls where
        the leader's did, without messages too. Raise, with the log unchanged, CorruptMessageError if bytes are damaged, missing or
        out of order, OffsetOutOfRangeError if they do not begin at the log end, DivergedLogError if this log is no prefix of the
        leader's, KafkaStorageError if I/O fails or the log is closed.
        """
        with self._access.lock:
            if (refusal := self._refusal_after_failed_flush()) is not None:
                raise refusal
            with self._access.guarded("append"):
                return self._copy.append(messages, segment_base_offset, ends_segment=ends_segment)

    def _group(self, leader_epoch: int) -> AppendGroup:
        return AppendGroup(
            self._state.log_end_offset,
            leader_epoch,
            self._access.clock.now_ms(),
            self._state.log_start_offset,
            log_append_time=self._access.config.message_timestamp_type == "LogAppendTime",
        )

    def _refusal_after_failed_flush(self, known_end: int = 0) -> KafkaStorageError | None:
        """Discard what a failed flush left, before a retry of it is taken for a duplicate. Return the error for this append.

        Return None if no flush has failed, or the caller, who knows a log up to `known_end`, knows of it.
        """
        if self._discard_from is None and self._state.log_end_offset >= known_end:
            return None
        try:
            with self._access.guarded("append"):
                if self._discard_from is not None:
                    self._discard_unacknowledged()
        except KafkaStorageError as error:
            return as_value(error)
        return KafkaStorageError(f"{self.directory}: recovered from a failed flush, send again")

    def _append_group(self, group: AppendGroup, answers: list[Answer]) -> None:
        try:
            self._write(group, None)
        except KafkaStorageError as error:
            group.fail(answers, as_value(error))
        except OSError as error:
            group.fail(answers, storage_error(self.directory, "append", error))
        else:
            self._state.producers.commit(group.pending)

    def _write(self, group: AppendGroup, aborted: AbortedTransaction | None) -> None:
        """Write a group to the log. Raise `OSError` or KafkaStorageError on failure, with the log unchanged."""
        self._access.check_open()
        message = write_message(group.batches, CODECS[self._access.config.segment_compression])
        active = self._segments.active_for(message.size, group)
        if aborted is not None:
            active.write_aborted([aborted])
            self._segments.durability.file_made()
        active.append(
            message.parts,
            group.base_offset,
            group.records,
            group.next_offset,
            message.min_timestamp,
            group.max_timestamp,
            group.max_timestamp_offset,
        )
        if aborted is not None:
            active.count_aborted(1)
        self._state.appended(group)
        self._segments.durability.appended(max(group.records, 1))  # a marker counts as one record

    def advance_high_watermark(self, offset: int) -> None:
        """Make all records below `offset` visible, here and through `state`. The high watermark never decreases.

        Raise KafkaStorageError, leaving it unchanged, if the state cannot be written, the log is closed, or a failed flush has
        discarded records or has yet to: the log may end below `offset`.
        """
        state, access = self._state, self._access
        with access.lock:
            if offset <= state.high_watermark:
                return
            access.check_open()
            if self._discard_from is not None:
                raise KafkaStorageError(f"{access.directory}: a failed flush has records to discard")
            if offset > state.log_end_offset:
                raise KafkaStorageError(f"{access.directory}: the log ends at {state.log_end_offset}, not at {offset}")
            stable = state.stable_offset(offset)
            try:
                self._segments.write_state(offset, stable)
            except OSError as error:
                raise storage_error(access.directory, "state", error) from error
            state.advance_high_watermark(offset, stable)

    def delete_records_before(self, offset: int) -> None:
        """Move the log start durably to `offset` and remove whole segments below it from the log.

        Blocks on the disk, while appends continue: do not call it on the event loop. Raise OffsetOutOfRangeError if `offset` is
        negative or above the high watermark, KafkaStorageError if I/O fails or the log is closed.
        """
        self._start.move_to(offset)

    def enforce_retention(
        self, rule: RetentionRule, committed: Mapping[str, int], end: int | None = None
    ) -> PartitionRetention:
        """Remove the segments that `rule` expires, also the active one, and return the decision. May run beside appends and reads.

        committed: each group's offset, for a guard. end: what is beyond it stays. Raise CorruptSegmentError, or KafkaStorageError.
        """
        return self._start.enforce_retention(rule, committed, end)

    def adopt_rewritten(self, swapped: Sequence[RewrittenSegment]) -> list[RewrittenSegment]:
        """Replace sealed segments by these rewritten ones. The old files are deleted after `file.delete.delay.ms`.

        Segments already in use are skipped. So are incomplete segments and those with another range than in Delta: the old
        files then stay in use. Return the segments that do not belong to this log because it starts after them. Reads files, so
        call it in a thread. Raise KafkaStorageError, retriable, for lack of descriptors or memory, or if the log is closed.
        """
        with self._access.guarded("adopt rewritten segments"):
            whole = self._segments.whole_ones(swapped)
        with self._access.lock:
            self._access.check_open()
            return self._segments.swap(whole)

    def roll(self) -> None:
        """Seal the active segment. The next append begins a new one. Raise KafkaStorageError, retriable, if I/O fails."""
        self.list_messages()
        with self._access.lock, self._access.guarded("roll"):
            self._segments.roll()
            self._segments.write_state()

    def take_over(self, epoch: int) -> None:
        """Lead with a new leader epoch: begin it at the log end and in a new segment, before any append in it.

        Other replicas may have fewer records, and the last leader's high watermark may have been larger than this log's. Until
        it has reached the present log end, `state` says so. Nothing is forced to disk: the cluster's table has the epoch, who leads
        after a loss of power begins a newer one, and the headers have this one. Raise KafkaStorageError if I/O fails: try again.
        """
        with self._access.lock, self._access.guarded("take over"):
            self._copy.load_unfinished()
            if epoch > self._state.epochs.latest:
                self._segments.roll()
                self._segments.write_state(new_epoch=epoch)
                self._state.begin_epoch(epoch)

    def flush_due(self, coming: int = 0) -> bool:
        """Return whether flush.messages or flush.ms requires a `flush` before acknowledging. coming: records yet to be appended."""
        config = self._access.config
        return self._segments.durability.due(config.flush_messages, config.flush_ms, coming)

    def flush(self, counted_end: int = 0) -> None:
        """Force appended records to disk. May run in any thread, beside appends and reads.

        Raise KafkaStorageError if fsync fails. The kernel may then have dropped the pages, so records above the high watermark are
        discarded together with their producer state: a producer's retry is appended again, not taken for a duplicate. Those that an
        earlier flush has forced stay: a leader may count them for its high watermark, as this replica has fetched beyond them.
        counted_end: the end of those that the leader of a follower may count. If some of them are discarded, the log `was_cut`.
        """
        self._flush(counted_end, sealed_only=False)

    def _flush(self, counted_end: int, *, sealed_only: bool) -> None:
        access = self._access
        with self._force.turn:
            with access.lock:
                access.check_open()
                if (refusal := self._refusal_after_failed_flush()) is not None:
                    raise refusal
                forced = self._segments.durability.recovery_point
            try:
                self._force.force(sealed_only=sealed_only)
            except OSError as error:
                with access.lock:
                    self._discard_from = forced
                    self._state.was_cut |= self._kept_end() < min(counted_end, self._state.log_end_offset)
                    with contextlib.suppress(OSError, KafkaStorageError):
                        self._discard_unacknowledged()
                raise storage_error(access.directory, "flush", error) from error

    def has_unsynced_segments(self) -> bool:
        """Return whether a sealed segment is not yet fsynced. Recovery from a power failure would have to scan it."""
        return self._segments.durability.unsynced_files > (self._segments.listed.active is not None)

    def flush_sealed(self, counted_end: int = 0) -> None:
        """Force sealed segments to disk, but not the active one. Else as `flush`, also if fsync fails."""
        self._flush(counted_end, sealed_only=True)

    def _kept_end(self) -> int:
        """Return the end of what stays after a failed flush."""
        assert self._discard_from is not None
        return max(self._state.high_watermark, self._state.takeover_offset, self._discard_from)

    def _discard_unacknowledged(self) -> None:
        if self._state.was_cut:
            self._segments.write_state()  # before the cut: a restart in the middle is to know it
        self.truncate_to(self._kept_end())
        self._discard_from = None

    def close(self) -> None:
        """Seal the active segment and write a clean state, so that the next start needs no scan.

        Raise KafkaStorageError if I/O fails. The log is closed anyway and is recovered at the next open.
        """
        state, segments = self._state, self._segments
        with self._force.turn, self._access.lock:
            if self._access.closed:
                return
            try:
                with self._access.guarded("close"):
                    if self._discard_from is not None:  # a clean state would keep what it discards
                        self._discard_unacknowledged()
                    segments.roll()
                    if state.snapshots.offsets[-1:] != [state.log_end_offset]:
                        state.save_snapshot()
                    if segments.durability.unsynced_files:
                        self._force.force()  # nothing is discarded if it fails: the next start finds what the disk has
                    state.force_epochs()
                    segments.write_state(clean=True, sync=True)
            finally:
                self.discard()

    def discard(self) -> None:
        """Release the directory of a deleted topic without a write. The log then rejects all file access.

        A new topic of that name may soon reuse the paths, so open descriptors are dropped and scheduled unlinks are canceled.
        """
        with self._access.lock:
            self._segments.deleted.leave_all()
            self._access.close()
