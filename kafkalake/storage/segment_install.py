"""A whole segment that a follower got from its leader as a file: verified and indexed before it is part of the log.

Rewritten segments are copied this way, and large ones that continue the log. The data file is followed by the index of aborted
transactions, see `SegmentRef`. Other indexes are hints, and are made again. Until the data file has its name nothing of it counts.
Before, all names end in `.tmp`, so that the next start removes them.

A rewritten segment may replace records that are on the disk, so it is forced there first. Others lie above the recovery point, as
messages that are appended: recovery verifies them after a loss of power.
"""

from __future__ import annotations

import contextlib

from kafkalake.errors import CorruptMessageError, CorruptSegmentError
from kafkalake.record.schema import footer
from kafkalake.storage.active_segment import ActiveSegment
from kafkalake.storage.files import read_all, replace_file
from kafkalake.storage.log_access import LogAccess
from kafkalake.storage.replay import Replay
from kafkalake.storage.replica_read import SegmentRef
from kafkalake.storage.scanner import SegmentScan, scan_segment
from kafkalake.storage.sealed_segment_recovery import rewrite_hints
from kafkalake.storage.segment_names import DATA_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, file_name
from kafkalake.storage.segment_reader import Stop
from kafkalake.storage.txn_index import decode_aborted


class CopiedSegment(ActiveSegment):
    """A segment in the temporary file `path`, with its indexes beside it."""

    def __init__(self, access: LogAccess, ref: SegmentRef, path: str, earlier_max_timestamp: int) -> None:
        self._temporary = path
        super().__init__(
            access.directory,
            ref.base_offset,
            access.open_files,
            index_interval_bytes=access.config.index_interval_bytes,
            earlier_max_timestamp=earlier_max_timestamp,
            generation=ref.generation,
        )

    def path_of(self, suffix: str) -> str:
        """Return the temporary path of the file with that suffix."""
        return self._temporary if suffix == DATA_SUFFIX else f"{self._temporary}{suffix}.tmp"


class SegmentInstall:
    """The installation of the segment `ref` from its temporary file. `replay` collects what the log takes from its headers."""

    def __init__(
        self, access: LogAccess, ref: SegmentRef, path: str, replay: Replay, earlier_max_timestamp: int
    ) -> None:
        self._access = access
        self._ref = ref
        self._path = path
        self._replay = replay
        self._segment = CopiedSegment(access, ref, path, earlier_max_timestamp)

    def verify(self) -> SegmentScan:
        """Verify all bytes, move the index of aborted transactions to a file of its own, and force a rewritten segment to disk.

        Raise CorruptMessageError on damage, `OSError` if I/O fails.
        """
        ref, files, segment = self._ref, self._access.files, self._segment
        file = self._access.open_files.get(self._path, write=True)
        size = files.size(file.descriptor)
        if size != ref.total_bytes:
            raise CorruptMessageError(f"{self._path}: has {size} bytes, not {ref.total_bytes}")
        txn_index = read_all(files, file.descriptor, ref.txn_index_bytes, ref.size_bytes)
        segment.ends_at(ref.size_bytes)
        try:
            if txn_index:
                decode_aborted(txn_index, self._path, sealed=True)
            found = scan_segment(segment, self._replay, end=ref.size_bytes)
        except CorruptSegmentError as error:
            raise CorruptMessageError(str(error)) from error
        self._check(found)
        if txn_index:
            replace_file(files, segment.path_of(TXN_INDEX_SUFFIX), txn_index, sync=self._ref.generation > 0)
        files.truncate(file.descriptor, ref.size_bytes)
        if ref.generation:
            files.sync(file.descriptor)
        return found

    def _check(self, found: SegmentScan) -> None:
        """Check that the messages are followed by their footer and cover the offsets. Raise CorruptMessageError if not."""
        ref, segment = self._ref, self._segment
        if found.stop is not Stop.END_OF_STREAM or not found.preamble_right:
            raise CorruptMessageError(f"{self._path}: at byte {found.end}: {found.reason or found.stop.value}")
        segment.resume(found.end, found.content, 0, 0, 0)
        if segment.read_bytes(found.end, ref.size_bytes - found.end).tobytes() != footer(segment.blocks()):
            raise CorruptMessageError(f"{self._path}: the footer is not that of the messages")
        if found.content.next_offset != ref.next_offset:
            raise CorruptMessageError(f"{self._path}: ends before {found.content.next_offset}, not {ref.next_offset}")

    def place(self, found: SegmentScan) -> None:
        """Name the files, the data last; force the names of a rewritten segment to disk.

        Raise `OSError` if I/O fails. Then the segment is to be copied again.
        """
        access, segment = self._access, self._segment
        rewrite_hints(segment, self._replay, found, sealed=True)
        for suffix in (TXN_INDEX_SUFFIX, TIME_INDEX_SUFFIX, INDEX_SUFFIX, DATA_SUFFIX):
            target = f"{access.directory}/{file_name(self._ref.base_offset, suffix, self._ref.generation)}"
            with contextlib.suppress(FileNotFoundError):
                access.files.rename(segment.path_of(suffix), target)
            access.open_files.forget(target)
        segment.forget()
        if self._ref.generation:
            access.files.sync_directory(access.directory)
