"""Quotas of mutations and of connections: what is counted, refused and delayed, the same from both kinds of broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from contract.wire_client import WireClient, code
from kafka_reference import BrokerProcess, Clusters, topic_name
from waiting import wait_until

from kafkalake import Admin

NONE, UNKNOWN_TOPIC, INVALID_PARTITIONS, INVALID_REQUEST, EXCEEDED = 0, 3, 37, 42, 89
CLIENT_ID, IP = "client-id", "ip"
MUTATIONS, CONNECTIONS = "controller_mutation_rate", "connection_creation_rate"
BURST = 11
"""Partitions that may be changed at once, at one a second."""


def set_quota(client: WireClient, kind: str, name: str, key: str, value: float | None) -> None:
    ops = [{"key": key, "value": value or 0.0, "remove": value is None}]
    entry = {"entity": [{"entity_type": kind, "entity_name": name}], "ops": ops}
    answer = client.call("AlterClientQuotas", 1, entries=[entry], validate_only=False)
    assert code(answer.entries[0].error_code) == 0
    time.sleep(0.3)  # Apache Kafka enforces it a little later


def refusal(client: WireClient, kind: str, key: str, value: float) -> tuple[int, str | None]:
    entry = {
        "entity": [{"entity_type": kind, "entity_name": "192.0.2.1"}],
        "ops": [{"key": key, "value": value, "remove": False}],
    }
    answer = client.call("AlterClientQuotas", 1, entries=[entry], validate_only=True).entries[0]
    return code(answer.error_code), answer.error_message


class Client:
    """A client with a client id of its own, one partition a second, and a connection for each request: pauses do not add up."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.client_id = topic_name("client")
        self.throttle_ms = 0

    def call(self, api: str, version: int, **values: Any) -> Any:
        with WireClient(self.servers, client_id=self.client_id) as client:
            answer = client.call(api, version, **values)
        self.throttle_ms = answer.throttle_time
        return answer

    def create(self, version: int, *partitions: int, validate_only: bool = False) -> list[int]:
        asked = [new_topic(topic_name(), count) for count in partitions]
        answer = self.call("CreateTopics", version, topics=asked, timeout=20_000, validate_only=validate_only)
        return [code(each.error_code) for each in answer.topics]

    def grow(self, version: int, name: str, count: int, *, validate_only: bool = False) -> int:
        asked = [{"name": name, "count": count, "assignments": None}]
        answer = self.call("CreatePartitions", version, topics=asked, timeout=20_000, validate_only=validate_only)
        return code(answer.results[0].error_code)

    def delete(self, version: int, name: str) -> int:
        asked: dict[str, Any] = {"topics": [{"name": name}]} if version >= 6 else {"topic_names": [name]}
        answer = self.call("DeleteTopics", version, timeout=20_000, **asked)
        return code(answer.responses[0].error_code)

    def exhaust(self) -> None:
        assert self.create(7, BURST + 30, validate_only=True) == [NONE]


def new_topic(name: str, partitions: int) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }


@pytest.fixture
def new_client(any_broker: BrokerProcess) -> Iterator[Callable[[], Client]]:
    limited: list[str] = []
    with WireClient(any_broker.bootstrap_servers) as admin:

        def make() -> Client:
            client = Client(any_broker.bootstrap_servers)
            set_quota(admin, CLIENT_ID, client.client_id, MUTATIONS, 1.0)
            limited.append(client.client_id)
            return client

        yield make
        for each in limited:
            set_quota(admin, CLIENT_ID, each, MUTATIONS, None)


def test_values_that_quotas_cannot_have(client: WireClient) -> None:
    assert refusal(client, "user", MUTATIONS, 0.25) == (NONE, None)
    assert refusal(client, IP, CONNECTIONS, 2.0**31 - 1) == (NONE, None)
    for kind, key, value in (
        (IP, MUTATIONS, 1.0),
        ("user", CONNECTIONS, 1.0),
        (IP, "producer_byte_rate", 1.0),
    ):
        assert refusal(client, kind, key, value) == (INVALID_REQUEST, f"Invalid configuration key {key}")
    for value, text in (
        (1.5, f"{CONNECTIONS} cannot be a fractional value."),
        (1e12, f"Proposed value for {CONNECTIONS} is too large for an INT."),
        (-1.0, f"Quota {CONNECTIONS} must be greater than 0"),
    ):
        assert refusal(client, IP, CONNECTIONS, value) == (INVALID_REQUEST, text)


def test_new_topics_beyond_the_quota_are_refused(new_client: Callable[[], Client]) -> None:
    client = new_client()
    assert client.create(7, 6, 5, 0, 3, 1) == [NONE, NONE, INVALID_PARTITIONS, NONE, EXCEEDED]
    assert 2_000 < client.throttle_ms <= 3_001
    assert client.create(6, 0) == [INVALID_PARTITIONS]
    assert client.throttle_ms == 0
    assert client.create(6, 1) == [EXCEEDED]
    assert client.throttle_ms > 1_000


def test_what_is_only_checked_counts(new_client: Callable[[], Client]) -> None:
    client = new_client()
    assert client.create(7, BURST + 9, validate_only=True) == [NONE]
    assert client.throttle_ms == 0
    assert client.create(7, 1, validate_only=True) == [EXCEEDED]
    assert 7_000 < client.throttle_ms <= 9_001
    client = new_client()
    topic = topic_name()
    with WireClient(client.servers) as other:
        other.call("CreateTopics", 7, topics=[new_topic(topic, 2)], timeout=20_000)
    assert client.grow(3, topic, BURST + 12, validate_only=True) == NONE
    assert client.grow(3, topic, 3, validate_only=True) == EXCEEDED


