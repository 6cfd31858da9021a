"""The command line as its users meet it: a process of its own, with pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest
from kafka_reference import BrokerProcess

TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Ended:
    """How a command ended and what it said."""

    code: int
    stdout: str
    stderr: str


Run = Callable[..., Ended]


def run(*arguments: str, stdin: bytes | str = b"", environment: Mapping[str, str] | None = None) -> Ended:
    """Run `kafkalake ARGUMENTS...` with pipes and return how it ended."""
    cleared = {name: value for name, value in os.environ.items() if not name.startswith("KAFKALAKE_")}
    ended = subprocess.run(
        [sys.executable, "-m", "kafkalake", *arguments],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=TIMEOUT_S,
        env={**cleared, "COLUMNS": "100", **(environment or {})},
    )
    return Ended(ended.returncode, ended.stdout.decode("utf-8", "surrogateescape"), ended.stderr.decode())


@pytest.fixture
def kafkalake() -> Run:
    """`kafkalake(*arguments, stdin=b"", environment=None) -> Ended`."""
    return run


@pytest.fixture
def on(any_broker: BrokerProcess) -> Run:
    """As `kafkalake`, with the running broker as its bootstrap server."""
    servers = {"KAFKALAKE_BOOTSTRAP_SERVERS": any_broker.bootstrap_servers}

    def run_on(*arguments: str, stdin: bytes | str = b"") -> Ended:
        return run(*arguments, stdin=stdin, environment=servers)

    return run_on
