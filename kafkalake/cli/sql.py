"""`kafkalake sql`: DuckDB over the segments, with every topic as a table.

Only the needed part of a topic is read: columns and filters reach the segments. A query sees the records acknowledged before it
began, and of transactions the committed ones. With `--as-of` it sees those published at a time. The metadata tables are in
the schema `lake`. Without a query, a terminal gets a prompt.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkalake.cli.options import Json, Lake
from kafkalake.cli.output import Failure, UsageProblem, note, write
from kafkalake.close_names import did_you_mean
from kafkalake.internal_topics import INTERNAL

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

EXAMPLES = """Columns of a topic: key, value, topic, partition, "offset", timestamp, timestampType, headers.
Of a topic with a value.schema: its fields, then _key, _value, _topic, _partition, _offset, _timestamp, _timestampType, _headers.
text(value) is a value as text, json(value) as JSON.
Metadata: lake.topics, lake.partitions, lake.segments, lake.group_offsets, ...

Examples

  [cyan]kafkalake sql "SELECT partition, count(*) FROM clicks GROUP BY ALL" --lake ./lake[/cyan]

  [dim]# fields of JSON values[/dim]
  [cyan]kafkalake sql "SELECT json(value)->>'user' AS user, count(*) AS n FROM clicks
                 GROUP BY user ORDER BY n DESC LIMIT 10" --lake ./lake[/cyan]

  [dim]# what groups have committed; the topic as it was an hour ago[/dim]
  [cyan]kafkalake sql "SELECT * FROM lake.group_offsets" --lake ./lake[/cyan]
  [cyan]kafkalake sql "SELECT count(*) FROM clicks" --as-of 1h --lake ./lake[/cyan]

  [dim]# names with a dash or a dot, and the column offset, need double quotes[/dim]
  [cyan]kafkalake sql 'SELECT max("offset") FROM "web-logs"' --lake ./lake --json[/cyan]"""

SHOWN_ROWS = 1_000
BATCH_ROWS = 10_000
MACROS = (
    "CREATE MACRO text(bytes) AS try(decode(bytes))",
    "CREATE MACRO json(bytes) AS try_cast(try(decode(bytes)) AS JSON)",
)
READING = {"SELECT", "EXPLAIN", "PRAGMA", "RELATION"}
"""Kinds of statements that change nothing. SHOW, DESCRIBE, FROM and WITH all count as SELECT."""


class ResultFormat(StrEnum):
    """Output formats of rows."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def sql(
    lake: Lake,
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="QUERY",
            help="SQL (DuckDB's); - or a pipe: read from stdin; without it on a terminal: a prompt.",
            show_default=False,
        ),
    ] = None,
    format: Annotated[
        ResultFormat, typer.Option("--format", "-f", help="A table, a JSON object a line, or CSV.")
    ] = ResultFormat.TABLE,
    csv: Annotated[bool, typer.Option("--csv", help="The same as --format csv.")] = False,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="TIME",
            help="Topics and metadata as published at 2026-11-21T08:00:00Z, 15m ago, or milliseconds since 1970.",
            show_default=False,
        ),
    ] = None,
    max_rows: Annotated[
        int, typer.Option("--max-rows", min=1, metavar="N", help="Rows shown of a table; json and csv print all.")
    ] = SHOWN_ROWS,
    json: Json = False,
) -> None:
    """Query topics with SQL, straight from their files.

    No broker and no JVM is needed; the last acknowledged record is there.
    """
    from kafkalake.cli.times import parse_time

    kind = ResultFormat.JSON if json else ResultFormat.CSV if csv else format
    at_prompt = query is None and sys.stdin.isatty()
    text = "" if at_prompt else query if query not in (None, "-") else sys.stdin.read()
    if not at_prompt and not (text or "").strip():
        raise UsageProblem('no query given: kafkalake sql "SELECT ..." --lake DIR')
    as_of_ms = None if as_of is None else parse_time(as_of, "--as-of")
    topics = topic_names(lake)
    import duckdb

    from kafkalake.cli.sql_interrupt import ended_by_ctrl_c
    from kafkalake.cli.sql_tables import SqlTables

    connection = _connect()
    try:
        tables = SqlTables(connection, lake, topics, as_of_ms)

        def run(statements: str) -> None:
            with ended_by_ctrl_c(connection):
                tables.register(statements)
                schema, rows = _run(connection, statements)
                if schema is not None:
                    _print(kind, schema, rows, max_rows)

        if at_prompt:
            from kafkalake.cli.sql_prompt import run_prompt

            run_prompt(run, lambda error, statement: _explained(error, statement, topics))
            return
        _check_leaves_nothing(text or "")
        run(text or "")
    except duckdb.Error as error:
        raise _explained(error, text or "", topics) from None
    finally:
        connection.close()


def _check_leaves_nothing(text: str) -> None:
    """Raise `Failure` for statements whose effects would be neither kept nor shown, and `duckdb.Error` for invalid SQL."""
    import duckdb

    statements = duckdb.extract_statements(text)
    if statements and statements[-1].type.name not in READING | {"COPY"}:
        raise Failure(
            f"{statements[-1].type.name} leaves nothing behind: tables made here last as long as the command",
            "Records are written with kafkalake produce; a SELECT may follow in the same query, or at the prompt.",
        )


def _print(kind: ResultFormat, schema: pa.Schema, rows: Iterator[pa.RecordBatch], max_rows: int) -> None:
    if kind is ResultFormat.TABLE:
        _print_table(schema, rows, max_rows)
    elif kind is ResultFormat.JSON:
        _print_json(rows)
    else:
        _print_csv(schema, rows)


