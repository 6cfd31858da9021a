"""What an administrator changes in the cluster: leaders are elected, a broker is unregistered, each in one version."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from contract.wire_client import WireClient, create_topic
from node_in_thread import NodeInThread

from kafkalake.broker.controller.controller import Decision, one_replica
from kafkalake.cluster.image import BrokerRegistration, ClusterImage, Endpoint, decide_together
from kafkalake.cluster.registration import fence_broker, register_broker, unfence_broker
from kafkalake.errors import (
    BrokerIdNotRegisteredError,
    ElectionNotNeededError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    PreferredLeaderNotAvailableError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)

pytestmark = pytest.mark.process

OTHER = BrokerRegistration(7, -1, UUID(int=70), (Endpoint("PLAINTEXT", "127.0.0.1", 1),))


class Cluster:
    """A broker that is the controller, another one that is only registered, and a client."""

    def __init__(self, node: NodeInThread, client: WireClient) -> None:
        self.node = node
        self.client = client

    def change(self, *decisions: Decision) -> ClusterImage:
        change = self.node.broker.controller.change(lambda image: decide_together(image, *decisions))
        return asyncio.run_coroutine_threadsafe(change, self.node.loop).result(20)

    def elect(self, election_type: int, topics: list[tuple[str, list[int]]] | None, timeout: int = 5_000) -> Any:
        asked = None if topics is None else [{"topic": name, "partitions": indexes} for name, indexes in topics]
        return self.client.call("ElectLeaders", 2, election_type=election_type, topic_partitions=asked, timeout=timeout)

    def leaders(self, topic: str) -> list[int]:
        return [each.leader for each in self.node.on_loop(lambda: self.node.broker.topics.topic(topic).registrations)]


def outcomes(answer: Any) -> dict[tuple[str, int], int]:
    """Return the error code of each partition in a response to ElectLeaders."""
    return {
        (topic.topic, each.partition_id): each.error_code
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The first partition of the topic `led` is led by its second replica, the second one prefers a broker that has ended."""
    with NodeInThread(tmp_path_factory.mktemp("cluster") / "lake") as node, WireClient(node.servers) as client:
        create_topic(client, "led", partitions=3)
        create_topic(client, "other")
        cluster = Cluster(node, client)

        def replicate(image: ClusterImage) -> ClusterImage:
            topic_id = node.broker.topics.topic("led").topic_id
            first, second, third = image.partitions[topic_id]
            first = replace(first, replicas=(7, 0), isr=(7, 0))
            return image.with_topics({topic_id: (first, replace(second, replicas=(8, 0)), third)})

        epoch = node.broker.cluster.version + 1
        cluster.change(
            lambda image: register_broker(image, OTHER, one_replica, is_clean=True),
            lambda image: unfence_broker(image, 7, epoch, one_replica),
            replicate,
        )
        yield cluster


def test_preferred_leaders_are_elected(cluster: Cluster) -> None:
    version = cluster.node.broker.cluster.version
    answer = cluster.elect(0, [("led", [0, 1, 2, 3, 0]), ("unknown", [0])])
    assert answer.error_code == 0
    assert outcomes(answer) == {
        ("led", 0): 0,
        ("led", 1): PreferredLeaderNotAvailableError.code,
        ("led", 2): ElectionNotNeededError.code,
        ("led", 3): UnknownTopicOrPartitionError.code,
        ("unknown", 0): UnknownTopicOrPartitionError.code,
    }
    assert cluster.leaders("led") == [7, 0, 0]
    assert cluster.node.broker.cluster.version == version + 1


def test_of_all_partitions_those_that_need_no_election_are_left_out(cluster: Cluster) -> None:
    assert outcomes(cluster.elect(0, None)) == {("led", 0): 0, ("led", 1): PreferredLeaderNotAvailableError.code}
    assert outcomes(cluster.elect(1, None)) == {}


def test_an_election_of_an_unknown_type_is_refused(cluster: Cluster) -> None:
    assert cluster.elect(2, None).error_code == InvalidRequestError.code


def test_an_election_that_is_late_is_said_to_be(cluster: Cluster) -> None:
    assert cluster.elect(0, [("led", [0])], timeout=0).error_code == RequestTimedOutError.code


def test_a_leader_changes_its_isr(cluster: Cluster) -> None:
    topic = cluster.node.broker.topics.topic("led")
    now, epochs = topic.registrations[0], {0: cluster.node.broker.cluster.brokers[0].epoch, 9: 1}

    def alter(partition_epoch: int, *isr: int) -> Any:
        change = {
            "partition_index": 0,
            "leader_epoch": now.leader_epoch,
            "partition_epoch": partition_epoch,
            "new_isr_with_epochs": [{"broker_id": each, "broker_epoch": epochs[each]} for each in isr],
        }
        topics = [{"topic_id": topic.topic_id, "partitions": [change]}]
        answer = cluster.client.call("AlterPartition", 3, broker_id=0, broker_epoch=epochs[0], topics=topics)
        return answer.topics[0].partitions[0]

    altered = alter(now.partition_epoch, 0)
    assert (altered.error_code, altered.isr, altered.partition_epoch) == (0, [0], now.partition_epoch + 1)
    assert topic.registrations[0].isr == (0,)
    assert alter(now.partition_epoch, 0).error_code == InvalidUpdateVersionError.code
    assert alter(now.partition_epoch + 1, 0, 9).error_code == InvalidRequestError.code


def test_a_broker_that_has_ended_is_unregistered(cluster: Cluster) -> None:
    def code(broker_id: int) -> int:
        return int(cluster.client.call("UnregisterBroker", 0, broker_id=broker_id).error_code)

    assert [code(0), code(7), code(9)] == [
        InvalidRequestError.code,
        InvalidRequestError.code,
        BrokerIdNotRegisteredError.code,
    ]
    epoch = cluster.node.broker.cluster.brokers[7].epoch
    cluster.change(lambda image: fence_broker(image, 7, epoch, one_replica))
    assert [code(7), code(7)] == [0, BrokerIdNotRegisteredError.code]
    assert list(cluster.node.broker.cluster.brokers) == [0]