def test_older_versions_are_carried_out_and_delay_the_client(new_client: Callable[[], Client]) -> None:
    client, topic = new_client(), topic_name()
    with WireClient(client.servers) as other:
        other.call("CreateTopics", 7, topics=[new_topic(topic, 2)], timeout=20_000)
    client.exhaust()
    for version, expected in ((7, EXCEEDED), (6, EXCEEDED), (5, NONE)):
        assert client.create(version, 1) == [expected]
        assert client.throttle_ms > 10_000
    for version, expected in ((3, EXCEEDED), (2, NONE)):
        assert client.grow(version, topic, 3) == expected
        assert client.throttle_ms > 10_000
    for version, expected in ((6, EXCEEDED), (5, EXCEEDED), (4, NONE)):
        assert client.delete(version, topic) == expected
        assert client.throttle_ms > 10_000
    assert client.delete(6, topic) == UNKNOWN_TOPIC
    assert client.throttle_ms == 0


def test_the_client_is_not_read_from_for_that_time(new_client: Callable[[], Client]) -> None:
    limited = new_client()
    with WireClient(limited.servers, client_id=limited.client_id) as client:
        began_s = time.monotonic()
        asked = [new_topic(topic_name(), BURST + 2)]
        throttle_ms = client.call("CreateTopics", 5, topics=asked, timeout=20_000).throttle_time
        assert 500 < throttle_ms <= 2_001
        client.call("ApiVersions", 0)
        assert time.monotonic() - began_s > throttle_ms / 1_000


def test_a_topic_is_not_created_by_asking_for_it(new_client: Callable[[], Client]) -> None:
    client = new_client()

    def ask(name: str) -> int:
        answer = client.call("Metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=True)
        return code(answer.topics[0].error_code)

    made, refused = topic_name(), topic_name()
    wait_until(lambda: ask(made) == NONE)
    client.exhaust()
    for _ in range(5):
        assert ask(refused) == UNKNOWN_TOPIC
        time.sleep(0.1)
    assert client.throttle_ms == 0


def test_our_client_waits_and_tries_again(new_client: Callable[[], Client]) -> None:
    limited, topic = new_client(), topic_name()
    with Admin({"client.id": limited.client_id}, bootstrap_servers=limited.servers) as admin:
        admin.create_topic(topic_name(), partitions=BURST + 1)
        began_s = time.monotonic()
        admin.create_topic(topic, partitions=2)
        assert 0.5 < time.monotonic() - began_s < 5
        admin.create_partitions(topic, 3)
        assert len(admin.describe_topic(topic, wait_s=10).partitions) == 3


def test_our_client_deletes_those_that_are_refused_behind_others_once_it_may(new_client: Callable[[], Client]) -> None:
    limited, names = new_client(), [topic_name() for _ in range(3)]
    with Admin(bootstrap_servers=limited.servers) as free:
        for each in names:
            free.create_topic(each, partitions=BURST // 2 + 1)
    with Admin({"client.id": limited.client_id}, bootstrap_servers=limited.servers) as admin:
        assert admin.delete_topics([*names, topic_name("missing")]).keys().isdisjoint(names)


def test_connections_beyond_the_quota_of_an_address_are_closed_unread(any_broker: BrokerProcess) -> None:
    def answers() -> bool:
        with WireClient(any_broker.bootstrap_servers) as client:
            try:
                client.call("ApiVersions", 0)
            except ConnectionError:
                return False
        return True

    with WireClient(any_broker.bootstrap_servers) as admin:
        try:
            set_quota(admin, IP, "127.0.0.1", CONNECTIONS, 1.0)
            assert [answers() for _ in range(10)] == [True] * 10
            began_s = time.monotonic()
            assert not answers()
            assert 0.5 < time.monotonic() - began_s < 2
            admin.call("ApiVersions", 0)
        finally:
            set_quota(admin, IP, "127.0.0.1", CONNECTIONS, None)
    assert [answers() for _ in range(20)] == [True] * 20


@pytest.mark.peer
@pytest.mark.exhaustive
def test_what_any_of_three_brokers_forwards_is_counted_once(three_brokers: Clusters) -> None:
    for cluster in three_brokers:
        servers = [each.bootstrap_servers for each in cluster.brokers]
        client = Client(servers[0])
        with WireClient(servers[0]) as admin:
            set_quota(admin, CLIENT_ID, client.client_id, MUTATIONS, 1.0)
        found = []
        for each in servers:
            client.servers = each
            found += client.create(7, BURST // 3)
        assert found == [NONE] * 3
        client.exhaust()
        for each in servers:
            client.servers = each
            assert client.create(7, 1) == [EXCEEDED]
            began_s = time.monotonic()
            assert client.throttle_ms > 10_000
            with WireClient(each, client_id=client.client_id) as limited:
                limited.send("CreateTopics", 7, topics=[new_topic(topic_name(), 1)], timeout=20_000)
                limited.receive_frame()
                limited.socket.settimeout(0.5)
                limited.send("ApiVersions", 0)
                with pytest.raises(TimeoutError):
                    limited.receive_frame()
            assert time.monotonic() - began_s < 5
        with WireClient(servers[0]) as admin:
            set_quota(admin, CLIENT_ID, client.client_id, MUTATIONS, None)
