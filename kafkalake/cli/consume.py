"""`kafkalake consume`: prints a topic's records to stdout."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from kafkalake.cli.completion import complete_group
from kafkalake.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, Json, TopicName, connect
from kafkalake.cli.output import OutputClosed, UsageProblem, note, write

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkalake.cli.record_output import Formatter
    from kafkalake.client.cluster import Cluster
    from kafkalake.client.fetcher import Fetcher, OutOfRange

EXAMPLES = """Examples

  [dim]# what arrives from now on; Ctrl-C ends[/dim]
  [cyan]kafkalake consume clicks[/cyan]

  [dim]# the first three records, with their keys[/dim]
  [cyan]kafkalake consume clicks --from-beginning --max-records 3 --print-key[/cyan]

  [dim]# the last quarter of an hour, as JSON[/dim]
  [cyan]kafkalake consume clicks --from-time 15m --exit-at-end --json | jq .value[/cyan]

  [dim]# as a member of a group, which goes on where it was[/dim]
  [cyan]kafkalake consume clicks --group etl[/cyan]

  [dim]# one partition, from an offset on; -10 is ten before the end[/dim]
  [cyan]kafkalake consume clicks --partition 2 --offset 1500[/cyan]"""

POLL_MS = 500
FROM, PRINT, UNTIL = "From where", "What is printed", "Until when"


class Format(StrEnum):
    """Output formats of records."""

    TEXT = "text"
    VALUE = "value"
    JSON = "json"
    CSV = "csv"


class Commit(StrEnum):
    """Commit policies for a group's offsets."""

    AUTO = "auto"
    NONE = "none"


