"""Addresses at which no broker is, or no longer one: one clear error, within seconds; and settings that do not exist."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from kafka_reference import free_port

from kafkalake import Admin, aio
from kafkalake.client.errors import ClientClosedError
from kafkalake.errors import BrokerUnavailableError, ConfigurationError

Serve = Callable[[Callable[[socket.socket], None]], str]

QUICK_MS = 300


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A function that starts a TCP server which handles each connection as it is told, and returns its address."""
    listeners: list[socket.socket] = []

    def start(handle: Callable[[socket.socket], None]) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def accept() -> None:
            while True:
                try:
                    accepted, _ = listener.accept()
                except OSError:
                    return
                handle(accepted)

        threading.Thread(target=accept, daemon=True).start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for listener in listeners:
        listener.close()


def fails(server: str, match: str, first_contact_ms: int = 0) -> None:
    """Both clients say so, in time."""
    settings = {"bootstrap.servers": server}

    async def ask() -> None:
        async with aio.Admin(settings, first_contact_ms=first_contact_ms) as admin:
            await admin.list_topics()

    with Admin(settings, first_contact_ms=first_contact_ms) as admin:
        for call in (admin.list_topics, lambda: asyncio.run(ask())):
            started = time.monotonic()
            with pytest.raises(BrokerUnavailableError, match=match):
                call()
            assert first_contact_ms / 1000 <= time.monotonic() - started < 5


@pytest.mark.exhaustive
def test_nothing_listens() -> None:
    server = f"127.0.0.1:{free_port()}"
    fails(server, r"no broker answers at 127\.0\.0\.1:.*refused")
    fails(server, r"no broker answers at 127\.0\.0\.1:.*refused", QUICK_MS)
    fails(f"127.0.0.1:{free_port()},{server}", r"refused; no broker answers at .*refused")


def test_a_host_that_is_not_known() -> None:
    fails("no-such-host.invalid:9092", r"no broker answers at no-such-host\.invalid:9092")


def test_what_is_no_broker(serve: Serve) -> None:
    fails(serve(lambda accepted: accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")), "not speak Kafka's protocol")
    fails(serve(lambda accepted: accepted.close()), "closed by the other side|reset")


@pytest.mark.exhaustive
def test_a_server_that_says_nothing_is_given_up(serve: Serve) -> None:
    held: list[socket.socket] = []
    with (
        Admin(
            bootstrap_servers=serve(held.append), socket_connection_setup_timeout_ms=200, first_contact_ms=0
        ) as admin,
        pytest.raises(BrokerUnavailableError, match="no connection in time"),
    ):
        admin.list_topics()


def test_a_wrong_setting_is_refused_with_what_was_meant() -> None:
    with pytest.raises(ConfigurationError, match=r"'localhost:x' is not HOST:PORT"):
        Admin(bootstrap_servers="localhost:x")
    with pytest.raises(ConfigurationError, match=r"did you mean 'request\.timeout\.ms'"):
        Admin({"request.timeouts.ms": 1})
    for name, value in (("security.protocol", "SASL_SSL"), ("sasl_mechanism", "PLAIN"), ("ssl.ca.location", "ca.pem")):
        with pytest.raises(ConfigurationError, match=rf"{name}.*PLAINTEXT"):
            Admin({name: value})
    with pytest.raises(ConfigurationError, match=r"default\.api\.timeout\.ms"):
        Admin(default_api_timeout_ms="soon")


def test_a_closed_client_says_so() -> None:
    admin = Admin(bootstrap_servers="127.0.0.1:1")
    admin.close()
    admin.close()
    with pytest.raises(ClientClosedError):
        admin.list_topics()
