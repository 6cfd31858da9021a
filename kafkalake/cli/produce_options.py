"""The options of `kafkalake produce`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kafkalake.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, Json, TopicName
from kafkalake.codecs import Codec
from kafkalake.config.setting import INT_MAX


class InputFormat(StrEnum):
    """Input formats."""

    LINES = "lines"
    JSON = "json"
    RECORDS = "records"
    CSV = "csv"
    PARQUET = "parquet"


class Acks(StrEnum):
    """Acknowledgements that a batch can require."""

    ALL = "all"
    LEADER = "1"
    NONE = "0"


LONGEST_TIMEOUT_S = INT_MAX // 1000
"""The setting is a number of milliseconds."""
INPUT, SENDING, PROBLEMS = "Input", "Sending", "When something is wrong"


@dataclass(frozen=True, kw_only=True)
class ProduceOptions:
    """The command line, its options grouped as its help shows them."""

    topic: TopicName
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="What to read; without it, or with -, stdin.", show_default=False),
    ] = None
    format: Annotated[
        InputFormat | None,
        typer.Option(
            "--format",
            "-f",
            help="What is read. Without it the file's name tells (.jsonl, .csv, .parquet), else it is lines. "
            "A field of json, csv or parquet that is none of the topic's value.schema is an error; lines are not looked into.",
            show_default=False,
            rich_help_panel=INPUT,
        ),
    ] = None
    key_field: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Field or column that holds the key (json, csv, parquet; default: the one that the topic's setting key names).",
            show_default=False,
            rich_help_panel=INPUT,
        ),
    ] = None
    value_field: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Field or column that is the value (default: the whole row as a JSON object).",
            show_default=False,
            rich_help_panel=INPUT,
        ),
    ] = None
    timestamp_field: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Field or column that holds the time: milliseconds since 1970, or a date and time.",
            show_default=False,
            rich_help_panel=INPUT,
        ),
    ] = None
    key_separator: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="What stands between key and value on a line.",
            show_default=False,
            rich_help_panel=INPUT,
        ),
    ] = None
    null_marker: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Key or value on a line that means null.", show_default=False, rich_help_panel=INPUT
        ),
    ] = None
    delimiter: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Delimiter of a CSV file, one character (default: what its head is cut at).",
            show_default=False,
            rich_help_panel=INPUT,
        ),
    ] = None
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="KEY=VALUE",
            help="A header for every record. May be given several times, with the same key too.",
            show_default=False,
            rich_help_panel=SENDING,
        ),
    ] = None
    deliver_at: Annotated[
        str | None,
        typer.Option(
            "--deliver-at",
            metavar="TIME",
            help="Deliver at this time: 2026-11-21T08:00:00Z or milliseconds since 1970 (needs delayed.delivery.enable=true).",
            show_default=False,
            rich_help_panel=SENDING,
        ),
    ] = None
    delay: Annotated[
        str | None,
        typer.Option(
            "--delay",
            metavar="DURATION",
            help="Deliver this long after the broker has it: 15m, PT1H30M, P2D (needs delayed.delivery.enable=true).",
            show_default=False,
            rich_help_panel=SENDING,
        ),
    ] = None
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
    ] = None
    compression: Annotated[
        Codec, typer.Option("--compression", help="Codec of the batches.", rich_help_panel=SENDING)
    ] = Codec.NONE
    acks: Annotated[
        Acks,
        typer.Option(help="Wait for all in-sync replicas, the leader, or nobody.", rich_help_panel=SENDING),
    ] = Acks.ALL
    batch_bytes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Records of at most this size in a batch.", rich_help_panel=SENDING)
    ] = 262_144
    timeout: Annotated[
        float,
        typer.Option(
            min=0.1,
            max=LONGEST_TIMEOUT_S,
            metavar="SECONDS",
            help="Give up on a batch after this time.",
            rich_help_panel=SENDING,
        ),
    ] = 120.0
    on_error: Annotated[
        str,
        typer.Option(
            "--on-error",
            metavar="stop|skip|FILE",
            help="At a line that cannot be read: stop there, leave it out, or leave it out and add it to a file.",
            rich_help_panel=PROBLEMS,
        ),
    ] = "stop"
    from_line: Annotated[
        int,
        typer.Option(
            "--from-line",
            min=1,
            metavar="N",
            help="Begin with this line of the input, to go on where an earlier run stopped.",
            rich_help_panel=PROBLEMS,
        ),
    ] = 1
    transactional: Annotated[
        bool,
        typer.Option(
            "--transactional",
            help="All records or none: one transaction, aborted when the command fails.",
            rich_help_panel=PROBLEMS,
        ),
    ] = False
    create_topic: Annotated[
        bool,
        typer.Option(
            "--create-topic",
            help="Create the topic if it does not exist, with the broker's defaults.",
            rich_help_panel=SENDING,
        ),
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")] = False
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER
    json: Json = False
