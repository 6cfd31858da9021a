"""A log as a follower makes it equal to its leader's: segments installed, truncated, started anew, the log start raised.

Messages are appended by `Log.append_replica`, beside the leader's append.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkalake.buffers import Buffer
from kafkalake.record.batch import ProducerBatch
from kafkalake.storage.log_access import LogAccess, storage_error
from kafkalake.storage.log_copy import LogCopy
from kafkalake.storage.log_force import LogForce
from kafkalake.storage.log_reader import LogReader
from kafkalake.storage.log_segments import LogSegments
from kafkalake.storage.log_start import LogStart
from kafkalake.storage.log_state import LogState
from kafkalake.storage.replica_read import SegmentRef
from kafkalake.storage.segment_copy import SegmentCopy


class LogFollower(LogReader):
    """One log as it is read and follows another one. `Log` adds what a leader does."""

    def __init__(self, access: LogAccess, state: LogState, segments: LogSegments) -> None:
        super().__init__(access, state, segments)
        self._force = LogForce(access, state, segments)
        self._start = LogStart(access, state, segments, self._force)
        self._copy = LogCopy(access, state, segments)

    def append_reads_segment(self, messages: Buffer, segment_base_offset: int, *, ends_segment: bool) -> bool:
        """Return whether `Log.append_replica` of the same reads a whole segment, so that it belongs in a thread.

        The last one is read again if it goes on after the log was closed, and a large one if it is sealed.
        """
        return self._copy.reads_whole_segment(messages, segment_base_offset, ends_segment=ends_segment)

    def append_seals_many(self, batches: Iterable[ProducerBatch | None]) -> bool:
        """Return whether `Log.append` of these, or of a marker (None), may seal a segment of many messages.

        Then `list_messages` precedes it. Sealing 300,000 messages takes 200 ms if they are not listed. Needs no lock.
        """
        return self._segments.may_seal_many(batches)

    def list_messages(self) -> None:
        """List the messages of the segment that is appended to, so that sealing it does not take long. May run in any thread.

        Raise KafkaStorageError if I/O fails.
        """
        with self._access.guarded("list messages"):
            self._segments.list_messages()

    def remove_deleted_files(self) -> None:
        """Unlink files of segments removed `file.delete.delay.ms` ago. Rolling does this too.

        Nothing is done while another thread changes the log: call it again later.
        """
        with self._access.try_lock() as is_free:
            if is_free:
                self._segments.deleted.unlink_due()

    def expire_producers(self) -> int:
        """Remove producers idle for `producer.id.expiration.ms` and return their number.

        Nothing is done while another thread changes the log: call it again later.
        """
        access = self._access
        with access.try_lock() as is_free:
            if not is_free:
                return 0
            return self._state.producers.expire(access.clock.now_ms(), access.config.producer_id_expiration_ms)

    def forget_cut(self) -> None:
        """Note that nobody counts this replica for the records that it has lost, see `was_cut`.

        Raise KafkaStorageError if I/O fails.
        """
        state, access = self._state, self._access
        with access.lock:
            access.check_open()
            if not state.was_cut:
                return
            state.was_cut = False
            try:
                self._segments.write_state()
            except OSError as error:
                state.was_cut = True
                raise storage_error(access.directory, "state", error) from error

    def raise_start(self, offset: int) -> None:
        """Raise a follower's log start durably to its leader's, at most to the high watermark, and remove whole segments below it.

        The last segment stays, because the leader may still append to it. Blocks on the disk. Raise KafkaStorageError if I/O
        fails or the log is closed.
        """
        self._start.raise_to(offset)

    def truncate_to(self, offset: int, *, below_high_watermark: bool = False) -> None:
        """Remove records at and above `offset`, a message border, and the leader epochs that began there.

        With `below_high_watermark` also visible ones, because their leader was not elected from the in-sync replicas. The log then
        ends below `offset` if that is inside a message or a rewritten segment. Reloads the rest from disk as a restart does.
        Raise `KafkaStorageError` if I/O fails, then a retry or a restart completes the truncation, and without a change if a record
        below `offset` is damaged.
        """
        with self._access.lock, self._access.guarded("truncate"):
            self._copy.truncate(offset, below_high_watermark=below_high_watermark)

    def begin_copy(self, base_offset: int, generation: int) -> SegmentCopy:
        """Return a temporary file for a segment that is copied piece by piece, for `install_segment`."""
        return SegmentCopy(self._access, base_offset, generation)

    def install_segment(self, ref: SegmentRef, path: str) -> None:
        """Make the leader's segment `ref` part of the log, from the temporary file at `path` (in the log's directory, `.tmp`).

        It continues the log, replaces what the log has of it, or replaces older generations. One that the log has already is
        dropped. Raise, with the log unchanged, CorruptMessageError if its bytes are damaged or missing, DivergedLogError if the log
        has other segments there, KafkaStorageError if the log is closed. Raise KafkaStorageError if I/O fails: the log is
        unchanged or has the segment. In both cases go on from its end, by a new copy of the file or by messages. It is verified
        without the log's lock: one that replaces others while the log is appended to.
        """
        access, copy = self._access, self._copy
        with access.guarded("install"):
            with access.lock:
                if not copy.wants(ref, path):
                    return
                extension = copy.begin_extension(ref, path)
            if extension is None:
                copy.place(ref, path)
                with access.lock:
                    access.check_open()  # else the files are another log's
                    copy.swap(ref)
            else:
                found = extension.install.verify()
                with access.lock:
                    access.check_open()
                    copy.extend(extension, found)

    def restart_at(self, offset: int) -> None:
        """Remove all records, producers and leader epochs: the log is empty, and begins and ends at `offset`.

        For a follower whose log has nothing in common with its leader's. Raise `KafkaStorageError` if I/O fails, then a retry
        completes it.
        """
        with self._access.lock, self._access.guarded("start anew"):
            self._copy.restart(offset)
