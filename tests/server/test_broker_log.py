"""What a broker's log says: starts, settings, requests, and bytes that are no request."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import socket
import time
from collections.abc import Iterator

import pytest
from contract.test_configs_contract import BROKER, DELETE, SET, TOPIC, incremental
from contract.wire_client import WireClient, create_topic
from kafka_reference import Kafkalake

from kafkalake import __version__
from kafkalake.process.opening import report_recovery

pytestmark = pytest.mark.process

_last_octet = itertools.count(2)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafkalake]:
    """A broker that was started twice, with other settings, and logs each request."""
    directory = tmp_path_factory.mktemp("log")
    settings = {"log.level": "debug", "num.partitions": "3"}
    with Kafkalake(directory / "lake", directory=directory / "first", settings=settings):
        pass
    settings["num.partitions"] = "5"
    with Kafkalake(directory / "lake", directory=directory / "second", settings=settings) as broker:
        assert isinstance(broker, Kafkalake)
        yield broker


def lines(broker: Kafkalake, pattern: str) -> list[str]:
    return [line for line in broker.stderr_path.read_text().splitlines() if re.search(pattern, line)]


def await_line(broker: Kafkalake, pattern: str) -> str:
    deadline = time.monotonic() + 20
    while not (found := lines(broker, pattern)):
        assert time.monotonic() < deadline, f"no line {pattern} in {broker.stderr_tail()}"
        time.sleep(0.01)
    return found[-1]


def send_from_another_address(broker: Kafkalake, data: bytes) -> str:
    """Send bytes as a client of an address of its own, and return it: the log counts lines by address."""
    address = f"127.0.0.{next(_last_octet)}"
    with socket.create_connection(("127.0.0.1", broker.port), source_address=(address, 0), timeout=20) as connection:
        connection.sendall(data)
        assert connection.recv(1) == b""
    return address


def test_a_start_says_its_version_and_its_settings(broker: Kafkalake) -> None:
    assert lines(broker, rf"INFO process\.node broker starting version={re.escape(__version__)} broker=0 lake=.*lake$")
    assert lines(broker, "broker setting name=num.partitions value=5 source=static_broker$")
    assert not lines(broker, "broker setting name=fetch.max.bytes")
    assert lines(broker, "broker setting changed name=num.partitions old=3 new=5 by=command-line$")
    assert lines(broker, "broker setting changed name=listeners old=.* by=command-line$")
    assert len(lines(broker, "broker setting changed name=")) == 2


def test_a_changed_setting_says_what_was_changed_and_by_whom(broker: Kafkalake) -> None:
    by = r"by=User:ANONYMOUS@127\.0\.0\.1:\d+/wire-client$"
    with WireClient(broker.bootstrap_servers) as client:
        create_topic(client, "changed")
        assert incremental(client, TOPIC, "changed", ("retention.ms", SET, "5000")) == 0
        assert incremental(client, TOPIC, "changed", ("retention.ms", SET, "5000")) == 0
        assert incremental(client, TOPIC, "changed", ("segment.ms", DELETE, None)) == 0
        assert incremental(client, TOPIC, "changed", ("retention.ms", DELETE, None)) == 0
        assert incremental(client, BROKER, "", ("log.retention.ms", SET, "7000")) == 0
        assert incremental(client, BROKER, "", ("log.retention.ms", SET, "7000")) == 0
        assert incremental(client, BROKER, "", ("log.retention.ms", SET, "8000"), validate_only=True) == 0
    changes = [re.sub(r".* (topic|broker) setting", "setting", line) for line in lines(broker, "topic setting changed")]
    assert [re.sub(by, "", line) for line in changes] == [
        "setting changed topic=changed name=retention.ms old=604800000 new=5000 ",
        "setting changed topic=changed name=retention.ms old=5000 new=604800000 ",
    ]
    assert len(lines(broker, f"broker setting changed name=log.retention.ms old=None new=7000 {by}")) == 1
    assert not lines(broker, "new=8000")


def test_every_request_is_logged_where_that_is_asked_for(broker: Kafkalake) -> None:
    with WireClient(broker.bootstrap_servers) as client:
        client.call("ApiVersions", 3, client_software_name="x", client_software_version="1")
    line = await_line(broker, "DEBUG server.connection request .*api=ApiVersions version=3")
    assert re.search(r"peer=127.0.0.1:\d+ .* client=wire-client bytes=\d+ answer_bytes=\d+ duration_ms=\d+\.\d+$", line)


def test_the_level_changes_while_the_broker_runs(broker: Kafkalake) -> None:
    def call_as(version: int) -> None:
        with WireClient(broker.bootstrap_servers) as client:
            client.call("Metadata", version, topics=[], allow_auto_topic_creation=False)

    with WireClient(broker.bootstrap_servers) as client:
        call_as(4)
        assert incremental(client, BROKER, "", ("log.level", SET, "info")) == 0
        call_as(5)
        assert incremental(client, BROKER, "", ("log.level", DELETE, None)) == 0
        call_as(6)
    await_line(broker, "DEBUG server.connection request .*api=Metadata version=6")
    assert lines(broker, "api=Metadata version=4")
    assert not lines(broker, "api=Metadata version=5")


def test_what_was_broken_is_in_the_log(broker: Kafkalake) -> None:
    address = send_from_another_address(broker, b"\0\0\0\x0a\x03\xe7\0\0\0\0\0\x01\xff\xff")
    assert "api key 999 is not supported" in await_line(broker, f"connection closed peer={address}:")


@pytest.mark.parametrize(
    ("data", "protocol"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"POST /x HTTP/1.1\r\n\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", "TLS"),
    ],
)
def test_another_protocol_is_called_by_its_name(broker: Kafkalake, data: bytes, protocol: str) -> None:
    address = send_from_another_address(broker, data)
    assert f"this looks like {protocol}:" in await_line(broker, f"connection closed peer={address}:")


def test_a_flood_of_bad_requests_is_a_few_lines(broker: Kafkalake) -> None:
    address = [send_from_another_address(broker, b"\xff" * 8)][0]
    for _ in range(300):
        with socket.create_connection(
            ("127.0.0.1", broker.port), source_address=(address, 0), timeout=20
        ) as connection:
            connection.sendall(b"\xff" * 8)
            assert connection.recv(1) == b""
    assert len(lines(broker, f"connection closed peer={address}:")) == 5


def test_a_long_recovery_says_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    recovered = itertools.count(1)

    async def report() -> None:
        task = asyncio.ensure_future(report_recovery(lambda: next(recovered), 40, 0.0))
        while len(caplog.messages) < 3:
            await asyncio.sleep(0)
        task.cancel()

    with caplog.at_level(logging.INFO):
        asyncio.run(report())
    assert caplog.messages[:3] == [f"recovering recovered={number} partitions=40" for number in (1, 2, 3)]
