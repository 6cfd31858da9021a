"""Waiting for what another thread or process does, with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

TIMEOUT_S = 60.0
PAUSE_S = 0.02
CLOCK_REALTIME_COARSE = 5
"""Linux's clock that gives files their times."""


def wait_until(holds: Callable[[], Any], what: Callable[[], Any] | None = None, timeout_s: float = TIMEOUT_S) -> None:
    """Return when `holds()` is true. Raise `AssertionError` with `what()` where it is not after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, what() if what is not None else f"not within {timeout_s} s"
        time.sleep(PAUSE_S)


def wait_for_later_files(moment_s: float) -> None:
    """Return when files get times after that of `moment_s` in ms. Their clock may be some ms behind `time.time`."""
    wait_until(lambda: time.clock_gettime(CLOCK_REALTIME_COARSE) > moment_s + 0.002)
