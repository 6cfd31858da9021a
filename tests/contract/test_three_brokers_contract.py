"""Requests that reach the wrong one of three brokers, and what any of them answers for all; the same from both kinds of broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from contract.wire_client import WireClient, batch, code, produce_values
from kafka_reference import BROKERS, Cluster, Clusters, topic_name
from waiting import wait_until

pytestmark = [pytest.mark.peer, pytest.mark.exhaustive]

NOT_LEADER, NOT_COORDINATOR = 6, 16
GROUP, TRANSACTION = 0, 1


class Brokers:
    """A cluster and a connection to each of its brokers."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self.ports = [each.port for each in cluster.brokers]
        self.clients = [stack.enter_context(WireClient(each.bootstrap_servers)) for each in cluster.brokers]

    def create(self, *leaders: int) -> str:
        """Create a topic of partitions with one replica each on these brokers, and wait until all brokers have it."""
        name = topic_name("led")
        assignments = [{"partition_index": index, "broker_ids": [leader]} for index, leader in enumerate(leaders)]
        wanted = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": assignments,
            "configs": [],
        }
        answer = self.clients[0].call("CreateTopics", 7, topics=[wanted], timeout=20_000, validate_only=False)
        assert code(answer.topics[0].error_code) == 0
        for client in self.clients:
            wait_until(lambda client=client: leaders_of(client, name) == list(leaders))
        return name


def leaders_of(client: WireClient, name: str, *, create: bool = False) -> list[int]:
    asked = [{"topic_id": None, "name": name}]
    answer = client.call(
        "Metadata",
        12,
        topics=asked,
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=False,
    )
    found = sorted(answer.topics[0].partitions, key=lambda each: each.partition_index)
    return [each.leader_id for each in found]


@pytest.fixture(scope="module", params=["kafkalake", "apache-kafka"])
def brokers(request: pytest.FixtureRequest, three_brokers: Clusters) -> Iterator[Brokers]:
    with ExitStack() as stack:
        cluster = three_brokers.kafkalake if request.param == "kafkalake" else three_brokers.apache_kafka
        yield Brokers(cluster, stack)


def test_a_producer_at_the_wrong_broker_hears_of_the_leader(brokers: Brokers) -> None:
    topic = brokers.create(1)
    for broker in (0, 2):
        answer = brokers.clients[broker].call("Produce", 10, **produce_values(topic, batch([(None, b"x")])))
        refused = answer.responses[0].partition_responses[0]
        assert code(refused.error_code) == NOT_LEADER
        assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (1, 0)
        assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(1, brokers.ports[1])]


def test_a_consumer_at_the_wrong_broker_hears_of_the_leader(brokers: Brokers) -> None:
    topic = brokers.create(2)
    described = brokers.clients[0].call(
        "DescribeTopicPartitions", 0, topics=[{"name": topic}], response_partition_limit=10, cursor=None
    )
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1_000,
    }
    answer = brokers.clients[0].call(
        "Fetch",
        16,
        max_wait=0,
        min_bytes=0,
        max_bytes=1_000,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic_id": described.topics[0].topic_id, "partitions": [partition]}],
        forgotten_topics_data=[],
        rack_id="",
    )
    refused = answer.responses[0].partitions[0]
    assert code(refused.error_code) == NOT_LEADER
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (2, 0)
    assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(2, brokers.ports[2])]


