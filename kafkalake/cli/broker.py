"""`kafkalake broker`: starts a broker in the foreground."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from kafkalake.cli.completion import complete_broker_setting
from kafkalake.cli.options import Lake, parse_pairs
from kafkalake.cli.output import Failure, UsageProblem, note
from kafkalake.close_names import did_you_mean, unknown_setting_hint

app = typer.Typer(no_args_is_help=True, help="Start a broker on a lake.")

Config = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="KEY=VALUE",
        help="A broker setting by Kafka's name, such as log.segment.bytes=104857600. May be given several times.",
        autocompletion=complete_broker_setting,
        show_default=False,
    ),
]

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config-file",
        metavar="FILE",
        help="Broker settings, a NAME=VALUE a line, such as Kafka's server.properties. Variables such as "
        "KAFKA_NUM_PARTITIONS go over it, and options over both. Values may be ${file:PATH:NAME} or ${env:NAME}: secrets "
        "then stand in no command line and no file of the lake.",
        show_default=False,
    ),
]


@app.command(
    epilog="""Examples

  [cyan]kafkalake broker start --lake ./lake[/cyan]
  [cyan]kafkalake broker start --lake ./lake --listen 0.0.0.0:9092 --config num.partitions=4[/cyan]""",
)
def start(
    lake: Lake,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Where clients connect, as the setting listeners=PLAINTEXT://HOST:PORT; port 0 takes a free one.",
            show_default="127.0.0.1:9092",
        ),
    ] = None,
    broker_id: Annotated[
        int | None,
        typer.Option("--broker-id", min=0, help="Id of this broker, as the setting node.id.", show_default="0"),
    ] = None,
    config: Config = None,
    config_file: ConfigFile = None,
    jobs: Annotated[
        bool,
        typer.Option("--jobs", help="Also run lag, compaction and maintenance by their schedule, beside the broker."),
    ] = False,
) -> None:
    """Start a broker in the foreground. It prints `listening on HOST:PORT` when it is ready; Ctrl-C stops it."""
    settings = combine_settings(config_file, _given(parse_pairs(config or (), "--config"), listen, broker_id))
    if lake.exists() and not lake.is_dir():
        raise UsageProblem(f"--lake {lake} is a file; it takes a directory")
    check_settings(settings)
    if jobs:
        import_module("kafkalake.cli.job_schedule")  # its process would fail later, where nobody looks
    from kafkalake.process.allocator import defer_gc, tune_malloc
    from kafkalake.process.parent import end_with_parent

    end_with_parent()
    tune_malloc()  # before the imports of a broker
    defer_gc()
    from kafkalake.process.run import run_broker

    raise typer.Exit(run_broker(lake, settings, with_jobs=jobs))


def _given(pairs: dict[str, str], listen: str | None, broker_id: int | None) -> dict[str, str]:
    """Return the settings of the command line. Raise `UsageProblem` if an option and `--config` give the same one."""
    options: dict[str, str] = {}
    if listen is not None:
        options["listeners"] = _listener(listen)
    if broker_id is not None:
        options["node.id"] = str(broker_id)
    for name, option in (("listeners", "--listen"), ("node.id", "--broker-id"), ("broker.id", "--broker-id")):
        if name in pairs and ("node.id" if name == "broker.id" else name) in options:
            raise UsageProblem(f"{option} and --config {name}=... say the same; give one of them")
    return {**pairs, **options}


def combine_settings(file: Path | None, given: dict[str, str]) -> dict[str, str]:
    """Return the settings of all sources. Notes go to stderr for variables that are no settings."""
    from kafkalake.config.broker import BROKER_SETTINGS
    from kafkalake.config.properties import read_properties
    from kafkalake.config.sources import combine, read_environment

    environment, others = read_environment(os.environ)
    for variable, name in others.items():
        close = did_you_mean(name, BROKER_SETTINGS)
        note(f"the environment variable {variable} is no setting of a broker" + (f"; {close}" if close else ""))
    return combine({} if file is None else read_properties(file), environment, given)


def check_settings(settings: dict[str, str]) -> None:
    """Raise `Failure` for an unknown or invalid setting, with a suggestion, before anything is started."""
    from kafkalake.config.broker import BROKER_SETTINGS
    from kafkalake.config.layers import Settings
    from kafkalake.config.listener import parse_listeners
    from kafkalake.config.providers import resolve, without_secrets
    from kafkalake.errors import ConfigurationError

    resolved = resolve(settings)
    try:
        parse_listeners(Settings(resolved).broker)
    except ConfigurationError as error:
        raise Failure(
            without_secrets(str(error), settings, resolved), unknown_setting_hint(settings, BROKER_SETTINGS)
        ) from None


def _listener(text: str) -> str:
    """Return the listener at `HOST:PORT`; `[::1]:9092` for IPv6. Raise `UsageProblem` for any other text."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise UsageProblem(f"--listen takes HOST:PORT, such as 127.0.0.1:9092, not '{text}'")
    host = host.strip("[]")
    return f"PLAINTEXT://[{host}]:{port}" if ":" in host else f"PLAINTEXT://{host}:{port}"
