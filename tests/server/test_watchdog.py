"""The watchdog of the event loop: a stall is in the log with its place, once; a loop that turns is not."""

from __future__ import annotations

import asyncio
import time

import pytest

from kafkalake.process.watchdog import LoopWatchdog


def hold_the_loop(caplog: pytest.LogCaptureFixture, lines: int) -> None:
    """Do not turn until so many lines are logged."""
    deadline = time.monotonic() + 20
    while len(caplog.messages) < lines:
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def watched(caplog: pytest.LogCaptureFixture, *, held: bool) -> None:
    watchdog = LoopWatchdog(stalled_s=0.4, log_interval_s=0.0)
    watchdog.start()
    try:
        for _ in range(20):
            await asyncio.sleep(0.05)
        if held:
            hold_the_loop(caplog, 1)
            time.sleep(0.6)  # the same stall, still: it is said once
    finally:
        watchdog.stop()


@pytest.mark.exhaustive
def test_a_stall_is_logged_once_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(watched(caplog, held=True))
    (line,) = caplog.messages
    assert "event loop has not turned" in line
    assert "hold_the_loop" in line
