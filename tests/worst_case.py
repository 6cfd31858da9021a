"""What one request costs a broker process: its memory, and for how long its event loop serves nobody else.

    with worst_case(broker) as cost:
        client.call(...)
    assert cost.held_ms < 100
    assert cost.peak_bytes < 3 * size + 64 * MIB
    cost.await_memory_back(20 * MIB)

While the block runs another client pings the broker. A ping that waits sees how long the loop was busy: `held_ms` is the CPU time
that the loop's thread spent in the worst of them, which a busy machine does not make longer, `waited_ms` the time on the clock.
Linux only, like the brokers under test.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kafka_reference import BrokerProcess

MIB = 1024 * 1024
_PING = struct.pack(">ihhih", 10, 18, 0, 1, -1)  # ApiVersions 0, correlation id 1, no client id
_BETWEEN_PINGS_S = 0.001


class Cost:
    """What a broker spent in a block; filled when the block ends. `before_bytes`, `peak_bytes`: resident memory before it, and
    how far it rose above that."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.held_ms = 0.0
        self.waited_ms = 0.0
        self.before_bytes = resident_bytes(pid)
        self.peak_bytes = 0

    def grown_bytes(self) -> int:
        """Resident memory now above that before the block."""
        return resident_bytes(self._pid) - self.before_bytes

    def await_memory_back(self, within_bytes: int, timeout_s: float = 10.0) -> None:
        """Wait until the memory is back to at most `within_bytes` above what it was. Raise `AssertionError` if not in time."""
        deadline = time.monotonic() + timeout_s
        while (grown := self.grown_bytes()) > within_bytes:
            assert time.monotonic() < deadline, f"{grown / MIB:.0f} MiB are not given back"
            time.sleep(0.02)


@contextmanager
def worst_case(broker: BrokerProcess) -> Iterator[Cost]:
    """Measure what the broker spends while the block runs."""
    pid = broker.pid
    with _Pings(broker.bootstrap_servers, pid) as pings:
        cost = Cost(pid)
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak counts from here
        pings.restart()
        yield cost
    cost.held_ms, cost.waited_ms = pings.held_s * 1000, pings.waited_s * 1000
    cost.peak_bytes = max(0, _status_bytes(pid, "VmHWM") - cost.before_bytes)


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    return _status_bytes(pid, "VmRSS")


def loop_cpu_s(pid: int) -> float:
    """CPU seconds that the main thread, which runs the event loop, has spent."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def _status_bytes(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"/proc/{pid}/status has no {name}")


class _Pings(threading.Thread):
    """Pings the broker, one at a time, and keeps the longest. Use it in a `with`: the last ping is waited for."""

    def __init__(self, servers: str, pid: int) -> None:
        super().__init__(daemon=True)
        host, port = servers.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=120)
        self._pid = pid
        self._ends = threading.Event()
        self._answered = threading.Event()
        self.held_s = self.waited_s = 0.0

    def __enter__(self) -> _Pings:
        self.start()
        self._answered.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self.join()
        self._socket.close()

    def restart(self) -> None:
        """Forget what was measured."""
        self.held_s = self.waited_s = 0.0

    def run(self) -> None:
        with suppress(OSError):  # the broker has ended, or closed the connection: the test will notice
            while not self._ends.is_set():
                begin, begin_cpu = time.monotonic(), loop_cpu_s(self._pid)
                self._socket.sendall(_PING)
                (size,) = struct.unpack(">i", self._socket.recv(4, socket.MSG_WAITALL))
                self._socket.recv(size, socket.MSG_WAITALL)
                self.waited_s = max(self.waited_s, time.monotonic() - begin)
                self.held_s = max(self.held_s, loop_cpu_s(self._pid) - begin_cpu)
                self._answered.set()
                time.sleep(_BETWEEN_PINGS_S)
