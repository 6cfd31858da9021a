"""Tracks which files of a log still need fsync, and the recovery point: the offset below which all records are on disk.

Guarded by the log's lock, except `force`, which runs in any thread while the log continues.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from kafkalake.clock import Clock
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.segment_names import DATA_SUFFIX, TXN_INDEX_SUFFIX, name_of
from kafkalake.storage.state import PartitionState


class Forcing(NamedTuple):
    """The files to fsync, so that offsets below `end_offset` are on disk. `growing`: the file that is still appended to."""

    paths: list[str]
    growing: str
    end_offset: int
    records: int
    names: int
    """The number of files created so far. The directory is fsynced too if any of them is new."""


class Durability:
    """The unsynced data files of one log. `recovery_point`: offsets below it are on disk.

    failed_end: the end of the records that an fsync has failed to force, 0 if there are none. The kernel reports an error once, and
    takes the pages for written: a later fsync of the file succeeds without them. So the recovery point stays until these records
    are removed or, after a loss of power, verified. It holds over restarts of the process (`PartitionState.fsync_failed`).
    """

    def __init__(self, directory: str, clock: Clock, open_files: OpenFiles, state: PartitionState) -> None:
        self.recovery_point = state.recovery_point
        self.failed_end = state.log_end_offset if state.fsync_failed else 0
        self._directory = directory
        self._clock = clock
        self._open_files = open_files
        self._unsynced: list[str] = []
        self._records = 0
        self._names = 1
        self._names_forced = 0
        self._synced_at_ms = clock.monotonic_ms()

    @property
    def unsynced_files(self) -> int:
        """The number of data files that need fsync."""
        return len(self._unsynced)

    def lower(self, recovery_point: int) -> None:
        """Take back that offsets at and above `recovery_point` are on disk: they will be removed."""
        self.recovery_point = min(self.recovery_point, recovery_point)
        self.failed_end = min(self.failed_end, recovery_point)
        bases = [name_of(path).base_offset for path in self._unsynced]
        # Before the segment that becomes shorter there may be a sealed one, whose footer was not forced.
        staying = sum(base < recovery_point for base in bases) - (recovery_point not in bases)
        if self.failed_end <= self.recovery_point and staying <= 0:
            self.failed_end = 0

    def take_failure(self, before: Durability, log_end_offset: int) -> None:
        """Take over a failure to force files from `before`, in whose place this is since the log was reloaded meanwhile."""
        self.failed_end = max(self.failed_end, min(before.failed_end, log_end_offset))

    def begin_at(self, log_start_offset: int) -> None:
        """Forget a failure to force records below `log_start_offset`."""
        if self.failed_end <= log_start_offset:
            self.failed_end = 0

    def segment_began(self, path: str) -> None:
        """Add a data file that is about to be written."""
        self._unsynced.append(path)
        self._names += 1

    def file_made(self) -> None:
        """Count a file created beside a data file. Its name must be fsynced too."""
        self._names += 1

    def appended(self, records: int) -> None:
        """Count records that are only in the page cache."""
        self._records += records

    def due(self, flush_messages: int, flush_ms: int, coming: int) -> bool:
        """Return whether unsynced records and `coming` ones reach `flush_messages`, or `flush_ms` passed since the last fsync."""
        records = self._records + coming
        if not records:
            return False
        return records >= flush_messages or self._clock.monotonic_ms() - self._synced_at_ms >= flush_ms

    def all(self, growing: str, log_end_offset: int) -> Forcing:
        """Return the plan to fsync all files."""
        return Forcing(list(self._unsynced), growing, log_end_offset, self._records, self._names)

    def sealed(self, growing: str, active_base_offset: int) -> Forcing:
        """Return the plan to fsync all files except the growing one."""
        paths = [path for path in self._unsynced if path != growing]
        return Forcing(paths, "", active_base_offset, 0, self._names)

    def new_names(self) -> Forcing:
        """Return the plan to fsync the names of created files, without content."""
        return Forcing([], "", 0, 0, self._names)

    def force(self, forcing: Forcing) -> None:
        """Fsync the files of a plan. Raise `OSError` if I/O fails."""
        files = self._open_files.files
        for path in forcing.paths:
            for name in (path, path.removesuffix(DATA_SUFFIX) + TXN_INDEX_SUFFIX):
                with contextlib.suppress(FileNotFoundError):
                    file = self._open_files.get(name)
                    with self._noting_failure(forcing):
                        files.sync(file.descriptor)
        if forcing.names > self._names_forced:
            with self._noting_failure(forcing):
                files.sync_directory(self._directory)

    @contextlib.contextmanager
    def _noting_failure(self, forcing: Forcing) -> Iterator[None]:
        try:
            yield
        except OSError:
            self.failed_end = max(self.failed_end, forcing.end_offset, self.recovery_point + 1)
            raise

    def forced(self, forcing: Forcing) -> None:
        """Record a plan as done."""
        done = set(forcing.paths) - {forcing.growing}
        self._unsynced = [path for path in self._unsynced if path not in done]
        self._names_forced = max(self._names_forced, forcing.names)
        if not self.failed_end:
            self.recovery_point = max(self.recovery_point, forcing.end_offset)
        if forcing.records:
            self._records = max(0, self._records - forcing.records)
            self._synced_at_ms = self._clock.monotonic_ms()
