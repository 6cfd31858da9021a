"""Formats the broker's log lines for operators, on stderr.

    2026-01-31T12:00:00.123Z INFO broker.topic_admin topic created topic=clicks partitions=4

Messages are a few words, then `key=value`. For all lines alike: a value other than one plain word is quoted and escaped, so that
client input can neither forge a line nor reach the terminal as a control sequence. Long values are cut, and repeated lines are
limited (`process/log_limits.py`). A traceback follows its line, indented.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

from kafkalake.process.log_limits import WINDOW_S, LeftOut, Repeats

LEVELS = ("debug", "info", "warning", "error")

VALUE_CHARACTERS_MAX = 500


class _Value:
    """An argument formatted for a log line."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        text = _cut(str(self._value))
        plain = text.isprintable() and text and not any(mark in text for mark in " '\"")
        return text if plain else repr(text)

    def __repr__(self) -> str:
        return repr(_cut(self._value)) if isinstance(self._value, str) else _escaped(_cut(repr(self._value)))


def _cut(text: str) -> str:
    left_out = len(text) - VALUE_CHARACTERS_MAX
    return text if left_out <= 0 else f"{text[:VALUE_CHARACTERS_MAX]}... and {left_out} characters"


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _shown(value: object) -> object:
    return value if isinstance(value, (int, float)) else _Value(value)


class Lines(logging.Formatter):
    """The one format of all lines."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(shortname)s %(shown)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, followed by its traceback if there is one."""
        record.shortname = record.name.removeprefix("kafkalake.")
        record.shown = message_of(record)
        return super().format(record)

    def formatException(self, ei: Any) -> str:
        """Return the traceback, indented so that none of its lines looks like a log line."""
        return "\n".join(f"    {_escaped(line)}" for line in super().formatException(ei).split("\n"))


def message_of(record: logging.LogRecord) -> str:
    """Return a record's message, with its values quoted if necessary."""
    arguments = record.args
    if isinstance(arguments, tuple) and arguments:
        return _escaped(str(record.msg) % tuple(map(_shown, arguments)))
    return _escaped(record.getMessage())


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes lines to a stream, limited by `log_limits`. Lines of level DEBUG are explicitly enabled, so never limited."""

    def __init__(
        self, stream: TextIO, clock: Callable[[], float] = time.monotonic, *, window_s: float = WINDOW_S
    ) -> None:
        super().__init__(stream)
        self.setFormatter(Lines())
        self._clock = clock
        self._window_s = window_s
        self._repeats = Repeats(message_of, window_s)
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, or count it as suppressed."""
        now_s = self._clock()
        self._write_summaries(self._repeats.take_ended(now_s))
        if record.levelno > logging.DEBUG and not self._repeats.admits(record, now_s):
            self._look_again()
            return
        super().emit(record)

    def close(self) -> None:
        """Write the summaries of suppressed lines and close."""
        with self.lock or threading.RLock():
            if self._timer is not None:
                self._timer.cancel()
            self._write_summaries(self._repeats.take_ended(float("inf")))
        super().close()

    def _look_again(self) -> None:
        """Schedule the summary of suppressed lines, in case no other line follows."""
        if self._timer is None:
            self._timer = threading.Timer(self._window_s, self._on_time)
            self._timer.daemon = True
            self._timer.start()

    def _on_time(self) -> None:
        with self.lock or threading.RLock():
            self._timer = None
            self._write_summaries(self._repeats.take_ended(self._clock()))
            if self._repeats.subjects:
                self._look_again()

    def _write_summaries(self, summaries: list[LeftOut]) -> None:
        for each in summaries:
            text = "lines like this one were left out lines=%d line=%s"
            super().emit(logging.LogRecord(each.logger, each.level, "", 0, text, (each.lines, each.message), None))


def write_to_stderr(level: str) -> None:
    """Send kafkalake's log lines of `level` (debug, info, warning, error) and above to stderr, and libraries' warnings."""
    handler = LimitedHandler(sys.stderr)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    set_level(level)


def set_level(level: str) -> None:
    """Set the lowest level (debug, info, warning, error) of kafkalake's log lines from now on."""
    logging.getLogger("kafkalake").setLevel(level.upper())
