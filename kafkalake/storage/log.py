"""A partition's log: append, read, roll, high watermark.

`append` writes and assigns offsets; `advance_high_watermark` makes what was written visible, to consumers and, through `state`, to every
other process. They are two steps because replicas stand between them: whoever acknowledges does it after the second.

One lock a log guards what changes. `read` and the searches take it for no longer than it takes to look up a segment, so fetches may run in other
threads; `flush` holds it not at all while the disk works. Whatever the disk refuses becomes KafkaStorageError, and the log is then
as it was before the call.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kafkalake.clock import Clock
from kafkalake.errors import (
    CorruptSegmentError,
    InvalidRecordError,
    KafkaError,
    KafkaStorageError,
    OffsetOutOfRangeError,
)
from kafkalake.record import layout as at
from kafkalake.record.batch import RecordBatch
from kafkalake.record.message_set import MessageSet
from kafkalake.storage.active_segment import MAXIMUM_RELATIVE_OFFSET, ActiveSegment
from kafkalake.storage.config import LogConfig
from kafkalake.storage.files import REAL_FILES, Files, replace_file
from kafkalake.storage.leader_epochs import LEADER_EPOCHS_FILE, encode_leader_epochs
from kafkalake.storage.message_writer import CODECS, MESSAGE_BODY_BYTES, write_message
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.producer_state import AbortedTransaction, EndMarker, Pending, SequencedBatch
from kafkalake.storage.recovery import Recovered, Recovery
from kafkalake.storage.replay import attempt_of
from kafkalake.storage.scanner import scan_segment
from kafkalake.storage.segment import SUFFIXES, Segment, file_name
from kafkalake.storage.snapshot import KEPT, Snapshot, encode_snapshot
from kafkalake.storage.snapshot import SUFFIX as SNAPSHOT_SUFFIX
from kafkalake.storage.state import STATE_FILE, PartitionState, StateFile, boot_id
from kafkalake.storage.timestamp_search import TimestampOffset, batch_with_timestamp, first_not_before, newest_with

_HINTS = 64
_log = logging.getLogger(__name__)


class AppendResult(NamedTuple):
    """Where a batch stands. Offsets inclusive; `log_append_time_ms` -1 for CreateTime; `duplicate`: it was there already."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A segment that never changes again. `path` is absolute or as the log's directory was given; timestamps ms or None without records."""

    base_offset: int
    next_offset: int
    path: str
    records: int
    bytes: int
    min_timestamp: int | None
    max_timestamp: int | None
    sealed_at_ms: int
    generation: int = 0


@dataclass(slots=True)
class _Group:
    """Batches that become one message."""

    base_offset: int
    next_offset: int
    bytes: int = 0
    indices: list[int] = field(default_factory=list)
    batches: list[RecordBatch] = field(default_factory=list)
    duplicates: list[int] = field(default_factory=list)
    pending: Pending = field(default_factory=Pending)
    max_timestamp: int = -1
    max_timestamp_offset: int = -1


def _empty() -> MessageSet:
    numbers = np.zeros(0, dtype=np.int64)
    return MessageSet(
        np.zeros(0, dtype=np.uint8),
        numbers,
        np.zeros((0, at.LAYOUT_SIZE), dtype=np.int64),
        np.zeros((0, at.HEADER_FIELDS), dtype=np.int64),
        np.zeros(1, dtype=np.int64),
        np.zeros(1, dtype=np.int64),
    )


EMPTY = _empty()
"""No messages."""


