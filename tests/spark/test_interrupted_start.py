"""A Spark session whose start is interrupted leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_until


@pytest.mark.process
@pytest.mark.parametrize("program_under_way", [b"bash", b"java"])
def test_an_interrupted_start_leaves_no_jvm(program_under_way: bytes) -> None:
    """In the script that starts the JVM, and in the JVM before Python has heard of it."""
    program = "from kafkalake.spark import session; session(delta=False)"
    started = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(lambda: any(is_submit(each, program_under_way) for each in group(started.pid)), timeout_s=60)
        started.send_signal(signal.SIGINT)
        assert started.wait(30) == -signal.SIGINT
        wait_until(lambda: not group(started.pid), timeout_s=30)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        assert "KeyboardInterrupt" in started.communicate(timeout=30)[1]


def group(pid: int) -> list[int]:
    """The other processes of the process group."""
    found = []
    for directory in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if directory.name.isdecimal():
                state, _, process_group = (directory / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(process_group) == pid != int(directory.name) and state != "Z":
                    found.append(int(directory.name))
    return found


def is_submit(pid: int, program: bytes) -> bool:
    """Whether the process is this program, on its way to be the driver's JVM."""
    with contextlib.suppress(OSError):
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return arguments[0].endswith(program) and b"org.apache.spark.deploy.SparkSubmit" in arguments
    return False
