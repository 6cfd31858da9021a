"""The proxies between brokers: whose port is never another's, and who is who."""

from __future__ import annotations

import socket
import struct

import pytest
from broker_proxies import BrokerProxies, source_of
from waiting import wait_until

HOST = "127.0.0.1"


def request(client_id: str) -> bytes:
    return struct.pack(">ihhih", 10 + len(client_id), 18, 3, 1, len(client_id)) + client_id.encode()


def accepts(port: int) -> bool:
    """Return whether something listens. The proxy looks for the broker behind it at a request."""
    try:
        with socket.create_connection((HOST, port), timeout=5) as connection:
            connection.sendall(request("broker-0"))
    except ConnectionRefusedError:
        return False
    except (ConnectionResetError, BrokenPipeError):
        return True  # and has stopped to meanwhile
    return True


def test_the_port_of_a_broker_that_does_not_listen_is_refused_and_nobody_elses() -> None:
    with BrokerProxies(1) as proxies:
        (port,) = proxies.advertised
        for _ in range(2):
            assert not accepts(port)
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind((HOST, port))
            with socket.create_server((HOST, proxies.behind[0])):
                wait_until(lambda: accepts(port))
            wait_until(lambda: not accepts(port))


@pytest.mark.parametrize(
    ("client_id", "source"),
    [("broker-2", 2), ("2", 2), ("raft-client-1", 1), ("broker-1-fetcher-0", 1), ("rdkafka", -1), ("broker-", -1)],
)
def test_the_client_id_of_a_request_says_which_broker_sends_it(client_id: str, source: int) -> None:
    assert source_of(request(client_id)) == source
