"""SIGTERM and Ctrl-C while a job runs: exceptions, so that the run records what ended it, and the exit status of the signal.

A run is ended by the first signal. While its end is recorded one more is ignored: a process group gets Ctrl-C, or systemd's
SIGTERM, at once with that of the schedule that has started the job. The next one ends the process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from kafkalake.jobs.progress import say

_ENDING = (signal.SIGTERM, signal.SIGINT)


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a run as Ctrl-C does."""


def signal_of(error: KeyboardInterrupt) -> signal.Signals:
    """Return the signal that was raised as an exception."""
    return signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT


def raise_signal(number: int, frame: FrameType | None = None) -> NoReturn:
    """Raise `Terminated` or `KeyboardInterrupt`. The handler of a signal."""
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


def ended_by_signals(job: str, run: Callable[[], int]) -> int:
    """Return the exit code of a run, or after Ctrl-C that of the signal. At SIGTERM the process ends. Say what has ended a run."""
    try:
        with _terminable():
            try:
                return run()
            except KeyboardInterrupt as error:
                say(f"{job}: ended by {signal_of(error).name}")
                raise
    except KeyboardInterrupt as error:
        return 128 + signal_of(error)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Raise `Terminated` in the block at SIGTERM, and send the signal again behind it, so that the process ends by it."""
    before = _handlers((signal.SIGTERM,))
    try:
        for number in before:
            signal.signal(number, raise_signal)
        yield
    except Terminated:
        _restore(before)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os.kill(os.getpid(), signal.SIGTERM)
        raise
    finally:
        _restore(before)


@contextlib.contextmanager
def recording_the_end() -> Iterator[None]:
    """Ignore a signal in the block, which takes little time and is followed by the end of the process. The second one ends it."""

    def ignore_once(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_DFL)

    before = _handlers(_ENDING)
    try:
        for number in before:
            signal.signal(number, ignore_once)
        yield
    finally:
        _restore(before)


_Handlers = dict[signal.Signals, "signal._HANDLER"]


def _handlers(numbers: tuple[signal.Signals, ...]) -> _Handlers:
    """Return the handlers that may be replaced: none outside the main thread, nor of signals that the process ignores."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    found = {number: signal.getsignal(number) for number in numbers}
    return {number: handler for number, handler in found.items() if handler not in (None, signal.SIG_IGN)}


def _restore(handlers: _Handlers) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
