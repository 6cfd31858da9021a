"""Files of segments removed from the log, kept for `file.delete.delay.ms` because queries planned with them may still read.

If the process ends first, the next start removes them: they are before the segment in which the log begins, or replaced by a newer
generation.
"""

from __future__ import annotations

import logging
from collections import deque

from kafkalake.clock import Clock
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.segment_names import SUFFIXES, file_name

logger = logging.getLogger(__name__)

REMOVED_AGAIN_MS = 60_000
"""When what could not be removed from the disk is tried again."""


class DeletedFiles:
    """The files in one directory to unlink, with their times."""

    def __init__(self, directory: str, clock: Clock, open_files: OpenFiles) -> None:
        self._directory = directory
        self._clock = clock
        self._open_files = open_files
        self._waiting: deque[tuple[int, str]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, name: str, delay_ms: int) -> None:
        """Schedule a file to be unlinked after `delay_ms`."""
        self._waiting.append((self._clock.monotonic_ms() + delay_ms, name))

    def add_segment(self, base_offset: int, generation: int, delay_ms: int) -> None:
        """Schedule the files of a segment to be unlinked after `delay_ms`."""
        for suffix in SUFFIXES:
            self.add(file_name(base_offset, suffix, generation), delay_ms)

    def leave_segment(self, base_offset: int, generation: int) -> None:
        """Cancel the unlinks of the files of a segment that is read from now on: its job had not committed it at the start."""
        names = {file_name(base_offset, suffix, generation) for suffix in SUFFIXES}
        self._waiting = deque(each for each in self._waiting if each[1] not in names)

    def leave_all(self) -> None:
        """Cancel all unlinks: the paths may soon be reused by other files."""
        self._waiting.clear()

    def unlink_due(self) -> None:
        """Unlink the files that are due. Missing files are ignored. One that stays is tried again after a minute."""
        now_ms = self._clock.monotonic_ms()
        failed = []
        while self._waiting and self._waiting[0][0] <= now_ms:
            _, name = self._waiting.popleft()
            try:
                self._open_files.unlink(f"{self._directory}/{name}")
            except FileNotFoundError:
                pass
            except OSError as error:
                failed.append(name)
                logger.warning("a removed file is not unlinked yet: directory=%s error=%s", self._directory, error)
        for name in failed:
            self.add(name, REMOVED_AGAIN_MS)