def consume(
    topic: TopicName,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning", help="Start with the oldest record (default: what comes next).", rich_help_panel=FROM
        ),
    ] = False,
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition",
            "-p",
            min=0,
            metavar="N",
            help="Only this partition. May be given several times.",
            show_default=False,
            rich_help_panel=FROM,
        ),
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Start at this offset, at earliest or latest, or with -N that many before the end.",
            show_default=False,
            rich_help_panel=FROM,
        ),
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Start with the first record from 2026-11-21T08:00:00Z on, 15m ago, or milliseconds since 1970.",
            show_default=False,
            rich_help_panel=FROM,
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Read as a member of this group, from its committed offsets on; its members share the partitions.",
            show_default=False,
            autocompletion=complete_group,
            rich_help_panel=FROM,
        ),
    ] = None,
    commit: Annotated[
        Commit,
        typer.Option(
            "--commit",
            help="Commit what was printed to the group: every 5 s and at the end, or not at all.",
            rich_help_panel=FROM,
        ),
    ] = Commit.AUTO,
    max_records: Annotated[
        int | None,
        typer.Option(
            "--max-records",
            "--max-messages",
            "-n",
            min=1,
            metavar="N",
            help="End after this many.",
            show_default=False,
            rich_help_panel=UNTIL,
        ),
    ] = None,
    exit_at_end: Annotated[
        bool,
        typer.Option("--exit-at-end", "-e", help="End where the topic ended when this began.", rich_help_panel=UNTIL),
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help="End when nothing has come for this long.",
            show_default=False,
            rich_help_panel=UNTIL,
        ),
    ] = None,
    format: Annotated[
        Format,
        typer.Option("--format", "-f", help="Lines of text, values only, JSON lines, or CSV.", rich_help_panel=PRINT),
    ] = Format.TEXT,
    print_key: Annotated[
        bool, typer.Option("--print-key", help="The key before the value.", rich_help_panel=PRINT)
    ] = False,
    print_timestamp: Annotated[
        bool, typer.Option("--print-timestamp", help="Milliseconds since 1970.", rich_help_panel=PRINT)
    ] = False,
    print_partition: Annotated[bool, typer.Option("--print-partition", rich_help_panel=PRINT)] = False,
    print_offset: Annotated[bool, typer.Option("--print-offset", rich_help_panel=PRINT)] = False,
    print_headers: Annotated[bool, typer.Option("--print-headers", rich_help_panel=PRINT)] = False,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="KEY=VALUE",
            help="A property of kafka-console-consumer, such as key.separator=: or print.value=false.",
            show_default=False,
            rich_help_panel=PRINT,
        ),
    ] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="On a terminal too, print control characters as they are (default: as \\\\x1b).",
            rich_help_panel=PRINT,
        ),
    ] = False,
    read_uncommitted: Annotated[
        bool,
        typer.Option(
            "--read-uncommitted", help="Show records of open and aborted transactions too.", rich_help_panel=FROM
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No summary.")] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Print records of a topic: new ones, or from an offset, a time, the beginning."""
    from kafkalake.cli import record_output

    if sum([from_beginning, offset is not None, from_time is not None]) > 1:
        raise UsageProblem("--from-beginning, --offset and --from-time exclude one another")
    if group is not None and (partition or offset is not None or from_time is not None):
        raise UsageProblem(
            "--group reads what the group assigns, from where it is: no --partition, --offset, --from-time"
        )
    if group is None and commit is not Commit.AUTO:
        raise UsageProblem("--commit is for --group")
    shown = record_output.TextProperties(
        print_key=print_key,
        print_timestamp=print_timestamp,
        print_partition=print_partition,
        print_offset=print_offset,
        print_headers=print_headers,
    )
    for entry in properties or ():
        shown = shown.with_property(entry)
    formatters: dict[Format, Formatter] = {
        Format.TEXT: record_output.text_formatter(shown),
        Format.VALUE: record_output.text_formatter(record_output.TextProperties()),
        Format.JSON: record_output.json_formatter(topic),
        Format.CSV: record_output.csv_formatter(topic),
    }
    formatter = formatters[Format.JSON if json else format]

    from kafkalake.cli.consume_group import GroupPositions

    with connect(bootstrap_server) as cluster:
        source: Source
        if group is not None:
            source = GroupPositions(
                cluster, topic, group, from_beginning, commit is Commit.AUTO, not read_uncommitted, exit_at_end
            )
        else:
            partitions = _partitions(cluster, topic, partition)
            place = "earliest" if from_beginning else offset if offset is not None else "latest"
            positions = start_positions(cluster, topic, partitions, place, from_time, not read_uncommitted)
            fixed = offset is not None and offset.lstrip("-").isdecimal()
            fetcher = new_fetcher(cluster, topic, positions, not read_uncommitted, "error" if fixed else "earliest")
            ends = end_offsets(cluster, topic, partitions, not read_uncommitted) if exit_at_end else None
            source = FixedPositions(fetcher, ends)
        try:
            _print_all(source, formatter, max_records, timeout, quiet, raw)
        finally:
            source.close()


def new_fetcher(
    cluster: Cluster, topic: str, positions: dict[int, int], read_committed: bool, out_of_range: OutOfRange
) -> Fetcher:
    """Return a fetcher of these partitions, each from its offset."""
    from kafkalake.client.fetcher import Fetcher

    return Fetcher(cluster, topic, positions, read_committed=read_committed, out_of_range=out_of_range)


class Source(Protocol):
    """A source of records to print."""

    @property
    def fetcher(self) -> Fetcher: ...
    @property
    def ends(self) -> dict[int, int] | None:
        """The end offset of each partition, or None to continue forever."""
        ...

    def printed(self, partition: int, next_offset: int) -> None:
        """Note that the records before `next_offset` have been printed."""
        ...

    def turn(self) -> None:
        """Do the work due between two polls."""
        ...

    def close(self) -> None: ...


class FixedPositions:
    """Partitions and positions given on the command line."""

    def __init__(self, fetcher: Fetcher, ends: dict[int, int] | None) -> None:
        self.fetcher = fetcher
        self.ends = ends

    def printed(self, partition: int, next_offset: int) -> None:
        pass

    def turn(self) -> None:
        pass

    def close(self) -> None:
        pass


def _partitions(cluster: Cluster, topic: str, wanted: Sequence[int] | None) -> list[int]:
    from kafkalake.errors import UnknownTopicOrPartitionError

    known = [info.partition for info in cluster.topic(topic, wait_ms=300).partitions]
    for number in wanted or ():
        if number not in known:
            raise UnknownTopicOrPartitionError(
                f"topic '{topic}' has no partition {number}; it has {len(known)}, numbered from 0"
            )
    return sorted(set(wanted)) if wanted else known


def start_positions(
    cluster: Cluster, topic: str, partitions: Sequence[int], place: str, from_time: str | None, read_committed: bool
) -> dict[int, int]:
    """Return the start offset of each partition. Raise `UsageProblem` for an invalid offset."""
    from kafkalake.cli.times import parse_time
    from kafkalake.client import admin

    def listed(timestamp: int) -> dict[int, int]:
        found = admin.list_offsets(cluster, topic, dict.fromkeys(partitions, timestamp), read_committed=read_committed)
        return {number: entry.offset for number, entry in found.items()}

    if from_time is not None:
        found = listed(parse_time(from_time, "--from-time"))
        if -1 in found.values():  # no record is that new: start at the end
            ends = listed(admin.LATEST)
            found = {number: ends[number] if offset < 0 else offset for number, offset in found.items()}
        return found
    if place in ("earliest", "latest"):
        return listed(admin.EARLIEST if place == "earliest" else admin.LATEST)
    if not place.lstrip("-").isdecimal():
        raise UsageProblem(f"--offset takes a number, earliest or latest, not '{place}'")
    if place.startswith("-"):
        firsts, ends = listed(admin.EARLIEST), listed(admin.LATEST)
        return {number: max(firsts[number], ends[number] + int(place)) for number in partitions}
    return dict.fromkeys(partitions, int(place))


def end_offsets(cluster: Cluster, topic: str, partitions: Sequence[int], read_committed: bool) -> dict[int, int]:
    """Return the current end offset of each partition."""
    from kafkalake.client import admin

    found = admin.list_offsets(cluster, topic, dict.fromkeys(partitions, admin.LATEST), read_committed=read_committed)
    return {number: entry.offset for number, entry in found.items()}


def _print_all(
    source: Source,
    formatter: Formatter,
    max_records: int | None,
    timeout_s: float | None,
    quiet: bool,
    raw: bool,
) -> None:
    """Poll and print until a limit is reached, on Ctrl-C, or when stdout is closed."""
    printed = 0
    newest = time.monotonic()
    try:
        while max_records is None or printed < max_records:
            source.turn()
            fetcher, ends = source.fetcher, source.ends
            wanted = list(fetcher.positions)
            if ends is not None:
                wanted = [number for number in wanted if fetcher.positions[number] < ends[number]]
                if not wanted:
                    break
            left_ms = POLL_MS
            if timeout_s is not None:
                left_ms = round((newest + timeout_s - time.monotonic()) * 1000)
                if left_ms <= 0:
                    break
            if not wanted:  # a member without a partition
                time.sleep(left_ms / 1000)
                continue
            fetched = fetcher.poll(wanted, max_wait_ms=max(0, min(POLL_MS, left_ms)))
            for part in fetched:
                records = part.records
                if ends is not None:
                    records = _before(records, ends[part.partition])
                if max_records is not None:
                    records = records.slice(0, max_records - printed)
                if records.num_rows:
                    printed += records.num_rows
                    newest = time.monotonic()
                    write(formatter(replace(part, records=records)), raw=raw)
                    source.printed(part.partition, int(records.column("offset")[-1].as_py()) + 1)
    except OutputClosed:
        return
    finally:
        if not quiet:
            note(f"Processed a total of {printed} messages")


def _before(records: pa.RecordBatch, end: int) -> pa.RecordBatch:
    import numpy as np

    return records.slice(0, int(np.searchsorted(records.column("offset").to_numpy(), end)))
