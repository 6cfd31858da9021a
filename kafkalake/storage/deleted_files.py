"""Files of segments that are no longer part of the log, kept for `file.delete.delay.ms`: a query that planned with them
may still read.

Nothing is lost if the process ends first: at the next start they lie below the log start and are removed then.
"""

from __future__ import annotations

import contextlib
from collections import deque

from kafkalake.clock import Clock
from kafkalake.storage.open_files import OpenFiles


class DeletedFiles:
    """What is to be unlinked, and when."""

    def __init__(self, clock: Clock, open_files: OpenFiles) -> None:
        self._clock = clock
        self._open_files = open_files
        self._waiting: deque[tuple[int, str]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, path: str, delay_ms: int) -> None:
        """Unlink `path` in `delay_ms` at the earliest."""
        self._waiting.append((self._clock.monotonic_ms() + delay_ms, path))

    def leave_all(self) -> None:
        """Unlink nothing any more: the paths may soon be those of other files."""
        self._waiting.clear()

    def unlink_due(self) -> None:
        """Unlink what has waited long enough. A file that is gone already is fine; one that cannot be unlinked goes at the
        next start."""
        now_ms = self._clock.monotonic_ms()
        while self._waiting and self._waiting[0][0] <= now_ms:
            _, path = self._waiting.popleft()
            self._open_files.forget(path)
            with contextlib.suppress(OSError):
                self._open_files.files.unlink(path)
