"""What of a log is on the disk and not only in the page cache: which files still have to be forced there, and up to which
offset all is.

The log's lock guards it, but for `force`, which runs in any thread while the log goes on.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from kafkalake.clock import Clock
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.segment import DATA_SUFFIX, TXN_INDEX_SUFFIX


class Forcing(NamedTuple):
    """Files to force to the disk, after which offsets below `end_offset` are there; `growing`: it goes on being written to."""

    paths: list[str]
    growing: str
    end_offset: int
    records: int
    names: int
    """Files that had been made: their names are forced too where there are new ones."""


class Durability:
    """Unsynced data files of one log. `recovery_point`: offsets below it are on the disk."""

    def __init__(self, directory: str, clock: Clock, open_files: OpenFiles, recovery_point: int) -> None:
        self.recovery_point = recovery_point
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
        """How many files wait."""
        return len(self._unsynced)

    def segment_began(self, path: str) -> None:
        """A data file is written to from now on."""
        self._unsynced.append(path)
        self._names += 1

    def file_made(self) -> None:
        """A file was made beside a data file: its name has to reach the disk too."""
        self._names += 1

    def appended(self, records: int) -> None:
        """So many more records are only in the page cache."""
        self._records += records

    def due(self, flush_messages: int, flush_ms: int) -> bool:
        """Whether so many records wait, or some for so long."""
        if not self._records:
            return False
        return self._records >= flush_messages or self._clock.monotonic_ms() - self._synced_at_ms >= flush_ms

    def all(self, growing: str, log_end_offset: int) -> Forcing:
        """Force everything."""
        return Forcing(list(self._unsynced), growing, log_end_offset, self._records, self._names)

    def sealed(self, growing: str, active_base_offset: int) -> Forcing:
        """Force what is no longer written to."""
        paths = [path for path in self._unsynced if path != growing]
        return Forcing(paths, "", active_base_offset, 0, self._names)

    def new_names(self) -> Forcing:
        """Force the names of files that were made, and no content."""
        return Forcing([], "", 0, 0, self._names)

    def force(self, forcing: Forcing) -> None:
        """Let the disk work. Raises `OSError`."""
        files = self._open_files.files
        for path in forcing.paths:
            for name in (path, path.removesuffix(DATA_SUFFIX) + TXN_INDEX_SUFFIX):
                with contextlib.suppress(FileNotFoundError):
                    file = self._open_files.get(name)
                    files.sync(file.descriptor)
        if forcing.names > self._names_forced:
            files.sync_directory(self._directory)

    def forced(self, forcing: Forcing) -> None:
        """It has worked."""
        done = set(forcing.paths) - {forcing.growing}
        self._unsynced = [path for path in self._unsynced if path not in done]
        self._names_forced = max(self._names_forced, forcing.names)
        self.recovery_point = max(self.recovery_point, forcing.end_offset)
        if forcing.records:
            self._records = max(0, self._records - forcing.records)
            self._synced_at_ms = self._clock.monotonic_ms()
