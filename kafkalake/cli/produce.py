"""`kafkalake produce`: writes records from lines, JSON, CSV or Parquet to a topic."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkalake.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, Json, TopicName, connect, parse_pairs
from kafkalake.cli.output import Failure, UsageProblem, note, size, write_json

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkalake.cli.bad_lines import BadLines
    from kafkalake.client.producer import Producer, Sent

EXAMPLES = """Examples

  [dim]# type records, a line each; Ctrl-D ends[/dim]
  [cyan]kafkalake produce clicks[/cyan]

  [dim]# JSON lines, keyed by a field of theirs[/dim]
  [cyan]kafkalake produce clicks events.jsonl --key-field user[/cyan]

  [dim]# a table: each row becomes a JSON object[/dim]
  [cyan]kafkalake produce flights flights.parquet --key-field carrier --compression zstd[/cyan]

  [dim]# key and value on a line[/dim]
  [cyan]echo 'user1=hello' | kafkalake produce clicks --key-separator =[/cyan]

  [dim]# copy a topic to another cluster, with keys, headers and timestamps[/dim]
  [cyan]kafkalake consume clicks --from-beginning --exit-at-end --format json \\
    | kafkalake produce clicks --format records -b other:9092[/cyan]"""


class Format(StrEnum):
    """Input formats."""

    LINES = "lines"
    JSON = "json"
    RECORDS = "records"
    CSV = "csv"
    PARQUET = "parquet"


class Compression(StrEnum):
    """Codecs of a record batch."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """Acknowledgements that a batch can require."""

    ALL = "all"
    LEADER = "1"
    NONE = "0"


INPUT, SENDING, PROBLEMS = "Input", "Sending", "When something is wrong"


def produce(
    topic: TopicName,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="What to read; without it, or with -, stdin.", show_default=False),
    ] = None,
    format: Annotated[
        Format | None,
        typer.Option(
            "--format",
            "-f",
            help="What is read. Without it the file's name tells (.jsonl, .csv, .parquet), else it is lines.",
            show_default=False,
            rich_help_panel=INPUT,
        ),
    ] = None,
    key_field: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Field or column that holds the key (json, csv, parquet).",
            show_default=False,
            rich_help_panel=INPUT,
        ),
    ] = None,
    value_field: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Field or column that is the value (default: the whole row as a JSON object).",
            show_default=False,
            rich_help_panel=INPUT,
        ),
    ] = None,
    timestamp_field: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Field or column that holds the time: milliseconds since 1970, or a date and time.",
            show_default=False,
            rich_help_panel=INPUT,
        ),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="What stands between key and value on a line.",
            show_default=False,
            rich_help_panel=INPUT,
        ),
    ] = None,
    null_marker: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Key or value on a line that means null.", show_default=False, rich_help_panel=INPUT
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Delimiter of a CSV file, one character (default: what its head is cut at).",
            show_default=False,
            rich_help_panel=INPUT,
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="KEY=VALUE",
            help="A header for every record. May be given several times.",
            show_default=False,
            rich_help_panel=SENDING,
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition",
            "-p",
            min=0,
            metavar="N",
            help="Send all to this partition (default: by key, as Kafka's clients do).",
            show_default=False,
            rich_help_panel=SENDING,
        ),
    ] = None,
    compression: Annotated[
        Compression, typer.Option("--compression", help="Codec of the batches.", rich_help_panel=SENDING)
    ] = Compression.NONE,
    acks: Annotated[
        Acks,
        typer.Option(help="Wait for all in-sync replicas, the leader, or nobody.", rich_help_panel=SENDING),
    ] = Acks.ALL,
    batch_bytes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Records of at most this size in a batch.", rich_help_panel=SENDING)
    ] = 262_144,
    timeout: Annotated[
        float,
        typer.Option(min=0.1, metavar="SECONDS", help="Give up on a batch after this time.", rich_help_panel=SENDING),
    ] = 120.0,
    on_error: Annotated[
        str,
        typer.Option(
            "--on-error",
            metavar="stop|skip|FILE",
            help="At a line that cannot be read: stop there, leave it out, or leave it out and write it to a file.",
            rich_help_panel=PROBLEMS,
        ),
    ] = "stop",
    from_line: Annotated[
        int,
        typer.Option(
            "--from-line",
            min=1,
            metavar="N",
            help="Begin with this line of the input, to go on where an earlier run stopped.",
            rich_help_panel=PROBLEMS,
        ),
    ] = 1,
    transactional: Annotated[
        bool,
        typer.Option(
            "--transactional",
            help="All records or none: one transaction, aborted when the command fails.",
            rich_help_panel=PROBLEMS,
        ),
    ] = False,
    create_topic: Annotated[
        bool,
        typer.Option(
            "--create-topic",
            help="Create the topic if it does not exist, with the broker's defaults.",
            rich_help_panel=SENDING,
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Write records to a topic from stdin or a file: lines, JSON, CSV, Parquet."""
    path = None if file is None or str(file) == "-" else file
    kind = format or Format(_import_input().format_of(path))
    _check(kind, path, key_field or value_field or timestamp_field, key_separator or null_marker, delimiter)
    if from_line > 1 and kind is Format.PARQUET:
        raise UsageProblem("--from-line counts lines, which parquet has not")
    if transactional and acks is not Acks.ALL:
        raise UsageProblem("--transactional needs --acks all")
    headers = [(key, value.encode()) for key, value in parse_pairs(header or (), "--header").items()]
    descriptor = 0 if path is None else _open(path)

    from kafkalake.cli.bad_lines import BadLines
    from kafkalake.client.producer import ALL, LEADER, NONE, Producer
    from kafkalake.errors import UnknownTopicOrPartitionError

    started = time.monotonic()
    producer: Producer | None = None
    with connect(bootstrap_server) as cluster, BadLines(on_error) as bad:
        try:
            with Producer(
                cluster,
                topic,
                acks={Acks.ALL: ALL, Acks.LEADER: LEADER, Acks.NONE: NONE}[acks],
                compression=compression.value,
                partition=partition,
                batch_bytes=batch_bytes,
                delivery_timeout_ms=int(timeout * 1000),
                create_topic=create_topic,
                transactional_id=f"kafkalake-produce-{uuid.uuid4()}" if transactional else None,
            ) as producer:
                if path is None and sys.stdin.isatty() and not quiet:
                    note("A record a line; Ctrl-D ends.")
                show = not quiet and sys.stderr.isatty() and not (path is None and sys.stdin.isatty())
                with _progress(show, path, kind, producer) as progress:
                    fields = (key_field, value_field, timestamp_field)
                    reading = _Reading(kind, path, descriptor, fields, key_separator, null_marker, delimiter, from_line)
                    _send_all(producer, reading.batches(bad, progress), headers, descriptor if path is None else None)
        except BaseException as error:
            if producer is not None:
                note(_what_was_written(producer, bad, acks))
            elif isinstance(error, UnknownTopicOrPartitionError) and not create_topic and partition is None:
                raise Failure(str(error), "--create-topic creates it.") from None
            raise
        if bad.count:
            note(f"{_counted(bad.count, 'line')} left out; the first: {bad.first}")
        _summarise(topic, producer.sent, bad.count, time.monotonic() - started, quiet, json)


