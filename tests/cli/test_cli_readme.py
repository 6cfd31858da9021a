"""The commands in the README are commands with these options, and those about brokers and topics work one after the other."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kafka_reference import Kafkalake
from test_cli_cluster import started

from kafkalake.cli.main import _command

README = Path(__file__).parents[2] / "README.md"
BLOCKS = [
    [line[2:] for line in block.splitlines() if re.match(r"\$ .*\bkafkalake ", line)]
    for block in re.findall(r"```console\n(.*?)```", README.read_text(), re.DOTALL)
]
COMMANDS = [line for block in BLOCKS for line in block if line.startswith("kafkalake ")]


def parse(arguments: list[str]) -> None:
    """Parse a command line as `kafkalake` does, without running it."""
    command: Any = _command()
    context = None
    while True:
        context = command.make_context(command.name, arguments, parent=context)
        if not hasattr(command, "resolve_command"):
            return
        _, command, arguments = command.resolve_command(context, [*context._protected_args, *context.args])


@pytest.mark.exhaustive
@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_readme_is_one(line: str) -> None:
    parse([word for word in shlex.split(line, comments=True)[1:] if word != "&"])


def test_what_is_no_option_is_found() -> None:
    with pytest.raises(Exception, match="--broker"):
        parse(["cluster", "start", "--broker", "3"])
    assert len(COMMANDS) > 15


def after(command: str) -> list[str]:
    """Return the commands that come after one in its block."""
    (found,) = [block[block.index(line) + 1 :] for block in BLOCKS for line in block if line.startswith(command)]
    return found


class Shell:
    """Runs command lines in a directory, where `kafkalake` is this one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        program = directory / "bin" / "kafkalake"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kafkalake "$@"\n')
        program.chmod(0o755)
        self._path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"

    def run(self, lines: list[str], servers: str) -> None:
        environment = {**os.environ, "PATH": self._path, "KAFKALAKE_BOOTSTRAP_SERVERS": servers}
        for line in lines:
            ended = subprocess.run(
                ["bash", "-c", line],
                cwd=self._directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert ended.returncode == 0, (line, ended.stdout, ended.stderr)


@pytest.mark.process
def test_the_commands_work_one_after_the_other(tmp_path: Path) -> None:
    """With a broker, and then with three of its lake. Brokers listen at other ports than in the README."""
    shell, lake = Shell(tmp_path), tmp_path / "lake"
    events = [{"user": f"user-{number % 3}", "url": "/", "ms": number} for number in range(20)]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))
    with Kafkalake(lake, directory=tmp_path / "broker") as broker:
        shell.run(after("kafkalake broker start --lake ./lake &"), broker.bootstrap_servers)
        delayed = next(block for block in BLOCKS if any("delayed list" in line for line in block))
        shell.run(delayed, broker.bootstrap_servers)
        broker.stop()
    with started(lake, "--brokers", "3") as (_, servers):
        shell.run(after("kafkalake cluster start --lake ./lake"), servers)
