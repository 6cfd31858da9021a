"""`kafkalake produce`: writes records from lines, JSON, CSV or Parquet to a topic."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalake.cli.options import connect, parse_pairs_that_repeat, require_delayed_delivery, with_options
from kafkalake.cli.output import Failure, UsageProblem, note, size, write_json
from kafkalake.cli.produce_options import Acks, InputFormat, ProduceOptions
from kafkalake.counted import counted, counted_as_subject

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkalake.cli.bad_lines import BadLines
    from kafkalake.cli.input_fields import Fields
    from kafkalake.cli.sending import Sending, Sent
    from kafkalake.client.administration.blocking import Admin

TOPIC_WAIT_S = 5.0
"""How long to wait for the broker to create a missing topic."""

METADATA_WAIT_S = 0.3
"""How long to wait until a newly created topic is in the metadata of the broker."""

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


@with_options(ProduceOptions)
def produce(options: ProduceOptions) -> None:
    """Write records to a topic from stdin or a file: lines, JSON, CSV, Parquet."""
    path = None if options.file is None or str(options.file) == "-" else options.file
    kind = options.format or InputFormat(_import_input().format_of(path))
    _check(options, kind, path)
    headers = _headers(options)
    descriptor = 0 if path is None else _open(path)

    from kafkalake.cli.bad_lines import BadLines
    from kafkalake.cli.sending import Sending

    started = time.monotonic()
    with connect(options.bootstrap_server) as admin, BadLines(options.on_error, descriptor) as bad:
        _check_topic(admin, options)
        sending = Sending(options, f"kafkalake-produce-{uuid.uuid4()}" if options.transactional else None)
        try:
            with sending:
                if path is None and sys.stdin.isatty() and not options.quiet:
                    note("A record a line; Ctrl-D ends.")
                show = not options.quiet and sys.stderr.isatty() and not (path is None and sys.stdin.isatty())
                with _progress(show, path, kind, sending) as progress:
                    if options.deliver_at is not None or options.delay is not None:
                        require_delayed_delivery(admin, options.topic)
                    fields = _fields(admin, options, kind)
                    batches = _batches(options, kind, path, descriptor, fields, bad, progress)
                    _send_all(sending, batches, headers, descriptor if path is None else None)
        except BaseException:
            note(_what_was_written(sending, bad, options.acks))
            raise
        if bad.count:
            note(f"{counted_as_subject(bad.count, 'line')} left out; the first: {bad.first}")
        seconds = time.monotonic() - started
        _summarise(options.topic, sending.sent, bad.count, seconds, options.quiet, options.json)


def _headers(options: ProduceOptions) -> list[tuple[str, bytes]]:
    """Return what the command line adds to the headers of every record. Raise `UsageProblem` for what is no header or time."""
    from kafkalake.cli.times import duration_ms, parse_moment
    from kafkalake.delayed_headers import DELAY_MS, DELIVER_AT

    headers = parse_pairs_that_repeat(options.header or (), "--header")
    if options.deliver_at is not None:
        headers.append((DELIVER_AT, str(parse_moment(options.deliver_at, "--deliver-at"))))
    if options.delay is not None:
        headers.append((DELAY_MS, str(duration_ms(options.delay, "--delay"))))
    try:
        "".join(key for key, _ in headers).encode()
        return [(key, value.encode()) for key, value in headers]
    except UnicodeEncodeError:
        raise UsageProblem("--header takes KEY=VALUE in UTF-8") from None


def _check_topic(admin: Admin, options: ProduceOptions) -> None:
    """Create the topic if that is asked for. Raise `Failure` without it, `UnknownTopicOrPartitionError` without the partition."""
    from kafkalake.errors import UnknownTopicOrPartitionError

    wait_s = TOPIC_WAIT_S if options.create_topic else METADATA_WAIT_S
    try:
        found = admin.describe_topic(options.topic, create=options.create_topic, wait_s=wait_s)
    except UnknownTopicOrPartitionError as error:
        if options.create_topic:
            raise
        raise Failure(str(error), "--create-topic creates it.") from None
    if options.partition is not None and options.partition >= len(found.partitions):
        raise UnknownTopicOrPartitionError(
            f"topic '{options.topic}' has no partition {options.partition}; it has {len(found.partitions)}, numbered from 0"
        )


def _fields(admin: Admin, options: ProduceOptions, kind: InputFormat) -> Fields:
    """Return the fields that are named, and those of the topic's own schema, if its broker tells of one."""
    from kafkalake.cli.input_fields import Fields
    from kafkalake.cli.options import settings_of_topic
    from kafkalake.config.topic_values import topic_values
    from kafkalake.config.value_schema import ValueType

    named = Fields(options.key_field, options.value_field, options.timestamp_field)
    if kind in (InputFormat.LINES, InputFormat.RECORDS) or options.value_field is not None:
        return named
    values = topic_values(settings_of_topic(admin, options.topic))
    if not values.fields:
        return named
    row, encoder = ValueType("STRUCT", fields=values.fields), None
    if values.avro is not None:
        from kafkalake.reader.avro_of_json import AvroOfJson

        encoder = AvroOfJson(values.avro, row)
    return replace(named, typed_key=values.key, row=row, encoder=encoder)