@dataclass(frozen=True)
class _Reading:
    """The input and its format."""

    kind: Format
    path: Path | None
    descriptor: int
    fields: tuple[str | None, str | None, str | None]
    key_separator: str | None
    null_marker: str | None
    delimiter: str | None
    from_line: int

    def batches(self, bad: BadLines, progress: Callable[[int], None]) -> Iterator[pa.RecordBatch]:
        source = _import_input()
        fields = source.Fields(*self.fields)
        rest = (bad, self.from_line, progress)
        if self.kind is Format.LINES:
            return source.from_lines(self.descriptor, self.key_separator, self.null_marker, *rest)  # type: ignore[no-any-return]
        if self.kind is Format.JSON:
            return source.from_json_lines(self.descriptor, fields, *rest)  # type: ignore[no-any-return]
        if self.kind is Format.RECORDS:
            return source.from_record_lines(self.descriptor, *rest)  # type: ignore[no-any-return]
        if self.kind is Format.CSV:
            return source.from_csv(self.path, fields, self.delimiter, *rest)  # type: ignore[no-any-return]
        return source.from_parquet(self.path, fields, progress)  # type: ignore[no-any-return]


def _what_was_written(producer: Producer, bad: BadLines, acks: Acks) -> str:
    """Return how much of the input is in the topic after a failure, and how to continue."""
    topic, sent, pending = producer.topic, producer.sent, producer.pending_records
    if producer.is_committing:
        return f"Whether the transaction was committed to {topic} is not known."
    if producer.is_transactional:
        return f"The transaction was aborted: none of its records is in {topic}."
    said = f"{_counted(sent.records, 'record')} {'sent' if acks is Acks.NONE else 'written'} to {topic}"
    if pending:
        return f"{said}, and up to {pending:,} more that were not acknowledged."
    if bad.stopped_at is not None:
        return f"{said}. Once line {bad.stopped_at} is mended, --from-line {bad.stopped_at} goes on there."
    return said + "."


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun} was" if count == 1 else f"{count:,} {noun}s were"


