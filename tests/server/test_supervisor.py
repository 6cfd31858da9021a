"""Processes that are run as a cluster: started again with a growing pause, given up, stopped in order, never left alone."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest
from waiting import wait_until

from kafkalake.process.supervisor import Limits, Restarts, Supervisor

pytestmark = pytest.mark.process

QUICK = Limits(first_pause_s=0.01, longest_pause_s=0.05, failed_starts_max=3, stop_s=5)

CHILD = """
import os, signal, sys, time
number, log = sys.argv[1:3]
def note(word):
    with open(log, "a") as file:
        file.write(f"{word} {number} {os.getpid()}\\n")
def stop(*_):
    note("stopped")
    sys.exit(0)
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, stop)
note("started")
if "fails" in sys.argv:
    sys.exit("the settings are wrong")
print(f"listening on 127.0.0.1:{number}", flush=True)
print("x" * (2_000_000 if "chatty" in sys.argv else 200_000), file=sys.stderr, flush=True)
note("wrote")
time.sleep(60)
"""


class Cluster:
    """A supervisor of children that write down what happens to them."""

    def __init__(self, directory: Path, *children: str, python: str = sys.executable) -> None:
        self.log = directory / "log"
        self.log.touch()
        self.fault: OSError | None = None
        """What happens when a line is shown."""
        self.lines: list[tuple[int, str]] = []
        self.addresses: list[Mapping[int, str]] = []
        commands = {
            number: [python, "-c", CHILD, str(number), str(self.log), kind] for number, kind in enumerate(children)
        }
        self._commands = commands

    async def run(self, act: Callable[[Supervisor], Awaitable[None]], limits: Limits = QUICK) -> int:
        supervisor = Supervisor(self._commands, self._show, limits)
        running = asyncio.create_task(supervisor.run(self.addresses.append))
        async with asyncio.timeout(30):
            await act(supervisor)
            return await running

    def _show(self, number: int, line: str) -> None:
        if self.fault is not None:
            raise self.fault
        self.lines.append((number, line))

    def events(self, word: str) -> list[tuple[int, int]]:
        """Return (child, process id) of each event."""
        found = (line.split() for line in self.log.read_text().splitlines())
        return [(int(number), int(pid)) for event, number, pid in found if event == word]

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            await asyncio.sleep(0.01)


def test_the_pause_grows_while_a_child_ends_soon_and_failed_starts_in_a_row_are_the_end() -> None:
    limits = Limits(first_pause_s=1, longest_pause_s=10, steady_s=60, failed_starts_max=3)
    restarts = Restarts(limits)
    assert [restarts.pause_s(5, was_ready=True) for _ in range(6)] == [1, 2, 4, 8, 10, 10]
    assert restarts.pause_s(61, was_ready=True) == 1
    assert [restarts.pause_s(0, was_ready=False) for _ in range(2)] == [2, 4]
    assert restarts.pause_s(0, was_ready=True) == 8
    assert [restarts.pause_s(0, was_ready=False) for _ in range(3)] == [10, 10, None]


def test_children_are_started_one_after_another_and_stopped_in_the_opposite_order(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "", "", "")

    async def act(supervisor: Supervisor) -> None:
        await cluster.until(lambda: cluster.addresses)
        supervisor.stop()

    assert asyncio.run(cluster.run(act)) == 0
    assert cluster.addresses == [{0: "127.0.0.1:0", 1: "127.0.0.1:1", 2: "127.0.0.1:2"}]
    assert [number for number, _ in cluster.events("started")] == [0, 1, 2]
    assert [number for number, _ in cluster.events("stopped")] == [2, 1, 0]


def test_a_child_that_is_killed_is_started_again_and_the_others_go_on(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "", "")
    ready = "listening on 127.0.0.1:1"
    signals = [signal.SIGKILL, signal.SIGRTMIN + 1]  # Python has no name for the second

    async def act(supervisor: Supervisor) -> None:
        await cluster.until(lambda: cluster.addresses)
        for times, number in enumerate([*signals, None], 1):
            await cluster.until(lambda times=times: cluster.lines.count((1, ready)) == times)  # type: ignore[misc]
            if number is not None:
                os.kill(cluster.events("started")[-1][1], number)
        supervisor.stop()

    assert asyncio.run(cluster.run(act)) == 0
    assert [number for number, _ in cluster.events("started")] == [0, 1, 1, 1]
    assert [number for number, _ in cluster.events("stopped")] == [1, 0]
    said = [line for number, line in cluster.lines if number == 1 and line.startswith("it has ended")]
    for line, name in zip(said, ("SIGKILL", str(signals[1])), strict=True):
        assert re.fullmatch(rf"it has ended with signal {name}; it is started again in \d+ s", line)


def test_a_child_that_the_system_does_not_start_is_tried_again_and_the_others_go_on(tmp_path: Path) -> None:
    """As without memory or descriptors for a moment, or while Python is being replaced."""
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    cluster = Cluster(tmp_path, "", "", python=str(python))
    unstarted = 1, "it could not be started: No such file or directory; it is started again in 0 s"

    async def act(supervisor: Supervisor) -> None:
        await cluster.until(lambda: cluster.addresses)
        python.unlink()
        os.kill(cluster.events("started")[1][1], signal.SIGKILL)
        await cluster.until(lambda: cluster.lines.count(unstarted) > QUICK.failed_starts_max)
        python.symlink_to(sys.executable)
        await cluster.until(lambda: cluster.lines.count((1, "listening on 127.0.0.1:1")) == 2)
        tries = cluster.lines.count(unstarted)
        python.unlink()
        os.kill(cluster.events("started")[-1][1], signal.SIGKILL)
        await cluster.until(lambda: cluster.lines.count(unstarted) > tries)
        supervisor.stop()

    assert asyncio.run(cluster.run(act)) == 0
    assert [number for number, _ in cluster.events("started")] == [0, 1, 1]
    assert [number for number, _ in cluster.events("stopped")] == [0]


def test_a_child_that_fails_at_once_is_given_up_and_the_others_go_on(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "", "fails")

    async def act(supervisor: Supervisor) -> None:
        await cluster.until(lambda: any("not started any more" in line for _, line in cluster.lines))
        assert cluster.addresses == [{0: "127.0.0.1:0"}]
        supervisor.stop()

    assert asyncio.run(cluster.run(act)) == 0
    assert [number for number, _ in cluster.events("started")] == [0, 1, 1, 1]
    assert cluster.lines.count((1, "the settings are wrong")) == 3
    assert [number for number, _ in cluster.events("stopped")] == [0]


def test_when_all_are_given_up_it_ends(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "fails", "fails")

    async def act(supervisor: Supervisor) -> None:
        pass

    assert asyncio.run(cluster.run(act)) == 1
    assert cluster.addresses == [{}]


@pytest.mark.parametrize("stops", [1, 2])
def test_a_child_that_does_not_stop_is_killed_after_a_while_or_at_the_second_signal(tmp_path: Path, stops: int) -> None:
    cluster = Cluster(tmp_path, "deaf")

    async def act(supervisor: Supervisor) -> None:
        await cluster.until(lambda: cluster.addresses)
        for _ in range(stops):
            supervisor.stop()

    limits = Limits(stop_s=0.2 if stops == 1 else 30)
    began = time.monotonic()
    assert asyncio.run(cluster.run(act, limits)) == 0
    assert time.monotonic() - began < 20
    assert ((0, "it did not stop in 0 s and is killed") in cluster.lines) == (stops == 1)


def test_lines_are_shown_with_the_childs_number_however_long_they_are(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "", "")

    async def act(supervisor: Supervisor) -> None:
        await cluster.until(lambda: sum(len(line) for number, line in cluster.lines if number == 1) > 200_000)
        supervisor.stop()

    assert asyncio.run(cluster.run(act)) == 0
    assert {number for number, line in cluster.lines if set(line) == {"x"}} == {0, 1}


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EPIPE])
def test_lines_that_cannot_be_shown_keep_no_child_from_writing_on(tmp_path: Path, fault: int) -> None:
    """As on a full disk, or to a pipe that is read no longer: what a child writes into a pipe that nobody reads would stop it."""
    cluster = Cluster(tmp_path, "chatty", "chatty")
    cluster.fault = OSError(fault, os.strerror(fault))

    async def act(supervisor: Supervisor) -> None:
        await cluster.until(lambda: len(cluster.events("wrote")) == 2)
        os.kill(cluster.events("started")[1][1], signal.SIGKILL)
        await cluster.until(lambda: len(cluster.events("wrote")) == 3)
        cluster.fault = None
        os.kill(cluster.events("started")[-1][1], signal.SIGKILL)
        await cluster.until(lambda: (1, "listening on 127.0.0.1:1") in cluster.lines)
        supervisor.stop()

    assert asyncio.run(cluster.run(act)) == 0
    assert cluster.addresses == [{0: "127.0.0.1:0", 1: "127.0.0.1:1"}]


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the kernel ends children with their parent on Linux only"
)
def test_children_end_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    child = "from kafkalake.process.parent import end_with_parent\nend_with_parent()\n" + CHILD
    child = child.replace(
        "time.sleep", 'note("ready")\ntime.sleep'
    )  # what it prints to a supervisor that is gone ends it, too
    script = (
        "import asyncio, sys\nfrom kafkalake.process.supervisor import Supervisor\n"
        f"command = [sys.executable, '-c', {child!r}, '0', {str(log)!r}, '']\n"
        "asyncio.run(Supervisor({0: command}, print).run(print))\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL) as supervisor:
        wait_until(lambda: "ready 0" in log.read_text())
        supervisor.kill()
    wait_until(lambda: "stopped 0" in log.read_text())
