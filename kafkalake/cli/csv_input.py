"""Reads CSV files as Arrow batches of text columns with Python's csv module. Errors name the line.

Nothing is inferred from the rows. The header defines the number of columns. A delimiter that is not given is the one that
splits the header into the most columns. A header that two delimiters split into equally many is refused.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa

from kafkalake.cli.bad_lines import BadLines
from kafkalake.cli.lines import LONGEST_LINE_BYTES
from kafkalake.cli.output import Failure, UsageProblem
from kafkalake.counted import counted

DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
"""Delimiters that can be detected, with their names."""

_NAMES = {"\\t": "\t", "tab": "\t"}


CheckRows = Callable[[pa.RecordBatch], tuple[pa.RecordBatch, Mapping[int, str]]]
"""Returns rows that are valid CSV, with what was made of them in more columns, and by their index what is wrong with some."""


@dataclass(slots=True)
class _Fault:
    """An invalid row, from line `line` on: why, and its text.

    at: its index in the rows of its chunk, or that of the next one if it is none of them (`is_row`). is_last: nothing can be read
    behind it.
    """

    at: int
    failure: Failure
    text: bytes
    line: int
    is_row: bool = False
    is_last: bool = False

    def hand_to(self, bad: BadLines) -> Failure | None:
        """Return the error if it ends the reading, by the rule of `bad`."""
        if self.is_last:
            return bad.end(self.failure, self.line)
        return bad.take(self.failure, self.text, self.line)


class _Chunk:
    """Rows with the columns of the header, and the faults among them, in the order of the file."""

    def __init__(self) -> None:
        self.rows: list[Sequence[str | None]] = []
        self.places: list[tuple[int, bytes]] = []
        """The first line and the text of each row, if faults are looked for in the rows."""
        self.faults: list[_Fault] = []

    def add_faults(self, found: Mapping[int, str]) -> None:
        """Add what is wrong with rows, by their index."""
        for at, said in found.items():
            line, text = self.places[at]
            self.faults.append(_Fault(at, Failure(f"line {line}: {said}"), text, line, is_row=True))
        self.faults.sort(key=lambda fault: fault.line)

    def sort_out(self, bad: BadLines) -> tuple[list[int] | None, Failure | None]:
        """Hand the faults to `bad`. Return the indices of the valid rows, None if all are, and an error if one ends the reading.

        The valid rows are then those before it.
        """
        problem, end = None, len(self.rows)
        for fault in self.faults:
            problem = fault.hand_to(bad)
            if problem is not None:
                end = fault.at
                break
        invalid = {fault.at for fault in self.faults if fault.is_row}
        valid = [at for at in range(end) if at not in invalid] if invalid or problem is not None else None
        return valid, problem


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
        self,
        rows_per_batch: int,
        bad: BadLines,
        from_line: int,
        progress: Callable[[int], None],
        check: CheckRows | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows as batches of string columns. An empty field is null, blank lines are skipped.

        Rows that begin before line `from_line` are skipped. `progress` is called with the rows so far. An invalid row goes
        to `bad`, and so does one in which `check` finds a fault. If that ends the reading, the preceding rows are
        yielded first.
        """
        count = 0
        for chunk in self._chunks(rows_per_batch, from_line, keeps_places=check is not None):
            batch = self._batch(chunk.rows)
            if check is not None and chunk.rows:
                batch, found = check(batch)
                chunk.add_faults(found)
            valid, problem = chunk.sort_out(bad)
            if valid is not None:
                batch = batch.take(pa.array(valid, pa.int64()))
            if len(batch):
                count += len(batch)
                progress(count)
                yield batch
            if problem is not None:
                raise problem

    def _chunks(self, rows_per_batch: int, from_line: int, *, keeps_places: bool) -> Iterator[_Chunk]:
        """Yield the rows from line `from_line` on, as many as make a batch, with the faults among them."""
        reader = csv.reader(self._lines(), delimiter=self.delimiter, strict=True)
        columns, before, read = len(self.columns), self._first_line, self._read
        chunk, is_last = _Chunk(), False
        rows, count = chunk.rows, 0
        while not is_last:
            line = before + reader.line_num
            read.clear()
            failure = None
            try:
                row = next(reader, None)
                if row is None:
                    break
                if not row or line < from_line:
                    continue
                if len(row) == columns:
                    rows.append([text or None for text in row])
                    if keeps_places:
                        chunk.places.append((line, self._last_read()))
                else:
                    failure = Failure(f"line {line} has {counted(len(row), 'column')}, the head has {columns}")
            except csv.Error as error:
                failure = Failure(f"line {line} is no CSV: {error}")
            except UnicodeDecodeError:
                failure, is_last = Failure(f"line {line} or one after it is not UTF-8"), True
            if failure is not None and (is_last or line >= from_line):
                text = b"" if is_last else self._last_read()
                chunk.faults.append(_Fault(len(rows), failure, text, line, is_last=is_last))
            count += 1
            if count == rows_per_batch:
                yield chunk
                chunk = _Chunk()
                rows, count = chunk.rows, 0
        if count:
            yield chunk

    def _lines(self) -> Iterator[str]:
        """Yield the lines of the file, and keep those of the current row."""
        for line in self._file:
            self._read.append(line)
            yield line

    def _last_read(self) -> bytes:
        return "".join(self._read).rstrip("\r\n").encode()

    def _batch(self, rows: Sequence[Sequence[str | None]]) -> pa.RecordBatch:
        columns = zip(*rows, strict=True) if rows else ((),) * len(self.columns)
        return pa.RecordBatch.from_arrays(
            [pa.array(column, pa.string()) for column in columns], names=list(self.columns)
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
