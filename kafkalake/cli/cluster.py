"""`kafkalake cluster`: runs several brokers of a lake on this machine, shows and stops them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalake.cli.broker import Config, ConfigFile, check_settings, combine_settings
from kafkalake.cli.options import Json, Lake, parse_pairs
from kafkalake.cli.output import Failure, UsageProblem, note, show_columns, write_json, write_line

if TYPE_CHECKING:
    from kafkalake.metadata.tables.schemas import BrokerRow

app = typer.Typer(no_args_is_help=True, help="Run several brokers of a lake on this machine.")

ONE_DISK = "all replicas are on one machine and one disk: they survive the end of a process, not the loss of the disk"
STOP_WAIT_S = 120
REPLICAS = 3
REPLICATION_FACTORS = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
)


@app.command(
    epilog="""Examples

  [cyan]kafkalake cluster start --lake ./lake --brokers 3[/cyan]
  [cyan]kafkalake cluster start --lake ./lake --brokers 3 --port 19092 --config num.partitions=6[/cyan]""",
)
def start(
    lake: Lake,
    brokers: Annotated[
        int, typer.Option("--brokers", "-n", min=1, help="How many; their ids are 0, 1, 2 and so on.")
    ] = 3,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65_535, help="Of broker 0, the others follow; 0 takes free ones.")
    ] = 9092,
    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="The address at which they listen.")
    ] = "127.0.0.1",
    config: Config = None,
    config_file: ConfigFile = None,
    jobs: Annotated[
        bool,
        typer.Option("--jobs", help="Also run lag, compaction and maintenance by their schedule, beside broker 0."),
    ] = False,
) -> None:
    """Run brokers in the foreground, as processes that are started again when they end; Ctrl-C stops one after another.

    New topics have three replicas, or as many as there are brokers, where --config default.replication.factor says nothing else.
    All replicas are on one machine and one disk: they survive the end of a process, not the loss of the disk.
    """
    if port and port + brokers - 1 > 65_535:
        raise UsageProblem(f"--port {port} leaves no port for broker {brokers - 1}")
    if lake.exists() and not lake.is_dir():
        raise UsageProblem(f"--lake {lake} is a file; it takes a directory")
    settings = combine_settings(config_file, parse_pairs(config or (), "--config"))
    _refuse_settings_of_one(settings)
    replicas = {name: str(min(REPLICAS, brokers)) for name in REPLICATION_FACTORS if name not in settings}
    settings = {**settings, **replicas}
    common = ["--lake", str(lake.absolute())]
    common += [word for pair in config or () for word in ("--config", pair)]
    common += [word for name, value in replicas.items() for word in ("--config", f"{name}={value}")]
    common += [] if config_file is None else ["--config-file", str(config_file.absolute())]
    commands = {}
    for number in range(brokers):
        listen = f"{f'[{host}]' if ':' in host else host}:{port + number if port else 0}"
        own = ["--broker-id", str(number), "--listen", listen, *(["--jobs"] if jobs and number == 0 else [])]
        commands[number] = [sys.executable, "-m", "kafkalake", "broker", "start", *common, *own]
        check_settings({**settings, "listeners": f"PLAINTEXT://{listen}"})
    if brokers > 1:
        note(ONE_DISK)
    raise typer.Exit(_run(lake, settings, commands))


def _refuse_settings_of_one(settings: Mapping[str, str]) -> None:
    for name in ("advertised.listeners", "broker.id", "listeners", "node.id"):
        if name in settings:
            raise Failure(
                f"the setting {name} is of one broker, not of a cluster: --host and --port say where it listens"
            )


def _run(lake: Path, settings: Mapping[str, str], commands: Mapping[int, Sequence[str]]) -> int:
    """Supervise the brokers until a signal, or until none is left. Return the exit code."""
    import asyncio
    import os
    import signal

    from kafkalake.config.providers import resolvable
    from kafkalake.metadata import paths
    from kafkalake.process.cluster_lock import exclusive_cluster_lock
    from kafkalake.process.supervisor import Supervisor

    def show(number: int, line: str) -> None:
        print(f"broker {number} | {line}", file=sys.stderr, flush=True)

    def started(addresses: Mapping[int, str]) -> None:
        if addresses:
            write_line(f"listening on {','.join(addresses.values())}")

    async def run() -> int:
        supervisor = Supervisor(commands, show)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, supervisor.stop)
        return await supervisor.run(started)

    os.umask(paths.lake_umask(lake, resolvable(settings).get("lake.umask")))
    paths.prepare_lake(lake)
    with exclusive_cluster_lock(lake):
        return asyncio.run(run())


@app.command()
def status(lake: Lake, json: Json = False) -> None:
    """Show the brokers of a lake, whichever way they were started."""
    import time

    from kafkalake.metadata.lock_file import holders, running_brokers
    from kafkalake.metadata.paths import require_lake
    from kafkalake.process.cluster_lock import cluster_process

    rows = sorted(holders(require_lake(lake)), key=lambda row: row.broker_id)
    running = running_brokers(lake, rows, time.time_ns() // 1_000_000)
    process, controller = cluster_process(lake), _controller([row for row in rows if row.broker_id in running])
    if json:
        write_json(
            {
                "pid": None if process is None else process.pid,
                "brokers": [
                    {
                        "id": row.broker_id,
                        "host": row.host,
                        "port": row.port,
                        "pid": row.pid,
                        "machine": row.machine,
                        "running": row.broker_id in running,
                        "controller": row.broker_id == controller,
                    }
                    for row in rows
                ],
            }
        )
        return
    if process is not None:
        note(f"`cluster start` runs as process {process.pid} of {process.machine}")
    show_columns(
        ["Id", "Address", "Pid", "Machine", "State", "Controller"],
        [
            (
                row.broker_id,
                f"{row.host}:{row.port}",
                row.pid,
                row.machine,
                "running" if row.broker_id in running else "ended",
                "yes" if row.broker_id == controller else "",
            )
            for row in rows
        ],
        right=["Id", "Pid"],
    )


def _controller(running: Sequence[BrokerRow]) -> int:
    """Return the id of the controller, -1 if no broker answers."""
    from kafkalake.cli.options import connect
    from kafkalake.errors import KafkaLakeError

    for row in running:
        try:
            with connect(f"{row.host}:{row.port}", timeout_ms=3_000) as admin:
                return admin.describe_cluster().controller_id
        except KafkaLakeError:
            continue
    return -1


@app.command()
def stop(
    lake: Lake,
    timeout_s: Annotated[
        int, typer.Option("--timeout", metavar="SECONDS", min=1, help="How long to wait until they have stopped.")
    ] = STOP_WAIT_S,
) -> None:
    """Stop the brokers that `cluster start` runs, one after another, and wait until they have stopped."""
    import contextlib
    import os
    import signal
    import time

    from kafkalake.metadata.paths import require_lake
    from kafkalake.process.cluster_lock import cluster_process

    process = cluster_process(require_lake(lake))
    if process is None:
        raise Failure(
            f"no `cluster start` runs on {lake}",
            f"Brokers that were started otherwise: kafkalake cluster status --lake {lake}",
        )
    if not process.is_here:
        raise Failure(f"the brokers of {lake} are run by process {process.pid} of {process.machine}; stop them there")
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while cluster_process(lake) == process:
        if time.monotonic() >= deadline:
            raise Failure(f"process {process.pid} has not stopped in {timeout_s} s")
        time.sleep(0.05)
    write_line(f"Stopped the brokers of {lake}.")
