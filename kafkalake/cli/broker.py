"""`kafkalake broker`: starts a broker in the foreground, lists those of a cluster."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from kafkalake.cli.completion import complete_broker_setting
from kafkalake.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    Json,
    Lake,
    connect,
    parse_pairs,
    unknown_setting_hint,
)
from kafkalake.cli.output import Failure, UsageProblem, on_terminal, table, write_json, write_line

app = typer.Typer(no_args_is_help=True, help="Start a broker on a lake, list the brokers of a cluster.")


@app.command(
    epilog="""Examples

  [cyan]kafkalake broker start --lake ./lake[/cyan]
  [cyan]kafkalake broker start --lake ./lake --listen 0.0.0.0:9092 --config num.partitions=4[/cyan]""",
)
def start(
    lake: Lake,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where clients connect; port 0 takes a free one.")
    ] = "127.0.0.1:9092",
    broker_id: Annotated[int, typer.Option("--broker-id", min=0, help="Id of this broker within the lake.")] = 0,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            "-c",
            metavar="KEY=VALUE",
            help="A broker setting by Kafka's name, such as log.segment.bytes=104857600. May be given several times.",
            autocompletion=complete_broker_setting,
            show_default=False,
        ),
    ] = None,
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config-file",
            metavar="FILE",
            help="Broker settings, a NAME=VALUE a line, as Kafka's server.properties; --config comes first. Values may be "
            "${file:PATH:NAME} or ${env:NAME}: secrets then stand in no command line and no file of the lake.",
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[
        bool,
        typer.Option("--jobs", help="Also run lag, compaction and maintenance by their schedule, beside the broker."),
    ] = False,
) -> None:
    """Start a broker in the foreground. It prints `listening on HOST:PORT` when it is ready; Ctrl-C stops it."""
    settings = {**_settings_of(config_file), **parse_pairs(config or (), "--config")}
    host, port = parse_listen(listen)
    if lake.exists() and not lake.is_dir():
        raise UsageProblem(f"--lake {lake} is a file; it takes a directory")
    _check_settings(settings)
    if jobs:
        import_module("kafkalake.cli.job_schedule")  # its process would fail later, where nobody looks
    from kafkalake.process.allocator import tune_malloc

    tune_malloc()  # before the imports of a broker
    from kafkalake.process.run import run_broker

    raise typer.Exit(run_broker(lake, host, port, broker_id, settings, with_jobs=jobs))


def _settings_of(file: Path | None) -> dict[str, str]:
    from kafkalake.config.providers import read_settings

    return {} if file is None else read_settings(file)


def _check_settings(settings: dict[str, str]) -> None:
    """Raise `Failure` for an unknown or invalid setting, with a suggestion, before anything is started."""
    from kafkalake.config.broker import BROKER_SETTINGS
    from kafkalake.config.providers import resolve, without_secrets
    from kafkalake.config.values import parse_broker_settings
    from kafkalake.errors import ConfigurationError

    resolved = resolve(settings)
    try:
        parse_broker_settings(resolved)
    except ConfigurationError as error:
        raise Failure(
            without_secrets(str(error), settings, resolved), unknown_setting_hint(settings, BROKER_SETTINGS)
        ) from None


@app.command("list")
def list_brokers(bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER, json: Json = False) -> None:
    """List the brokers of the cluster and which of them is the controller."""
    from kafkalake.client import admin

    with connect(bootstrap_server) as cluster:
        found = admin.describe_cluster(cluster)
    if json:
        write_json(
            {
                "clusterId": found.cluster_id,
                "controllerId": found.controller_id,
                "brokers": [
                    {"id": node.broker_id, "host": node.host, "port": node.port, "rack": node.rack}
                    for node in found.brokers
                ],
            }
        )
        return
    rows = [
        (node.broker_id, node.host, node.port, node.rack, "yes" if node.broker_id == found.controller_id else "")
        for node in found.brokers
    ]
    columns = ["Id", "Host", "Port", "Rack", "Controller"]
    if on_terminal():
        table(f"Cluster {found.cluster_id}", columns, rows, right=["Id", "Port"])
        return
    for row in [tuple(columns), *rows]:
        write_line("\t".join("" if cell is None else str(cell) for cell in row))


def parse_listen(text: str) -> tuple[str, int]:
    """Parse `HOST:PORT`; `[::1]:9092` for IPv6, port 0 for a free one. Raise `UsageProblem` for any other text."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise UsageProblem(f"--listen takes HOST:PORT, such as 127.0.0.1:9092, not '{text}'")
    return host.strip("[]"), int(port)
