"""Handles lines that `kafkalake produce` cannot read: stops there, skips them, or adds them to a file."""

from __future__ import annotations

import contextlib
import os
import stat

from kafkalake.cli.output import Failure, UsageProblem
from kafkalake.errors import file_sentence

STOP, SKIP = "stop", "skip"


class BadLines:
    """The rule of `--on-error`, and the count of skipped lines. Use it in a `with` block.

    rule: `stop`, `skip`, or the path of a file that the lines are added to unchanged, behind those of earlier runs. source: the
    descriptor of the input. Raise `Failure` if the file cannot be created, `UsageProblem` if it is the input.
    """

    def __init__(self, rule: str = STOP, source: int | None = None) -> None:
        self.count = 0
        self.first: str | None = None
        """The error of the first skipped line."""
        self.stopped_at: int | None = None
        """The number of the line at which reading stopped."""
        self._stops = rule == STOP
        self._path = rule
        self._file = -1
        if rule in (STOP, SKIP):
            return
        if not rule:
            raise UsageProblem("--on-error takes stop, skip or the name of a file")
        try:
            self._file = os.open(rule, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError as error:
            raise Failure(file_sentence(error)) from None
        if source is not None and _is_same_file(self._file, source):
            os.close(self._file)
            raise UsageProblem(f"--on-error {rule} is the input itself")

    def __enter__(self) -> BadLines:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def take(self, failure: Failure, line: bytes, number: int) -> Failure | None:
        """Skip the line and return None, or return the error that ends the reading: by the rule `stop`, or if it cannot be written.

        line: its bytes without the final line feed. number: of the line, from 1.
        """
        if self._stops:
            return self.end(failure, number)
        if self._file >= 0:
            try:
                self._write(line + b"\n")
            except OSError as error:
                return self.end(Failure(f"line {number} cannot be kept in {self._path}: {error.strerror}"), number)
        self.count += 1
        self.first = self.first or str(failure)
        return None

    def end(self, failure: Failure, number: int) -> Failure:
        """Return the error of a line after which nothing can be read, whatever the rule."""
        self.stopped_at = number
        return failure

    def _write(self, data: bytes) -> None:
        """Write a whole line, or nothing of it and raise `OSError`. It is written before the records behind it are sent."""
        size = os.fstat(self._file).st_size
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            with contextlib.suppress(OSError):  # no file
                os.ftruncate(self._file, size)
            raise


def _is_same_file(one: int, other: int) -> bool:
    """Return whether two descriptors are of one file, and not of a terminal or another device."""
    first, second = os.fstat(one), os.fstat(other)
    return stat.S_ISREG(first.st_mode) and os.path.samestat(first, second)
