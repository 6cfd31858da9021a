"""One broker with several listeners: each client is told the addresses of the listener that it is connected to."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from contract.wire_client import WireClient, code, create_topic
from kafka_reference import free_port
from node_in_thread import NodeInThread
from waiting import wait_until

from kafkalake.cluster.image import BrokerRegistration, Endpoint
from kafkalake.config.listener import Listener

pytestmark = pytest.mark.process

LISTENER_NOT_FOUND, LEADER_NOT_AVAILABLE = 72, 5


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeInThread]:
    settings = {
        "listeners": "INTERNAL://127.0.0.1:0,EXTERNAL://:0,CONTROLLER://localhost:0",
        "advertised.listeners": "INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0",
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "EXTERNAL",
        "controller.listener.names": "CONTROLLER",
        "offsets.topic.num.partitions": "1",
    }
    with NodeInThread(tmp_path_factory.mktemp("listeners") / "lake", settings) as node:
        yield node


@pytest.fixture(scope="module")
def listeners(node: NodeInThread) -> dict[str, Listener]:
    return {each.name: each for each in node.node.listeners}


def server(listener: Listener) -> str:
    return f"{listener.host or '127.0.0.1'}:{listener.port}"


def test_all_listeners_are_registered_the_one_for_other_brokers_first(
    node: NodeInThread, listeners: dict[str, Listener]
) -> None:
    assert list(listeners) == ["EXTERNAL", "INTERNAL", "CONTROLLER"]
    assert len({each.port for each in listeners.values()}) == 3
    registered = node.on_loop(lambda: node.broker.cluster.brokers[0])
    assert registered.endpoints == tuple(
        Endpoint(each.name, each.advertised_host, each.port) for each in listeners.values()
    )


@pytest.mark.parametrize("name", ["INTERNAL", "EXTERNAL"])
def test_a_client_of_a_listener_stays_at_it(listeners: dict[str, Listener], name: str) -> None:
    """librdkafka produces, commits and consumes at the addresses that it is told."""
    listener, topic = listeners[name], f"clicks-{name}"
    servers = server(listener)
    found = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=20).brokers
    assert [(each.host, each.port) for each in found.values()] == [("127.0.0.1", listener.port)]
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, b"x")
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": servers, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    record = consumer.poll(30)
    assert record is not None and record.value() == b"x"
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.mark.parametrize("name", ["INTERNAL", "EXTERNAL", "CONTROLLER"])
def test_every_answer_with_an_address_has_that_of_the_listener(listeners: dict[str, Listener], name: str) -> None:
    listener = listeners[name]
    expected = (0, listener.advertised_host, listener.port)
    with WireClient(server(listener)) as client:
        if name != "CONTROLLER":  # which does not answer what is a broker's
            metadata = client.call("Metadata", 12, topics=[])
            assert [(each.node_id, each.host, each.port) for each in metadata.brokers] == [expected]
            coordinator = client.call("FindCoordinator", 4, key_type=0, coordinator_keys=["g"]).coordinators[0]
            assert (coordinator.node_id, coordinator.host, coordinator.port) == expected
        endpoint_type = 2 if name == "CONTROLLER" else 1
        cluster = client.call("DescribeCluster", 1, endpoint_type=endpoint_type)
        assert [(each.broker_id, each.host, each.port) for each in cluster.brokers] == [expected]
        assert code(client.call("DescribeCluster", 1, endpoint_type=3 - endpoint_type).error_code) == 114
        quorum = client.call("DescribeQuorum", 2, topics=[])
        assert [(each.node_id, each.listeners[0].host, each.listeners[0].port) for each in quorum.nodes] == [expected]


def test_a_listener_of_every_address_takes_ipv4_and_ipv6(node: NodeInThread, listeners: dict[str, Listener]) -> None:
    acceptor = node.node.acceptor
    assert acceptor is not None
    for host in ["127.0.0.1", *(["::1"] if socket.has_dualstack_ipv6() else [])]:
        with socket.create_connection((host, listeners["EXTERNAL"].port), timeout=10):
            wait_until(lambda host=host: node.on_loop(lambda: acceptor._per_address[host]) == 1)  # type: ignore[misc]


def test_a_leader_without_the_clients_listener_is_said_to_have_none(
    node: NodeInThread, listeners: dict[str, Listener]
) -> None:
    def register_another() -> None:
        """A second broker, which leads a partition and is not reached at INTERNAL."""
        topics, cluster = node.broker.topics, node.broker.cluster
        other = BrokerRegistration(1, 9, uuid4(), (Endpoint("EXTERNAL", "other", 1),), is_fenced=False)
        topic_id = topics.topic("two").topic_id
        partitions = cluster.partitions[topic_id]
        moved = (partitions[0], replace(partitions[1], leader=1, replicas=(1,), isr=(1,)))
        topics.apply(cluster.with_broker(other).with_topics({topic_id: moved}))

    with WireClient(server(listeners["INTERNAL"])) as inside, WireClient(server(listeners["EXTERNAL"])) as outside:
        create_topic(inside, "two", 2)
        node.on_loop(register_another)

        def leaders(client: WireClient, version: int) -> list[tuple[int, int]]:
            (topic,) = client.call("Metadata", version, topics=[{"name": "two"}]).topics
            return [(each.leader_id, code(each.error_code)) for each in topic.partitions]

        assert leaders(outside, 12) == [(0, 0), (1, 0)]
        assert leaders(inside, 12) == [(0, 0), (-1, LISTENER_NOT_FOUND)]
        assert leaders(inside, 5) == [(0, 0), (-1, LEADER_NOT_AVAILABLE)]


def test_a_fenced_broker_is_described_where_it_is_asked_for(node: NodeInThread, listeners: dict[str, Listener]) -> None:
    def register() -> None:
        fenced = BrokerRegistration(5, 9, uuid4(), (Endpoint("EXTERNAL", "gone", 1),), is_fenced=True)
        node.broker.topics.apply(node.broker.cluster.with_broker(fenced))

    node.on_loop(register)
    with WireClient(server(listeners["EXTERNAL"])) as client:

        def described(fenced: bool) -> dict[int, bool]:
            answer = client.call("DescribeCluster", 2, endpoint_type=1, include_fenced_brokers=fenced)
            return {each.broker_id: each.is_fenced for each in answer.brokers if each.broker_id != 1}

        assert described(False) == {0: False}
        assert described(True) == {0: False, 5: True}


def test_a_port_that_is_taken_is_named_and_the_other_listeners_are_closed(tmp_path: Path) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},OTHER://{address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
        }
        with pytest.raises(OSError, match=f"cannot listen on {address}"), NodeInThread(tmp_path / "lake", settings):
            pass
    with socket.create_server(("127.0.0.1", port)):
        pass
