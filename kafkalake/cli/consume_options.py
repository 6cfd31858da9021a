"""The options of `kafkalake consume`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from kafkalake.cli.completion import complete_group
from kafkalake.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, Json, TopicName

FROM, PRINT, UNTIL = "From where", "What is printed", "Until when"


class OutputFormat(StrEnum):
    """Output formats of records."""

    TEXT = "text"
    VALUE = "value"
    JSON = "json"
    CSV = "csv"


class Commit(StrEnum):
    """Commit policies for a group's offsets."""

    AUTO = "auto"
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class ConsumeOptions:
    """The command line, its options grouped as its help shows them."""

    topic: TopicName
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning", help="Start with the oldest record (default: what comes next).", rich_help_panel=FROM
        ),
    ] = False
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
    ] = None
    offset: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Start at this offset, at earliest or latest, or with -N that many before the end.",
            show_default=False,
            rich_help_panel=FROM,
        ),
    ] = None
    from_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Start with the first record from 2026-11-21T08:00:00Z on, 15m ago, or milliseconds since 1970.",
            show_default=False,
            rich_help_panel=FROM,
        ),
    ] = None
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
    ] = None
    commit: Annotated[
        Commit,
        typer.Option(
            "--commit",
            help="Commit what was printed to the group: every 5 s and at the end, or not at all.",
            rich_help_panel=FROM,
        ),
    ] = Commit.AUTO
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
    ] = None
    exit_at_end: Annotated[
        bool,
        typer.Option("--exit-at-end", "-e", help="End where the topic ended when this began.", rich_help_panel=UNTIL),
    ] = False
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help="End when nothing has come for this long.",
            show_default=False,
            rich_help_panel=UNTIL,
        ),
    ] = None
    format: Annotated[
        OutputFormat,
        typer.Option("--format", "-f", help="Lines of text, values only, JSON lines, or CSV.", rich_help_panel=PRINT),
    ] = OutputFormat.TEXT
    print_key: Annotated[bool, typer.Option("--print-key", help="The key before the value.", rich_help_panel=PRINT)] = (
        False
    )
    print_timestamp: Annotated[
        bool, typer.Option("--print-timestamp", help="Milliseconds since 1970.", rich_help_panel=PRINT)
    ] = False
    print_partition: Annotated[bool, typer.Option("--print-partition", rich_help_panel=PRINT)] = False
    print_offset: Annotated[bool, typer.Option("--print-offset", rich_help_panel=PRINT)] = False
    print_headers: Annotated[bool, typer.Option("--print-headers", rich_help_panel=PRINT)] = False
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="KEY=VALUE",
            help="A property of kafka-console-consumer, such as key.separator=: or print.value=false.",
            show_default=False,
            rich_help_panel=PRINT,
        ),
    ] = None
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="On a terminal too, print control characters as they are (default: as \\x1b).",
            rich_help_panel=PRINT,
        ),
    ] = False
    read_uncommitted: Annotated[
        bool,
        typer.Option(
            "--read-uncommitted", help="Show records of open and aborted transactions too.", rich_help_panel=FROM
        ),
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No summary.")] = False
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER
    json: Json = False
