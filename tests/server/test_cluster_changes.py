"""What an administrator changes in the cluster: leaders are elected, a broker is unregistered, each in one version."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from contract.wire_client import WireClient, create_topic
from node_in_thread import NodeInThread

from kafkalake.broker.controller.controller import Decision
from kafkalake.cluster.election import ElectionRules
from kafkalake.cluster.image import BrokerRegistration, ClusterImage, Endpoint, decide_together
from kafkalake.cluster.partition_changes import IsrChange, Replica
from kafkalake.cluster.registration import fence_broker, register_broker, unfence_broker
from kafkalake.errors import (
    BrokerIdNotRegisteredError,
    ElectionNotNeededError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    NewLeaderElectedError,
    NoReassignmentInProgressError,
    NotControllerError,
    PreferredLeaderNotAvailableError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)

pytestmark = pytest.mark.process


def rules(topic_id: UUID) -> ElectionRules:
    return ElectionRules()


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
    # Nobody listens for the other broker, which need not take over either.
    settings = {"broker.connection.fencing.enable": "false", "controlled.shutdown.enable": "false"}
    lake = tmp_path_factory.mktemp("cluster") / "lake"
    with NodeInThread(lake, settings) as node, WireClient(node.servers) as client:
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
            lambda image: register_broker(image, OTHER, rules, is_clean=True),
            lambda image: unfence_broker(image, 7, epoch, rules),
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


def test_an_election_that_fails_after_its_request_leaves_no_error_behind(cluster: Cluster) -> None:
    node, goes_on = cluster.node, threading.Event()
    unretrieved: list[Any] = []
    node.on_loop(lambda: node.loop.set_exception_handler(lambda loop, context: unretrieved.append(context)))

    def wait(image: ClusterImage) -> ClusterImage:
        goes_on.wait(20)
        return image

    controller = node.broker.controller
    before = asyncio.run_coroutine_threadsafe(controller.change(wait), node.loop)
    assert cluster.elect(0, [("led", [0])], timeout=1).error_code == RequestTimedOutError.code
    node.on_loop(controller.resign)
    goes_on.set()
    with contextlib.suppress(NotControllerError):  # if the next term has begun by then
        before.result(20)
    with pytest.raises(NotControllerError):
        asyncio.run_coroutine_threadsafe(controller.confirm(), node.loop).result(20)
    node.on_loop(gc.collect)
    assert unretrieved == []


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
    cluster.change(lambda image: fence_broker(image, 7, epoch, rules))
    assert [code(7), code(7)] == [0, BrokerIdNotRegisteredError.code]
    assert list(cluster.node.broker.cluster.brokers) == [0]


def create(client: WireClient, name: str, replicas: int, *assigned: list[int], **config: str) -> Any:
    """Create a topic, of two partitions unless their replicas are given, and return the result."""
    topic = {
        "name": name,
        "num_partitions": -1 if assigned else 2,
        "replication_factor": replicas,
        "assignments": [{"partition_index": index, "broker_ids": each} for index, each in enumerate(assigned)],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in config.items()],
    }
    (answer,) = client.call("CreateTopics", 7, topics=[topic], timeout=5_000, validate_only=False).topics
    return answer


def test_partitions_have_as_many_replicas_as_are_asked_for(cluster: Cluster) -> None:
    def grow(name: str, count: int, *assigned: list[int]) -> int:
        assignments = [{"broker_ids": each} for each in assigned] or None
        topics = [{"name": name, "count": count, "assignments": assignments}]
        answer = cluster.client.call("CreatePartitions", 3, topics=topics, timeout=5_000, validate_only=False)
        return int(answer.results[0].error_code)

    def replicas(name: str) -> list[tuple[int, ...]]:
        found = cluster.node.on_loop(lambda: cluster.node.broker.topics.topic(name).registrations)
        assert all(each.isr == each.replicas and each.leader == each.replicas[0] for each in found)
        return [each.replicas for each in found]

    placed = create(cluster.client, "placed", 2)
    assert (placed.error_code, placed.num_partitions, placed.replication_factor) == (0, 2, 2)
    assert sorted(map(sorted, replicas("placed"))) == [[0, 7], [0, 7]]
    assert {each[0] for each in replicas("placed")} == {0, 7}
    assert create(cluster.client, "many", 3).error_code == InvalidReplicationFactorError.code
    assigned = create(cluster.client, "assigned", -1, [7, 0], [0, 7])
    assert (assigned.error_code, assigned.num_partitions, assigned.replication_factor) == (0, 2, 2)
    assert replicas("assigned") == [(7, 0), (0, 7)]
    assert create(cluster.client, "uneven", -1, [7, 0], [0]).error_code == InvalidReplicaAssignmentError.code
    assert grow("assigned", 3, [0]) == InvalidReplicaAssignmentError.code
    assert grow("assigned", 4, [7, 0]) == InvalidReplicaAssignmentError.code
    assert [grow("assigned", 3, [7, 0]), grow("placed", 3)] == [0, 0]
    assert replicas("assigned") == [(7, 0), (0, 7), (7, 0)]
    assert [len(each) for each in replicas("placed")] == [2, 2, 2]


def test_elections_follow_the_settings_of_topics(cluster: Cluster) -> None:
    node, client = cluster.node, cluster.client

    def configure(value: str) -> None:
        configs = [{"name": "min.insync.replicas", "config_operation": 0, "value": value}]
        resources = [{"resource_type": 2, "resource_name": "strict", "configs": configs}]
        answer = client.call("IncrementalAlterConfigs", 1, resources=resources, validate_only=False)
        assert answer.responses[0].error_code == 0

    create(client, "strict", 2, min_insync_replicas="2")
    topic = node.broker.topics.topic("strict")
    epoch = node.broker.cluster.brokers[7].epoch
    cluster.change(lambda image: fence_broker(image, 7, epoch, node.broker.topics.election_rules))
    assert [(each.leader, each.isr, each.elr) for each in topic.registrations] == [(0, (0,), (7,))] * 2
    configure("2")
    assert [each.elr for each in topic.registrations] == [(7,)] * 2
    configure("1")
    assert [(each.isr, each.elr) for each in topic.registrations] == [((0,), ())] * 2


def test_partitions_move_to_other_brokers(cluster: Cluster) -> None:
    node, client = cluster.node, cluster.client
    create(client, "moved", -1, [0], [7], [0])
    topic = node.broker.topics.topic("moved")

    def move(*moves: list[int] | None, may_change_factor: bool = True) -> list[int]:
        partitions = [{"partition_index": index, "replicas": replicas} for index, replicas in enumerate(moves)]
        answer = client.call(
            "AlterPartitionReassignments",
            1,
            timeout=1000,
            allow_replication_factor_change=may_change_factor,
            topics=[{"name": "moved", "partitions": partitions}],
        )
        return [each.error_code for each in answer.responses[0].partitions]

    def moving() -> list[tuple[int, list[int], list[int], list[int]]]:
        answer = client.call("ListPartitionReassignments", 0, timeout=1000, topics=None)
        found = [each for topic in answer.topics for each in topic.partitions if topic.name == "moved"]
        return [(each.partition_index, each.replicas, each.adding_replicas, each.removing_replicas) for each in found]

    version = node.broker.cluster.version
    assert move([7], [7], [9]) == [0, 0, InvalidReplicaAssignmentError.code]
    assert node.broker.cluster.version == version + 1
    assert moving() == [(0, [7, 0], [7], [0])]
    assert move([7, 0], may_change_factor=False) == [InvalidReplicationFactorError.code]
    assert move(None, None) == [0, NoReassignmentInProgressError.code]
    assert moving() == [] and topic.registrations[0].replicas == (0,)
    assert move([7]) == [0]
    epoch = node.broker.cluster.brokers[7].epoch
    change = IsrChange(
        (topic.topic_id, 0),
        topic.registrations[0].leader_epoch,
        topic.registrations[0].partition_epoch,
        (Replica(0, node.broker.cluster.brokers[0].epoch), Replica(7, epoch)),
    )
    alter = node.broker.controller.alter_partition(0, node.broker.cluster.brokers[0].epoch, [change])
    (outcome,) = asyncio.run_coroutine_threadsafe(alter, node.loop).result(20)
    assert isinstance(outcome, NewLeaderElectedError)
    assert moving() == []
    assert (topic.registrations[0].replicas, topic.registrations[0].leader) == ((7,), 7)


def test_leadership_is_given_back(cluster: Cluster) -> None:
    node = cluster.node

    def rebalance(percentage: int) -> list[int]:
        work = node.broker.controller.rebalance_leaders(percentage)
        asyncio.run_coroutine_threadsafe(work, node.loop).result(20)
        return cluster.leaders("led")

    assert rebalance(100) == [0, 0, 0]
    version = node.broker.cluster.version
    assert rebalance(10) == [7, 0, 0]
    assert rebalance(10) == [7, 0, 0]
    assert node.broker.cluster.version == version + 1


def test_a_partition_without_a_leader_gets_one_when_its_topic_allows_it(cluster: Cluster) -> None:
    node, client = cluster.node, cluster.client
    create(client, "lost", -1, [7, 0])
    topic = node.broker.topics.topic("lost")
    epoch = node.broker.cluster.brokers[7].epoch

    def lose(image: ClusterImage) -> ClusterImage:
        (now,) = image.partitions[topic.topic_id]
        return image.with_topics({topic.topic_id: (replace(now, isr=(7,)),)})

    cluster.change(lose, lambda image: fence_broker(image, 7, epoch, node.broker.topics.election_rules))
    assert cluster.leaders("lost") == [-1]
    resources = [
        {
            "resource_type": 2,
            "resource_name": "lost",
            "configs": [{"name": "unclean.leader.election.enable", "config_operation": 0, "value": "true"}],
        }
    ]
    answer = client.call("IncrementalAlterConfigs", 1, resources=resources, validate_only=False)
    assert answer.responses[0].error_code == 0
    (found,) = topic.registrations
    assert (found.leader, found.isr) == (0, (0,))
