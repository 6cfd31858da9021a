"""Handles lines that `kafkalake produce` cannot read: stops there, skips them, or writes them to a file."""

from __future__ import annotations

from pathlib import Path
from typing import IO

from kafkalake.cli.output import Failure

STOP, SKIP = "stop", "skip"


class BadLines:
    """The rule of `--on-error`, and the count of skipped lines. Use it in a `with` block.

    rule: `stop`, `skip`, or the path of a file that the lines are written to unchanged. Raise `Failure` if it cannot be created.
    """

    def __init__(self, rule: str = STOP) -> None:
        self.count = 0
        self.first: str | None = None
        """The error of the first skipped line."""
        self.stopped_at: int | None = None
        """The number of the line at which reading stopped."""
        self._stops = rule == STOP
        self._file: IO[bytes] | None = None
        if rule not in (STOP, SKIP):
            try:
                self._file = open(Path(rule), "wb")  # noqa: SIM115 (closed by `__exit__`)
            except OSError as error:
                raise Failure(f"{rule}: {error.strerror}") from None

    def __enter__(self) -> BadLines:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def take(self, failure: Failure, line: bytes, number: int) -> Failure | None:
        """Skip the line and return None, or by the rule `stop` return the error that ends the reading.

        line: its bytes without the final line feed. number: of the line, from 1.
        """
        if self._stops:
            return self.end(failure, number)
        self.count += 1
        self.first = self.first or str(failure)
        if self._file is not None:
            self._file.write(line + b"\n")
        return None

    def end(self, failure: Failure, number: int) -> Failure:
        """Return the error of a line after which nothing can be read, whatever the rule."""
        self.stopped_at = number
        return failure
