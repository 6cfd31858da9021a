"""Help, versions, errors: what the command line says when nothing is sent anywhere."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Run, run_process
from kafka_reference import BrokerProcess, Kafkalake, free_port

from kafkalake import __version__
from kafkalake.cli.main import _command


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the command and all below it, by their words."""
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


COMMANDS = [command for command in commands(_command()) if command != ("jobs", "run")]
"""All but one, whose help is also that of jobs."""
HEAVY = ("numba", "numpy", "pyarrow", "pandas", "duckdb", "deltalake", "pyspark", "kio", "pydantic", "asyncio")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command) or "kafkalake")
def test_every_command_has_help(kafkalake: Run, command: tuple[str, ...]) -> None:
    ended = kafkalake(*command, "--help")
    assert (ended.code, ended.stderr) == (0, "")
    assert f"Usage: {' '.join(('kafkalake', *command))}" in ended.stdout
    assert "\x1b[" not in ended.stdout
    assert not re.search(r"\[\[|\.\.\.\.|<(?:str|int|float|path|list)\b|\\\\", ended.stdout), (
        "brackets twice, a type of Python's, a doubled backslash"
    )
    assert kafkalake(*command, "-h").stdout == ended.stdout


@pytest.mark.process
def test_importing_the_command_line_imports_nothing_heavy() -> None:
    code = "import sys, kafkalake.cli.main; print([name for name in sys.argv[1:] if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code, *HEAVY], capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("[]\n", "")


ADMINISTRATIVE = {
    "topics create t": 0,
    "topics list": 0,
    "topics describe t": 0,
    "topics alter t --partitions 2 --config retention.ms=1": 0,
    "topics offsets t": 0,
    "topics delete-records t --before-offset 0": 0,
    "brokers list": 0,
    "brokers describe": 0,
    "brokers unregister 7": 1,
    "brokers elect preferred --all": 0,
    "brokers reassign generate t --brokers 0": 0,
    "brokers reassign list": 0,
    "groups list": 0,
    "groups describe none": 1,
    "groups members none": 1,
    "groups delete none": 1,
    "groups delete-offsets none --topic t": 1,
    "groups reset-offsets none --topic t --to-earliest": 0,
    "transactions list": 0,
    "transactions describe none": 1,
    "transactions describe-producers t 0": 0,
    "topics delete t": 0,
}
"""Commands that speak to a broker, and their exit codes with a new one, in this order."""


@pytest.mark.process
def test_administrative_commands_import_no_arrays(kafkalake_broker: Callable[..., Kafkalake]) -> None:
    """Not even once they have the answer: all in one process, which imports them for the first command at the latest."""
    code = (
        "import sys; from kafkalake.cli.main import run\n"
        "for command in sys.argv[2:]:\n"
        "    ended = run([*command.split(), '-b', sys.argv[1]])\n"
        f"    print('ended', ended, [name for name in {HEAVY[: HEAVY.index('kio')]} if name in sys.modules])"
    )
    at = kafkalake_broker().bootstrap_servers
    ended = subprocess.run(
        [sys.executable, "-c", code, at, *ADMINISTRATIVE],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    found = [line for line in ended.stdout.splitlines() if line.startswith("ended")]
    assert found == [f"ended {code} []" for code in ADMINISTRATIVE.values()], ended.stdout + ended.stderr


@pytest.mark.process
def test_topics_are_listed_without_what_the_command_does_not_need(kafkalake_broker: Callable[..., Kafkalake]) -> None:
    code = (
        "import sys; from kafkalake.cli.main import run\n"
        "ended = run(['topics', 'list', '-b', sys.argv[1]])\n"
        "print(ended, [name for name in sys.argv[2:] if name in sys.modules])"
    )
    needless = ("pydantic", "rich", "hypothesis", "kafkalake.config.broker", "kafkalake.wire.messages.own_schemas")
    arguments = [sys.executable, "-c", code, kafkalake_broker().bootstrap_servers, *needless]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert ended.stdout == "0 []\n", ended.stdout + ended.stderr


def test_help_is_quick(process: Run) -> None:
    """0.3 s of processor time on a machine of 2 cores; the bound leaves room for a busy one."""

    def seconds() -> float:
        before = os.times()
        assert process("--help").code == 0
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    assert min(seconds() for _ in range(3)) < 1.0


def test_the_version(process: Run) -> None:
    ended = process("--version")
    assert (ended.code, ended.stdout, ended.stderr) == (0, f"kafkalake {__version__}\n", "")


def test_no_command_shows_help(process: Run) -> None:
    ended = process()
    assert ended.code == 2
    assert "Usage: kafkalake" in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("topcis", "list"), "no such command 'topcis'; did you mean 'topics'?"),
        (("topics", "lsit"), "no such command 'lsit'; did you mean 'list'?"),
        (("topics", "create", "t", "--partitons", "3"), "no such option --partitons; did you mean '--partitions'?"),
        (("topics", "create", "t", "--partitions", "many"), "invalid value for '--partitions' / '-p'"),
        (("topics", "create", "t", "-p", "0"), "'-p': it should be greater than or equal to 1"),
        (("topics", "create"), "missing argument 'TOPIC'"),
        (("topics", "create", "--topic", "c"), "named without an option: kafkalake topics create TOPIC"),
        (("topics", "create", "t", "--config", "retention.ms"), "--config takes KEY=VALUE, not 'retention.ms'"),
        (("topics", "alter", "t"), "nothing to alter"),
        (("jobs", "run", "--lake", "./lake", "lag"), "before its arguments: kafkalake jobs run NAME --lake"),
        (("topics", "offsets", "t", "--time", "soon"), "--time takes a time"),
        (("produce", "t", "--acks", "some"), "'--acks': 'some' is not one of 'all', '1', '0'"),
        (("produce", "t", "--key-field", "k"), "lines have no fields"),
        (("produce", "t", "-f", "json", "--key-separator", ":"), "are for lines, not for json"),
        (("produce", "t", "-f", "csv"), "csv is read from a file, not from stdin"),
        (("consume", "t", "--from-beginning", "--offset", "3"), "exclude one another"),
        (("consume", "t", "--offset=--5"), "--offset takes a number, earliest or latest, not '--5'"),
        (("consume", "t", "--offset", "9" * 19), "--offset takes a number, earliest or latest"),
        (("consume", "t", "--offset", "-" + "9" * 5_000), "--offset takes a number, earliest or latest"),
        (("consume", "t", "--property", "print.keys=true"), "did you mean 'print.key'"),
        (("broker", "start", "--lake", "/tmp/x", "--listen", "9092"), "--listen takes HOST:PORT"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_is_one_sentence_and_code_2(kafkalake: Run, arguments: tuple[str, ...], said: str) -> None:
    ended = kafkalake(*arguments)
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.stderr.startswith("error: ")
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) <= 2