class Log:
    """The log of one partition. Make one with `Log.open`; one at a time a directory."""

    on_sealed: Callable[[SealedSegment], None]
    """Called after a segment was sealed, in the thread that sealed it."""
    on_removed: Callable[[int], None]
    """Called with the base offset of a segment that is no longer part of the log; its files go `file.delete.delay.ms` later."""

    def __init__(
        self, directory: str, config: LogConfig, clock: Clock, open_files: OpenFiles, recovered: Recovered
    ) -> None:
        state = recovered.state
        self.directory = directory
        self.config = config
        self.on_sealed = lambda segment: None
        self.on_removed = lambda base_offset: None
        self._clock = clock
        self._open_files = open_files
        self._files = open_files.files
        self._lock = threading.RLock()
        self._bases = recovered.listing.bases
        self._snapshots = recovered.listing.snapshots
        self._segments: dict[int, Segment] = {}
        self._active = recovered.active
        self._producers = recovered.producers
        self._epochs = recovered.epochs
        self._log_start_offset = state.log_start_offset
        self._high_watermark = min(state.high_watermark, state.log_end_offset)
        self._log_end_offset = state.log_end_offset
        self._leader_epoch = state.leader_epoch
        self._recovery_point = state.recovery_point
        self._max_timestamp = state.max_timestamp
        self._max_timestamp_offset = state.max_timestamp_offset
        self._last_stable_offset = max(
            state.log_start_offset, self._producers.advance_high_watermark(self._high_watermark)
        )
        self._hints: dict[int, tuple[int, int]] = {}
        self._unsynced: list[str] = []
        self._unsynced_records = 0
        self._synced_at_ms = clock.monotonic_ms()
        self._deleted: list[tuple[int, str]] = []
        self._closed = False
        self._state_file = StateFile(f"{directory}/{STATE_FILE}", open_files, recovered.sequence)
        if self._active is not None:
            self._unsynced.append(self._active.path)

    @classmethod
    def open(
        cls,
        directory: str,
        config: LogConfig,
        clock: Clock,
        files: Files = REAL_FILES,
        open_files: OpenFiles | None = None,
    ) -> Log:
        """Open the log in `directory`, made if it is not there, and recover it if it was not closed in order.

        The high watermark is the one that was last made durable, not the log end: the leader advances it once its
        in-sync replicas (itself, if alone) have what is there. Raises KafkaStorageError.
        """
        open_files = open_files if open_files is not None else OpenFiles(files)
        assert open_files.files is files or files is REAL_FILES
        directory = str(directory)
        try:
            recovered = Recovery(directory, config, clock, open_files).run()
            log = cls(directory, config, clock, open_files, recovered)
            if not recovered.intact:
                log._write_state(log._high_watermark, log._last_stable_offset)
        except OSError as error:
            raise KafkaStorageError(f"{directory}: cannot open the log: {error}") from error
        log._remove_before_start()
        return log

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
        """The newest leader epoch in the log, -1 for none."""
        return self._leader_epoch

    @property
    def recovery_point(self) -> int:
        """Offsets below it have been forced to the disk."""
        return self._recovery_point

    def active_producers(self) -> int:
        """How many producer ids are remembered."""
        return len(self._producers)

    def append(self, batches: Sequence[RecordBatch], leader_epoch: int) -> list[AppendResult | KafkaError]:
        """Append batches in order, one Arrow message for all of them (several when they are big); one answer each.

        Fills base offset and leader epoch (and, with LogAppendTime, the timestamp) in the headers. A batch that producer state
        refuses gets its error and does not stop the others; a write that fails gives KafkaStorageError to its batches.
        """
        results: list[AppendResult | KafkaError] = [_UNANSWERED] * len(batches)
        with self._lock:
            now_ms = self._clock.now_ms()
            limit = min(MESSAGE_BODY_BYTES, self.config.segment_bytes)
            group = _Group(self._log_end_offset, self._log_end_offset)
            for number, batch in enumerate(batches):
                full = group.bytes + len(batch.body) > limit or len(group.batches) == at.MAXIMUM_BATCHES
                if group.batches and full:
                    self._write_group(group, leader_epoch, now_ms, results)
                    group = _Group(self._log_end_offset, self._log_end_offset)
                self._accept(number, batch, group, leader_epoch, now_ms, results)
            if group.batches:
                self._write_group(group, leader_epoch, now_ms, results)
        return results

    def append_control(self, marker: EndMarker, leader_epoch: int) -> AppendResult:
        """Append the marker that ends a producer's transaction.

        Raises InvalidProducerEpochError, TransactionCoordinatorFencedError, KafkaStorageError.
        """
        with self._lock:
            self._producers.check_end(marker)
            now_ms = self._clock.now_ms()
            offset = self._log_end_offset
            batch = control_batch(marker, now_ms)
            group = _Group(offset, offset + 1, batches=[batch])
            batch.header[at.BASE_OFFSET] = offset
            batch.header[at.LEADER_EPOCH] = leader_epoch
            aborted = self._producers.aborted_by(marker, offset)
            try:
                self._write_message(group, leader_epoch, now_ms, aborted)
            except OSError as error:
                raise self._storage_error("append", error) from error
            self._producers.end(marker, offset, now_ms)
            return AppendResult(offset, offset, -1, self._log_start_offset)

    def advance_high_watermark(self, offset: int) -> None:
        """Make everything below `offset` visible, here and through `state`; never goes back. Raises KafkaStorageError, and nothing moved."""
        with self._lock:
            assert offset <= self._log_end_offset, "the high watermark is at most the log end"
            if offset <= self._high_watermark:
                return
            stable = max(self._last_stable_offset, self._producers.advance_high_watermark(offset))
            try:
                self._write_state(offset, stable)
            except OSError as error:
                raise self._storage_error("state", error) from error
            self._high_watermark = offset
            self._last_stable_offset = stable

    def read(self, offset: int, max_bytes: int, end_offset: int | None = None) -> MessageSet:
        """Whole messages from the one that holds `offset`: about `max_bytes`, at least one, none that begins at or past `end_offset`.

        `end_offset` (default: the high watermark) may be the last stable offset or the log end. What is returned comes from one segment;
        empty at the end. The first message may begin below `offset`, and after compaction or a loss at power failure above it.
        Raises OffsetOutOfRangeError, CorruptSegmentError, KafkaStorageError.
        """
        end_offset = self._high_watermark if end_offset is None else end_offset
        if not self._log_start_offset <= offset <= self._log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} is outside of [{self._log_start_offset}, {self._log_end_offset}]"
            )
        if offset >= min(end_offset, self._log_end_offset):
            return EMPTY
        try:
            return self._read(offset, max_bytes, end_offset)
        except FileNotFoundError as error:
            if offset < self._log_start_offset:
                raise OffsetOutOfRangeError(f"offset {offset} is below {self._log_start_offset}") from None
            raise self._storage_error("read", error) from error
        except OSError as error:
            raise self._storage_error("read", error) from error

    def _read(self, offset: int, max_bytes: int, end_offset: int) -> MessageSet:
        hint = self._hints.get(offset)
        if hint is not None:
            found = self._segment(hint[0]).read(hint[1], max_bytes, end_offset)
            if found is not None and found.messages.base_offset <= offset < found.messages.next_offset:
                self._hint(found.messages.next_offset, hint[0], found.end)
                return found.messages
        wanted = offset
        for segment in self._segments_from(offset):
            position = segment.locate(max(wanted, segment.base_offset))
            if position is not None:
                found = segment.read(position, max_bytes, end_offset)
                if found is None:
                    return EMPTY
                self._hint(found.messages.next_offset, segment.base_offset, found.end)
                return found.messages
            if segment is not self._active and not segment.whole:
                raise CorruptSegmentError(
                    segment.path, segment.end(), f"acknowledged records from offset {offset} on are missing"
                )
        return EMPTY

    def _segments_from(self, offset: int) -> list[Segment]:
        """The segment that holds `offset` and, for the case that it ends in a gap, the one after it."""
        bases = self._bases
        first = max(0, bisect_right(bases, offset) - 1)
        active = self._active
        if active is not None and offset >= active.base_offset:
            return [active]
        found = [self._segment(base) for base in bases[first : first + 2]]
        if len(found) < 2 and active is not None:
            found.append(active)
        return found

    def _segment(self, base_offset: int) -> Segment:
        active = self._active
        if active is not None and active.base_offset == base_offset:
            return active
        segment = self._segments.get(base_offset)
        if segment is None:
            segment = self._segments[base_offset] = Segment(self.directory, base_offset, self._open_files)
        return segment

    def _hint(self, offset: int, base_offset: int, position: int) -> None:
        """Remember where the message after a read begins: that is where the same consumer reads next."""
        hints = self._hints
        hints[offset] = (base_offset, position)
        if len(hints) > _HINTS:
            with contextlib.suppress(StopIteration, KeyError, RuntimeError):
                del hints[next(iter(hints))]

    def _accept(
        self,
        number: int,
        batch: RecordBatch,
        group: _Group,
        leader_epoch: int,
        now_ms: int,
        results: list[AppendResult | KafkaError],
    ) -> None:
        """Decide on one batch and put it into `group`, or answer it."""
        header = batch.header
        numbers = header.tolist()
        attributes = numbers[at.ATTRIBUTES]
        if attributes & at.ATTRIBUTE_CONTROL or numbers[at.LAST_OFFSET_DELTA] < 0 or numbers[at.RECORDS] != batch.rows:
            results[number] = InvalidRecordError("a batch of a producer holds records and is no control batch")
            return
        offset = group.next_offset
        log_append_time = self.config.message_timestamp_type == "LogAppendTime"
        timestamp = now_ms if log_append_time else numbers[at.MAX_TIMESTAMP]
        if numbers[at.PRODUCER_ID] >= 0:
            try:
                known = self._producers.accept(attempt_of(numbers), offset, timestamp, now_ms, group.pending)
            except KafkaError as error:
                results[number] = error
                return
            if known is not None:
                results[number] = self._duplicate(known, log_append_time)
                group.duplicates.append(number)
                return
        if log_append_time:
            header[at.ATTRIBUTES] = attributes | at.ATTRIBUTE_LOG_APPEND_TIME
            header[at.MAX_TIMESTAMP] = now_ms
        elif attributes & at.ATTRIBUTE_LOG_APPEND_TIME:
            header[at.ATTRIBUTES] = attributes & ~at.ATTRIBUTE_LOG_APPEND_TIME
        header[at.BASE_OFFSET] = offset
        header[at.LEADER_EPOCH] = leader_epoch
        last = offset + numbers[at.LAST_OFFSET_DELTA]
        results[number] = AppendResult(offset, last, now_ms if log_append_time else -1, self._log_start_offset)
        group.indices.append(number)
        group.batches.append(batch)
        group.bytes += len(batch.body)
        group.next_offset = last + 1
        if timestamp > group.max_timestamp and numbers[at.RECORDS]:
            group.max_timestamp, group.max_timestamp_offset = timestamp, offset

    def _duplicate(self, batch: SequencedBatch, log_append_time: bool) -> AppendResult:
        time_ms = batch.timestamp if log_append_time else -1
        return AppendResult(batch.base_offset, batch.last_offset, time_ms, self._log_start_offset, True)

    def _write_group(
        self, group: _Group, leader_epoch: int, now_ms: int, results: list[AppendResult | KafkaError]
    ) -> None:
        try:
            self._write_message(group, leader_epoch, now_ms, None)
        except OSError as error:
            failed = self._storage_error("append", error)
            for number in group.indices:
                results[number] = failed
            for number in group.duplicates:
                answer = results[number]
                if isinstance(answer, AppendResult) and answer.base_offset >= group.base_offset:
                    results[number] = failed
            return
        self._producers.commit(group.pending)

    def _write_message(self, group: _Group, leader_epoch: int, now_ms: int, aborted: AbortedTransaction | None) -> None:
        """Put a group into the log. Raises `OSError`; the log is then as it was."""
        if self._closed:
            raise OSError("the log is closed")
        message, smallest = write_message(group.batches, CODECS[self.config.segment_compression])
        active = self._active_for(len(message), group.next_offset, now_ms)
        if aborted is not None:
            active.write_aborted(aborted)
        records = sum(batch.rows for batch in group.batches)
        active.append(
            message,
            group.base_offset,
            records,
            group.next_offset,
            smallest,
            group.max_timestamp,
            group.max_timestamp_offset,
        )
        if aborted is not None:
            active.count_aborted()
        self._log_end_offset = group.next_offset
        self._unsynced_records += records
        if group.max_timestamp > self._max_timestamp:
            self._max_timestamp, self._max_timestamp_offset = group.max_timestamp, group.max_timestamp_offset
        if leader_epoch > self._epochs.latest:
            self._assign_epoch(leader_epoch, group.base_offset)

    def _active_for(self, size: int, next_offset: int, now_ms: int) -> ActiveSegment:
        """The segment for a message of `size` bytes, rolled first where it is full or old."""
        active = self._active
        if (
            active is not None
            and not active.empty
            and (
                active.end() + size > self.config.segment_bytes
                or next_offset - active.base_offset > MAXIMUM_RELATIVE_OFFSET
                or now_ms - active.created_ms >= self.config.segment_ms
            )
        ):
            self._roll()
            active = None
        if active is None:
            active = ActiveSegment(
                self.directory,
                self._log_end_offset,
                self._open_files,
                index_interval_bytes=self.config.index_interval_bytes,
                earlier_max_timestamp=self._max_timestamp,
            )
            self._active = active
            self._unsynced.append(active.path)
        if active.empty:
            active.created_ms = now_ms
        return active

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        self._leader_epoch = max(self._leader_epoch, epoch)
        self._epochs.assign(epoch, start_offset)
        self._save_epochs(sync=False)

    def _save_epochs(self, *, sync: bool) -> None:
        """The headers of the active segment say the same, so a failure costs nothing before the next roll."""
        try:
            path = f"{self.directory}/{LEADER_EPOCHS_FILE}"
            replace_file(self._files, path, encode_leader_epochs(self._epochs), sync=sync)
        except OSError as error:
            _log.warning("leader epochs not written: directory=%s error=%s", self.directory, error)

    def roll(self) -> None:
        """Seal the active segment; the next append begins a new one. Raises KafkaStorageError; it can then be tried again."""
        with self._lock:
            try:
                self._roll()
                self._write_state(self._high_watermark, self._last_stable_offset)
            except OSError as error:
                raise self._storage_error("roll", error) from error

    def _roll(self) -> None:
        active = self._active
        if active is None or active.empty:
            return
        self._save_snapshot(sync=False)
        active.seal()
        self._bases.append(active.base_offset)
        self._active = None
        self._hints = {}
        self.on_sealed(self._describe_active(active))

    def _describe_active(self, active: ActiveSegment) -> SealedSegment:
        content = active.content
        size = Segment(self.directory, active.base_offset, self._open_files).size_bytes()
        return SealedSegment(
            active.base_offset,
            content.next_offset,
            active.path,
            content.records,
            size,
            content.min_timestamp if content.min_timestamp >= 0 else None,
            content.max_timestamp if content.max_timestamp >= 0 else None,
            self._clock.now_ms(),
        )

    def _save_snapshot(self, *, sync: bool) -> None:
        """Producers at the log end; the last two snapshots stay."""
        offset = self._log_end_offset
        snapshot = Snapshot(offset, self._producers, self._max_timestamp, self._max_timestamp_offset)
        replace_file(self._files, self._snapshot_path(offset), encode_snapshot(snapshot), sync=sync)
        if not self._snapshots or self._snapshots[-1] < offset:
            self._snapshots.append(offset)
        while len(self._snapshots) > KEPT:
            with contextlib.suppress(OSError):
                self._files.unlink(self._snapshot_path(self._snapshots[0]))
            del self._snapshots[0]

    def _snapshot_path(self, offset: int) -> str:
        return f"{self.directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"

    def _write_state(
        self, high_watermark: int, last_stable_offset: int, *, clean: bool = False, sync: bool = False
    ) -> None:
        active = self._active
        self._state_file.write(
            PartitionState(
                self._log_start_offset,
                high_watermark,
                last_stable_offset,
                self._log_end_offset,
                self._leader_epoch,
                self._log_end_offset if active is None else active.base_offset,
                0 if active is None else active.end(),
                clean,
                self._recovery_point,
                self._max_timestamp,
                self._max_timestamp_offset,
                0 if active is None else active.created_ms,
                boot_id(),
            ),
            sync=sync,
        )

    def flush_due(self) -> bool:
        """Whether `flush.messages` or `flush.ms` ask for a `flush` now."""
        if not self._unsynced_records:
            return False
        return (
            self._unsynced_records >= self.config.flush_messages
            or self._clock.monotonic_ms() - self._synced_at_ms >= self.config.flush_ms
        )

    def flush(self) -> None:
        """Force what has been appended to the disk; may run in any thread, beside appends and reads.

        Raises KafkaStorageError: then nothing that was appended since the last flush may be acknowledged as durable.
        """
        with self._lock:
            paths, end, records = list(self._unsynced), self._log_end_offset, self._unsynced_records
            active_path = None if self._active is None else self._active.path
        try:
            for path in paths:
                with contextlib.suppress(FileNotFoundError):
                    self._files.sync(self._open_files.get(path).descriptor)
            self._files.sync_directory(self.directory)
        except OSError as error:
            raise self._storage_error("flush", error) from error
        with self._lock:
            done = set(paths) - {active_path}
            self._unsynced = [path for path in self._unsynced if path not in done]
            self._unsynced_records = max(0, self._unsynced_records - records)
            self._recovery_point = max(self._recovery_point, end)
            self._synced_at_ms = self._clock.monotonic_ms()

    def close(self) -> None:
        """Seal the active segment and leave a state that the next start believes without a scan. Raises KafkaStorageError."""
        with self._lock:
            if self._closed:
                return
            try:
                self._roll()
                if self._snapshots[-1:] != [self._log_end_offset]:
                    self._save_snapshot(sync=False)
                self.flush()
                self._save_epochs(sync=False)
                self._write_state(self._high_watermark, self._last_stable_offset, clean=True, sync=True)
            except OSError as error:
                raise self._storage_error("close", error) from error
            self._closed = True
            self._open_files.forget(self._state_file.path)
            for segment in self._segments.values():
                segment.forget()

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch not above the one asked for; (-1, -1) where it is not known. KIP-101, KIP-320."""
        with self._lock:
            return self._epochs.end_offset(epoch, self._log_end_offset)

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in [from_offset, to_offset), by the offset of their marker.

        Raises CorruptSegmentError, KafkaStorageError.
        """
        found: list[AbortedTransaction] = []
        with self._lock:
            bases = self._bases[max(0, bisect_right(self._bases, from_offset) - 1) :]
            segments = [self._segment(base) for base in bases] + ([self._active] if self._active is not None else [])
        try:
            for segment in segments:
                for aborted in segment.aborted_transactions():
                    if aborted.last_offset >= from_offset and aborted.first_offset < to_offset:
                        found.append(aborted)
                    if aborted.last_stable_offset >= to_offset:
                        return found
        except OSError as error:
            raise self._storage_error("read", error) from error
        return found

    def expire_producers(self) -> int:
        """Forget producers that have been silent for `producer.id.expiration.ms`; returns how many."""
        with self._lock:
            return self._producers.expire(self._clock.now_ms(), self.config.producer_id_expiration_ms)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record below the high watermark with a timestamp (ms) at or after `timestamp`; None where there is none.

        Raises CorruptSegmentError, KafkaStorageError.
        """
        try:
            return first_not_before(self._visible_segments(), timestamp, self._log_start_offset, self._high_watermark)
        except OSError as error:
            raise self._storage_error("read", error) from error

    def max_timestamp(self) -> TimestampOffset | None:
        """The record with the largest timestamp, the first of them; None without records. Raises as `offset_for_timestamp`."""
        try:
            with self._lock:
                top, offset, start = self._max_timestamp, self._max_timestamp_offset, self._log_start_offset
            if top < 0 or self._log_end_offset == start:
                return None
            if offset >= start:
                found = batch_with_timestamp(self._segments_from(offset)[0], offset, top)
                if found is not None:
                    return found
            return newest_with(self._visible_segments(), start)
        except OSError as error:
            raise self._storage_error("read", error) from error

    def _visible_segments(self) -> list[Segment]:
        with self._lock:
            segments = [self._segment(base) for base in self._bases]
            return segments + ([self._active] if self._active is not None and not self._active.empty else [])

    def delete_records_before(self, offset: int) -> None:
        """Move the log start to `offset`, durably, and drop whole segments below it.

        Raises OffsetOutOfRangeError above the high watermark, KafkaStorageError.
        """
        with self._lock:
            if offset > self._high_watermark or offset < 0:
                raise OffsetOutOfRangeError(f"offset {offset} is outside of [0, {self._high_watermark}]")
            if offset <= self._log_start_offset:
                return
            before = self._log_start_offset, self._last_stable_offset
            self._log_start_offset = offset
            self._last_stable_offset = max(self._last_stable_offset, offset)
            try:
                if offset == self._log_end_offset:
                    self._roll()
                self._write_state(self._high_watermark, self._last_stable_offset, sync=True)
            except OSError as error:
                self._log_start_offset, self._last_stable_offset = before
                raise self._storage_error("delete records", error) from error
            if self._epochs.truncate_start(offset):
                self._save_epochs(sync=False)
            self._remove_before_start()

    def _remove_before_start(self) -> None:
        """Take segments that end at or below the log start out of the log; their files go later."""
        keep = self._first_kept()
        due_ms = self._clock.monotonic_ms() + self.config.file_delete_delay_ms
        removed, self._bases = self._bases[:keep], self._bases[keep:]
        for base in removed:
            self._segments.pop(base, None)
            for suffix in SUFFIXES:
                self._deleted.append((due_ms, f"{self.directory}/{file_name(base, suffix)}"))
            self.on_removed(base)
        self.remove_deleted_files()

    def _first_kept(self) -> int:
        active = self._active
        end = self._log_end_offset if active is None else active.base_offset
        following = [*self._bases[1:], end] if self._bases else []
        return bisect_right(following, self._log_start_offset)

    def remove_deleted_files(self) -> None:
        """Unlink files of removed segments that have waited for `file.delete.delay.ms`."""
        now_ms = self._clock.monotonic_ms()
        while self._deleted and self._deleted[0][0] <= now_ms:
            _, path = self._deleted.pop(0)
            self._open_files.forget(path)
            with contextlib.suppress(OSError):
                self._files.unlink(path)

    @property
    def sealed_base_offsets(self) -> list[int]:
        """Base offsets of sealed segments, growing; opens no file."""
        return list(self._bases)

    def sealed_segments(self, from_offset: int = 0) -> list[SealedSegment]:
        """Sealed segments whose base offset is at or above `from_offset`; each is scanned, so ask for no more than is needed.

        Raises KafkaStorageError.
        """
        with self._lock:
            bases = self._bases[bisect_left(self._bases, from_offset) :]
        return [self._describe(base) for base in bases]

    def _describe(self, base_offset: int) -> SealedSegment:
        try:
            segment = self._segment(base_offset)
            found = scan_segment(segment)
        except OSError as error:
            raise self._storage_error("read", error) from error
        content = found.content
        return SealedSegment(
            base_offset,
            content.next_offset,
            segment.path,
            content.records,
            found.size,
            content.min_timestamp if content.min_timestamp >= 0 else None,
            content.max_timestamp if content.max_timestamp >= 0 else None,
            self._clock.now_ms(),
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments. Raises KafkaStorageError."""
        try:
            return sum(segment.size_bytes() for segment in self._visible_segments())
        except OSError as error:
            raise self._storage_error("size", error) from error

    def _storage_error(self, doing: str, error: OSError) -> KafkaStorageError:
        _log.error("storage failed: doing=%s directory=%s error=%s", doing, self.directory, error)
        return KafkaStorageError(f"{self.directory}: {doing}: {error}")


_UNANSWERED = KafkaStorageError("not written")


def control_batch(marker: EndMarker, timestamp: int) -> RecordBatch:
    """The batch with no rows and one offset that a marker is."""
    header = np.zeros(at.HEADER_FIELDS, dtype=np.int64)
    header[at.PRODUCER_ID] = marker.producer_id
    header[at.PRODUCER_EPOCH] = marker.epoch
    header[at.ATTRIBUTES] = at.ATTRIBUTE_CONTROL | at.ATTRIBUTE_TRANSACTIONAL
    header[at.BASE_SEQUENCE] = -1
    header[at.BASE_TIMESTAMP] = header[at.MAX_TIMESTAMP] = timestamp
    header[at.CONTROL_TYPE] = marker.control_type
    header[at.COORDINATOR_EPOCH] = marker.coordinator_epoch
    return RecordBatch(np.zeros(0, dtype=np.uint8), np.zeros(at.LAYOUT_SIZE, dtype=np.int64), header)
