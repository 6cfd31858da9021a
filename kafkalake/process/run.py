"""Runs a broker as a process in the foreground, for the command line."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import uvloop

from kafkalake import descriptors
from kafkalake.config.listener import Listener
from kafkalake.config.providers import resolvable
from kafkalake.errors import KafkaLakeError, file_sentence
from kafkalake.extras import import_arrow_without_pandas
from kafkalake.metadata import paths
from kafkalake.process import logs
from kafkalake.process.node import Node

logger = logging.getLogger(__name__)


def run_broker(lake: Path, overrides: Mapping[str, str], *, with_jobs: bool = False) -> int:
    """Run a broker in the foreground until SIGTERM or SIGINT. Return the exit code.

    Prints one line `listening on HOST:PORT` to stdout when it is ready, `listening on NAME://HOST:PORT, ...` if it has several.
    `overrides` are settings under Kafka's names. `with_jobs`: run jobs by their schedule in a process beside it. If the start
    fails, print one line to stderr and return 1.
    """
    settings = resolvable(overrides)
    logs.write_to_stderr(settings.get("log.level", "info") if settings.get("log.level") in logs.LEVELS else "info")
    import_arrow_without_pandas()
    descriptors.raise_limit()
    try:
        node = Node(Path(lake), overrides, ends_process=True, with_jobs=with_jobs)
        os.umask(paths.lake_umask(Path(lake), settings.get("lake.umask")))
        code = uvloop.run(_run(node, with_jobs=with_jobs))
        if node.is_stuck:
            logging.shutdown()
            os._exit(1)  # a thread blocked on the disk would keep the process alive
        return code
    except KafkaLakeError as error:
        print(f"kafkalake: {error}", file=sys.stderr)
    except OSError as error:
        print(f"kafkalake: {file_sentence(error)}", file=sys.stderr)
    return 1


async def _run(node: Node, *, with_jobs: bool) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN or number != signal.SIGHUP:  # nohup ignores it
            loop.add_signal_handler(number, node.end)
    try:
        await node.start()
        _follow_log_level(node)
        print(f"listening on {_shown(node.listeners)}", flush=True)
        _log_who_runs_jobs(node.lake, with_jobs=with_jobs)
        await node.ended.wait()
    finally:
        await node.stop()
    return 1 if node.failed else 0


def _shown(listeners: Sequence[Listener]) -> str:
    return listeners[0].address if len(listeners) == 1 else ", ".join(map(str, listeners))


def _follow_log_level(node: Node) -> None:
    """Set the log level from the settings, now and on every change."""
    assert node.broker is not None
    settings = node.broker.settings

    def follow() -> None:
        logs.set_level(settings.current.broker.log_level)

    settings.on_change(follow)
    follow()


def _log_who_runs_jobs(lake: Path, *, with_jobs: bool) -> None:
    """Log which jobs the broker does not run itself, and how to run them."""
    if with_jobs:
        logger.info("lag, compaction and maintenance run by their schedule in a process of their own")
    else:
        logger.info(
            "compaction (cleanup.policy=compact) is not run by the broker: start it with --jobs, "
            "or run kafkalake jobs schedule --lake %s",
            lake,
        )
