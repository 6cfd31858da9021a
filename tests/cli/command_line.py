"""The command line as its users meet it: arguments and stdin in; exit code, stdout and stderr out.

`process` starts a process, with pipes, as a shell does. `kafkalake` runs the same entry point in the process of the tests, which
saves the second that it takes to import everything; `on` does so with a running broker as bootstrap server.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

import pytest
from kafka_reference import BrokerProcess, as_users_have_it

from kafkalake.cli import main

TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Ended:
    """How a command ended and what it said."""

    code: int
    stdout: str
    stderr: str


Run = Callable[..., Ended]


def environment_with(changes: Mapping[str, str] | None) -> dict[str, str]:
    """The environment without what would change what commands do, and with `changes`."""
    cleared = {name: value for name, value in os.environ.items() if not name.startswith("KAFKALAKE_")}
    return as_users_have_it({**cleared, "COLUMNS": "100", **(changes or {})})


def run_process(*arguments: str, stdin: bytes | str = b"", environment: Mapping[str, str] | None = None) -> Ended:
    """Run `python -m kafkalake ARGUMENTS...` and return how it ended."""
    ended = subprocess.run(
        [sys.executable, "-m", "kafkalake", *arguments],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=TIMEOUT_S,
        env=environment_with(environment),
    )
    return Ended(ended.returncode, ended.stdout.decode("utf-8", "surrogateescape"), ended.stderr.decode())


def run_here(*arguments: str, stdin: bytes | str = b"", environment: Mapping[str, str] | None = None) -> Ended:
    """Run the command in this process, with files as its stdin, stdout and stderr."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode() if isinstance(stdin, str) else stdin)
        given.seek(0)
        with _standard_streams(given, out, err), pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("KAFKALAKE_")]:
                patch.delenv(name)
            for name, value in {"COLUMNS": "100", **(environment or {})}.items():
                patch.setenv(name, value)
            code = main.run(arguments)
        out.seek(0)
        err.seek(0)
        return Ended(code, out.read().decode("utf-8", "surrogateescape"), err.read().decode())


@contextmanager
def _standard_streams(given: IO[bytes], out: IO[bytes], err: IO[bytes]) -> Iterator[None]:
    """Descriptor 0 and Python's three streams are these files; as they were afterwards."""
    kept, streams = os.dup(0), (sys.stdin, sys.stdout, sys.stderr)
    os.dup2(given.fileno(), 0)
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False))
    sys.stdout = io.TextIOWrapper(os.fdopen(os.dup(out.fileno()), "wb"), write_through=True)
    sys.stderr = io.TextIOWrapper(os.fdopen(os.dup(err.fileno()), "wb"), write_through=True)
    try:
        yield
    finally:
        sys.stdout.close()
        sys.stderr.close()
        sys.stdin, sys.stdout, sys.stderr = streams
        os.dup2(kept, 0)
        os.close(kept)


@pytest.fixture
def process() -> Run:
    """`process(*arguments, stdin=b"", environment=None) -> Ended`, in a process of its own."""
    return run_process


@pytest.fixture
def kafkalake() -> Run:
    """`kafkalake(*arguments, stdin=b"", environment=None) -> Ended`."""
    return run_here


@pytest.fixture
def on(any_broker: BrokerProcess) -> Run:
    """As `kafkalake`, with the running broker as its bootstrap server."""
    servers = {"KAFKALAKE_BOOTSTRAP_SERVERS": any_broker.bootstrap_servers}

    def run_on(*arguments: str, stdin: bytes | str = b"") -> Ended:
        return run_here(*arguments, stdin=stdin, environment=servers)

    return run_on