def _import_input() -> Any:
    from kafkalake.cli import record_input

    return record_input


def _check(kind: Format, path: Path | None, field: str | None, separator: str | None, delimiter: str | None) -> None:
    if field is not None and kind in (Format.LINES, Format.RECORDS):
        raise UsageProblem(f"{kind.value} have no fields: --key-field and the like need --format json, csv or parquet")
    if separator is not None and kind is not Format.LINES:
        raise UsageProblem(f"--key-separator and --null-marker are for lines, not for {kind.value}")
    if delimiter is not None and kind is not Format.CSV:
        raise UsageProblem(f"--delimiter is for csv, not for {kind.value}")
    if path is None and kind in (Format.CSV, Format.PARQUET):
        raise UsageProblem(f"{kind.value} is read from a file, not from stdin")


def _open(path: Path) -> int:
    if path.is_dir():
        raise Failure(f"{path} is a directory")
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None


def _send_all(
    producer: Producer, batches: Iterator[pa.RecordBatch], headers: list[tuple[str, bytes]], stdin: int | None
) -> None:
    """Send every batch. When stdin has no more data for now, wait for acknowledgements."""
    from kafkalake.cli.lines import is_waiting
    from kafkalake.cli.record_input import header_columns

    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            if headers and "headers" not in batch.schema.names:
                batch = batch.append_column("headers", header_columns(headers, batch.num_rows))
            producer.send(batch)
            if stdin is not None and is_waiting(stdin):
                producer.flush()
    except (Failure, KeyboardInterrupt):
        producer.flush()  # send what was read before the error
        raise


@contextmanager
def _progress(show: bool, path: Path | None, kind: Format, producer: Producer) -> Iterator[Callable[[int], None]]:
    """Show progress on the terminal: bytes of a file, rows of a Parquet file, else a count. Yields a function that advances it."""
    if not show:
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    total: float | None = None
    if kind is Format.PARQUET and path is not None:
        total = _import_input().rows_of_parquet(path)
    elif kind is not Format.CSV and path is not None:
        total = path.stat().st_size
    columns: list[Any] = [
        SpinnerColumn(),
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[said]}"),
    ]
    started = time.monotonic()
    from kafkalake.cli.output import error_console

    with Progress(*columns, TimeRemainingColumn(), console=error_console(), transient=True) as bar:
        task = bar.add_task(producer.topic, total=total, said="")

        def advance(done: int) -> None:
            sent = producer.sent.records
            rate = sent / max(time.monotonic() - started, 0.001)
            bar.update(task, completed=done, said=f"{sent:,} records  {rate:,.0f}/s")

        yield advance


def _summarise(topic: str, sent: Sent, left_out: int, seconds: float, quiet: bool, json: bool) -> None:
    if json:
        write_json(
            {
                "topic": topic,
                "records": sent.records,
                "leftOut": left_out,
                "batches": sent.batches,
                "bytes": sent.bytes,
                "seconds": round(seconds, 3),
                "nextOffsets": {str(partition): offset for partition, offset in sorted(sent.next_offsets.items())},
            }
        )
    elif not quiet:
        noun = "record" if sent.records == 1 else "records"
        rate = f", {sent.records / seconds:,.0f} records/s" if sent.records >= 1_000 else ""
        note(f"{sent.records:,} {noun} ({size(sent.bytes)}) to {topic} in {seconds:.1f} s{rate}")
