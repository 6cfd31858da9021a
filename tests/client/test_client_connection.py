"""Connections to what is no broker, or stops being one: one clear error, in time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from kafka_reference import BrokerProcess, free_port

from kafkalake.client.connection import Address, BrokerConnection, parse_addresses
from kafkalake.client.requests import API_VERSIONS, METADATA
from kafkalake.errors import BrokerUnavailableError, ConnectionLostError, UnsupportedVersionError
from kafkalake.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse

Serve = Callable[[Callable[[socket.socket], None]], Address]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A function that starts a TCP server which handles each connection as it is told, and returns its address."""
    listeners: list[socket.socket] = []

    def start(handle: Callable[[socket.socket], None]) -> Address:
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
        return Address(*listener.getsockname()[:2])

    yield start
    for listener in listeners:
        listener.close()


def test_nothing_listens() -> None:
    with pytest.raises(BrokerUnavailableError, match=r"no broker answers at 127\.0\.0\.1:.*refused"):
        BrokerConnection(Address("127.0.0.1", free_port()))


def test_host_that_is_not_known() -> None:
    with pytest.raises(BrokerUnavailableError, match=r"no broker answers at no-such-host\.invalid:9092"):
        BrokerConnection(Address("no-such-host.invalid", 9092))


def test_a_web_server_is_no_broker(serve: Serve) -> None:
    address = serve(lambda accepted: accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    with pytest.raises(BrokerUnavailableError, match="does not speak Kafka's protocol"):
        BrokerConnection(address)


def test_a_server_that_hangs_up_is_no_broker(serve: Serve) -> None:
    address = serve(lambda accepted: accepted.close())
    with pytest.raises(BrokerUnavailableError):
        BrokerConnection(address)


def test_a_server_that_says_nothing_is_given_up_in_time(serve: Serve) -> None:
    held: list[socket.socket] = []
    address = serve(held.append)
    started = time.monotonic()
    with pytest.raises(BrokerUnavailableError, match="no answer in time"):
        BrokerConnection(address, request_timeout_ms=200)
    assert time.monotonic() - started < 5


def test_requests_can_overlap_and_answers_come_in_order(any_broker: BrokerProcess) -> None:
    connection = BrokerConnection(parse_addresses(any_broker.bootstrap_servers)[0])
    connection.send(METADATA, MetadataRequest(topics=[], allow_auto_topic_creation=False))
    connection.send(API_VERSIONS, ApiVersionsRequest(client_software_name="tests", client_software_version="1"))
    direct = connection.request(METADATA, MetadataRequest(topics=[], allow_auto_topic_creation=False))
    answer, versions = connection.receive(), connection.receive()
    assert isinstance(answer, MetadataResponse)
    assert isinstance(versions, ApiVersionsResponse)
    assert answer.brokers == direct.brokers
    assert {api.api_key for api in versions.api_keys} >= {0, 1, 2, 3, 18}
    connection.close()


def test_a_broker_that_dies_loses_the_connection(any_broker: BrokerProcess) -> None:
    connection = BrokerConnection(parse_addresses(any_broker.bootstrap_servers)[0])
    any_broker.kill()
    with pytest.raises(ConnectionLostError, match="broke"):
        connection.request(METADATA, MetadataRequest(topics=[], allow_auto_topic_creation=False))
    assert not connection.is_open
    with pytest.raises(ConnectionLostError):
        connection.request(METADATA, MetadataRequest(topics=[], allow_auto_topic_creation=False))


def test_an_api_that_the_broker_does_not_have(any_broker: BrokerProcess) -> None:
    connection = BrokerConnection(parse_addresses(any_broker.bootstrap_servers)[0])
    with pytest.raises(UnsupportedVersionError, match="does not offer it"):
        connection.send(METADATA._replace(key=9_999), MetadataRequest())
    with pytest.raises(UnsupportedVersionError, match="offers versions"):
        connection.send(METADATA._replace(lowest=99, highest=100), MetadataRequest())
    connection.close()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9092", [Address("127.0.0.1", 9092)]),
        ("a:1, b:2 ,", [Address("a", 1), Address("b", 2)]),
        ("host", [Address("host", 9092)]),
        ("[::1]:9093", [Address("::1", 9093)]),
    ],
)
def test_addresses(text: str, expected: list[Address]) -> None:
    assert parse_addresses(text) == expected


@pytest.mark.parametrize("text", ["", ",", "host:", "host:port", "host:0", "host:65536", ":9092", "::1:9092"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_addresses(text)
