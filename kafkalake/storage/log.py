"""A partition's log: append, read, roll, high watermark.

`append` assigns offsets and writes. `advance_high_watermark` makes the records visible to consumers and, through `state`, to
every other process. The steps are separate because replication happens between them. Acknowledge only after the second.

Each log has one lock for its mutable state. Reads do not take it, so fetches may run in other threads. `flush` and moving
the log start do not hold it during fsync. Disk errors become KafkaStorageError and leave the log as it was before the call.
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
from kafkalake.storage.log_events import LogEvents, NoEvents
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
    """A log start that is not yet durable: the previous start, and the files and names to fsync."""

    before: int
    state: OpenFile
    durability: Durability
    names: Forcing


class Log:
    """The log of one partition. Create it with `Log.open`. A directory has at most one open log.

    config: replaced by `configure` while the log is open.
    """

    config: LogConfig
    _events: LogEvents

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        clock: Clock,
        open_files: OpenFiles,
        swapped: Sequence[SwappedSegment] = (),
        events: LogEvents | None = None,
    ) -> None:
        self._begin(directory, config, clock, open_files, swapped)
        self._load(Recovery(directory, config, clock, open_files, self._swapped).run())
        self._events = events or NoEvents()

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
        self._events = NoEvents()
        self._clock = clock
        self._open_files = open_files
        self._files = open_files.files
        self._lock = threading.RLock()
        self._start_lock = threading.Lock()
        """Held while the log start moves, including the fsync. Taken before `_lock`."""
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
        events: LogEvents | None = None,
    ) -> Log:
        """Open the log in `directory` (a path), creating it if missing, and recover it after an unclean shutdown.

        The high watermark is the last one published in `state`, not the log end: a leader advances it once its in-sync
        replicas (itself, if alone) have the records. `swapped`: the segments rewritten by jobs, as named in Delta. They take
        the place of the segments they replace. Without `open_files` the log has its own over `files`. `topic_id`: the topic
        that must own the directory (None: unchecked). `events`: the receiver of what happens from now on, recovery excluded.
        Raise InconsistentTopicIdError if another topic owns it,
        KafkaStorageError if I/O fails or a file is damaged.
        """
        try:
            files_open = open_files if open_files is not None else OpenFiles(files)
            if topic_id is not None:
                claim_directory(files_open.files, str(directory), topic_id)
            return cls(str(directory), config, clock, files_open, swapped, events)
        except (OSError, LakeError) as error:
            raise _storage_error(str(directory), "open", error) from error

    @classmethod
    def offline(cls, directory: Any, config: LogConfig, clock: Clock, open_files: OpenFiles) -> Log:
        """Return a closed, empty log in place of one that could not be opened. Does no I/O."""
        log = cls.__new__(cls)
        log._begin(str(directory), config, clock, open_files, ())
        listing = Listing([], [], [])
        log._load(Recovered(PartitionState(), 0, True, False, listing, None, Producers(), LeaderEpochs()))
        log._closed = True
        return log

    def _load(self, recovered: Recovered) -> None:
        """Initialize from the recovery result. Raise `OSError` if I/O fails."""
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
            if recovered.start_moved:  # the log start must not move back after it was visible
                self._files.sync_directory(directory)
        self._remove_before_start()

    def configure(self, config: LogConfig) -> None:
        """Use other settings from now on."""
        self.config = config

    @property
    def log_start_offset(self) -> int:
        """The first readable offset."""
        return self._log_start_offset

    @property
    def high_watermark(self) -> int:
        """The offset after the last one visible to consumers."""
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset after the last one visible to `read_committed` consumers."""
        return self._last_stable_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._log_end_offset

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch of the log, -1 for none. Never decreases."""
        return self._leader_epoch

    @property
    def recovery_point(self) -> int:
        """The offset below which all records are on disk (fsynced)."""
        return self._durability.recovery_point

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments. Raise KafkaStorageError if I/O fails or the log is closed."""
        with self._storage("size"):
            return self._segments.size_bytes()

    @property
    def sealed_base_offsets(self) -> list[int]:
        """The base offsets of the sealed segments, ascending. Opens no file."""
        return list(self._segments.bases)

    @property
    def generations(self) -> Mapping[int, int]:
        """The generations of the sealed segments rewritten by jobs, by base offset."""
        return self._segments.generations

    def generation_of(self, base_offset: int) -> int:
        """Return the generation of a sealed or just removed segment: above 0 if a job rewrote it."""
        return self._segments.generations.get(base_offset, 0)

    def active_producers(self) -> int:
        """Return the number of producer ids with state."""
        return len(self._producers)

    def producers(self) -> list[tuple[int, Producer]]:
        """Return the producer ids with their state."""
        with self._lock:
            return list(self._producers.items())

    def append(self, batches: Sequence[RecordBatch], leader_epoch: int) -> list[Answer]:
        """Append batches in order, as one Arrow message (several when they are big), and return one answer for each.

        Sets base offset and leader epoch (and, with LogAppendTime, the timestamp) in their headers. A batch rejected by producer
        state gets its error. The others are still appended. If a write fails, its batches get KafkaStorageError.
        """
        answers: list[Answer] = [_NOT_WRITTEN] * len(batches)
        with self._lock:
            if self._discard:  # before producer state takes a retry of what is discarded for a duplicate
                return [self._refusal_after_failed_flush()] * len(batches)
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

        Raise InvalidProducerEpochError or TransactionCoordinatorFencedError if the producer's or the coordinator's epoch is stale,
        KafkaStorageError if I/O fails or the log is closed.
        """
        with self._lock:
            if self._discard:
                raise self._refusal_after_failed_flush()
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

    def _refusal_after_failed_flush(self) -> KafkaStorageError:
        """Discard what a failed flush left, and return the error for this append."""
        try:
            with self._storage("append"):
                self._check_open()
                self._discard_unacknowledged()
        except KafkaStorageError as error:
            return as_value(error)
        return KafkaStorageError(f"{self.directory}: recovered from a failed flush, send again")

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
        """Write a group to the log. Raise `OSError` or KafkaStorageError on failure, with the log unchanged."""
        self._check_open()
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
        self._durability.appended(max(group.records, 1))  # a marker counts as one record
        if group.max_timestamp > self._max_timestamp:
            self._max_timestamp, self._max_timestamp_offset = group.max_timestamp, group.max_timestamp_offset
        if group.leader_epoch > self._epochs.latest:
            self._epochs.assign(group.leader_epoch, group.base_offset)
            self._leader_epoch = max(self._leader_epoch, group.leader_epoch)
            self._save_epochs()

    def _active_for(self, size: int, group: AppendGroup) -> ActiveSegment:
        """Return the segment for a message of `size` bytes, rolling a full or old one. Raise `OSError` if I/O fails."""
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
            active.begin(group.now_ms, group.max_timestamp)
        return active

    def advance_high_watermark(self, offset: int) -> None:
        """Make all records below `offset` visible, here and through `state`. The high watermark never decreases.

        Raise KafkaStorageError, leaving it unchanged, if the state cannot be written, the log is closed, or a failed flush has
        discarded records or has yet to: the log may end below `offset`.
        """
        with self._lock:
            if offset <= self._high_watermark:
                return
            self._check_open()
            if self._discard:
                raise KafkaStorageError(f"{self.directory}: a failed flush has records to discard")
            if offset > self._log_end_offset:
                raise KafkaStorageError(f"{self.directory}: the log ends at {self._log_end_offset}, not at {offset}")
            stable = max(self._last_stable_offset, self._producers.stable_offset(offset))
            with self._storage("state"):
                self._write_state(offset, stable)
            self._producers.advance_high_watermark(offset)
            self._high_watermark = offset
            self._last_stable_offset = stable

    def read(self, offset: int, max_bytes: int, end_offset: int | None = None) -> MessageSet:
        """Return whole messages from the one with `offset`: about `max_bytes`, at least one, none that begins at or past
        `end_offset`.

        `end_offset` (default: the high watermark) may be the last stable offset or the log end. All messages come from one
        segment. The set is empty at the end. The first message may begin below `offset`, and above it after compaction, because
        offsets without records are skipped.
        Raise OffsetOutOfRangeError if `offset` is outside the log, CorruptSegmentError on damage, KafkaStorageError if I/O fails.
        """
        self._check_open()
        end_offset = min(self._log_end_offset, self._high_watermark if end_offset is None else end_offset)
        if not self._log_start_offset <= offset <= self._log_end_offset:
            raise self._out_of_range(offset)
        if offset >= end_offset:
            return no_messages()
        try:
            messages = self._segments.read(offset, max_bytes, end_offset)
            # Compaction may leave long ranges without records. Consumers give up after many empty responses (librdkafka
            # reports a message that is too large), so read on until there are records.
            for _ in range(_EMPTY_READS_MAX):
                if messages.next_offset >= end_offset or not is_empty(messages):
                    break
                messages = self._segments.read(messages.next_offset, max_bytes, end_offset)
            self._check_open()  # if closed meanwhile, the files may belong to another topic
            return messages
        except (OSError, CorruptSegmentError) as error:
            if offset < self._log_start_offset:  # deleted meanwhile
                raise self._out_of_range(offset) from None
            if isinstance(error, OSError):
                raise _storage_error(self.directory, "read", error) from error
            raise

    def read_behind_damage(self, offset: int, max_bytes: int) -> MessageSet:
        """Return whole messages below the high watermark from the first one after the damage at `offset`, possibly none.

        Raise KafkaStorageError if I/O fails or the log is closed.
        """
        with self._storage("read"):
            return self._segments.read_behind(offset, max_bytes, self._high_watermark)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Return the first record below the high watermark with a timestamp (ms) at or after `timestamp`, None if there is none.

        Raise CorruptSegmentError on damage, KafkaStorageError if I/O fails or the log is closed.
        """
        end = self._high_watermark  # taken before the segments: records beyond those may be acknowledged meanwhile
        return self._find(lambda start: first_not_before(self._segments.in_order(), timestamp, start, end))

    def _find(self, find: Callable[[int], TimestampOffset | None]) -> TimestampOffset | None:
        """Call `find` with the log start, and again if the start moved meanwhile."""
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
        """Return the first record with the largest timestamp, None without records.

        Blocks: do not call it on the event loop. Once that record is deleted, it reads an index of each segment, and whole
        segments whose largest timestamp belongs to a deleted record. Raise CorruptSegmentError on damage, KafkaStorageError if
        I/O fails or the log is closed.
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
        """Return the leader epoch of the record at `offset`, -1 if unknown."""
        with self._lock:
            return self._epochs.epoch_at(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest epoch <= `epoch`, (-1, -1) if unknown. KIP-101, KIP-320."""
        with self._lock:
            return self._epochs.end_offset(epoch, self._log_end_offset)

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in [from_offset, to_offset), in the order of their markers.

        Raise CorruptSegmentError on damage, KafkaStorageError if I/O fails or the log is closed.
        """
        with self._storage("read"):
            return self._segments.aborted_transactions(from_offset, to_offset)

    def sealed_segments(self, from_offset: int = 0) -> list[SealedSegment]:
        """Return the sealed segments with a base offset at or above `from_offset`. Scans each of them, so request few.

        Raise KafkaStorageError if I/O fails or the log is closed.
        """
        bases = self._segments.bases
        with self._storage("read"):
            segments = [self._segments.sealed(base) for base in bases[bisect_left(bases, from_offset) :]]
            scans = [(segment, scan_segment(segment)) for segment in segments]
        return [describe(segment, found.content, found.size, self._clock.now_ms()) for segment, found in scans]

    def expire_producers(self) -> int:
        """Remove producers idle for `producer.id.expiration.ms` and return their number."""
        with self._lock:
            return self._producers.expire(self._clock.now_ms(), self.config.producer_id_expiration_ms)

    def delete_records_before(self, offset: int) -> None:
        """Move the log start durably to `offset` and remove whole segments below it from the log.

        Blocks on the disk, while appends continue: do not call it on the event loop. Raise OffsetOutOfRangeError if `offset` is
        negative or above the high watermark, KafkaStorageError if I/O fails or the log is closed.
        """
        with self._start_lock:
            with self._lock:
                moved = self._move_start(offset)
            self._force_start(moved)

    def _move_start(self, offset: int) -> _MovedStart | None:
        """Publish `offset` as log start to readers. Return None if the log starts there or later. Deletes nothing yet."""
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
        """Force the log start to disk, then remove the segments before it. Call it without the log's lock."""
        if moved is None:
            return
        try:
            with self._storage("delete records"):
                self._files.sync(moved.state.descriptor)
                moved.durability.force(moved.names)  # the first time, also the name of `state`
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
        """Remove the segments that `rule` expires and return the decision.

        committed: each group's committed offset, for a rule with a guard. An expired active segment is rolled first. May run in any
        thread, beside appends and reads. Raise CorruptSegmentError on damage, KafkaStorageError if I/O fails or the log is closed.
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
                decision = decide(ranges, growing[0].bytes)  # the active segment grew meanwhile
            moved = self._move_start(decision.log_start_offset) if decision.segments else None
        self._force_start(moved)
        return decision

    def _remove_before_start(self) -> None:
        """Remove segments that end at or below the log start from the log. Their files are deleted later."""
        segments = self._segments
        end = self._log_end_offset if segments.active is None else segments.active.base_offset
        following = [*segments.bases[1:], end] if segments.bases else []
        for base in segments.remove_first(bisect_right(following, self._log_start_offset)):
            self._delete_files(base, self.generation_of(base))
            self._events.segment_removed(base, self.generation_of(base))
        self._deleted.unlink_due()

    def take_swapped(self, swapped: Sequence[SwappedSegment]) -> list[SwappedSegment]:
        """Replace sealed segments by these rewritten ones. The old files are deleted after `file.delete.delay.ms`.

        Segments already in use are skipped. So are incomplete segments and those with another range than in Delta: the old
        files then stay in use. Return the segments that do not belong to this log because it starts after them. Reads files, so
        call it in a thread.
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
            return True  # never read, so its file may be missing
        return is_whole(self.directory, new, self._open_files)

    def _delete_files(self, base_offset: int, generation: int) -> None:
        for suffix in SUFFIXES:
            path = f"{self.directory}/{file_name(base_offset, suffix, generation)}"
            self._deleted.add(path, self.config.file_delete_delay_ms)

    def remove_deleted_files(self) -> None:
        """Unlink files of segments removed `file.delete.delay.ms` ago. Rolling does this too."""
        with self._lock:
            self._deleted.unlink_due()

    def roll(self) -> None:
        """Seal the active segment. The next append begins a new one. Raise KafkaStorageError, retriable, if I/O fails."""
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
        # No I/O from here on: if the event were skipped, the segment would be missing in Delta until the next start.
        sealed = self._segments.sealed(active.base_offset)
        self._events.segment_sealed(describe(sealed, active.content, size, self._clock.now_ms()))

    def begin_epoch(self, epoch: int) -> None:
        """Begin a leader epoch at the log end, durably, before any append in it. Raise KafkaStorageError if I/O fails."""
        with self._lock, self._storage("begin epoch"):
            if not self._epochs.assign(epoch, self._log_end_offset):
                return
            path = f"{self.directory}/{LEADER_EPOCHS_FILE}"
            replace_file(self._files, path, encode_leader_epochs(self._epochs), sync=True)
            self._leader_epoch = epoch
            self._write_state(self._high_watermark, self._last_stable_offset, sync=True)

    def flush_due(self) -> bool:
        """Return whether flush.messages or flush.ms requires a `flush` before acknowledging."""
        return self._durability.due(self.config.flush_messages, self.config.flush_ms)

    def flush(self) -> None:
        """Force appended records to disk. May run in any thread, beside appends and reads.

        Raise KafkaStorageError if fsync fails. The kernel may then have dropped the pages, so records above the high watermark are
        discarded together with their producer state: a producer's retry is appended again, not taken for a duplicate.
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
        """Return whether a sealed segment is not yet fsynced. Recovery from a power failure would have to scan it."""
        return self._durability.unsynced_files > (self._segments.active is not None)

    def flush_sealed(self) -> None:
        """Force sealed segments to disk, but not the active one. May run in any thread. Raise KafkaStorageError if fsync fails."""
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
        """Remove records at and above `offset` from the log, by whole messages. `offset` must be >= the high watermark.

        Reloads the remaining log from disk as a restart does. Raise `OSError` if I/O fails. A retry or a restart then
        completes the truncation.
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
                self._files.sync_directory(self.directory)  # a crash must not bring one back after the log grew past it
            if cut.base_offset in segments.bases:
                self._events.segment_removed(cut.base_offset, self.generation_of(cut.base_offset))
            file = self._open_files.get(cut.path, write=True)
            self._files.truncate(file.descriptor, position)
            if cut is segments.active:
                segments.active.ends_at(position)  # for a retry, if a later step fails
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
            self._events.segment_removed(base_offset, self.generation_of(base_offset))

    def close(self) -> None:
        """Seal the active segment and write a clean state, so that the next start needs no scan.

        Raise KafkaStorageError if I/O fails. The log is closed anyway and is recovered at the next open.
        """
        with self._lock:
            if self._closed:
                return
            try:
                with self._storage("close"):
                    if self._discard:  # a clean state would keep what it discards
                        self._discard_unacknowledged()
                    self._roll()
                    if self._snapshots.offsets[-1:] != [self._log_end_offset]:
                        self._save_snapshot()
                    if self._durability.unsynced_files:
                        self.flush()
                    self._write_state(self._high_watermark, self._last_stable_offset, clean=True, sync=True)
            finally:
                self.discard()

    def discard(self) -> None:
        """Release the directory of a deleted topic without a write. The log then rejects all file access.

        A new topic of that name may soon reuse the paths, so open descriptors are dropped and scheduled unlinks are canceled.
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
        """Write the leader epochs. A failure is only logged: the batch headers in the active segment hold the same epochs."""
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
        """Convert `OSError` to KafkaStorageError. Raise it also if the log is closed before or during the block."""
        self._check_open()
        try:
            yield
            self._check_open()
        except OSError as error:
            raise _storage_error(self.directory, doing, error) from error


def _storage_error(directory: str, doing: str, error: OSError | LakeError) -> KafkaStorageError:
    _log.error("storage failed: doing=%s directory=%s error=%s", doing, directory, error)
    return KafkaStorageError(f"{directory}: {doing}: {error}")