def test_offsets_are_asked_of_the_leader(brokers: Brokers) -> None:
    topic = brokers.create(0)
    for broker, expected in ((0, 0), (1, NOT_LEADER), (2, NOT_LEADER)):
        client = brokers.clients[broker]
        asked = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]
        topics = [{"name": topic, "partitions": asked}]
        answer = client.call("ListOffsets", 6, replica_id=-1, isolation_level=0, topics=topics)
        assert code(answer.topics[0].partitions[0].error_code) == expected
        topics = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 0}]}]
        answer = client.call("DeleteRecords", 2, topics=topics, timeout=5_000)
        assert code(answer.topics[0].partitions[0].error_code) == expected
        topics = [{"topic": topic, "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}]
        answer = client.call("OffsetForLeaderEpoch", 4, replica_id=-1, topics=topics)
        assert code(answer.topics[0].partitions[0].error_code) == expected


def coordinator(brokers: Brokers, key: str, kind: int) -> int:
    """Return the coordinator that all brokers name, once they do."""
    found: set[int] = set()

    def agree() -> bool:
        answers = [each.call("FindCoordinator", 4, key_type=kind, coordinator_keys=[key]) for each in brokers.clients]
        named = [each.coordinators[0] for each in answers]
        found.clear()
        found.update(-1 if code(each.error_code) else each.node_id for each in named)
        return len(found) == 1 and -1 not in found

    wait_until(agree, timeout_s=30)
    return found.pop()


def test_a_group_has_one_coordinator_and_the_others_say_so(brokers: Brokers) -> None:
    group = topic_name("group")
    chosen = coordinator(brokers, group, GROUP)
    for broker, client in enumerate(brokers.clients):
        heartbeat = client.call(
            "Heartbeat", 4, group_id=group, generation_id=1, member_id="m", group_instance_id=None
        ).error_code
        described = client.call("DescribeGroups", 5, groups=[group], include_authorized_operations=False)
        offsets = client.call("OffsetFetch", 7, group_id=group, topics=None, require_stable=False)
        codes = [code(each) for each in (heartbeat, described.groups[0].error_code, offsets.error_code)]
        if broker == chosen:
            assert NOT_COORDINATOR not in codes
        else:
            assert codes == [NOT_COORDINATOR] * 3


def test_a_transactional_id_has_one_coordinator_and_the_others_say_so(brokers: Brokers) -> None:
    name = topic_name("transactional")
    chosen = coordinator(brokers, name, TRANSACTION)
    for broker, client in enumerate(brokers.clients):
        if broker != chosen:
            answer = client.call(
                "InitProducerId",
                4,
                transactional_id=name,
                transaction_timeout=10_000,
                producer_id=-1,
                producer_epoch=-1,
            )
            assert code(answer.error_code) == NOT_COORDINATOR


def test_every_broker_describes_the_same_cluster(brokers: Brokers) -> None:
    answers = [each.call("DescribeCluster", 0, include_cluster_authorized_operations=False) for each in brokers.clients]
    assert len({each.cluster_id for each in answers}) == 1
    for each in answers:
        found = sorted((broker.broker_id, broker.port) for broker in each.brokers)
        assert found == list(enumerate(brokers.ports))
        assert 0 <= each.controller_id < BROKERS


def test_partitions_are_described_in_pages(brokers: Brokers) -> None:
    counts = {brokers.create(0, 1, 2): 3, brokers.create(2, 1): 2}
    asked = [{"name": name} for name in counts]
    pages: list[list[tuple[str, int]]] = []
    cursor: Any = None
    while True:
        answer = brokers.clients[1].call(
            "DescribeTopicPartitions", 0, topics=asked, response_partition_limit=2, cursor=cursor
        )
        pages.append([(topic.name, each.partition_index) for topic in answer.topics for each in topic.partitions])
        if answer.next_cursor is None:
            break
        cursor = {
            "topic_name": answer.next_cursor.topic_name,
            "partition_index": answer.next_cursor.partition_index,
        }
        assert len(pages) < 10
    assert [len(each) for each in pages] == [2, 2, 1]
    expected = [(name, index) for name in sorted(counts) for index in range(counts[name])]
    assert [each for page in pages for each in page] == expected


def test_a_topic_is_created_by_asking_any_broker_for_it(brokers: Brokers) -> None:
    for client in brokers.clients:
        name = topic_name("automatic")
        wait_until(lambda client=client, name=name: leaders_of(client, name, create=True) not in ([], [-1]))
        for other in brokers.clients:
            wait_until(lambda other=other, name=name: leaders_of(other, name) not in ([], [-1]))
