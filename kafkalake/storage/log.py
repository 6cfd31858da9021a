"""A partition's log: append, read, roll, high watermark.

`append` writes and gives offsets; `advance_high_watermark` makes what was written visible, to consumers and, through
`state`, to every other process. They are two steps because replicas stand between them: whoever acknowledges does it after
the second.

One lock a log guards what changes. Reading does not take it, so fetches may run in other threads; `flush`, and moving the log
start, do not hold it while the disk works. What the disk refuses becomes KafkaStorageError, and the log is then as it was
before the call.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from kafkalake.clock import Clock
from kafkalake.errors import (
    CorruptSegmentError,
    KafkaError,
    KafkaStorageError,
    LakeError,
    OffsetOutOfRangeError,
    as_value,
)
from kafkalake.record.batch import RecordBatch
from kafkalake.record.message_set import MessageSet
from kafkalake.storage.active_segment import MAXIMUM_RELATIVE_OFFSET, ActiveSegment
from kafkalake.storage.append_group import Answer, AppendGroup, AppendResult, control_batch
from kafkalake.storage.config import LogConfig
from kafkalake.storage.deleted_files import DeletedFiles
from kafkalake.storage.durability import Durability, Forcing
from kafkalake.storage.files import REAL_FILES, Files, replace_file
from kafkalake.storage.generations import SwappedSegment, with_swapped
from kafkalake.storage.leader_epochs import LEADER_EPOCHS_FILE, LeaderEpochs, encode_leader_epochs
from kafkalake.storage.message_writer import CODECS, MESSAGE_BODY_BYTES, write_message
from kafkalake.storage.open_files import OpenFile, OpenFiles
from kafkalake.storage.partition_metadata import claim_directory
from kafkalake.storage.producer_state import AbortedTransaction, EndMarker, Producer, Producers
from kafkalake.storage.recovery import Listing, Recovered, Recovery, is_whole
from kafkalake.storage.retention import PartitionRetention, RetentionRule, SealedRange, decide_retention
from kafkalake.storage.scanner import scan_segment
from kafkalake.storage.sealed_segment import SealedSegment, describe
from kafkalake.storage.segment import SUFFIXES, file_name
from kafkalake.storage.segment_ages import SegmentAges, range_of_active
from kafkalake.storage.segments import Segments, is_empty, no_messages
from kafkalake.storage.snapshot import Snapshot, Snapshots
from kafkalake.storage.state import STATE_FILE, PartitionState, StateFile, boot_id
from kafkalake.storage.timestamp_search import TimestampOffset, first_not_before, record_with, record_with_largest

_log = logging.getLogger(__name__)
_EMPTY_READS_MAX = 256
_NOT_WRITTEN = KafkaStorageError("not written")


class _MovedStart(NamedTuple):
    """A log start that is not on the disk yet: where the log started before, and the files and names to force."""

    before: int
    state: OpenFile
    durability: Durability
    names: Forcing


class Log:
    """The log of one partition. Make one with `Log.open`; one at a time a directory.

    config: may be replaced while the log is open. on_sealed: called with a segment that was just sealed. on_removed:
    called with the base offset of a sealed segment that is no longer part of the log. Both in the thread that did it, with
    the log's lock held.
    """

    config: LogConfig
    on_sealed: Callable[[SealedSegment], None]
    on_removed: Callable[[int], None]

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        clock: Clock,
        open_files: OpenFiles,
        swapped: Sequence[SwappedSegment] = (),
    ) -> None:
        self._begin(directory, config, clock, open_files, swapped)
        self._load(Recovery(directory, config, clock, open_files, self._swapped).run())

    def _begin(
        self,
        directory: str,
        config: LogConfig,
        clock: Clock,
        open_files: OpenFiles,
        swapped: Sequence[SwappedSegment],
    ) -> None:
        self.directory = directory
        self.config = config
        self.on_sealed = lambda segment: None
        self.on_removed = lambda base_offset: None
        self._clock = clock
        self._open_files = open_files
        self._files = open_files.files
        self._lock = threading.RLock()
        self._start_lock = threading.Lock()
        """Held to move the log start, also while the disk works; taken before `_lock`."""
        self._deleted = DeletedFiles(clock, open_files)
        self._ages = SegmentAges()
        self._ages_lock = threading.Lock()
        self._closed = False
        self._discard = False
        self._swapped = tuple(sorted(swapped))

    @classmethod
    def open(
        cls,
        directory: Any,
        config: LogConfig,
        clock: Clock,
        files: Files = REAL_FILES,
        open_files: OpenFiles | None = None,
        swapped: Sequence[SwappedSegment] = (),
        topic_id: UUID | None = None,
    ) -> Log:
        """Open the log in `directory` (a path), made if it is not there, and recover it if it was not closed in order.

        The high watermark is the last one that was shown in `state`, not the log end: a leader advances it once its in-sync
        replicas (itself, if alone) have what is there. `swapped`: the segments that jobs have rewritten, as Delta names them;
        they count in place of what they replace. Without `open_files` the log has its own over `files`. `topic_id`: the
        topic whose directory it is or becomes (None: it is not asked). Raises InconsistentTopicIdError where it is
        another's, KafkaStorageError.
        """
        try:
            files_open = open_files if open_files is not None else OpenFiles(files)
            if topic_id is not None:
                claim_directory(files_open.files, str(directory), topic_id)
            return cls(str(directory), config, clock, files_open, swapped)
        except (OSError, LakeError) as error:
            raise _storage_error(str(directory), "open", error) from error

    @classmethod
    def offline(cls, directory: Any, config: LogConfig, clock: Clock, open_files: OpenFiles) -> Log:
        """A log that stands for one that could not be opened: closed from the start, without records. The disk is not touched."""
        log = cls.__new__(cls)
        log._begin(str(directory), config, clock, open_files, ())
        listing = Listing([], [], [])
        log._load(Recovered(PartitionState(), 0, True, False, listing, None, Producers(), LeaderEpochs()))
        log._closed = True
        return log

    def _load(self, recovered: Recovered) -> None:
        """Become what recovery found. Raises `OSError`."""
        state, directory = recovered.state, self.directory
        listing = recovered.listing
        self._segments = Segments(directory, self._open_files, listing.bases, recovered.active, listing.generations)
        for name in listing.superseded:
            self._deleted.add(f"{directory}/{name}", self.config.file_delete_delay_ms)
        self._snapshots = Snapshots(directory, self._files, recovered.listing.snapshots)
        self._producers = recovered.producers
        self._epochs = recovered.epochs
        self._log_start_offset = state.log_start_offset
        self._log_end_offset = state.log_end_offset
        self._high_watermark = min(state.high_watermark, state.log_end_offset)
        stable = self._producers.advance_high_watermark(self._high_watermark)
        self._last_stable_offset = max(state.log_start_offset, stable)
        self._leader_epoch = state.leader_epoch
        self._max_timestamp = state.max_timestamp
        self._max_timestamp_offset = state.max_timestamp_offset
        self._durability = Durability(directory, self._clock, self._open_files, state.recovery_point)
        for segment in self._segments.ending_above(state.recovery_point, state.log_end_offset):
            self._durability.segment_began(segment.path)
        self._state_file = StateFile(f"{directory}/{STATE_FILE}", self._open_files, recovered.sequence)
        if not recovered.intact:
            self._snapshots.remove_above(state.log_end_offset)
            self._state_file.trim()
            self._write_state(self._high_watermark, self._last_stable_offset, sync=recovered.start_moved)
            if recovered.start_moved:  # what was read as the log start must not go back
                self._files.sync_directory(directory)
        self._remove_before_start()

    @property
    def log_start_offset(self) -> int:
        """First offset that can be read."""
        return self._log_start_offset

    @property
    def high_watermark(self) -> int:
        """One past the last offset that consumers see."""
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        """One past the last offset that `read_committed` consumers see."""
        return self._last_stable_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record will get."""
        return self._log_end_offset

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch that the log has seen, -1 for none; never goes back."""
        return self._leader_epoch

    @property
    def recovery_point(self) -> int:
        """Offsets below it were forced to the disk."""
        return self._durability.recovery_point

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments. Raises KafkaStorageError."""
        with self._storage("size"):
            return self._segments.size_bytes()

    @property
    def sealed_base_offsets(self) -> list[int]:
        """Base offsets of the sealed segments, growing; opens no file."""
        return list(self._segments.bases)

    @property
    def generations(self) -> Mapping[int, int]:
        """Generations of the sealed segments that jobs have rewritten, by base offset."""
        return self._segments.generations

    def generation_of(self, base_offset: int) -> int:
        """The generation of a sealed segment, also of one that was just removed; above 0 where a job has rewritten it."""
        return self._segments.generations.get(base_offset, 0)

    def active_producers(self) -> int:
        """How many producer ids are remembered."""
        return len(self._producers)

    def producers(self) -> list[tuple[int, Producer]]:
        """The producer ids that are remembered, and what is known of each."""
        with self._lock:
            return list(self._producers.items())

    def append(self, batches: Sequence[RecordBatch], leader_epoch: int) -> list[Answer]:
        """Append batches in order, as one Arrow message (several when they are big); one answer each.

        Fills base offset and leader epoch (and, with LogAppendTime, the timestamp) in their headers. A batch that producer state
        refuses gets its error and does not stop the others; a write that fails gives KafkaStorageError to the batches in it.
        """
        answers: list[Answer] = [_NOT_WRITTEN] * len(batches)
        with self._lock:
            limit = min(MESSAGE_BODY_BYTES, self.config.segment_bytes)
            group = self._group(leader_epoch)
            for number, batch in enumerate(batches):
                if not group.has_room(batch, limit):
                    self._append_group(group, answers)
                    group = self._group(leader_epoch)
                answers[number] = group.accept(number, batch, self._producers)
            if group.batches:
                self._append_group(group, answers)
        return answers

    def append_control(self, marker: EndMarker, leader_epoch: int) -> AppendResult:
        """Append the marker that ends a producer's transaction.

        Raises InvalidProducerEpochError, TransactionCoordinatorFencedError, KafkaStorageError.
        """
        with self._lock:
            self._producers.check_end(marker)
            group = self._group(leader_epoch)
            offset = group.add(control_batch(marker, group.now_ms), 0, 0)
            with self._storage("append"):
                self._write(group, self._producers.aborted_by(marker, offset))
            self._producers.end(marker, offset, group.now_ms)
            return AppendResult(offset, offset, -1, self._log_start_offset)

    def _group(self, leader_epoch: int) -> AppendGroup:
        return AppendGroup(
            self._log_end_offset,
            leader_epoch,
            self._clock.now_ms(),
            self._log_start_offset,
            log_append_time=self.config.message_timestamp_type == "LogAppendTime",
        )

    def _append_group(self, group: AppendGroup, answers: list[Answer]) -> None:
        try:
            self._write(group, None)
        except (OSError, KafkaStorageError) as error:
            failed = (
                as_value(error) if isinstance(error, KafkaError) else _storage_error(self.directory, "append", error)
            )
            group.fail(answers, failed)
            return
        self._producers.commit(group.pending)

    def _write(self, group: AppendGroup, aborted: AbortedTransaction | None) -> None:
        """Put a group into the log. Raises `OSError`, KafkaStorageError; the log is then as it was."""
        self._check_open()
        if self._discard:
            self._discard_unacknowledged()
            raise KafkaStorageError(f"{self.directory}: recovered from a failed flush, send again")
        message, smallest = write_message(group.batches, CODECS[self.config.segment_compression])
        active = self._active_for(len(message), group)
        if aborted is not None:
            active.write_aborted(aborted)
            self._durability.file_made()
        active.append(
            message,
            group.base_offset,
            group.records,
            group.next_offset,
            smallest,
            group.max_timestamp,
            group.max_timestamp_offset,
        )
        if aborted is not None:
            active.count_aborted()
        self._log_end_offset = group.next_offset
        self._durability.appended(max(group.records, 1))  # a marker is worth as much as a record
        if group.max_timestamp > self._max_timestamp:
            self._max_timestamp, self._max_timestamp_offset = group.max_timestamp, group.max_timestamp_offset
        if group.leader_epoch > self._epochs.latest:
            self._epochs.assign(group.leader_epoch, group.base_offset)
            self._leader_epoch = max(self._leader_epoch, group.leader_epoch)
            self._save_epochs()

    def _active_for(self, size: int, group: AppendGroup) -> ActiveSegment:
        """The segment for a message of `size` bytes, rolled first where it is full or old. Raises `OSError`."""
        active, config = self._segments.active, self.config
        if active is not None and not active.empty:
            full = active.end() + size > config.segment_bytes
            far = group.next_offset - active.base_offset > MAXIMUM_RELATIVE_OFFSET
            if full or far or active.age_ms(group.max_timestamp, group.now_ms) >= config.segment_ms:
                self._roll()
                active = None
        if active is None:
            active = self._segments.active = ActiveSegment(
                self.directory,
                self._log_end_offset,
                self._open_files,
                index_interval_bytes=config.index_interval_bytes,
                earlier_max_timestamp=self._max_timestamp,
            )
            self._durability.segment_began(active.path)
        if active.empty:
            active.created_ms = group.now_ms
            active.first_timestamp = group.max_timestamp
        return active

    def advance_high_watermark(self, offset: int) -> None:
        """Make everything below `offset` visible, here and through `state`; never goes back.

        Raises KafkaStorageError, and nothing moved: the state cannot be written, or a failed flush took records above it out.
        """
        with self._lock:
            if offset <= self._high_watermark:
                return
            self._check_open()
            if offset > self._log_end_offset:
                raise KafkaStorageError(f"{self.directory}: the log ends at {self._log_end_offset}, not at {offset}")
            stable = max(self._last_stable_offset, self._producers.stable_offset(offset))
            with self._storage("state"):
                self._write_state(offset, stable)
            self._producers.advance_high_watermark(offset)
            self._high_watermark = offset
            self._last_stable_offset = stable

    def read(self, offset: int, max_bytes: int, end_offset: int | None = None) -> MessageSet:
        """Whole messages from the one that holds `offset`: about `max_bytes`, at least one, none that begins at or past
        `end_offset`.

        `end_offset` (default: the high watermark) may be the last stable offset or the log end. All comes from one
        segment; empty at the end. The first message may begin below `offset`, and after compaction above it: offsets that no
        record is left of are passed over.
        Raises OffsetOutOfRangeError, CorruptSegmentError, KafkaStorageError.
        """
        self._check_open()
        end_offset = min(self._log_end_offset, self._high_watermark if end_offset is None else end_offset)
        if not self._log_start_offset <= offset <= self._log_end_offset:
            raise self._out_of_range(offset)
        if offset >= end_offset:
            return no_messages()
        try:
            messages = self._segments.read(offset, max_bytes, end_offset)
            # After compaction there may be nothing for a while. Consumers that get no record many times over give up
            # (librdkafka takes it for a message that is too large), so what comes next is read for them.
            for _ in range(_EMPTY_READS_MAX):
                if messages.next_offset >= end_offset or not is_empty(messages):
                    break
                messages = self._segments.read(messages.next_offset, max_bytes, end_offset)
            self._check_open()  # what was read may be another topic's by now
            return messages
        except (OSError, CorruptSegmentError) as error:
            if offset < self._log_start_offset:  # deleted meanwhile
                raise self._out_of_range(offset) from None
            if isinstance(error, OSError):
                raise _storage_error(self.directory, "read", error) from error
            raise

    def read_behind_damage(self, offset: int, max_bytes: int) -> MessageSet:
        """Whole messages below the high watermark from the first one behind the damage that `offset` lies in; may be empty.

        Raises KafkaStorageError.
        """
        with self._storage("read"):
            return self._segments.read_behind(offset, max_bytes, self._high_watermark)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record below the high watermark with a timestamp (ms) at or after `timestamp`; None where there is none.

        Raises CorruptSegmentError, KafkaStorageError.
        """
        return self._find(
            lambda start: first_not_before(self._segments.in_order(), timestamp, start, self._high_watermark)
        )

    def _find(self, find: Callable[[int], TimestampOffset | None]) -> TimestampOffset | None:
        """Look for a record from the log start on, given to `find`, and again where that has moved."""
        while True:
            start = self._log_start_offset
            self._check_open()
            try:
                found = find(start)
                self._check_open()
                return found
            except (OSError, CorruptSegmentError) as error:
                if start != self._log_start_offset:  # segments were deleted meanwhile
                    continue
                if isinstance(error, OSError):
                    raise _storage_error(self.directory, "read", error) from error
                raise

    def max_timestamp(self) -> TimestampOffset | None:
        """The record with the largest timestamp, the first of them; None without records.

        Once that record is deleted, this looks at an index of each segment, and reads a whole segment where deleted records
        have the largest timestamp of it: not for the event loop. Raises CorruptSegmentError, KafkaStorageError.
        """
        return self._find(self._find_largest_timestamp)

    def _find_largest_timestamp(self, start: int) -> TimestampOffset | None:
        with self._lock:
            top, offset, end = self._max_timestamp, self._max_timestamp_offset, self._log_end_offset
        if top < 0 or end == start:
            return None
        found = record_with(self._segments.holding(offset), offset, top, start) if offset >= start else None
        return found if found is not None else record_with_largest(self._segments.in_order(), start, end)

    def epoch_for_offset(self, offset: int) -> int:
        """The leader epoch that the record at `offset` was written in; -1 where it is not known."""
        with self._lock:
            return self._epochs.epoch_at(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch not above the one asked for; (-1, -1) where it is not known. KIP-101,
        KIP-320."""
        with self._lock:
            return self._epochs.end_offset(epoch, self._log_end_offset)

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in [from_offset, to_offset), in the order of their markers.

        Raises CorruptSegmentError, KafkaStorageError.
        """
        with self._storage("read"):
            return self._segments.aborted_transactions(from_offset, to_offset)

    def sealed_segments(self, from_offset: int = 0) -> list[SealedSegment]:
        """Sealed segments with a base offset at or above `from_offset`. Each is scanned: ask for no more than is needed.

        Raises KafkaStorageError.
        """
        bases = self._segments.bases
        with self._storage("read"):
            segments = [self._segments.sealed(base) for base in bases[bisect_left(bases, from_offset) :]]
            scans = [(segment, scan_segment(segment)) for segment in segments]
        return [describe(segment, found.content, found.size, self._clock.now_ms()) for segment, found in scans]

    def expire_producers(self) -> int:
        """Forget producers that have been silent for `producer.id.expiration.ms`; returns how many."""
        with self._lock:
            return self._producers.expire(self._clock.now_ms(), self.config.producer_id_expiration_ms)

    def delete_records_before(self, offset: int) -> None:
        """Move the log start to `offset`, durably, and take whole segments below it out of the log.

        Blocks on the disk, while appends go on: not for the event loop. Raises OffsetOutOfRangeError above the high watermark,
        KafkaStorageError.
        """
        with self._start_lock:
            with self._lock:
                moved = self._move_start(offset)
            self._force_start(moved)

    def _move_start(self, offset: int) -> _MovedStart | None:
        """Show readers that the log starts at `offset`; None where it does already. Nothing is deleted before `_force_start`."""
        self._check_open()
        if not 0 <= offset <= self._high_watermark:
            raise OffsetOutOfRangeError(f"offset {offset} is outside of [0, {self._high_watermark}]")
        before = self._log_start_offset
        if offset <= before:
            return None
        try:
            with self._storage("delete records"):
                if offset == self._log_end_offset:
                    self._roll()
                self._log_start_offset = offset
                self._last_stable_offset = max(self._last_stable_offset, offset)
                state = self._write_state(self._high_watermark, self._last_stable_offset)
                return _MovedStart(before, state, self._durability, self._durability.new_names())
        except KafkaStorageError:
            self._take_back_start(before)
            raise

    def _force_start(self, moved: _MovedStart | None) -> None:
        """Have the log start on the disk, then take what is before it out of the log. The log's lock is not held."""
        if moved is None:
            return
        try:
            with self._storage("delete records"):
                self._files.sync(moved.state.descriptor)
                moved.durability.force(moved.names)  # the first time, that of `state`
        except KafkaStorageError:
            with self._lock:
                self._take_back_start(moved.before)
            raise
        with self._lock:
            self._check_open()
            moved.durability.forced(moved.names)
            if self._epochs.truncate_start(self._log_start_offset):
                self._save_epochs()
            self._remove_before_start()

    def _take_back_start(self, before: int) -> None:
        self._log_start_offset = before
        self._last_stable_offset = max(before, self._producers.stable_offset(self._high_watermark))

    def enforce_retention(self, rule: RetentionRule, committed: Mapping[str, int]) -> PartitionRetention:
        """Take the segments out of the log that `rule` does not keep; return what was decided.

        committed: each group's committed offset, for a rule with a guard. The active segment is rolled if it goes. May run in any
        thread, beside appends and reads. Raises CorruptSegmentError, KafkaStorageError.
        """
        with self._start_lock:
            return self._enforce_retention(rule, committed)

    def _enforce_retention(self, rule: RetentionRule, committed: Mapping[str, int]) -> PartitionRetention:
        with self._lock:
            self._check_open()
            bases, active, end = list(self._segments.bases), self._segments.active, self._log_end_offset
            sealed_end = end if active is None else active.base_offset
            ends = [*bases[1:], sealed_end] if bases else []
            sealed = list(zip(map(self._segments.sealed, bases), ends, strict=True))
            start, high_watermark = self._log_start_offset, self._high_watermark
            now_ms = self._clock.now_ms()
            with self._storage("look at segments"):
                growing = [] if active is None or active.empty else [range_of_active(active, end)]
        with self._storage("look at segments"), self._ages_lock:
            ranges = self._ages.of(sealed)

        def decide(segments: Sequence[SealedRange], active_bytes: int) -> PartitionRetention:
            return decide_retention(
                segments,
                rule,
                committed,
                now_ms=now_ms,
                log_start_offset=start,
                end_offset=high_watermark,
                active_bytes=active_bytes,
            )

        decision = decide([*ranges, *growing], 0)
        with self._lock:
            self._check_open()
            if growing and decision.segments[-1:] == tuple(growing) and self._log_end_offset != end:
                decision = decide(ranges, growing[0].bytes)  # appended to meanwhile
            moved = self._move_start(decision.log_start_offset) if decision.segments else None
        self._force_start(moved)
        return decision

    def _remove_before_start(self) -> None:
        """Take segments that end at or below the log start out of the log; their files go later."""
        segments = self._segments
        end = self._log_end_offset if segments.active is None else segments.active.base_offset
        following = [*segments.bases[1:], end] if segments.bases else []
        for base in segments.remove_first(bisect_right(following, self._log_start_offset)):
            self._delete_files(base, self.generation_of(base))
            self.on_removed(base)
        self._deleted.unlink_due()

    def take_swapped(self, swapped: Sequence[SwappedSegment]) -> list[SwappedSegment]:
        """Read these segments from now on in place of those that they replace, whose files go after `file.delete.delay.ms`.

        What is read already is passed over. So is what is not whole or has another range than Delta says: then the old files
        stay, and count. Returns those that are none of this log, because it begins behind them. To be called in a thread:
        the files are looked at.
        """
        foreign = []
        whole = [new for new in sorted(swapped) if self._is_read(new) or self._is_whole(new)]
        with self._lock:
            self._check_open()
            for new in whole:
                if self._is_read(new):
                    continue
                old = self._segments.swap(new)
                if old is None:
                    foreign.append(new)
                    self._delete_files(new.base_offset, new.generation)
                    continue
                self._swapped = with_swapped(self._swapped, new)
                for segment in old:
                    self._delete_files(segment.base_offset, segment.generation)
            self._deleted.unlink_due()
        return foreign

    def _is_read(self, new: SwappedSegment) -> bool:
        return new.base_offset in self._segments.bases and self.generation_of(new.base_offset) >= new.generation

    def _is_whole(self, new: SwappedSegment) -> bool:
        if new.next_offset <= self._log_start_offset:
            return True  # it is not read, and need not be there
        return is_whole(self.directory, new, self._open_files)

    def _delete_files(self, base_offset: int, generation: int) -> None:
        for suffix in SUFFIXES:
            path = f"{self.directory}/{file_name(base_offset, suffix, generation)}"
            self._deleted.add(path, self.config.file_delete_delay_ms)

    def remove_deleted_files(self) -> None:
        """Unlink files of removed segments that have waited for `file.delete.delay.ms`; rolling does it too."""
        with self._lock:
            self._deleted.unlink_due()

    def roll(self) -> None:
        """Seal the active segment; the next append begins a new one. Raises KafkaStorageError; it can then be tried again."""
        with self._lock, self._storage("roll"):
            self._roll()
            self._write_state(self._high_watermark, self._last_stable_offset)

    def _roll(self) -> None:
        active = self._segments.active
        self._deleted.unlink_due()
        if active is None or active.empty:
            return
        self._save_snapshot()
        size = active.seal()
        self._segments.seal_active()
        # Nothing from here on asks the disk: a sealed segment that nobody is told of is not in Delta before the next start.
        sealed = self._segments.sealed(active.base_offset)
        self.on_sealed(describe(sealed, active.content, size, self._clock.now_ms()))

    def begin_epoch(self, epoch: int) -> None:
        """Begin a leader epoch at the log end, durably, before anything is appended in it. Raise KafkaStorageError."""
        with self._lock, self._storage("begin epoch"):
            if not self._epochs.assign(epoch, self._log_end_offset):
                return
            path = f"{self.directory}/{LEADER_EPOCHS_FILE}"
            replace_file(self._files, path, encode_leader_epochs(self._epochs), sync=True)
            self._leader_epoch = epoch
            self._write_state(self._high_watermark, self._last_stable_offset, sync=True)

    def flush_due(self) -> bool:
        """Whether `flush.messages` or `flush.ms` ask for a `flush` now, before what was appended is acknowledged."""
        return self._durability.due(self.config.flush_messages, self.config.flush_ms)

    def flush(self) -> None:
        """Force what was appended to the disk. May run in any thread, beside appends and reads.

        Raises KafkaStorageError: the kernel may have dropped what it could not write, so records above the high watermark leave the
        log, and a producer that sends them again is not told that they are there already.
        """
        with self._lock:
            self._check_open()
            durability = self._durability
            forcing = durability.all(self._active_path(), self._log_end_offset)
        try:
            durability.force(forcing)
        except OSError as error:
            with self._lock:
                self._discard = True
                with contextlib.suppress(OSError, KafkaStorageError):
                    self._discard_unacknowledged()
            raise _storage_error(self.directory, "flush", error) from error
        with self._lock:
            durability.forced(forcing)

    def has_unsynced_segments(self) -> bool:
        """Whether a sealed segment has not been forced to the disk: until then a power failure costs a scan of it."""
        return self._durability.unsynced_files > (self._segments.active is not None)

    def flush_sealed(self) -> None:
        """Force sealed segments to the disk, and nothing that is still written to. May run in any thread. Raises
        KafkaStorageError."""
        with self._lock:
            self._check_open()
            durability, active = self._durability, self._segments.active
            end = self._log_end_offset if active is None else active.base_offset
            forcing = durability.sealed(self._active_path(), end)
        with self._storage("flush"):
            durability.force(forcing)
        with self._lock:
            durability.forced(forcing)

    def _active_path(self) -> str:
        active = self._segments.active
        return "" if active is None else active.path

    def _discard_unacknowledged(self) -> None:
        self.truncate_to(self._high_watermark)
        self._discard = False

    def truncate_to(self, offset: int) -> None:
        """Take records at and above `offset` out of the log, by whole messages; `offset` is at least the high watermark.

        Ends as a restart does: what stays is recovered from the disk. Raises `OSError`; trying again, or a restart, then
        finishes it.
        """
        with self._lock:
            self._check_open()
            assert offset >= self._high_watermark, "what consumers have seen stays"
            if offset >= self._log_end_offset:
                return
            segments = self._segments
            cut, position = segments.cut_position(offset)
            _log.warning("truncating: directory=%s from=%d to=%d", self.directory, self._log_end_offset, offset)
            dropped = False
            for segment in reversed(list(segments.in_order())):
                if segment.base_offset <= cut.base_offset:
                    break
                self._drop(segment.base_offset)
                dropped = True
            if dropped:
                self._files.sync_directory(self.directory)  # none may come back once the log has grown past it
            if cut.base_offset in segments.bases:
                self.on_removed(cut.base_offset)
            file = self._open_files.get(cut.path, write=True)
            self._files.truncate(file.descriptor, position)
            segments.forget()
            self._snapshots.remove_above(cut.base_offset)
            if self._epochs.truncate_end(offset):
                self._save_epochs()
            self._write_state(self._high_watermark, self._last_stable_offset)
            self._load(Recovery(self.directory, self.config, self._clock, self._open_files, self._swapped).run())

    def _drop(self, base_offset: int) -> None:
        for suffix in SUFFIXES:
            path = f"{self.directory}/{file_name(base_offset, suffix)}"
            self._open_files.forget(path)
            with contextlib.suppress(FileNotFoundError):
                self._files.unlink(path)
        if base_offset in self._segments.bases:
            self.on_removed(base_offset)

    def close(self) -> None:
        """Seal the active segment and leave a state that the next start believes without a scan.

        Raises KafkaStorageError; the log is closed all the same, and recovered when it is next opened.
        """
        with self._lock:
            if self._closed:
                return
            try:
                with self._storage("close"):
                    self._roll()
                    if self._snapshots.offsets[-1:] != [self._log_end_offset]:
                        self._save_snapshot()
                    if self._durability.unsynced_files:
                        self.flush()
                    self._write_state(self._high_watermark, self._last_stable_offset, clean=True, sync=True)
            finally:
                self.discard()

    def discard(self) -> None:
        """Let go of the directory as it is, without a write: its topic is deleted. The log then refuses whatever touches files.

        The paths are soon those of the next topic of that name, so nothing may be reached by them any more: not by a
        descriptor that is still open, not by a file that was to be unlinked later.
        """
        with self._lock:
            self._closed = True
            self._deleted.leave_all()
            self._open_files.forget_directory(self.directory)

    def _check_open(self) -> None:
        if self._closed:
            raise KafkaStorageError(f"{self.directory}: the log is closed")

    def _save_snapshot(self) -> None:
        snapshot = Snapshot(self._log_end_offset, self._producers, self._max_timestamp, self._max_timestamp_offset)
        self._snapshots.save(snapshot)

    def _save_epochs(self) -> None:
        """The headers in the active segment say the same, so a failure costs nothing before the next roll."""
        path = f"{self.directory}/{LEADER_EPOCHS_FILE}"
        try:
            replace_file(self._files, path, encode_leader_epochs(self._epochs), sync=False)
        except OSError as error:
            _log.warning("leader epochs not written: file=%s error=%s", path, error)

    def _write_state(
        self, high_watermark: int, last_stable_offset: int, *, clean: bool = False, sync: bool = False
    ) -> OpenFile:
        active = self._segments.active
        return self._state_file.write(
            PartitionState(
                self._log_start_offset,
                high_watermark,
                last_stable_offset,
                self._log_end_offset,
                self._leader_epoch,
                self._log_end_offset if active is None else active.base_offset,
                0 if active is None else active.end(),
                clean,
                self._durability.recovery_point,
                self._max_timestamp,
                self._max_timestamp_offset,
                0 if active is None else active.created_ms,
                boot_id(),
            ),
            sync=sync,
        )

    def _out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"offset {offset} is outside of [{self._log_start_offset}, {self._log_end_offset}]"
        )

    @contextlib.contextmanager
    def _storage(self, doing: str) -> Any:
        """`OSError` inside becomes KafkaStorageError; so does what was read while the log was closed."""
        self._check_open()
        try:
            yield
            self._check_open()
        except OSError as error:
            raise _storage_error(self.directory, doing, error) from error


def _storage_error(directory: str, doing: str, error: OSError | LakeError) -> KafkaStorageError:
    _log.error("storage failed: doing=%s directory=%s error=%s", doing, directory, error)
    return KafkaStorageError(f"{directory}: {doing}: {error}")