def test_a_broker_that_is_not_there_comes_with_advice(kafkalake: Run) -> None:
    ended = kafkalake("topics", "list", "--bootstrap-server", f"127.0.0.1:{free_port()}")
    assert (ended.code, ended.stdout) == (1, "")
    assert "error: no broker answers at 127.0.0.1:" in ended.stderr
    assert "kafkalake broker start --lake" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_debug_shows_where(process: Run) -> None:
    server = f"127.0.0.1:{free_port()}"
    ended = process("topics", "list", "-b", server, environment={"KAFKALAKE_DEBUG": "1"})
    assert ended.code == 1
    assert "Traceback" in ended.stderr


def test_an_address_that_is_none(kafkalake: Run) -> None:
    ended = kafkalake("topics", "list", "-b", "localhost:http")
    assert (ended.code, ended.stderr) == (1, "error: bootstrap.servers: 'localhost:http' is not HOST:PORT\n")


@pytest.mark.process
@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_are_for_terminals_and_no_color_is_respected(environment: dict[str, str], coloured: bool) -> None:
    cleared = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-m", "kafkalake", "topics", "--help"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            timeout=60,
            check=True,
            env={**cleared, "TERM": "xterm-256color", **environment},
        )
        said = os.read(ours, 65_536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert "Create, list, describe" in said
    assert ("\x1b[1;36m" in said) is coloured


def completions(environment: dict[str, str], *words: str) -> list[str]:
    """What the shell would offer for the last of `words`."""
    environment = {
        "_KAFKALAKE_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("kafkalake", *words)),
        "COMP_CWORD": str(len(words)),
        **environment,
    }
    return run_process(environment=environment).stdout.split()


@pytest.mark.process
def test_the_shell_completes_names_of_topics_groups_and_settings(
    on: Run, any_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    servers = {"KAFKALAKE_BOOTSTRAP_SERVERS": any_broker.bootstrap_servers, "XDG_CACHE_HOME": str(tmp_path)}
    assert on("topics", "create", topic).code == 0
    assert on("groups", "reset-offsets", f"g-{topic}", "--topic", topic, "--to-latest", "--execute").code == 0
    assert completions(servers, "consume", topic[:-2]) == [topic]
    assert completions(servers, "groups", "describe", f"g-{topic[:-1]}") == [f"g-{topic}"]
    assert completions(servers, "topics", "create", "t", "--config", "retention.b") == ["retention.bytes="]
    nobody = {"KAFKALAKE_BOOTSTRAP_SERVERS": "127.0.0.1:1", "XDG_CACHE_HOME": str(tmp_path)}
    assert completions(nobody, "consume", topic[:-2]) == []


@pytest.mark.process
def test_a_full_disk_behind_stdout_is_one_sentence() -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "kafkalake", "--version"]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert (ended.returncode, ended.stderr) == (1, "error: standard output: No space left on device\n")
        command = [sys.executable, "-m", "kafkalake", "jobs", "run", "consume", "--help"]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "consume: its help could not be printed: No space left on device\n")


@pytest.mark.process
@pytest.mark.parametrize("command", ["--help", "topics --help", "jobs run --help", "jobs run lag --help", "--version"])
def test_a_closed_pipe_behind_stdout_ends_help_quietly(command: str) -> None:
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as closed:
        words = [sys.executable, "-m", "kafkalake", *command.split()]
        ended = subprocess.run(words, stdout=closed, stderr=subprocess.PIPE, text=True, check=False, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")
