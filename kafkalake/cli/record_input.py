"""Reads the input of `kafkalake produce` as Arrow batches: columns `key`, `value`, and if given `headers` and `timestamp`.

- lines      a record per line; with a key separator, key and value
- json       a JSON value per line, sent unchanged (to a topic whose values are Avro as that); key and timestamp from its fields
- records    a JSON object per line in the format of `kafkalake consume --format json`: key, value, headers, timestamp
- csv        a record per row, as a JSON object; text that is a JSON number becomes that number, with the same digits, unless the
             topic's value.schema has another type for it
- parquet    a record per row, as a JSON object
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from kafkalake.cli.bad_lines import BadLines
from kafkalake.cli.csv_input import CheckRows, CsvFile
from kafkalake.cli.duckdb_rows import failure_of, open_duckdb, quoted, select_records
from kafkalake.cli.input_fields import Fields
from kafkalake.cli.json_input import as_bytes, field_of, headers_of, milliseconds, parse_line, text_or_bytes, typed_key
from kafkalake.cli.lines import read_blocks, read_lines
from kafkalake.cli.output import Failure
from kafkalake.cli.row_times import find_untimed_rows, time_of_row
from kafkalake.close_names import did_you_mean
from kafkalake.config.value_schema import BINARY
from kafkalake.errors import InvalidRecordError
from kafkalake.record.schema import SCHEMA

ROWS_PER_BATCH = 32_768
_LINE_FEED = ord("\n")
_TIMESTAMP = SCHEMA.field("timestamp").type
_HEADERS = SCHEMA.field("headers").type
_JSON_NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?"


@dataclass(frozen=True, slots=True)
class _Record:
    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    headers: Sequence[dict[str, object]] = ()


def format_of(path: Path | None) -> str:
    """Return the format for a file's suffix, or `lines` for stdin and unknown suffixes."""
    suffixes = {
        ".json": "json",
        ".jsonl": "json",
        ".ndjson": "json",
        ".csv": "csv",
        ".tsv": "csv",
        ".parquet": "parquet",
    }
    return suffixes.get(path.suffix.lower(), "lines") if path is not None else "lines"


def from_lines(
    descriptor: int,
    key_separator: str | None,
    null_marker: str | None,
    bad: BadLines,
    from_line: int,
    progress: Callable[[int], None],
) -> Iterator[pa.RecordBatch]:
    """Yield a record per line, from line `from_line`. Lines without the separator go to `bad`. Raise `Failure` if that ends it."""
    separator = key_separator.encode() if key_separator else None
    null = null_marker.encode() if null_marker is not None else None
    if separator is None:
        yield from _whole_lines(descriptor, null, from_line, progress)
        return
    number = 0
    for lines in read_lines(descriptor, progress):
        first = number + 1
        number += len(lines)
        if number < from_line:
            continue
        passed_over = max(from_line - first, 0)
        lines = lines[passed_over:]
        first += passed_over
        problem = None
        parts = []
        for index, line in enumerate(lines):
            part = line.partition(separator)
            if part[1]:
                parts.append(part)
                continue
            failure = Failure(f"line {first + index} has no key separator '{key_separator}'")
            problem = bad.take(failure, line, first + index)
            if problem is not None:
                break
        yield _batch(
            [None if key == null else key for key, _, _ in parts],
            [None if value == null else value for _, _, value in parts],
        )
        if problem is not None:
            raise problem


def _whole_lines(
    descriptor: int, null: bytes | None, from_line: int, progress: Callable[[int], None]
) -> Iterator[pa.RecordBatch]:
    """Yield the lines as values, without an object for each. null: the line that stands for no value."""
    import pyarrow.compute as pc

    number = 0
    for block in read_blocks(descriptor, progress):
        values = _lines_of(block)
        skipped = min(max(from_line - number - 1, 0), len(values))
        number += len(values)
        values = values.slice(skipped)
        if null is not None:
            values = pc.if_else(pc.equal(values, pa.scalar(null, pa.binary())), pa.scalar(None, pa.binary()), values)
        if len(values):
            yield pa.RecordBatch.from_arrays([pa.nulls(len(values), pa.binary()), values], names=["key", "value"])


def _lines_of(block: bytes) -> pa.BinaryArray:
    """Return lines, each with a line feed, as values without it."""
    data = np.frombuffer(block, np.uint8)
    is_end = data == _LINE_FEED
    ends = np.flatnonzero(is_end)
    offsets = np.zeros(len(ends) + 1, dtype=np.int32)
    offsets[1:] = ends - np.arange(len(ends))
    return pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data[~is_end])])


