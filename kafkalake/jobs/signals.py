"""SIGTERM and Ctrl-C while a job runs: exceptions, so that the run records what ended it, and the exit status of the signal.

A run is ended by the first signal. One more is ignored, so that the end is recorded: a job gets Ctrl-C, or systemd's SIGTERM, with
its whole process group, and then SIGTERM of the schedule that has started it. The next one ends the process.
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


def end_run(number: int, frame: FrameType | None = None) -> NoReturn:
    """Raise `Terminated` or `KeyboardInterrupt`, and have the next signal ignored. The handler of a signal."""
    for each in _replaceable(_ENDING):
        signal.signal(each, _ignore_once)
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


def handle_again() -> None:
    """Handle Ctrl-C again if SIGTERM is handled here: Spark's own handler, set by its start, ignores no second signal."""
    if signal.getsignal(signal.SIGTERM) is end_run:
        for number in _replaceable((signal.SIGINT,)):
            signal.signal(number, end_run)


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
    """Raise a signal in the block. Behind it SIGTERM is sent again, so that the process ends by it."""
    before = _replaceable(_ENDING)
    try:
        for number in before:
            signal.signal(number, end_run)
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
    """Ignore a signal, if it is the first one, in the block, which takes little time and is followed by the end of the process."""
    before = {
        number: handler
        for number, handler in _replaceable(_ENDING).items()
        if handler not in (signal.SIG_DFL, _ignore_once)
    }
    try:
        for number in before:
            signal.signal(number, _ignore_once)
        yield
    finally:
        _restore(before)


_Handlers = dict[signal.Signals, "signal._HANDLER"]


def _ignore_once(number: int, frame: FrameType | None) -> None:
    for each in _replaceable(_ENDING):
        signal.signal(each, signal.SIG_DFL)


def _replaceable(numbers: tuple[signal.Signals, ...]) -> _Handlers:
    """Return the handlers that may be replaced: none outside the main thread, nor of signals that the process ignores."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    found = {number: signal.getsignal(number) for number in numbers}
    return {number: handler for number, handler in found.items() if handler not in (None, signal.SIG_IGN)}


def _restore(handlers: _Handlers) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
