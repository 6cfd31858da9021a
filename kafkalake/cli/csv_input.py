"""Reads CSV files as Arrow batches of text columns with Python's csv module. Errors name the line.

Nothing is inferred from the rows. The header defines the number of columns. A delimiter that is not given is the one that
splits the header into the most columns. A header that two delimiters split into equally many is refused.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import pyarrow as pa

from kafkalake.cli.bad_lines import BadLines
from kafkalake.cli.lines import LONGEST_LINE_BYTES
from kafkalake.cli.output import Failure, UsageProblem

DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
"""Delimiters that can be detected, with their names."""

_NAMES = {"\\t": "\t", "tab": "\t"}


class CsvFile:
    """An open CSV file whose header has been read. Use it in a `with` block.

    delimiter: one character, `\\t` or `tab` for a tab; None: detected from the header. Raise `UsageProblem` for a delimiter of
    several characters, `Failure` for a file that cannot be read or whose header is invalid.
    """

    def __init__(self, path: Path, delimiter: str | None) -> None:
        self.path = path
        self._read: list[str] = []
        self._file = _open(path)
        try:
            self.delimiter = _delimiter_of(path, delimiter)
            head, line = self._read_head()
            self._first_line = line + 1
        except BaseException:
            self._file.close()
            raise
        self.columns = head

    def __enter__(self) -> CsvFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def batches(
        self, rows_per_batch: int, bad: BadLines, from_line: int, progress: Callable[[int], None]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows as batches of string columns. An empty field is null, blank lines are skipped.

        Rows that begin before line `from_line` are skipped. `progress` is called with the rows so far. An invalid row goes
        to `bad`. If that ends the reading, the preceding rows are yielded first.
        """
        reader = csv.reader(self._lines(), delimiter=self.delimiter, strict=True)
        offset = self._first_line - 1
        rows: list[Sequence[str | None]] = []
        count = 0
        problem: Failure | None = None
        while problem is None:
            line = offset + reader.line_num + 1
            self._read.clear()
            try:
                row = next(reader, None)
                if row is None:
                    break
                if not row or line < from_line:
                    continue
                if len(row) != len(self.columns):
                    raise Failure(f"line {line} has {_counted(len(row))}, the head has {len(self.columns)}")
                rows.append([text or None for text in row])
            except Failure as failure:
                problem = bad.take(failure, self._last_read(), line)
            except csv.Error as error:
                problem = bad.take(Failure(f"line {line} is no CSV: {error}"), self._last_read(), line)
            except UnicodeDecodeError:
                problem = bad.end(Failure(f"line {line} or one after it is not UTF-8"), line)
            if len(rows) == rows_per_batch:
                count += len(rows)
                progress(count)
                yield self._batch(rows)
                rows = []
        if rows:
            progress(count + len(rows))
            yield self._batch(rows)
        if problem is not None:
            raise problem

    def _lines(self) -> Iterator[str]:
        """Yield the lines of the file, and keep those of the current row."""
        for line in self._file:
            self._read.append(line)
            yield line

    def _last_read(self) -> bytes:
        return "".join(self._read).rstrip("\r\n").encode()

    def _batch(self, rows: Sequence[Sequence[str | None]]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [pa.array(column, pa.string()) for column in zip(*rows, strict=True)], names=list(self.columns)
        )

    def _read_head(self) -> tuple[tuple[str, ...], int]:
        """Return the column names and the number of the header's last line. Set `delimiter` if none is given."""
        start = self._file.tell()
        found = {}
        for delimiter in (self.delimiter,) if self.delimiter else tuple(DELIMITERS):
            self._file.seek(start)
            reader = csv.reader(iter(self._file.readline, ""), delimiter=delimiter, strict=True)
            try:
                found[delimiter] = next(reader, []), reader.line_num, self._file.tell()
            except csv.Error as error:
                if self.delimiter:
                    raise Failure(f"{self.path}: line 1 is no CSV: {error}") from None
            except UnicodeDecodeError:
                raise Failure(f"{self.path}: line 1 is not UTF-8") from None
        if not found:
            raise Failure(f"{self.path}: line 1 is no CSV")
        delimiter = self.delimiter or self._best(found)
        head, line, end = found[delimiter]
        self._check(head, given=bool(self.delimiter))
        self.delimiter = delimiter
        self._file.seek(end)
        return tuple(head), line

    def _best(self, found: dict[str, tuple[list[str], int, int]]) -> str:
        clean = {each: head for each, (head, _, _) in found.items() if not any('"' in name for name in head)}
        heads = clean or {each: head for each, (head, _, _) in found.items()}  # a quote in a name: split inside quotes
        most = max(map(len, heads.values()))
        best = [delimiter for delimiter, head in heads.items() if len(head) == most]
        if most > 1 and len(best) > 1:
            names = " or ".join(DELIMITERS[delimiter] for delimiter in best)
            raise Failure(f"{self.path}: the head may be cut at {names}", "--delimiter says which")
        return best[0]

    def _check(self, head: Sequence[str], *, given: bool) -> None:
        if not head:
            raise Failure(f"{self.path}: line 1 is no head: the file is empty, or begins with a blank line")
        if not given and len(head) == 1 and any(mark in head[0] for mark in DELIMITERS):
            raise Failure(f"{self.path}: the head is one column, '{head[0]}'", "--delimiter says how to cut it")
        for index, name in enumerate(head):
            if not name:
                raise Failure(f"{self.path}: column {index + 1} of the head has no name")
            if name in head[:index]:
                raise Failure(f"{self.path}: column '{name}' stands twice in the head")


def _open(path: Path) -> IO[str]:
    csv.field_size_limit(LONGEST_LINE_BYTES)
    try:
        return open(path, encoding="utf-8-sig", newline="")
    except OSError as error:
        raise Failure(f"{path}: {error.strerror or 'it cannot be read'}") from None


def _delimiter_of(path: Path, given: str | None) -> str:
    """Return the given delimiter or that of the file's suffix, or an empty text to detect it from the header."""
    if given is None:
        return "\t" if path.suffix.lower() == ".tsv" else ""
    delimiter = _NAMES.get(given, given)
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise UsageProblem(f"--delimiter is one character, not '{given}'")
    return delimiter


def _counted(columns: int) -> str:
    return "1 column" if columns == 1 else f"{columns} columns"
