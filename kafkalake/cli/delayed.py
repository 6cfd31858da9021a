"""`kafkalake delayed`: list, describe and cancel what waits to be delivered later; metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkalake.cli.completion import complete_topic
from kafkalake.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, Json, TopicName, connect, lake_option
from kafkalake.cli.output import Failure, note, show_columns, size, write_json, write_line

if TYPE_CHECKING:
    from kafkalake.cli.delayed_source import DelayedSource

app = typer.Typer(
    no_args_is_help=True, help="Records that wait to be delivered later: which, until when, and an end to it."
)

SOME_LAKE = Annotated[
    Path | None,
    lake_option("Read the files of this lake, without a broker."),
]
SOME_TOPIC = Annotated[
    str | None,
    typer.Argument(
        metavar="TOPIC",
        help="Only what was sent to this topic, or will be delivered to it.",
        show_default=False,
        autocompletion=complete_topic,
    ),
]
DELAY_ID = typer.Argument(metavar="ID", help="The header kafkalake-delay-id of the record.", show_default=False)

LIST_COLUMNS = ("Topic", "Partition", "Due", "Key", "Size", "DelayId", "Sent", "Source", "Journal")
SUMMARY_COLUMNS = ("Topic", "Partition", "Waiting", "Overdue", "Bytes", "NextDue", "LastDue")
METRICS_COLUMNS = (
    "Broker", "Partitions", "Loading", "Waiting", "Overdue", "NextDue", "HandedOver", "DeadLetters", "Recent", "LatenessMsP50",
    "LatenessMsP99", "LatenessMsMax",
)  # fmt: skip
SUMMARY_KEYS = ("topic", "partition", "waiting", "overdue", "bytes", "nextDueMs", "lastDueMs")


@app.command(
    "list", epilog="Example:  [cyan]kafkalake delayed list orders --due-before 2026-12-01 --json | jq '.[].key'[/cyan]"
)
def list_delayed(
    topic: SOME_TOPIC = None,
    due_before: Annotated[
        str | None,
        typer.Option("--due-before", metavar="TIME", help="Only what is due before this time.", show_default=False),
    ] = None,
    max_rows: Annotated[
        int, typer.Option("--max-rows", min=1, metavar="N", help="At most so many, the next ones.")
    ] = 1_000,
    lake: SOME_LAKE = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """List what waits, in order of the time when it is due."""
    from kafkalake.cli.delayed_rows import as_json, soonest
    from kafkalake.cli.times import parse_moment
    from kafkalake.reader.predicate import INT64_MAX

    end_us = INT64_MAX if due_before is None else parse_moment(due_before, "--due-before") * 1000
    with _source(lake, bootstrap_server) as source:
        rows, total = soonest(source.waiting(topic=topic, due_end_us=end_us), max_rows)
    if json:
        write_json([as_json(row) for row in rows])
    else:
        show_columns(LIST_COLUMNS, [_listed(row) for row in rows], right=("Partition", "Size"))
    if total > len(rows):
        note(f"The next {len(rows):,} of {total:,} that wait; --max-rows shows more.")


@app.command(
    epilog="Examples:\n\n  [cyan]kafkalake delayed describe[/cyan]\n  [cyan]kafkalake delayed describe orders reminder-17[/cyan]"
)
def describe(
    topic: SOME_TOPIC = None,
    delay_id: Annotated[str | None, DELAY_ID] = None,
    lake: SOME_LAKE = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Show how much waits for each partition, or the records with one delay id."""
    from kafkalake.cli.delayed_rows import as_json, summary

    with _source(lake, bootstrap_server) as source:
        if topic is not None and delay_id is not None:
            found = _with_id(source, topic, delay_id)
            if json:
                write_json([as_json(row) for row in found])
            else:
                for row in found:
                    _show_record(row)
            return
        rows = summary(source, topic, time.time_ns() // 1_000)
    if json:
        write_json([dict(zip(SUMMARY_KEYS, row, strict=True)) for row in rows])
    else:
        shown = [(*row[:4], size(row[4]), _time(row[5]), _time(row[6])) for row in rows]
        show_columns(SUMMARY_COLUMNS, shown, right=SUMMARY_COLUMNS[1:5])


@app.command(epilog="Example:  [cyan]kafkalake delayed cancel orders reminder-17[/cyan]")
def cancel(
    topic: TopicName,
    delay_id: Annotated[str, DELAY_ID],
    lake: SOME_LAKE = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Cancel what waits with a delay id: it will not be delivered.

    A cancel is a record with this id and a null value, as any client can send it to the same partition.

    With --lake what waits is found in the lake's files; the cancel itself needs a broker.
    """
    from kafkalake.cli.delayed_rows import as_json, send_cancel

    with connect(bootstrap_server) as admin:
        with _source(lake, bootstrap_server) as source:
            found = _with_id(source, topic, delay_id)
        for name, partition, sent_id in dict.fromkeys(
            (row["source"], row["source_partition"], row["id"]) for row in found
        ):
            send_cancel(admin, bootstrap_server, name, partition, sent_id)
    late = [row for row in found if row["due"] <= datetime.now(UTC)]
    if json:
        write_json([as_json(row) for row in found])
    else:
        for row in found:
            write_line(f"Cancelled {delay_id}, due {_time(_ms(row['due']))} in {row['topic']}-{row['partition']}.")
    if late:
        note(f"{len(late):,} of them came due meanwhile, and may have been delivered.")


@app.command(epilog="Example:  [cyan]kafkalake delayed metrics --json | jq '.[].latenessMsP99'[/cyan]")
def metrics(bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER, json: Json = False) -> None:
    """Show how much waits at each broker, and how late it was with the records of the last minute.

    Of the partitions of __delayed that a broker coordinates. It hands records over, to their topics at any broker.
    """
    from dataclasses import astuple

    with connect(bootstrap_server) as admin:
        rows = [astuple(each) for each in admin.delayed_metrics()]
    if json:
        keys = [name[0].lower() + name[1:] for name in METRICS_COLUMNS]
        keys[keys.index("nextDue")] = "nextDueMs"
        write_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        shown = [(*row[:5], "-" if row[5] is None else _time(row[5]), *row[6:]) for row in rows]
        show_columns(METRICS_COLUMNS, shown, right=METRICS_COLUMNS)


@contextmanager
def _source(lake: Path | None, bootstrap_server: str) -> Iterator[DelayedSource]:
    """Yield the lake's files if there is a lake, else what a broker serves."""
    from kafkalake.cli import delayed_source

    if lake is not None:
        yield delayed_source.of_lake(lake)
        return
    with connect(bootstrap_server) as admin:
        yield delayed_source.of_broker(admin, bootstrap_server)


def _with_id(source: DelayedSource, topic: str, delay_id: str) -> list[dict[str, Any]]:
    """Return what waits with an id. Raise `Failure` if nothing does."""
    from kafkalake.cli.delayed_rows import with_id
    from kafkalake.close_names import did_you_mean

    found, others = with_id(source, topic, delay_id)
    if not found:
        raise Failure(f"nothing with delay id '{delay_id}' waits in topic '{topic}'", did_you_mean(delay_id, others))
    return found


def _listed(row: dict[str, Any]) -> tuple[object, ...]:
    journal = f"{row['journal_partition']}@{row['journal_offset']}"
    source = "-" if row["source"] == row["topic"] else row["source"]
    return (
        row["topic"],
        row["partition"],
        _time(_ms(row["due"])),
        _text(row["key"]),
        "-" if row["size"] is None else row["size"],
        "-" if row["delay_id"] is None else row["delay_id"],
        _time(_ms(row["sent"])),
        source,
        journal,
    )


def _show_record(row: dict[str, Any]) -> None:
    wait_s = row["due"].timestamp() - time.time()
    lines = {
        "Delay id": row["delay_id"],
        "Delivered to": f"{row['topic']}-{row['partition']}",
        "Sent to": f"{row['source']}-{row['source_partition']}",
        "Due": f"{_time(_ms(row['due']))} ({f'in {wait_s:,.1f} s' if wait_s > 0 else f'{-wait_s:,.1f} s ago'})",
        "Timestamp": _time(_ms(row["sent"])),
        "Key": _text(row["key"]),
        "Value": "null" if row["size"] is None else size(row["size"]),
        "Stored in": f"__delayed-{row['journal_partition']}, offset {row['journal_offset']}",
    }
    for name, value in lines.items():
        write_line(f"{name + ':':<14}{value}")


def _text(value: bytes | None) -> str:
    return "null" if value is None else value.decode("utf-8", "backslashreplace")


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _time(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
