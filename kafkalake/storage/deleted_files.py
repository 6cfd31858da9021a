"""Files of segments removed from the log, kept for `file.delete.delay.ms` because queries planned with them may still read.

If the process ends first, the next start removes them, because they are below the log start.
"""

from __future__ import annotations

import contextlib
from collections import deque

from kafkalake.clock import Clock
from kafkalake.storage.open_files import OpenFiles


class DeletedFiles:
    """The files to unlink, with their times."""

    def __init__(self, clock: Clock, open_files: OpenFiles) -> None:
        self._clock = clock
        self._open_files = open_files
        self._waiting: deque[tuple[int, str]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, path: str, delay_ms: int) -> None:
        """Schedule `path` to be unlinked after `delay_ms`."""
        self._waiting.append((self._clock.monotonic_ms() + delay_ms, path))

    def leave_all(self) -> None:
        """Cancel all unlinks: the paths may soon be reused by other files."""
        self._waiting.clear()

    def unlink_due(self) -> None:
        """Unlink the files that are due. Missing files are ignored. Files that cannot be unlinked are removed at the next start."""
        now_ms = self._clock.monotonic_ms()
        while self._waiting and self._waiting[0][0] <= now_ms:
            _, path = self._waiting.popleft()
            with contextlib.suppress(OSError):
                self._open_files.unlink(path)
