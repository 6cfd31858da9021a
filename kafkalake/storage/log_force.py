"""Forces what a log has written to disk, by one thread at a time.

The kernel reports a failed write once for each open file. Of two threads that force it, one gets the error, and for the other one
the bytes would count as forced. So the second one waits, until the failure of the first is noted and what it affects is discarded.
"""

from __future__ import annotations

import contextlib
import threading

from kafkalake.errors import KafkaStorageError
from kafkalake.storage.durability import Durability, Forcing
from kafkalake.storage.log_access import LogAccess
from kafkalake.storage.log_segments import LogSegments
from kafkalake.storage.log_state import LogState


class LogForce:
    """The fsyncs of one log. `turn`: held from the fsync until its outcome is noted. Taken before the log's lock."""

    def __init__(self, access: LogAccess, state: LogState, segments: LogSegments) -> None:
        self._access = access
        self._state = state
        self._segments = segments
        self.turn = threading.RLock()

    def force(self, *, sealed_only: bool = False) -> None:
        """Force all records and leader epochs to disk, or those in sealed segments. Raise `OSError` if that fails."""
        with self.turn:
            with self._access.lock:
                durability, forcing = self._segments.durability, self._segments.forcing(sealed_only=sealed_only)
                self._state.force_epochs()
            self.carry_out(durability, forcing)

    def carry_out(self, durability: Durability, forcing: Forcing) -> None:
        """Fsync the files of a plan of `durability`, and record it as done. Raise `OSError` if that fails: `state` has it then."""
        access, segments = self._access, self._segments
        with self.turn:
            try:
                durability.force(forcing)
            except OSError:
                with access.lock, contextlib.suppress(OSError, KafkaStorageError):
                    segments.durability.take_failure(durability, self._state.log_end_offset)
                    segments.write_state()  # the next process is to know it, in the page cache of this boot
                raise
            with access.lock:
                durability.forced(forcing)
