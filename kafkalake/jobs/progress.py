"""The output of a running job: a counter on a terminal, occasional lines in a log file, and plain tables.

Output that cannot be shown, because its disk is full or its reader has gone, stops no job.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType

from kafkalake.closed_streams import silence
from kafkalake.errors import LakeError, file_sentence
from kafkalake.printable import printable_on

_TERMINAL_INTERVAL_S = 0.1
_LOG_INTERVAL_S = 5.0


class Progress:
    """`retention: 12 of 40, clicks-3: delete segments` on stderr: rewritten in place on a terminal, else every few seconds."""

    def __init__(self, job: str, total: int) -> None:
        self._job = job
        self._total = total
        self._count = 0
        self._terminal = sys.stderr.isatty()
        self._shown = time.monotonic()
        self._open_line = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_line()

    def advance(self, what: str) -> None:
        """Count one completed step."""
        self._count += 1
        now = time.monotonic()
        if now - self._shown < (_TERMINAL_INTERVAL_S if self._terminal else _LOG_INTERVAL_S):
            return
        self._shown = now
        text = printable_on(sys.stderr, f"{self._job}: {self._count} of {self._total}, {what}")
        if self._terminal:
            _print_error(f"\r\x1b[K{text[:150]}", end="")
            self._open_line = True
        else:
            _print_error(text)

    def say(self, text: str) -> None:
        """Print a permanent line."""
        self._end_line()
        say(f"{self._job}: {text}")

    def _end_line(self) -> None:
        if self._open_line:
            _print_error("")
            self._open_line = False


def say(text: str) -> None:
    """Print a line on stderr."""
    _print_error(printable_on(sys.stderr, text))


def show(print_results: Callable[[], None]) -> OSError | None:
    """Print results on stdout. Return why they could not be, None also if their reader has enough of them."""
    try:
        print_results()
        sys.stdout.flush()
    except OSError as error:
        silence(sys.stdout)
        return None if isinstance(error, BrokenPipeError) else error
    return None


def require_shown(error: OSError | None) -> None:
    """Raise `LakeError` if results could not be printed."""
    if error is not None:
        raise LakeError(f"its results could not be printed: {file_sentence(error)}")


def _print_error(text: str, end: str = "\n") -> None:
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        silence(sys.stderr)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = ()) -> None:
    """Print columns as wide as their content to stdout. `right`: numeric columns. None is shown as `-`."""
    cells = [["-" if cell is None else printable_on(sys.stdout, str(cell)) for cell in row] for row in rows]
    widths = [max(len(name), *(len(row[index]) for row in cells), 0) for index, name in enumerate(columns)]
    numbers = set(right)
    for row in [list(columns), *cells]:
        padded = [
            cell.rjust(width) if name in numbers else cell.ljust(width)
            for name, cell, width in zip(columns, row, widths, strict=True)
        ]
        print("  ".join(padded).rstrip())
