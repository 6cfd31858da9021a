"""Processes of kafkalake as forks of one that has imported the package: a start costs a fraction of the processor time.

A forked process has a session, standard streams, an environment and an end of its own, as one that a shell starts. Run as a
program, this module is the process that forks: it takes requests from the socket that is its standard input, and ends with it.
Its brokers do their periodic work at logs more often, so that tests wait for it a second and not ten.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import IO, Any

PR_SET_PDEATHSIG = 1
REQUEST_BYTES_MAX = 1 << 18
INTERVALS_MS = {"UPKEEP_INTERVAL_MS": 1_000, "REOPEN_INTERVAL_MS": 1_000, "REWRITTEN_INTERVAL_MS": 500}
STARTED = b"\0"


class ForkedProcess:
    """A process that a `ProcessServer` has forked, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int, stdout: IO[bytes], status: int) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """Return the exit status, or None while the process runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit status. Raise `subprocess.TimeoutExpired` as `Popen.wait`."""
        if self.returncode is None:
            ended = select.poll()  # `select` takes no descriptor above 1,023, and a test run may have as many
            ended.register(self._status, select.POLLIN)
            if not ended.poll(None if timeout is None else timeout * 1_000):
                raise subprocess.TimeoutExpired(["kafkalake"], timeout or 0)
            self.returncode = int(os.read(self._status, 100) or b"1")
            os.close(self._status)
        return self.returncode

    def terminate(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)


class ProcessServer:
    """The process that forks, and the way to it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, REQUEST_BYTES_MAX)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__], stdin=theirs, env=dict(environment), start_new_session=True
            )

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], stderr: IO[bytes]) -> ForkedProcess:
        """Start `kafkalake ARGUMENTS...` with these variables. Its stdout is a pipe."""
        sys.audit("os.fork")  # which no unit test may do
        request = {"arguments": list(arguments), "environment": dict(environment), "directory": os.getcwd()}
        stdout, its_stdout = os.pipe()
        status, its_status = os.pipe()
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [its_stdout, stderr.fileno(), its_status])
            pid = int(self._socket.recv(100))
        os.close(its_stdout)
        os.close(its_status)
        assert os.read(status, 1) == STARTED
        return ForkedProcess(pid, os.fdopen(stdout, "rb"), status)


@cache
def process_server(python_path: str) -> ProcessServer:
    """Return the server for that PYTHONPATH, which is started when it is first asked for."""
    return ProcessServer({**os.environ, "PYTHONPATH": python_path})


def die_with_parent() -> None:
    """Have the kernel send SIGKILL to this process when the thread that started it ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def serve(requests: socket.socket) -> dict[str, Any]:
    """Fork for each request. Return the request in each child; the server itself ends when the socket is closed."""
    statuses: dict[int, int] = {}
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    server = os.getpid()
    while True:
        ready, _, _ = select.select([requests, woken], [], [])
        if woken in ready:
            os.read(woken, 1_000)
            _tell_ended(statuses)
        if requests in ready:
            data, fds, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 3)
            if not data:
                os._exit(0)
            stdout, stderr, status = fds
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for each in (woken, wakes, requests.detach(), *statuses.values()):
                    os.close(each)
                return _begin(json.loads(data), server, stdout, stderr, status)
            statuses[pid] = status
            os.close(stdout)
            os.close(stderr)
            requests.send(b"%d" % pid)


def _tell_ended(statuses: dict[int, int]) -> None:
    """Write the exit status of each process that has ended."""
    while statuses:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            break
        with contextlib.suppress(BrokenPipeError):
            os.write(statuses[pid], b"%d" % os.waitstatus_to_exitcode(status))
        os.close(statuses.pop(pid))


def _begin(request: dict[str, Any], server: int, stdout: int, stderr: int, status: int) -> dict[str, Any]:
    """Make the process that was forked one of its own."""
    os.setsid()
    die_with_parent()
    if os.getppid() != server:
        os._exit(1)
    null = os.open(os.devnull, os.O_RDWR)
    for ours, number in ((null, 0), (stdout, 1), (stderr, 2)):
        os.dup2(ours, number)
        os.close(ours)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    os.write(status, STARTED)
    os.close(status)
    return request


def look_after_logs_often() -> None:
    """Have the brokers of this process, and of its forks, do their periodic work at logs every second."""
    upkeep = import_module("kafkalake.process.upkeep")
    for interval, value in INTERVALS_MS.items():
        assert getattr(upkeep, interval) > value
        setattr(upkeep, interval, value)


def _import() -> None:
    """Import what a broker does, in its order."""
    from kafkalake.extras import import_arrow_without_pandas
    from kafkalake.process.allocator import tune_malloc

    tune_malloc()
    import_arrow_without_pandas()
    from kafkalake.process import warm

    warm.modules()
    for name in ("kafkalake.process.run", "kafkalake.cli.main"):
        import_module(name)
    look_after_logs_often()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    _import()
    asked = serve(
        socket.socket(fileno=os.dup(0))
    )  # so that 0 to 2 are always open, and no other file is given such a number
    sys.argv = ["kafkalake", *asked["arguments"]]
    import_module("kafkalake.cli.main").main()
