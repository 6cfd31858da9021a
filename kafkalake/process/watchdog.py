"""Logs the stack of the event loop's thread when the loop is stalled.

A separate thread checks four times a second whether the loop has turned. It is cheap and never ends the broker. Its only purpose
is to diagnose a stall afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S = 0.25
STALLED_S = 1.0
LOG_INTERVAL_S = 10.0
"""At most one stack is logged in this interval."""


class LoopWatchdog:
    """Watches the event loop on whose thread it is started."""

    def __init__(self, stalled_s: float = STALLED_S, log_interval_s: float = LOG_INTERVAL_S) -> None:
        self._stalled_s = stalled_s
        self._log_interval_s = log_interval_s
        self._turned_s = 0.0
        self._handle: asyncio.TimerHandle | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        """Watch the running loop."""
        self._turn()
        thread = threading.Thread(target=self._watch, args=(threading.get_ident(),), name="loop-watchdog", daemon=True)
        thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()
        if self._handle is not None:
            self._handle.cancel()

    def _turn(self) -> None:
        self._turned_s = time.monotonic()
        self._handle = asyncio.get_running_loop().call_later(LOOK_INTERVAL_S, self._turn)

    def _watch(self, thread_id: int) -> None:
        logged_s = -self._log_interval_s
        told_of = 0.0
        looked_s = time.monotonic()
        while not self._stopped.wait(LOOK_INTERVAL_S):
            now_s, before_s, looked_s = time.monotonic(), looked_s, time.monotonic()
            turned_s = self._turned_s
            was_stopped_itself = now_s - before_s > self._stalled_s
            if now_s - turned_s < self._stalled_s or turned_s == told_of or was_stopped_itself:
                continue
            if now_s - logged_s < self._log_interval_s:
                continue
            told_of, logged_s = turned_s, now_s
            frame = sys._current_frames().get(thread_id)
            stack = "" if frame is None else "".join(traceback.format_stack(frame))
            logger.warning("event loop has not turned seconds=%.1f stack:\n%s", now_s - turned_s, stack)
