"""The network client against simulated brokers: connections, requests, their ends, metadata."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from simulated_network import SimulatedBroker, SimulatedNetwork, SimulatedTopics, feed

from kafkalake.client.network.client import FIRST_CONTACT_MS, NetworkClient, second_connection
from kafkalake.client.network.pending_request import PendingRequest
from kafkalake.client.network.settings import NetworkSettings
from kafkalake.client.requests import FIND_COORDINATOR, LIST_TRANSACTIONS, METADATA
from kafkalake.client.settings import parse_settings
from kafkalake.errors import BrokerUnavailableError, ConnectionLostError, ResponseTimedOutError, UnsupportedVersionError
from kafkalake.wire.messages.cluster import MetadataRequest, MetadataResponse, NodeEndpoint, TopicMetadata
from kafkalake.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from kafkalake.wire.messages.transactions import ListTransactionsRequest

REQUEST = FindCoordinatorRequest(key="g")


class Cluster:
    """Two brokers, a topic on each, and a client of the first."""

    def __init__(self, **settings: object) -> None:
        self.brokers = [SimulatedBroker(0), SimulatedBroker(1)]
        self.topics = SimulatedTopics(self.brokers, {"a": [0], "b": [1, -1]})
        for broker in self.brokers:
            broker.handlers[FIND_COORDINATOR] = lambda request: FindCoordinatorResponse(node_id=7)
        given = {"bootstrap.servers": "b0:9092,b9:9092", **settings}
        self.client = NetworkClient(parse_settings(NetworkSettings, given), Random(1))
        self.network = SimulatedNetwork(self.client, self.brokers)

    def ask(self, node_id: int = 0, **others: object) -> PendingRequest[FindCoordinatorResponse]:
        return self.client.send(node_id, FIND_COORDINATOR, REQUEST, self.network.now_ms, **others)  # type: ignore[arg-type]


def test_a_request_waits_for_its_connection_and_is_answered() -> None:
    cluster = Cluster()
    cluster.network.run(100)
    done = []
    pending = cluster.ask(1, done=done.append)
    assert not pending.is_done
    cluster.network.run()
    assert pending.result().node_id == 7
    assert done == [pending]


def test_metadata_names_leaders_and_is_refreshed_until_all_partitions_have_one() -> None:
    cluster = Cluster()
    metadata = cluster.client.metadata
    metadata.add(["a", "b", "missing"])
    cluster.network.run(50)
    assert metadata.leader("a", 0) == 0
    assert metadata.leader("b", 0) == 1
    assert metadata.leader("b", 1) is None
    assert metadata.cluster.errors["missing"].code == 3
    cluster.topics.leaders["b"][1] = 0
    cluster.network.run(1_500)
    assert metadata.leader("b", 1) == 0


def test_a_leader_named_by_an_error_counts_if_its_epoch_is_newer() -> None:
    cluster = Cluster()
    metadata = cluster.client.metadata
    metadata.add(["a"])
    cluster.network.run(50)
    endpoint = NodeEndpoint(node_id=5, host="b5", port=9092)
    assert metadata.take_leaders({("a", 0): (5, 3), ("x", 0): (5, 9)}, [endpoint]) == {("a", 0)}
    assert metadata.take_leaders({("a", 0): (0, 2)}, []) == set()
    metadata.request_update()
    cluster.network.run(500)
    assert metadata.leader("a", 0) == 5  # the broker that answers lags behind


def test_a_coordinator_is_connected_to_where_its_answer_says_it_is() -> None:
    metadata = Cluster().client.metadata
    for named in ({"node_id": 5}, {"host": "b5", "port": 0}, {"host": "b5", "port": 1 << 16}, {"port": 9092}):
        assert not metadata.take_coordinator(FindCoordinatorResponse(**{"node_id": 5, **named}))
    assert not metadata.take_coordinator(FindCoordinatorResponse(node_id=-1, host="b5", port=9092))
    assert metadata.version == 0
    for host in ("b5", "b5", "b6"):
        assert metadata.take_coordinator(FindCoordinatorResponse(node_id=5, host=host, port=9092))
        assert metadata.cluster.nodes[5].host == host
    assert metadata.version == 2
    assert metadata.take_coordinator(FindCoordinatorResponse(node_id=5)), "it is known"


def test_a_request_without_an_answer_ends_its_connection_and_the_next_one_opens_another() -> None:
    cluster = Cluster()
    cluster.network.run(100)
    handlers = cluster.brokers[0].handlers
    answer = handlers[FIND_COORDINATOR]
    handlers[FIND_COORDINATOR] = lambda request: None
    first, second = cluster.ask(timeout_ms=1_000), cluster.ask(timeout_ms=5_000)
    cluster.network.run(1_000)
    assert isinstance(first.error, ResponseTimedOutError)
    assert isinstance(second.error, ConnectionLostError)
    handlers[FIND_COORDINATOR] = answer
    third = cluster.ask()
    cluster.network.run(200)
    assert third.result().node_id == 7


def test_a_broken_connection_fails_what_is_in_flight_and_is_opened_again() -> None:
    cluster = Cluster()
    cluster.network.run(100)
    for _ in range(2):
        cluster.network.hold_answers()
        pending = cluster.ask()
        cluster.network.run()
        cluster.network.cut(cluster.brokers[0])
        assert isinstance(pending.error, ConnectionLostError)
        cluster.network.deliver()
        again = cluster.ask()
        cluster.network.run(300)
        assert again.result().node_id == 7


def test_a_broker_that_is_down_fails_requests_and_is_tried_again_with_growing_pauses() -> None:
    cluster = Cluster()
    cluster.network.run(100)
    cluster.brokers[1].is_up = False
    pending = cluster.ask(1)
    cluster.network.run()
    assert isinstance(pending.error, BrokerUnavailableError)
    assert not cluster.client.can_send(1, cluster.network.now_ms)
    later = cluster.ask(1, timeout_ms=20_000)
    cluster.network.run(100)
    cluster.brokers[1].is_up = True
    assert later.is_done  # the second attempt failed too
    last = cluster.ask(1)
    cluster.network.run(2_000)
    assert last.result().node_id == 7


def test_an_unknown_broker_fails_requests() -> None:
    cluster = Cluster()
    cluster.network.run(100)
    pending = cluster.ask(77)
    cluster.network.run()
    assert "broker 77 is not part of the cluster" in str(pending.error)


def test_a_broker_that_has_left_the_cluster_is_not_looked_for_for_ever() -> None:
    cluster = Cluster()
    cluster.network.run(100)
    cluster.brokers[1].is_up = False
    cluster.topics.brokers = cluster.brokers[:1]
    cluster.client.prepare(1, cluster.network.now_ms)
    cluster.network.settle()
    assert not cluster.client.prepare(1, cluster.network.now_ms), "wanted, in the pause after a failure"
    cluster.network.run(5_000)
    before = asked(cluster)
    cluster.network.run(60_000)
    assert asked(cluster) == before
    cluster.brokers[1].is_up = True
    cluster.topics.brokers = cluster.brokers
    cluster.client.metadata.request_update()
    cluster.network.run(5_000)
    assert not cluster.client.prepare(1, cluster.network.now_ms)
    cluster.network.run(100)
    assert cluster.client.prepare(1, cluster.network.now_ms)


def asked(cluster: Cluster) -> int:
    """How often the first broker was asked for metadata."""
    return sum(isinstance(each, MetadataRequest) for each in cluster.brokers[0].requests)


def test_a_wrong_address_is_said_after_seconds() -> None:
    cluster = Cluster()
    cluster.brokers[0].is_up = False
    cluster.network.run(FIRST_CONTACT_MS - 10)
    assert cluster.client.unreachable(cluster.network.now_ms) is None
    cluster.network.run(10)
    error = cluster.client.unreachable(cluster.network.now_ms)
    assert error is not None and "nothing listens at b0:9092" in str(error)
    cluster.brokers[0].is_up = True
    cluster.network.run(2_000)
    assert cluster.client.unreachable(cluster.network.now_ms) is None


def test_an_api_that_the_broker_lacks_fails_its_request_only() -> None:
    cluster = Cluster()
    cluster.network.run(100)
    lacking = cluster.client.send(0, LIST_TRANSACTIONS, ListTransactionsRequest(), cluster.network.now_ms)
    pending = cluster.ask()
    cluster.network.run()
    assert isinstance(lacking.error, UnsupportedVersionError)
    assert pending.result().node_id == 7


def test_no_more_requests_are_in_flight_than_allowed() -> None:
    cluster = Cluster(**{"max.in.flight.requests.per.connection": 2})
    cluster.network.run(100)
    cluster.ask()
    cluster.network.run()
    cluster.network.hold_answers()
    assert cluster.client.prepare(0, cluster.network.now_ms)
    cluster.ask()
    cluster.ask()
    assert not cluster.client.prepare(0, cluster.network.now_ms)
    cluster.network.run()
    cluster.network.deliver()
    assert cluster.client.prepare(0, cluster.network.now_ms)


def test_a_closed_client_fails_everything() -> None:
    cluster = Cluster()
    cluster.network.run(100)
    cluster.network.hold_answers()
    pending = [cluster.ask(), cluster.ask(1)]
    cluster.network.run()
    assert cluster.client.close()
    assert all(isinstance(each.error, BrokerUnavailableError) for each in pending)


def test_bytes_that_are_no_answer_end_the_connection() -> None:
    cluster = Cluster()
    cluster.network.run(100)
    cluster.network.hold_answers()
    pending = cluster.ask()
    cluster.network.run()
    feed(cluster.client, 0, b"HTTP/1.1 400 Bad Request", cluster.network.now_ms)
    assert pending.is_done and "does not speak Kafka's protocol" in str(pending.error)


@pytest.mark.parametrize("servers", ["", "host:x", "a:1,b:99999999"])
def test_a_malformed_address_is_refused(servers: str) -> None:
    with pytest.raises(Exception, match=r"bootstrap\.servers"):
        Cluster(**{"bootstrap.servers": servers})


def test_a_node_may_have_any_id_but_those_of_bootstrap_addresses() -> None:
    cluster = Cluster()
    largest = 2**31 - 1
    cluster.brokers += [SimulatedBroker(largest), SimulatedBroker(-7)]
    for broker in cluster.brokers:
        broker.handlers[FIND_COORDINATOR] = lambda request: FindCoordinatorResponse(node_id=7)
    cluster.network = SimulatedNetwork(cluster.client, cluster.brokers)
    cluster.network.run(100)
    found, second, none = cluster.ask(largest), cluster.ask(second_connection(largest)), cluster.ask(-7)
    cluster.network.run(1_000)
    assert (found.result().node_id, second.result().node_id) == (7, 7)
    assert isinstance(none.error, BrokerUnavailableError)


def test_brokers_at_ports_that_do_not_exist_are_none_of_the_cluster() -> None:
    cluster = Cluster()
    cluster.client.metadata.add(["a"])
    cluster.network.run(50)
    ports = {2: 70_000, 3: 2**31 - 1, 4: 0, 5: -1, 6: 65_535}
    endpoints = [NodeEndpoint(node_id=node, host="b", port=port) for node, port in ports.items()]
    for node in ports:
        cluster.client.metadata.take_leaders({("a", 0): (node, node)}, endpoints)
    assert [each for each in cluster.client.metadata.cluster.nodes if each > 1] == [6]


def test_topics_that_nobody_asked_for_are_dropped() -> None:
    cluster = Cluster()
    answer = cluster.topics.answer

    def more(request: Any) -> MetadataResponse:
        found = answer(request)
        found.topics = [*found.topics, *(TopicMetadata(name=f"x{n}") for n in range(1_000))]
        return found

    for broker in cluster.brokers:
        broker.handlers[METADATA] = more
    cluster.client.metadata.add(["a"])
    cluster.network.run(50)
    assert set(cluster.client.metadata.cluster.topics) == {"a"}
    cluster.client.metadata.follow_all()
    cluster.network.run(500)
    assert len(cluster.client.metadata.cluster.topics) == 1_002


def test_a_topic_of_which_an_answer_lacks_partitions_is_asked_for_again() -> None:
    cluster = Cluster()
    answer = cluster.topics.answer
    lacking = 3

    def less(request: Any) -> MetadataResponse:
        nonlocal lacking
        found = answer(request)
        for topic in found.topics if lacking else ():
            topic.partitions = [each for each in topic.partitions if each.partition_index != 0]
        lacking -= bool(lacking and found.topics)
        return found

    cluster.topics.leaders["a"] = [1, 1, 1]
    for broker in cluster.brokers:
        broker.handlers[METADATA] = less
    metadata = cluster.client.metadata
    metadata.add(["a"])
    cluster.network.run(50)
    assert "a" not in metadata.cluster.topics and metadata.cluster.errors["a"].retriable
    cluster.network.run(5_000)
    assert len(metadata.cluster.topics["a"].partitions) == 3 and not metadata.cluster.errors
