"""Limits repeated log lines, so that no client can fill the disk with logs.

Of the lines with one template and one subject, five a minute are written, then one with the number of suppressed lines. The
subject is the client's address, without its port, if the template has a `peer`. Otherwise it is the text values of the line
without reasons and errors, so that two damaged partitions are both logged. Of one template a hundred lines a minute are
written, whatever their subject. The memory for counting is bounded too.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache

WINDOW_S = 60.0
LINES_OF_SUBJECT = 5
LINES_OF_TEMPLATE = 100
SUBJECTS_MAX = 2_000
TEMPLATES_MAX = 500

_PLACES = re.compile(r"%%|(?:(\w+)=)?%[-+ #0-9.]*[a-zA-Z]")
_NO_SUBJECTS = frozenset({"error", "reason"})


@dataclass(slots=True)
class LeftOut:
    """The number of suppressed lines and the first of them. It holds text only, since arguments may hold a whole request."""

    logger: str
    level: int
    message: str
    lines: int = 0


@dataclass(slots=True)
class _Window:
    """The lines of one minute: how many were written, and the suppressed ones."""

    begin_s: float
    written: int = 0
    left_out: LeftOut | None = None


_Windows = OrderedDict[Hashable, _Window]


class Repeats:
    """Counts lines. Times are seconds of any monotonic clock."""

    def __init__(self, message_of: Callable[[logging.LogRecord], str], window_s: float = WINDOW_S) -> None:
        self._message_of = message_of
        self._window_s = window_s
        self._subjects: _Windows = OrderedDict()
        self._templates: _Windows = OrderedDict()

    def admits(self, record: logging.LogRecord, now_s: float) -> bool:
        """Count a line and return whether to write it. Call `take_ended` first."""
        template = str(record.msg)
        of_template = self._window(self._templates, template, now_s, TEMPLATES_MAX)
        of_subject = self._window(self._subjects, (template, *_subject(record)), now_s, SUBJECTS_MAX)
        for window, limit in ((of_subject, LINES_OF_SUBJECT), (of_template, LINES_OF_TEMPLATE)):
            if window.written >= limit:
                if window.left_out is None:
                    window.left_out = LeftOut(record.name, record.levelno, self._message_of(record))
                window.left_out.lines += 1
                return False
        of_subject.written += 1
        of_template.written += 1
        return True

    def take_ended(self, now_s: float) -> list[LeftOut]:
        """Remove the windows that have ended by `now_s` and return their suppressed lines."""
        found = []
        for windows in (self._subjects, self._templates):
            while windows:
                key, window = next(iter(windows.items()))
                if now_s - window.begin_s < self._window_s:
                    break
                del windows[key]
                if window.left_out is not None:
                    found.append(window.left_out)
        return found

    @property
    def subjects(self) -> int:
        """The number of subjects being counted."""
        return len(self._subjects)

    def _window(self, windows: _Windows, key: Hashable, now_s: float, most: int) -> _Window:
        window = windows.get(key)
        if window is None:
            if len(windows) >= most:
                self._forget_oldest(windows)
            window = windows[key] = _Window(now_s)
        return window

    def _forget_oldest(self, windows: _Windows) -> None:
        """Evict the oldest window. Suppressed lines of a subject count for its template from then on."""
        key, oldest = windows.popitem(last=False)
        of_template = self._templates.get(key[0]) if isinstance(key, tuple) else None
        if oldest.left_out is not None and of_template is not None:
            if of_template.left_out is None:
                of_template.left_out = oldest.left_out
            else:
                of_template.left_out.lines += oldest.left_out.lines


def _subject(record: logging.LogRecord) -> tuple[str, ...]:
    arguments = record.args if isinstance(record.args, tuple) else ()
    names = _names(str(record.msg))
    if len(names) != len(arguments):
        return ()
    if "peer" in names:
        return (str(arguments[names.index("peer")]).rpartition(":")[0],)
    return tuple(
        str(argument)[:200]
        for name, argument in zip(names, arguments, strict=True)
        if name not in _NO_SUBJECTS and not isinstance(argument, (int, float, BaseException))
    )


@lru_cache(TEMPLATES_MAX)
def _names(template: str) -> tuple[str | None, ...]:
    """Return for each argument of a template the name before it, as in `name=%s`."""
    return tuple(found[1] for found in _PLACES.finditer(template) if found[0] != "%%")
