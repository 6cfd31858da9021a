"""What a connection may do to the broker, and what not: broken frames, slow readers, limits, order."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from contract.wire_client import (
    WireClient,
    batch,
    code,
    create_topic,
    encode,
    fetch,
    produce,
    produce_values,
    values_of,
)
from contract.wire_transactions import find_coordinator
from kafka_reference import Kafkalake
from waiting import wait_until

pytestmark = pytest.mark.process

StartBroker = Callable[..., Kafkalake]


def api_versions(correlation_id: int = 1) -> bytes:
    return encode("ApiVersions", 3, correlation_id, {"client_software_name": "test", "client_software_version": "1"})


BROKEN = {
    "a negative size": struct.pack(">i", -1),
    "a size above the limit": struct.pack(">i", 200_000_000),
    "a size below a header": struct.pack(">i", 3) + b"abc",
    "an unknown api key": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "a version that is not there": struct.pack(">ihhih", 10, 3, 99, 1, -1),
    "a produce version of old": struct.pack(">ihhih", 10, 0, 2, 1, -1),
    "a client id longer than the request": struct.pack(">ihhih", 10, 3, 1, 1, 500),
    "a negative length of a client id": struct.pack(">ihhih", 10, 3, 1, 1, -7),
    "a body that ends early": struct.pack(">ihhihi", 14, 3, 1, 1, -1, 5),
    "a count that nothing can hold": struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),
    "a name that is not UTF-8": struct.pack(">ihhihih", 18, 3, 1, 1, -1, 1, 2) + b"\xff\xfe",
    "a varint without an end": struct.pack(">i", 20) + struct.pack(">hhih", 3, 12, 1, -1) + b"\0" + b"\xff" * 9,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "HTTP": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
}


@pytest.mark.parametrize("broken", BROKEN)
def test_broken_requests_close_their_own_connection(broker: Kafkalake, broken: str) -> None:
    with WireClient(broker.bootstrap_servers) as client, WireClient(broker.bootstrap_servers) as other:
        client.socket.sendall(api_versions() + BROKEN[broken])
        client.receive("ApiVersions", 3, 1)
        assert client.is_closed()
        assert other.call("ApiVersions", 0).api_keys


def test_what_came_before_a_broken_request_is_answered(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    good = encode("Produce", 9, 5, produce_values(topic, batch([(None, b"x")])))
    client.socket.sendall(good + BROKEN["an unknown api key"])
    assert client.receive("Produce", 9, 5).responses[0].partition_responses[0].base_offset == 0
    assert client.is_closed()


@pytest.mark.parametrize("version", [4, 7])
def test_a_name_that_hardly_fits_into_a_request_is_refused_with_a_short_text(client: WireClient, version: int) -> None:
    asked = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    for name in ("n" * 32_700, "\u20ac" * 10_900):
        answer = client.call(
            "CreateTopics", version, topics=[{"name": name, **asked}], timeout=9_000, validate_only=False
        )
        assert code(answer.topics[0].error_code) == 17
        assert len(answer.topics[0].error_message) < 1_100


def test_bytes_may_come_one_at_a_time(client: WireClient) -> None:
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for number in (1, 2):
        for byte in api_versions(number):
            client.socket.sendall(bytes([byte]))
        client.receive("ApiVersions", 3, number)


def test_many_requests_may_come_at_once(client: WireClient) -> None:
    client.socket.sendall(b"".join(api_versions(number) for number in range(500)))
    for number in range(500):
        client.receive("ApiVersions", 3, number)


def test_requests_larger_than_the_receive_buffer(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    large = [batch([(None, bytes([number]) * 900_000)]) for number in range(6)]
    sent = [client.send("Produce", 9, **produce_values(topic, each)) for each in large]
    offsets = [client.receive("Produce", 9, each).responses[0].partition_responses[0].base_offset for each in sent]
    assert offsets == list(range(6))
    for number in range(6):
        assert values_of(fetch(client, topic, number).records)[0] == (number, bytes([number]) * 900_000)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(client: WireClient) -> None:
    request = bytearray(api_versions(7))
    request[6:8] = struct.pack(">h", 77)
    client.socket.sendall(request)
    answer = client.receive("ApiVersions", 0, 7)
    assert code(answer.error_code) == 35
    assert {each.api_key for each in answer.api_keys} >= {0, 1, 3, 18}
    assert client.call("Metadata", 1, topics=[]).topics == []


def test_client_software_must_have_a_proper_name(client: WireClient) -> None:
    answer = client.call("ApiVersions", 3, client_software_name="-bad name-", client_software_version="1")
    assert code(answer.error_code) == 42


def test_a_request_waits_for_the_one_before_it(client: WireClient, topic: str) -> None:
    """Metadata behind a long poll is answered after it, as Apache Kafka does."""
    create_topic(client, topic)
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    begin = time.monotonic()
    waiting = client.send(
        "Fetch", 4, max_wait=400, min_bytes=1, max_bytes=1000, topics=[{"topic": topic, "partitions": [asked]}]
    )
    following = [client.send("Metadata", 1, topics=[]) for _ in range(3)]
    client.receive("Fetch", 4, waiting)
    assert time.monotonic() - begin >= 0.39
    for each in following:
        client.receive("Metadata", 1, each)


def test_what_was_produced_is_there_for_the_next_request(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    for number in range(20):
        produced = client.send("Produce", 9, **produce_values(topic, batch([(None, b"x")])))
        listed = client.send(
            "ListOffsets", 1, topics=[{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        )
        client.receive("Produce", 9, produced)
        assert client.receive("ListOffsets", 1, listed).topics[0].partitions[0].offset == number + 1


def test_clients_that_do_not_read_cost_only_their_own(broker: Kafkalake, client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    for _ in range(40):
        produce(client, topic, batch([(None, b"x" * 900_000)]))
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 40_000_000}
    values = {"max_wait": 0, "min_bytes": 1, "max_bytes": 40_000_000}
    process = psutil.Process(broker.pid)
    before = process.memory_info().rss
    slow = [WireClient(broker.bootstrap_servers) for _ in range(5)]
    try:
        for each in slow:
            for _ in range(20):
                each.send("Fetch", 4, **values, topics=[{"topic": topic, "partitions": [asked]}])
        for _ in range(20):
            assert code(produce(client, topic, batch([(None, b"y")])).error_code) == 0
        assert process.memory_info().rss - before < 5 * 40_000_000 + 100_000_000
        answer = slow[0].receive("Fetch", 4, 1)
        assert len(values_of(answer.responses[0].partitions[0].records)) >= 10
    finally:
        for each in slow:
            each.socket.close()
    assert values_of(fetch(client, topic, 59).records) == [(59, b"y")]


def test_idle_connections_are_closed(kafkalake_broker: StartBroker, topic: str) -> None:
    broker = kafkalake_broker(settings={"connections.max.idle.ms": "400"})
    with WireClient(broker.bootstrap_servers) as idle, WireClient(broker.bootstrap_servers) as waiting:
        create_topic(waiting, topic)
        begin = time.monotonic()
        answer = fetch(waiting, topic, 0, max_wait=1500)
        assert not answer.records
        assert time.monotonic() - begin > 1.4
        assert idle.is_closed()


def test_connections_per_address_are_limited(kafkalake_broker: StartBroker) -> None:
    broker = kafkalake_broker(settings={"max.connections.per.ip": "3"})
    kept = [WireClient(broker.bootstrap_servers) for _ in range(3)]
    try:
        for each in kept:
            each.call("ApiVersions", 0)
        with WireClient(broker.bootstrap_servers) as refused:
            assert refused.is_closed()
        kept.pop().socket.close()

        def room() -> bool:
            with WireClient(broker.bootstrap_servers) as again:
                try:
                    return bool(again.call("ApiVersions", 0).api_keys)
                except ConnectionError:
                    return False

        wait_until(room, timeout_s=20)
    finally:
        for each in kept:
            each.socket.close()


def test_no_descriptor_stays_behind(broker: Kafkalake, client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    process = psutil.Process(broker.pid)
    before = process.num_fds()
    for _ in range(100):
        with WireClient(broker.bootstrap_servers) as other:
            other.send("ApiVersions", 0)
        with WireClient(broker.bootstrap_servers) as half:
            half.socket.sendall(b"\0\0")
    wait_until(lambda: process.num_fds() <= before + 2, timeout_s=20)


def test_limits_of_connections_lock_nobody_out(broker: Kafkalake) -> None:
    """None is not a limit, and one connection from this machine is always taken, so that a limit can be taken back."""
    with WireClient(broker.bootstrap_servers) as client:
        for name in ("max.connections", "max.connections.per.ip"):
            answer = client.call(
                "IncrementalAlterConfigs", 1, resources=[_broker_setting(name, "0")], validate_only=True
            )
            assert "at least 1" in answer.responses[0].error_message
        assert not code(_set(client, "max.connections", "1").responses[0].error_code)
        try:
            with WireClient(broker.bootstrap_servers) as other:
                assert other.is_closed()
        finally:
            _set(client, "max.connections", "1000000")


def _set(client: WireClient, name: str, value: str) -> Any:
    return client.call("IncrementalAlterConfigs", 1, resources=[_broker_setting(name, value)], validate_only=False)


def _broker_setting(name: str, value: str) -> dict[str, Any]:
    return {"resource_type": 4, "resource_name": "", "configs": [{"name": name, "config_operation": 0, "value": value}]}


def test_extreme_values_are_answered(client: WireClient, topic: str) -> None:
    """A time to keep offsets that is beyond every clock, and a name as long as a string can be."""
    create_topic(client, topic)
    find_coordinator(client, "extreme", 0)
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    values = {
        "group_id": "extreme",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "retention_time": 123_456_789,
        "topics": [{"name": topic, "partitions": [partition]}],
    }
    frame = encode("OffsetCommit", 2, 7, values)
    client.socket.sendall(frame.replace(struct.pack(">q", 123_456_789), struct.pack(">q", 2**63 - 1)))
    answer = client.receive("OffsetCommit", 2, 7)
    assert code(answer.topics[0].partitions[0].error_code) == 0
    new = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    answer = client.call("CreateTopics", 4, topics=[{"name": "x" * 32_700, **new}], timeout=1000, validate_only=False)
    assert len(answer.topics[0].error_message) < 2_000
