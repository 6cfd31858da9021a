"""The measure of what a request costs, itself measured: it must see a loop that is held and memory that is used."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.wire_client import WireClient, batch, create_topic, produce
from kafka_reference import Kafkalake
from worst_case import MIB, resident_bytes, worst_case

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafkalake]:
    with Kafkalake() as broker:
        yield broker


def test_a_cheap_request_is_cheap(broker: Kafkalake) -> None:
    with WireClient(broker.bootstrap_servers) as client, worst_case(broker) as cost:
        client.call("ApiVersions", 0)
    assert cost.held_ms < 50
    assert cost.peak_bytes < 16 * MIB
    cost.await_memory_back(16 * MIB)


def test_a_loop_that_is_held_is_seen(broker: Kafkalake) -> None:
    """Creating many topics takes the loop some time; a ping sees a part of what the loop's thread spends."""
    with WireClient(broker.bootstrap_servers) as client:
        create_topic(client, "held", partitions=1)
        before = _cpu_ms(broker.pid)
        with worst_case(broker) as cost:
            for _ in range(20):
                produce(client, "held", batch([(None, b"x" * 1000)] * 500))
        assert 0 < cost.held_ms <= _cpu_ms(broker.pid) - before
        assert cost.waited_ms > 0


def test_memory_that_is_used_is_seen() -> None:
    """Of this process, which takes 64 MiB while it answers the pings itself."""

    class Ours:
        def __init__(self, port: int) -> None:
            self.pid = _own_pid()
            self.bootstrap_servers = f"127.0.0.1:{port}"

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_answer, args=(server,), daemon=True).start()
        with worst_case(Ours(server.getsockname()[1])) as cost:  # type: ignore[arg-type]
            taken = b"x" * (64 * MIB)
        assert cost.peak_bytes >= 60 * MIB
        with pytest.raises(AssertionError, match="not given back"):
            cost.await_memory_back(20 * MIB, timeout_s=0.05)
        del taken
        cost.await_memory_back(20 * MIB)
        assert resident_bytes(_own_pid()) > 0


def _own_pid() -> int:
    return int(Path("/proc/self").readlink().name)


def _cpu_ms(pid: int) -> float:
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e6


def _answer(server: socket.socket) -> None:
    connection, _ = server.accept()
    while connection.recv(14, socket.MSG_WAITALL):
        connection.sendall(b"\0\0\0\x04\0\0\0\1")