def from_json_lines(
    descriptor: int, fields: Fields, bad: BadLines, from_line: int, progress: Callable[[int], None]
) -> Iterator[pa.RecordBatch]:
    """Yield a JSON value per line from `from_line`. Skip blank lines, pass bad ones to `bad`. Raise `Failure` if that ends it."""

    def record(line: bytes, number: int) -> _Record:
        parsed = parse_line(line, number)
        return _Record(
            key=as_bytes(field_of(parsed, fields.key, number), number)
            if fields.key
            else typed_key(parsed, fields.typed_key, number),
            value=as_bytes(field_of(parsed, fields.value, number), number)
            if fields.value
            else fields.value_of(line, parsed, number),
            timestamp=milliseconds(field_of(parsed, fields.timestamp, number), number) if fields.timestamp else None,
        )

    return _records(read_lines(descriptor, progress), record, bad, from_line)


def from_record_lines(
    descriptor: int, bad: BadLines, from_line: int, progress: Callable[[int], None]
) -> Iterator[pa.RecordBatch]:
    """Yield whole records in the format of `consume --format json`. Invalid ones go to `bad`. Raise `Failure` if that ends it."""

    def record(line: bytes, number: int) -> _Record:
        parsed = parse_line(line, number)
        if not isinstance(parsed, dict) or "value" not in parsed:
            raise Failure(f"line {number} is no record: a JSON object with value and perhaps key, headers, timestamp")
        return _Record(
            key=text_or_bytes(parsed.get("key"), number),
            value=text_or_bytes(parsed["value"], number),
            timestamp=milliseconds(parsed.get("timestamp"), number),
            headers=headers_of(parsed.get("headers"), number),
        )

    return _records(read_lines(descriptor, progress), record, bad, from_line)


def from_csv(
    path: Path,
    fields: Fields,
    delimiter: str | None,
    bad: BadLines,
    from_line: int,
    progress: Callable[[int], None],
) -> Iterator[pa.RecordBatch]:
    """Yield a record per row of a CSV file, from line `from_line`. An invalid row goes to `bad`.

    `progress` is called with the number of rows so far. Raise `Failure` or `UsageProblem` if the file cannot be read.
    """
    with CsvFile(path, delimiter) as file:
        fields.check_columns(path, file.columns)
        columns, encoded = dict.fromkeys(file.columns, "VARCHAR"), "_" + max(file.columns, key=len)  # no column's name
        selection = _selection(columns, "csv", fields)
        check = _check_rows(path, file.columns, fields, encoded)
        if fields.encoder is not None:
            selection = _selection(columns | {encoded: "BLOB"}, "csv", replace(fields, value=encoded))
        for rows in file.batches(ROWS_PER_BATCH, bad, from_line, progress, check):
            yield from select_records(path, selection, "rows", ROWS_PER_BATCH, {"rows": rows})


def _check_rows(path: Path, columns: Sequence[str], fields: Fields, encoded: str) -> CheckRows | None:
    """Return what finds the rows of CSV that can be no records of the topic, and adds their values as the column `encoded`.

    None if all can, and their values are JSON.
    """
    at, encoder = fields.timestamp, fields.encoder
    if at is None and encoder is None:
        return None
    selection = _selection(dict.fromkeys(columns, "VARCHAR"), "csv", replace(fields, timestamp=None))

    def check(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, str]]:
        faults = {} if at is None else find_untimed_rows(rows, at)
        if encoder is None:
            return rows, faults
        found = (
            batch.column("value").to_pylist()
            for batch in select_records(path, selection, "rows", ROWS_PER_BATCH, {"rows": rows})
        )
        values: list[bytes | None] = []
        for index, value in enumerate(chain.from_iterable(found)):
            try:
                values.append(encoder.encode(value))
            except InvalidRecordError as error:
                values.append(None)
                faults.setdefault(index, str(error))
        return rows.append_column(encoded, pa.array(values, pa.binary())), faults

    return check


def from_parquet(path: Path, fields: Fields, progress: Callable[[int], None]) -> Iterator[pa.RecordBatch]:
    """Yield a record per row of a Parquet file. `progress` is called with the rows so far. Raise `Failure` if unreadable."""
    import duckdb

    if not os.access(path, os.R_OK):
        raise Failure(f"{path}: no such file, or it cannot be read")
    source = f"read_parquet({quoted(str(path), chr(39))})"
    try:
        with open_duckdb() as connection:
            described = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
    except duckdb.Error as error:
        raise failure_of(path, error) from None
    columns = {name: str(type_) for name, type_, *_ in described}
    fields.check_columns(path, columns)
    selection = _selection(columns, "parquet", fields)
    rows = 0
    for batch in select_records(path, selection, source, ROWS_PER_BATCH):
        rows += batch.num_rows
        progress(rows)
        yield _with_encoded(batch, fields)


def _with_encoded(batch: pa.RecordBatch, fields: Fields) -> pa.RecordBatch:
    """Return records whose values, JSON objects of rows, are as the topic's are. Raise `Failure` if one cannot be."""
    if fields.encoder is None:
        return batch
    values = [fields.encoded(value, f"the row {value.decode()[:200]}") for value in batch.column("value").to_pylist()]
    return batch.set_column(batch.schema.get_field_index("value"), "value", pa.array(values, pa.binary()))


