"""Reads a log: messages from an offset on, offsets by time, aborted transactions. Takes no lock, so it may run in any thread."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from kafkalake.errors import CorruptSegmentError, OffsetOutOfRangeError
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.message_set import MessageSet
from kafkalake.storage.config import LogConfig
from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.log_access import LogAccess, storage_error
from kafkalake.storage.log_segments import LogSegments
from kafkalake.storage.log_state import LogState
from kafkalake.storage.producer_state import AbortedTransaction, ProducerStateEntry, SequencedBatch, find_repeated
from kafkalake.storage.replay import attempt_of
from kafkalake.storage.replica_read import (
    NEVER,
    ReplicaRead,
    SegmentRef,
    read_at_end,
    read_file,
    read_messages,
    reference,
)
from kafkalake.storage.scanner import scan_segment
from kafkalake.storage.sealed_segment import SealedSegment, describe
from kafkalake.storage.segment import Segment
from kafkalake.storage.segment_names import file_name
from kafkalake.storage.segment_reader import SegmentReader
from kafkalake.storage.segments import Segments, is_empty, no_messages
from kafkalake.storage.timestamp_search import TimestampOffset, first_not_before, record_with, record_with_largest

_T = TypeVar("_T")

_EMPTY_READS_MAX = 256


class LogReader:
    """One log as it is read. `Log` adds what changes it."""

    def __init__(self, access: LogAccess, state: LogState, segments: LogSegments) -> None:
        self._access = access
        self._state = state
        self._segments = segments

    @property
    def directory(self) -> str:
        """The directory of the partition."""
        return self._access.directory

    @property
    def config(self) -> LogConfig:
        """The settings in use."""
        return self._access.config

    @property
    def log_start_offset(self) -> int:
        """The first readable offset."""
        return self._state.log_start_offset

    @property
    def high_watermark(self) -> int:
        """The offset after the last one visible to consumers."""
        return self._state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset after the last one visible to `read_committed` consumers."""
        return self._state.last_stable_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._state.log_end_offset

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch of the log, -1 for none. Never decreases."""
        return self._state.leader_epoch

    @property
    def latest_epoch(self) -> int:
        """The epoch of the newest records or of the own leadership since, -1 for none. Decreases if the log is truncated."""
        return self._state.epochs.latest

    @property
    def was_cut(self) -> bool:
        """Return whether records are missing or damaged that may have been acknowledged, until `forget_cut`.

        They were so at the opening, or a failed flush has discarded them. `state` keeps it, so that a restart does not hide it.
        Of a machine that was restarted they may be missing without a trace, above the recovery point.
        """
        return self._state.was_cut

    @property
    def takeover_offset(self) -> int:
        """The offset below which the high watermark may lag that of the leader before, 0 if it does not."""
        state = self._state
        return state.takeover_offset if state.high_watermark < state.takeover_offset else 0

    @property
    def recovery_point(self) -> int:
        """The offset below which all records are on disk (fsynced)."""
        return self._segments.durability.recovery_point

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments. Raise KafkaStorageError if I/O fails or the log is closed."""
        with self._access.guarded("size"):
            return self._segments.listed.size_bytes()

    @property
    def sealed_base_offsets(self) -> list[int]:
        """The base offsets of the sealed segments, ascending. Opens no file."""
        return list(self._segments.listed.bases)

    @property
    def segment_borders(self) -> list[int]:
        """The offsets at which the sealed segments and the active or next one begin, and the log end, ascending. Opens no file."""
        with self._access.lock:
            listed, end = self._segments.listed, self._state.log_end_offset
            return [*listed.bases, end if listed.active is None else listed.active.base_offset, end]

    @property
    def listing(self) -> object:
        """An object that is another one once segments were removed or replaced.

        What is read of them before and after belongs together only if it is the same one.
        """
        return self._segments.listed.bases

    @property
    def generations(self) -> Mapping[int, int]:
        """The generations of the sealed segments rewritten by jobs, by base offset."""
        return self._segments.listed.generations

    def generation_of(self, base_offset: int) -> int:
        """Return the generation of a sealed or just removed segment: above 0 if a job rewrote it."""
        return self._segments.generation_of(base_offset)

    def active_producers(self) -> int:
        """Return the number of producer ids with state."""
        return len(self._state.producers)

    def producers(self) -> list[tuple[int, ProducerStateEntry]]:
        """Return the producer ids with their state."""
        with self._access.lock:
            return list(self._state.producers.items())

    def producer(self, producer_id: int) -> ProducerStateEntry | None:
        """Return the state of a producer id, None if it has none."""
        with self._access.lock:
            return self._state.producers.get(producer_id)

    @property
    def has_split_batches(self) -> bool:
        """Return whether batches may be remembered some of whose records are delivered later: `record.layout.SPLIT`."""
        return self._state.producers.has_split

    def find_repeated(self, batch: ProducerBatch) -> SequencedBatch | None:
        """Return the remembered batch that an idempotent producer sends again, None if it is a new one."""
        attempt = attempt_of(batch.header.tolist())
        return find_repeated(self.producer(attempt.producer_id), attempt) if attempt.producer_id >= 0 else None

    def read(self, offset: int, max_bytes: int, end_offset: int | None = None) -> MessageSet:
        """Return whole messages from the one with `offset`: about `max_bytes`, at least one, none that begins at or past
        `end_offset`.

        `end_offset` (default: the high watermark) may be the last stable offset or the log end. All messages come from one
        segment. The set is empty at the end. The first message may begin below `offset`, and above it after compaction, because
        offsets without records are skipped.
        Raise OffsetOutOfRangeError if `offset` is outside the log, CorruptSegmentError on damage, KafkaStorageError if I/O fails.
        """
        state = self._state

        def read() -> MessageSet:
            end = min(state.log_end_offset, state.high_watermark if end_offset is None else end_offset)
            if not state.log_start_offset <= offset <= state.log_end_offset:
                raise state.out_of_range(offset)
            if offset >= end:
                return no_messages()
            messages = self._segments.listed.read(offset, max_bytes, end)
            # Compaction may leave long ranges without records. Consumers give up after many empty responses (librdkafka
            # reports a message that is too large), so read on until there are records.
            for _ in range(_EMPTY_READS_MAX):
                if messages.next_offset >= end or not is_empty(messages):
                    break
                messages = self._segments.listed.read(messages.next_offset, max_bytes, end)
            return messages

        return self._read(read)

    def scan(self, offset: int, end_offset: int, columns: int) -> Iterator[MessageSet]:
        """Yield whole messages that overlap offsets [offset, end_offset), verified in the columns of the bit mask `columns` only.

        For passes over much of a log, in a thread. A message set is valid until the next one is requested.
        Raise CorruptSegmentError on damage, KafkaStorageError if I/O fails or the log is closed.
        """
        listed = self._segments.listed
        with self._access.guarded("scan"):
            for segment in listed.from_offset(offset):
                if segment.base_offset >= end_offset:
                    return
                is_active = segment is listed.active
                end = end_offset if is_active else min(listed.end_of(segment.base_offset, end_offset), end_offset)
                for messages in SegmentReader(segment).messages(max(offset, segment.base_offset), end, columns):
                    yield messages
                    offset = messages.next_offset  # if segments are replaced meanwhile, the next one may have it too

    @property
    def replica_start_offset(self) -> int:
        """The base offset of the first segment, where a replica without records begins to copy. At most the log start."""
        return self._segments.listed.begin(self._state.log_end_offset)

    def read_replica(self, offset: int, max_bytes: int, whole_from_bytes: int = NEVER) -> ReplicaRead:
        """Return the messages from the one that begins at `offset` on, for a follower: up to `max_bytes`, at least one.

        Up to the log end, not the high watermark. At the log end there are none. A sealed segment of `whole_from_bytes` or more
        that begins at `offset` is to be copied as a file, as every rewritten one. Raise OffsetOutOfRangeError if `offset` is not in
        [`replica_start_offset`, log end] or no message begins there, CorruptSegmentError on damage, KafkaStorageError if I/O fails
        or the log is closed.
        """

        def read() -> ReplicaRead:
            end, listed = self._state.log_end_offset, self._segments.listed
            if not self.replica_start_offset <= offset <= end:
                raise self._state.out_of_range(offset)
            if offset == end:
                return read_at_end(listed, end)
            return read_messages(listed, offset, max_bytes, end, whole_from_bytes)

        return self._read(read)

    def has_file(self, rewritten: RewrittenSegment) -> bool:
        """Return whether a segment that a job has rewritten is in this log's directory, in use or not.

        Raise KafkaStorageError if I/O fails or the log is closed.
        """
        access = self._access
        with access.guarded("read"):
            return file_name(rewritten.base_offset, generation=rewritten.generation) in access.files.list(
                access.directory
            )

    def segment_reference(self, base_offset: int, generation: int) -> SegmentRef:
        """Return what a follower copies of a sealed segment.

        Raise OffsetOutOfRangeError if this log has none at `base_offset` in that generation, KafkaStorageError if I/O fails or the
        log is closed.
        """

        def read() -> SegmentRef:
            listed = self._segments.listed
            return reference(listed, _sealed(listed, base_offset, generation), self._state.log_end_offset)

        return self._read(read)

    def read_segment_file(self, ref: SegmentRef, position: int, length: int) -> memoryview:
        """Return up to `length` bytes of the files of a sealed segment from `position` on, see `SegmentRef`.

        Raise OffsetOutOfRangeError if this log does not have the segment in that generation, CorruptSegmentError if its file became
        shorter, KafkaStorageError if I/O fails or the log is closed.
        """

        def read() -> memoryview:
            return read_file(_sealed(self._segments.listed, ref.base_offset, ref.generation), ref, position, length)

        return self._read(read)

    def read_behind_damage(self, offset: int, max_bytes: int) -> MessageSet:
        """Return whole messages below the high watermark from the first one after the damage at `offset`, possibly none.

        Raise KafkaStorageError if I/O fails or the log is closed.
        """
        while True:  # a file that is gone counts as damaged, so that what replaces it would be passed over
            listing = self.listing
            found = self._read(lambda: self._segments.listed.read_behind(offset, max_bytes, self._state.high_watermark))
            if self.listing is listing:
                return found

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Return the first record below the high watermark with a timestamp (ms) at or after `timestamp`, None if there is none.

        Raise CorruptSegmentError on damage, KafkaStorageError if I/O fails or the log is closed.
        """
        # Taken before the segments: records beyond those may be acknowledged meanwhile.
        end = self._state.high_watermark

        def find() -> TimestampOffset | None:
            start = self._state.log_start_offset
            return first_not_before(self._segments.listed.in_order(), timestamp, start, end)

        return self._read(find)

    def max_timestamp(self) -> TimestampOffset | None:
        """Return the first record with the largest timestamp, None without records.

        Blocks: do not call it on the event loop. Once that record is deleted, it reads an index of each segment, and whole
        segments whose largest timestamp belongs to a deleted record. Raise CorruptSegmentError on damage, KafkaStorageError if
        I/O fails or the log is closed.
        """
        return self._read(self._find_largest_timestamp)

    def _read(self, read: Callable[[], _T]) -> _T:
        """Return `read()`, which is called again if it fails while segments are removed or replaced.

        Convert `OSError` to KafkaStorageError. Raise it also if the log is closed before or meanwhile.
        """
        while True:
            listing = self.listing
            self._access.check_open()
            try:
                found = read()
                self._access.check_open()  # if closed meanwhile, the files may belong to another topic
                return found
            except (OSError, CorruptSegmentError) as error:
                if self.listing is not listing:
                    continue
                if isinstance(error, OSError):
                    raise storage_error(self._access.directory, "read", error) from error
                raise

    def _find_largest_timestamp(self) -> TimestampOffset | None:
        state = self._state
        start = state.log_start_offset
        with self._access.lock:
            top, offset, end = state.max_timestamp, state.max_timestamp_offset, state.log_end_offset
            listed = self._segments.listed
        if top < 0 or end == start:
            return None
        found = record_with(listed.holding(offset), offset, top, start) if offset >= start else None
        return found if found is not None else record_with_largest(listed.in_order(), start, end)

    def epoch_for_offset(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset`, -1 if unknown."""
        with self._access.lock:
            return self._state.epochs.epoch_at(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest epoch <= `epoch`, (-1, -1) if unknown. KIP-101, KIP-320."""
        with self._access.lock:
            return self._state.epochs.end_offset(epoch, self._state.log_end_offset)

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in [from_offset, to_offset), in the order of their markers.

        Raise CorruptSegmentError on damage, KafkaStorageError if I/O fails or the log is closed.
        """
        return self._read(lambda: self._segments.listed.aborted_transactions(from_offset, to_offset))

    def sealed_segments(self, from_offset: int = 0) -> list[SealedSegment]:
        """Return the sealed segments with a base offset at or above `from_offset`. Scans each of them, so request few.

        Raise KafkaStorageError if I/O fails or the log is closed.
        """

        def read() -> list[SealedSegment]:
            listed, now_ms = self._segments.listed, self._access.clock.now_ms()
            bases = listed.bases
            segments = [listed.sealed(base) for base in bases[bisect_left(bases, from_offset) :]]
            scans = [(segment, scan_segment(segment)) for segment in segments]
            return [describe(segment, found.content, found.size, now_ms) for segment, found in scans]

        return self._read(read)


def _sealed(listed: Segments, base_offset: int, generation: int) -> Segment:
    """Return the sealed segment at `base_offset` in that generation. Raise OffsetOutOfRangeError if the log does not have it."""
    if base_offset not in listed.bases or listed.generations.get(base_offset, 0) != generation:
        raise OffsetOutOfRangeError(f"no segment begins at offset {base_offset} in generation {generation}")
    return listed.sealed(base_offset)