def topic_names(lake: Path) -> list[str]:
    """Return the topics of a lake, sorted by name. Raise `LakeError` if there is no lake."""
    from kafkalake.metadata.delta import DeltaMetadataStore
    from kafkalake.metadata.paths import require_lake

    return sorted(row.topic for row in DeltaMetadataStore(require_lake(lake), create=False).load_topics())


def _connect() -> DuckDBPyConnection:
    import duckdb

    connection = duckdb.connect(config={"autoinstall_known_extensions": False})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = false")
    for macro in MACROS:
        connection.execute(macro)
    return connection


def _run(connection: DuckDBPyConnection, query: str) -> tuple[pa.Schema | None, Iterator[pa.RecordBatch]]:
    relation: Any = connection.sql(query)
    if relation is None:
        return None, iter(())
    reader = (relation.to_arrow_reader if hasattr(relation, "to_arrow_reader") else relation.fetch_arrow_reader)(
        BATCH_ROWS
    )
    return reader.schema, iter(reader)


def _print_table(schema: pa.Schema, batches: Iterator[pa.RecordBatch], max_rows: int) -> None:
    import pyarrow as pa

    from kafkalake.cli.output import table

    rows: list[tuple[object, ...]] = []
    for batch in batches:
        rows += [tuple(_shown(value) for value in row) for row in _rows(batch)]
        if len(rows) > max_rows:
            break
    numbers = [
        field.name
        for field in schema
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
    ]
    table(None, schema.names, rows[:max_rows], right=numbers)
    if len(rows) > max_rows:
        note(f"The first {max_rows:,} rows; --max-rows shows more, --csv and --json print all.")


def _print_json(batches: Iterator[pa.RecordBatch]) -> None:
    import json

    for batch in batches:
        names = batch.schema.names
        lines = [
            json.dumps(dict(zip(names, map(_plain, row), strict=True)), ensure_ascii=False, default=str)
            for row in _rows(batch)
        ]
        if lines:
            write(("\n".join(lines) + "\n").encode("utf-8", "backslashreplace"))


def _print_csv(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    import csv
    import io

    head: list[list[str]] = [schema.names]
    for batch in batches:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if head:
            writer.writerow(head.pop())
        writer.writerows([_shown(value, null="") for value in row] for row in _rows(batch))
        write(text.getvalue().encode("utf-8", "backslashreplace"))
    if head:
        write((",".join(schema.names) + "\n").encode())


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
    return zip(*map(_values, batch.columns), strict=True)


def _values(column: pa.Array) -> list[object]:
    import json

    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (OverflowError, ValueError):  # years that Python does not have
        from kafkalake.reader.json_texts import texts_of

        return [None if text is None else json.loads(text) for text in texts_of(column)]


def _plain(value: object) -> object:
    """Return a value for JSON: bytes as text if they are UTF-8 (else base64), times as ISO 8601."""
    from kafkalake.cli.record_output import as_text

    if isinstance(value, bytes):
        return as_text(value)
    if isinstance(value, datetime):
        digits = "microseconds" if value.microsecond % 1000 else "milliseconds"
        return value.isoformat(timespec=digits).replace("+00:00", "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta | Decimal):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def _shown(value: object, null: str | None = None) -> object:
    """Return a value for a table or CSV."""
    import json

    plain = _plain(value)
    if isinstance(plain, dict | list):
        return json.dumps(plain, ensure_ascii=False, default=str)
    if isinstance(plain, bool):
        return str(plain).lower()
    return null if plain is None else plain


def _explained(error: Exception, query: str, topics: Sequence[str]) -> Failure:
    """Return DuckDB's error as one sentence, with a suggestion."""
    said = str(error)
    own = re.search(r"(?:LakeError|CorruptSegmentError|UnknownTopicOrPartitionError|ConfigurationError): (.+)", said)
    if own:
        return Failure(own[1].strip())
    first = re.sub(r"^\w+ Error: ", "", said.splitlines()[0].strip())
    missing = re.search(r"Table with name (\S+) does not exist", said)
    if missing:
        from kafkalake.cli.sql_tables import METADATA_TABLES, SCHEMA

        topics = [topic for topic in topics if topic not in INTERNAL]
        if (name := missing[1].strip('"').lower()) in METADATA_TABLES:
            return Failure(f"there is no topic '{missing[1]}'", f"The metadata table is {SCHEMA}.{name}")
        close = did_you_mean(missing[1].strip('"'), topics)
        known = f"The topics are: {', '.join(topics[:20])}" if topics else "The lake has no topics."
        return Failure(f"there is no topic '{missing[1]}'", (close or known) + _quoting(query, topics))
    if "syntax error" in said and re.search(r'(?<!")\boffset\b(?!")(?!\s+\d)', query, re.IGNORECASE):
        return Failure(first, 'offset is a word of SQL: write "offset" in double quotes')
    quoting = _quoting(query, topics)
    if quoting and "syntax error" in said:
        return Failure(first, quoting.strip())
    if "BLOB" in said:
        return Failure(first, "Keys and values are bytes: text(value), json(value), octet_length(value)")
    candidates = re.search(r"Candidate bindings: (.+)", said)
    hints = [f"Columns: {candidates[1]}"] if candidates else []
    place = re.search(r"^LINE \d+:.*\n *\^+", said, re.MULTILINE)
    if place is not None:
        hints.append(place[0])
    return Failure(first, "\n".join(hints) or None)


def _quoting(query: str, topics: Sequence[str]) -> str:
    """Return a hint on topics that need quotes in the query, or an empty text."""
    bare = [
        topic for topic in topics if not re.fullmatch(r"\w+", topic) and topic in query and f'"{topic}"' not in query
    ]
    return f' Write "{bare[0]}" in double quotes.' if bare else ""