def rows_of_parquet(path: Path) -> int:
    """Return the number of rows of a Parquet file, from its footer. Raise `Failure` if it cannot be read."""
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError) as error:
        raise Failure(f"{path}: {str(error).splitlines()[0]}") from None


def with_headers(batch: pa.RecordBatch, headers: Sequence[tuple[str, bytes]]) -> pa.RecordBatch:
    """Return the records with these headers, each behind its own."""
    more = [{"key": key, "value": value} for key, value in headers]
    if "headers" not in batch.schema.names:
        return batch.append_column("headers", pa.array([more] * batch.num_rows, _HEADERS))
    column = pa.array([[*own, *more] for own in batch.column("headers").to_pylist()], _HEADERS)
    return batch.set_column(batch.schema.get_field_index("headers"), "headers", column)


def _records(
    chunks: Iterator[list[bytes]], record: Callable[[bytes, int], _Record], bad: BadLines, from_line: int
) -> Iterator[pa.RecordBatch]:
    """Yield a batch for each chunk of lines. If reading ends inside a chunk, yield the records before, then raise the error."""
    number = 0
    for lines in chunks:
        records = []
        problem = None
        for line in lines:
            number += 1
            if number < from_line or not line or line.isspace():
                continue
            try:
                records.append(record(line, number))
            except Failure as failure:
                problem = bad.take(failure, line, number)
                if problem is not None:
                    break
        yield _batch(
            [record.key for record in records],
            [record.value for record in records],
            [record.timestamp for record in records],
            [record.headers for record in records],
        )
        if problem is not None:
            raise problem


def _batch(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps: Sequence[int | None] = (),
    headers: Sequence[Sequence[dict[str, object]]] = (),
) -> pa.RecordBatch:
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    if any(timestamp is not None for timestamp in timestamps):
        now = time.time_ns() // 1_000_000
        filled = [now if timestamp is None else timestamp for timestamp in timestamps]
        columns["timestamp"] = pa.array(filled, pa.int64()).cast(_TIMESTAMP)
    if any(headers):
        columns["headers"] = pa.array(headers, _HEADERS)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _selection(columns: dict[str, str], kind: str, fields: Fields) -> str:
    """Return the SELECT list for key, value and timestamp of a row."""
    for name in (fields.key, fields.value, fields.timestamp):
        if name is not None and name not in columns:
            close = did_you_mean(name, columns)
            raise Failure(f"there is no column '{name}'" + (f"; {close}" if close else f": {', '.join(columns)}"))
    key = fields.key if fields.key is not None else fields.typed_key
    parts = [f"{_bytes_of(key, columns) if key in columns else 'NULL::BLOB'} AS key"]
    whole = _row_as_json(columns, kind, fields.types)
    parts.append(f"{_bytes_of(fields.value, columns) if fields.value is not None else whole} AS value")
    if fields.timestamp is not None:
        parts.append(f"{time_of_row(fields.timestamp)} AS timestamp")
    return ", ".join(parts)


def _bytes_of(column: str, columns: dict[str, str]) -> str:
    name = quoted(column)
    kind = columns[column]
    if kind == "BLOB":
        return name
    if kind == "VARCHAR":
        return f"encode({name})"
    return f"encode(CASE WHEN {name} IS NULL THEN NULL ELSE trim(CAST(to_json({name}) AS VARCHAR), '\"') END)"


def _row_as_json(columns: dict[str, str], kind: str, types: Mapping[str, str]) -> str:
    parts = []
    for name in columns:
        column = quoted(name)
        text = f"CAST(to_json({column}) AS VARCHAR)"
        if kind == "csv":
            text = _csv_as_json(column, text, types.get(name))
        elif columns[name] == "BLOB" and types.get(name) == BINARY:
            text = f"""'{{"base64":"' || base64({column}) || '"}}'"""
        label = quoted(json.dumps(name, ensure_ascii=False) + ":", "'")
        parts.append(f"{label} || coalesce({text}, 'null')")
    return "encode('{' || " + " || ',' || ".join(parts) + " || '}')"


def _csv_as_json(column: str, text: str, typed: str | None) -> str:
    """Return the JSON of a field of CSV: `text` is that of a string. typed: its type in SQL, None if nothing is known of it."""
    if typed is None:
        return f"CASE WHEN regexp_full_match({column}, '{_JSON_NUMBER}') THEN {column} ELSE {text} END"
    if typed in ("STRING", BINARY):
        return text
    if typed == "BOOLEAN":
        return f"CASE WHEN lower({column}) IN ('true', 'false') THEN lower({column}) ELSE {text} END"
    return f"CASE WHEN json_valid({column}) THEN {column} ELSE {text} END"
