"""A follower's log: the leader's messages appended byte for byte, in segments that begin where the leader's do.

What a leader checks before it appends (sequences, epochs of producers) is not checked again: the messages are in the leader's log.
Producers, leader epochs, indexes and aborted transactions follow from the headers, as in recovery.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafkalake.buffers import Buffer
from kafkalake.errors import CorruptSegmentError, DivergedLogError, KafkaStorageError
from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.leader_epochs import LeaderEpochs
from kafkalake.storage.log_access import LogAccess, storage_error
from kafkalake.storage.log_segments import LogSegments
from kafkalake.storage.log_state import LogState
from kafkalake.storage.producer_state import Producers
from kafkalake.storage.recovery import Recovered
from kafkalake.storage.replay import Replay, aborted_by_headers
from kafkalake.storage.replica_read import SegmentRef
from kafkalake.storage.replica_run import ReplicaRun, verify_run
from kafkalake.storage.scanner import SegmentScan
from kafkalake.storage.segment_install import SegmentInstall

SEAL_BYTES_MAX = 16 * 1024 * 1024
"""The size up to which a segment is sealed at once: all its messages are listed in its footer."""


class Appended(NamedTuple):
    """The offsets [first_offset, next_offset) that were copied, and the leader epoch of the last of them (of the log, if none)."""

    first_offset: int
    next_offset: int
    leader_epoch: int


class Extension(NamedTuple):
    """A copied segment that continues a log which ends at `log_end_offset`. `install.verify` needs no lock."""

    ref: SegmentRef
    install: SegmentInstall
    replay: Replay
    log_end_offset: int


def _rewritten(ref: SegmentRef) -> RewrittenSegment:
    return RewrittenSegment(ref.base_offset, ref.next_offset, ref.generation)


class LogCopy:
    """One log as a follower writes it. Needs the log's lock."""

    def __init__(self, access: LogAccess, state: LogState, segments: LogSegments) -> None:
        self._access = access
        self._state = state
        self._segments = segments
        self._unfinished_end: int | None = None
        """Where the log ends after a truncation or a reopening that has failed, so that it may not be what the files are."""
        self._is_repeatable = False

    def append(self, messages: Buffer, segment_base_offset: int, *, ends_segment: bool) -> Appended:
        """Append messages as `Log.append_replica`. Raise `OSError` if I/O fails."""
        self._check_finished()
        state = self._state
        first_offset = state.log_end_offset
        if not len(messages):
            self._segments.roll_at(segment_base_offset)
            return Appended(first_offset, first_offset, state.epochs.latest)
        run = verify_run(messages, first_offset, state.epochs.latest)
        self._write(messages, run, segment_base_offset)
        if ends_segment:
            self._segments.roll()
        return Appended(first_offset, run.next_offset, run.leader_epoch)

    def reads_whole_segment(self, messages: Buffer, segment_base_offset: int, *, ends_segment: bool) -> bool:
        """Return whether `append` reads a whole segment, as `Log.append_reads_segment`. Needs no lock."""
        segments, end = self._segments, self._state.log_end_offset
        if len(messages) and (self._unfinished_end is not None or segments.ends_in_sealed(segment_base_offset)):
            return True
        active = segments.listed.active
        return (ends_segment or segment_base_offset == end) and active is not None and active.end() > SEAL_BYTES_MAX

    def begin_extension(self, ref: SegmentRef, path: str) -> Extension | None:
        """Return how a copied segment that the log `wants` continues it, None if it replaces others.

        Raise `OSError` if I/O fails.
        """
        state = self._state
        if ref.next_offset <= state.log_end_offset:
            return None
        self._segments.roll_at(ref.base_offset)
        replay = self._replay(ref, state.producers.copy())
        return Extension(ref, self._install(ref, path, replay), replay, state.log_end_offset)

    def extend(self, extension: Extension, found: SegmentScan) -> None:
        """Add a segment that was verified since `begin_extension`.

        Raise `OSError` if I/O fails, KafkaStorageError if the log has changed meanwhile.
        """
        ref, state, segments = extension.ref, self._state, self._segments
        self._check_finished()
        if state.log_end_offset != extension.log_end_offset:
            raise KafkaStorageError(f"{self._access.directory}: changed while a segment was verified")
        extension.install.place(found)
        segments.extend(_rewritten(ref), found.content, ref.size_bytes)
        state.extended(extension.replay, found.content)
        segments.write_state()

    def wants(self, ref: SegmentRef, path: str) -> bool:
        """Return whether the log lacks a copied segment, else remove its file. Raise as `Log.install_segment`."""
        self._check_finished()
        access, segments, new = self._access, self._segments, _rewritten(ref)
        if segments.is_read(new):
            access.files.unlink(path)
            return False
        if new.next_offset == self._state.log_end_offset:
            segments.roll()
        if not segments.fits(new):
            raise DivergedLogError(f"{access.directory}: no segments of {new.base_offset} to {new.next_offset}")
        return True

    def place(self, ref: SegmentRef, path: str) -> None:
        """Verify a copied segment that the log `wants`, and give its file its name. It is not read before `swap`.

        Without the log's lock. Raise `OSError` if I/O fails.
        """
        install = self._install(ref, path, self._replay(ref, Producers()))
        install.place(install.verify())

    def swap(self, ref: SegmentRef) -> None:
        """Read a placed segment instead of those in its range. Drop it if they were removed meanwhile."""
        self._segments.swap([_rewritten(ref)])

    def _replay(self, ref: SegmentRef, producers: Producers) -> Replay:
        access, end = self._access, self._state.log_end_offset
        interval, now_ms = access.config.index_interval_bytes, access.clock.now_ms()
        return Replay(ref.base_offset, interval, producers, end, LeaderEpochs(), now_ms)

    def _install(self, ref: SegmentRef, path: str, replay: Replay) -> SegmentInstall:
        return SegmentInstall(self._access, ref, path, replay, self._state.max_timestamp)

    def truncate(self, offset: int, *, below_high_watermark: bool) -> None:
        """Truncate as `Log.truncate_to`. Raise `OSError` if I/O fails."""
        state, segments = self._state, self._segments
        assert below_high_watermark or offset >= state.high_watermark, "what consumers have seen stays"
        if offset >= state.log_end_offset:
            self.load_unfinished()
            state.truncate_epochs(offset)
            return
        try:
            cut = segments.listed.cut(offset)
        except CorruptSegmentError as error:
            raise storage_error(self._access.directory, "truncate", error) from error
        assert below_high_watermark or cut.offset == offset, "a log ends at a border of messages"
        self._reload(lambda: segments.truncate(cut), cut.offset)

    def restart(self, offset: int) -> None:
        """Start anew as `Log.restart_at`. Raise `OSError` if I/O fails."""
        self._reload(lambda: self._segments.restart(offset), offset)

    def load_unfinished(self) -> None:
        """Load what a change that failed has left, as a restart does, before the log is led. Raise as `_reload`."""
        if self._unfinished_end is not None:
            self._reload(self._segments.recover, self._unfinished_end)

    def _check_finished(self) -> None:
        if self._unfinished_end is not None and not self._is_repeatable:
            raise KafkaStorageError(f"{self._access.directory}: a truncation has failed, it must be repeated first")
        if self._unfinished_end is not None:
            self._reload(self._segments.recover, self._unfinished_end, repeats=True)

    def _reload(self, change: Callable[[], Recovered], end: int, *, repeats: bool = False) -> None:
        """Load what is there after `change`, which leaves the log ending at `end`.

        Raise `OSError` if that fails, then the next append loads it, or with `repeats` False refuses. Raise KafkaStorageError if
        records below `end` are damaged or missing: the log ends before them, and `was_cut`.
        """
        self._unfinished_end, self._is_repeatable = end, repeats
        recovered = change()
        is_cut = recovered.state.log_end_offset < end
        self._state.was_cut |= is_cut
        self._state.load(recovered)
        self._segments.load(recovered)
        self._unfinished_end = None
        if is_cut:
            raise KafkaStorageError(
                f"{self._access.directory}: records of [{self._state.log_end_offset}, {end}) are lost"
            )

    def _write(self, messages: Buffer, run: ReplicaRun, segment_base_offset: int) -> None:
        if segment_base_offset > self._state.log_end_offset:
            raise DivergedLogError(f"{self._access.directory}: the leader's segment begins at {segment_base_offset}")
        if self._segments.ends_in_sealed(segment_base_offset):
            self._reload(self._segments.reopen, self._state.log_end_offset, repeats=True)
        active = self._segments.active_at(segment_base_offset)
        aborted = aborted_by_headers(run.headers, self._state.producers) if run.has_aborts else []
        if aborted:
            active.write_aborted(aborted)
            self._segments.durability.file_made()
        active.append_run(messages, run)
        if aborted:
            active.count_aborted(len(aborted))
        self._state.copied(run)
        self._segments.durability.appended(max(run.records, 1))