def _batches(
    options: ProduceOptions,
    kind: InputFormat,
    path: Path | None,
    descriptor: int,
    fields: Fields,
    bad: BadLines,
    progress: Callable[[int], None],
) -> Iterator[pa.RecordBatch]:
    """Return the records of the input."""
    source = _import_input()
    rest = (bad, options.from_line, progress)
    found: Iterator[pa.RecordBatch]
    if kind is InputFormat.LINES:
        found = source.from_lines(descriptor, options.key_separator, options.null_marker, *rest)
    elif kind is InputFormat.JSON:
        found = source.from_json_lines(descriptor, fields, *rest)
    elif kind is InputFormat.RECORDS:
        found = source.from_record_lines(descriptor, *rest)
    elif kind is InputFormat.CSV:
        found = source.from_csv(path, fields, options.delimiter, *rest)
    else:
        found = source.from_parquet(path, fields, progress)
    return found


def _what_was_written(sending: Sending, bad: BadLines, acks: Acks) -> str:
    """Return how much of the input is in the topic after a failure, and how to continue."""
    topic, sent, pending = sending.topic, sending.sent, sending.pending_records
    if sending.is_committing:
        return f"Whether the transaction was committed to {topic} is not known."
    if sending.is_transactional:
        return f"The transaction was aborted: none of its records is in {topic}."
    said = f"{counted_as_subject(sent.records, 'record')} {'sent' if acks is Acks.NONE else 'written'} to {topic}"
    if pending:
        return f"{said}, and up to {pending:,} more that were not acknowledged."
    if bad.stopped_at is not None:
        return f"{said}. Once line {bad.stopped_at} is mended, --from-line {bad.stopped_at} goes on there."
    return said + "."


def _import_input() -> Any:
    from kafkalake.cli import record_input

    return record_input


def _check(options: ProduceOptions, kind: InputFormat, path: Path | None) -> None:
    """Raise `UsageProblem` for options that do not go together."""
    fields = options.key_field or options.value_field or options.timestamp_field
    if fields is not None and kind in (InputFormat.LINES, InputFormat.RECORDS):
        raise UsageProblem(f"{kind.value} have no fields: --key-field and the like need --format json, csv or parquet")
    if (options.key_separator or options.null_marker) is not None and kind is not InputFormat.LINES:
        raise UsageProblem(f"--key-separator and --null-marker are for lines, not for {kind.value}")
    if options.delimiter is not None and kind is not InputFormat.CSV:
        raise UsageProblem(f"--delimiter is for csv, not for {kind.value}")
    if path is None and kind in (InputFormat.CSV, InputFormat.PARQUET):
        raise UsageProblem(f"{kind.value} is read from a file, not from stdin")
    if options.from_line > 1 and kind is InputFormat.PARQUET:
        raise UsageProblem("--from-line counts lines, which parquet has not")
    if options.deliver_at is not None and options.delay is not None:
        raise UsageProblem("--deliver-at and --delay exclude one another")
    if options.transactional and options.acks is not Acks.ALL:
        raise UsageProblem("--transactional needs --acks all")


def _open(path: Path) -> int:
    if path.is_dir():
        raise Failure(f"{path} is a directory")
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None


def _send_all(
    sending: Sending, batches: Iterator[pa.RecordBatch], headers: list[tuple[str, bytes]], stdin: int | None
) -> None:
    """Send every batch. When stdin has no more data for now, wait for acknowledgements."""
    from kafkalake.cli.lines import is_waiting
    from kafkalake.cli.record_input import with_headers

    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            sending.send(with_headers(batch, headers) if headers else batch)
            if stdin is not None and is_waiting(stdin):
                sending.flush()
    except (Failure, KeyboardInterrupt):
        sending.flush()  # send what was read before the error
        raise


@contextmanager
def _progress(show: bool, path: Path | None, kind: InputFormat, sending: Sending) -> Iterator[Callable[[int], None]]:
    """Show progress on the terminal: bytes of a file, rows of a Parquet file, else a count. Yields a function that advances it."""
    if not show:
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    total: float | None = None
    if kind is InputFormat.PARQUET and path is not None:
        total = _import_input().rows_of_parquet(path)
    elif kind is not InputFormat.CSV and path is not None:
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
        task = bar.add_task(sending.topic, total=total, said="")

        def advance(done: int) -> None:
            sent = sending.sent.records
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
        rate = f", {sent.records / seconds:,.0f} records/s" if sent.records >= 1_000 else ""
        note(f"{counted(sent.records, 'record')} ({size(sent.bytes)}) to {topic} in {seconds:.1f} s{rate}")
