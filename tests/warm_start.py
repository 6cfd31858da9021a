"""Brokers that start in a tenth of a second: forked from a process that has imported what a broker imports, and does nothing else.

A start costs more than a second of processor time, nearly all of it for imports. Tests that start brokers over and over use this;
else a broker is started as users do it. Run as a program this is that process: it takes command lines from a socket, with the files
of the new process, and answers with its process id.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

PROJECT = Path(__file__).resolve().parent.parent
MESSAGE_BYTES = 256 * 1024
TIMEOUT_S = 60.0
PR_SET_PDEATHSIG = 1


class WarmProcess:
    """A process that was forked; what `BrokerProcess` needs of `subprocess.Popen`."""

    def __init__(self, pid: int, stdout: IO[bytes]) -> None:
        self.pid = pid
        self.stdout = stdout
        self._descriptor: int | None = None
        with suppress(ProcessLookupError):
            self._descriptor = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Return None while it runs, else -1: its exit code is unknown."""
        return None if self._descriptor is not None and not self._has_ended(0) else -1

    def _has_ended(self, timeout_s: float) -> bool:
        return bool(select.select([self._descriptor], [], [], timeout_s)[0])

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raise `subprocess.TimeoutExpired`."""
        if self._descriptor is not None:
            if not self._has_ended(TIMEOUT_S if timeout is None else timeout):
                raise subprocess.TimeoutExpired("a broker", timeout or TIMEOUT_S)
            os.close(self._descriptor)
            self._descriptor = None
        return -1

    def terminate(self) -> None:
        """Send SIGTERM."""
        if self._descriptor is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, signal.SIGTERM)


class WarmStart:
    """The process that brokers are forked from. Use as a context manager; it ends with this one."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment`: of the process that imports."""
        self._environment = dict(environment)

    def __enter__(self) -> WarmStart:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(TIMEOUT_S)
        with other:
            self._server = subprocess.Popen(
                [sys.executable, __file__, str(other.fileno())],
                pass_fds=[other.fileno()],
                env=self._environment,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._server.wait(TIMEOUT_S)

    def start(self, arguments: Sequence[str], stderr: IO[bytes]) -> WarmProcess:
        """Start `kafkalake` with these arguments, in a session of its own. Its stdout is a pipe."""
        read, write = os.pipe()
        message = json.dumps(list(arguments)).encode()
        assert len(message) < MESSAGE_BYTES
        try:
            socket.send_fds(self._socket, [message], [write, stderr.fileno()])
        finally:
            os.close(write)
        pid = int(self._socket.recv(32))
        return WarmProcess(pid, os.fdopen(read, "rb"))


def serve(connection: socket.socket) -> None:
    """Fork a process for each command line that comes, until the other end is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them here
    _import_what_a_broker_imports()
    gc.collect()
    gc.freeze()
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 2)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            connection.close()
            _become(json.loads(message), *descriptors)
        for each in descriptors:
            os.close(each)
        connection.sendall(b"%d" % pid)


def _import_what_a_broker_imports() -> None:
    from kafkalake.extras import import_arrow_without_pandas
    from kafkalake.process import warm
    from kafkalake.process.allocator import tune_malloc

    tune_malloc()
    import_arrow_without_pandas()
    warm.modules()
    from kafkalake.cli import main
    from kafkalake.process import run

    assert main and run


def _become(arguments: list[str], stdout: int, stderr: int) -> None:
    status = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (stdout, 1), (stderr, 2)):
            os.dup2(source, target)
            os.close(source)
        from kafkalake.cli.main import run

        status = run(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    sys.path[0] = str(PROJECT)  # not this directory
    serve(socket.socket(fileno=int(sys.argv[1])))
