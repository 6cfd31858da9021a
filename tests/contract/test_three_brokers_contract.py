"""Requests that reach the wrong one of three brokers, and what any of them answers for all; the same from both kinds of broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from contract.wire_client import WireClient, batch, code, leader_errors, produce_values, values_of
from kafka_reference import BROKERS, Cluster, Clusters, rack_of, topic_name
from waiting import wait_until

from kafkalake.client.consuming.consumer import Consumer

pytestmark = [pytest.mark.peer, pytest.mark.exhaustive]

NONE, OFFSET_OUT_OF_RANGE, NOT_LEADER, NOT_COORDINATOR, UNKNOWN_LEADER_EPOCH = 0, 1, 6, 16, 75
GROUP, TRANSACTION = 0, 1


class Brokers:
    """A cluster and a connection to each of its brokers."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self.ports = [each.port for each in cluster.brokers]
        self.clients = [stack.enter_context(WireClient(each.bootstrap_servers)) for each in cluster.brokers]

    def create(self, *leaders: int) -> str:
        """Create a topic of partitions with one replica each on these brokers, and wait until all brokers act on it."""
        return self.create_replicated(*((each,) for each in leaders))

    def create_replicated(self, *replicas: Sequence[int]) -> str:
        """Create a topic of partitions with these replicas, and wait until all brokers act on it.

        A broker of Apache Kafka shows a leader in its metadata before it answers as the leader.
        """
        name = topic_name("led")
        leaders = [each[0] for each in replicas]
        assignments = [{"partition_index": index, "broker_ids": [*each]} for index, each in enumerate(replicas)]
        wanted = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": assignments,
            "configs": [],
        }
        answer = self.clients[0].call("CreateTopics", 7, topics=[wanted], timeout=20_000, validate_only=False)
        assert code(answer.topics[0].error_code) == 0
        for broker, client in enumerate(self.clients):
            errors = [NONE if leader == broker else NOT_LEADER for leader in leaders]
            wait_until(lambda client=client: leaders_of(client, name) == leaders)
            wait_until(lambda client=client, errors=errors: leader_errors(client, name, len(leaders)) == errors)
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


def read_values(
    topic: str, offset: int, rack: str | None = "", *, epoch: int = -1, wait_ms: int = 0, isolation: int = 0
) -> dict[str, Any]:
    """The fields of a Fetch of version 12, or without a rack of version 10."""
    partition = {
        "partition": 0,
        "current_leader_epoch": epoch,
        "fetch_offset": offset,
        "log_start_offset": -1,
        "partition_max_bytes": 100_000,
    }
    since_12 = {} if rack is None else {"last_fetched_epoch": -1}
    return {
        "replica_id": -1,
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": 100_000,
        "isolation_level": isolation,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [partition | since_12]}],
        "forgotten_topics_data": [],
        **({} if rack is None else {"rack_id": rack}),
    }


def read(client: WireClient, topic: str, offset: int, rack: str | None = "", **more: int) -> Any:
    """The answer for partition 0."""
    values = read_values(topic, offset, rack, **more)
    return client.call("Fetch", 10 if rack is None else 12, **values).responses[0].partitions[0]


def produce_three(brokers: Brokers, topic: str) -> None:
    answer = brokers.clients[0].call("Produce", 10, **produce_values(topic, batch([(None, b"x")] * 3)))
    assert code(answer.responses[0].partition_responses[0].error_code) == 0


def test_a_leader_names_the_follower_in_the_rack_of_a_consumer(brokers: Brokers) -> None:
    topic = brokers.create_replicated((0, 1, 2))
    produce_three(brokers, topic)
    leader = brokers.clients[0]
    wait_until(lambda: read(leader, topic, 0, rack_of(2)).preferred_read_replica == 2)
    sent_there = read(leader, topic, 3, rack_of(2))
    assert (sent_there.preferred_read_replica, code(sent_there.error_code), sent_there.high_watermark) == (2, 0, 3)
    assert not sent_there.records
    for rack in (rack_of(0), "another rack", ""):
        here = read(leader, topic, 0, rack)
        assert (here.preferred_read_replica, len(values_of(here.records))) == (-1, 3)
    assert len(values_of(read(leader, topic, 0, None).records)) == 3
    beyond = read(leader, topic, 9, rack_of(2))
    assert (beyond.preferred_read_replica, code(beyond.error_code)) == (-1, OFFSET_OUT_OF_RANGE)


def test_kafkalakes_consumer_reads_from_the_follower_in_its_rack(brokers: Brokers) -> None:
    topic = brokers.create_replicated((0, 1, 2))
    produce_three(brokers, topic)
    wait_until(lambda: read(brokers.clients[0], topic, 0, rack_of(2)).preferred_read_replica == 2)
    settings = {"bootstrap.servers": f"127.0.0.1:{brokers.ports[0]}", "auto.offset.reset": "earliest"}
    with Consumer({**settings, "client.rack": rack_of(2)}) as nearby, Consumer(settings) as other:
        for reader, is_nearby in ((nearby, True), (other, False)):
            reader.assign([(topic, 0)])
            offsets: list[int] = []
            while len(offsets) < 3:
                offsets += [record.offset for record in reader.poll(60)] or pytest.fail("nothing comes")
            assert offsets == [0, 1, 2]
            assert (reader.metrics()["fetch-from-followers-total"] > 0) is is_nearby


def test_a_follower_serves_what_is_below_its_watermark(brokers: Brokers) -> None:
    topic = brokers.create_replicated((0, 1, 2))
    produce_three(brokers, topic)
    for follower in brokers.clients[1:]:
        wait_until(lambda follower=follower: read(follower, topic, 0).high_watermark == 3)
        for isolation in (0, 1):
            found = read(follower, topic, 0, isolation=isolation)
            assert (code(found.error_code), len(values_of(found.records)), found.preferred_read_replica) == (0, 3, -1)
            assert (found.last_stable_offset, found.log_start_offset) == (3, 0)
        assert not read(follower, topic, 3).records
        assert code(read(follower, topic, 4).error_code) == OFFSET_OUT_OF_RANGE
        assert code(read(follower, topic, 0, epoch=7).error_code) == UNKNOWN_LEADER_EPOCH
        assert code(read(follower, topic, 0, None).error_code) == NOT_LEADER


def test_a_fetch_waits_at_a_follower_as_at_the_leader(brokers: Brokers) -> None:
    topic = brokers.create_replicated((0, 1, 2))
    follower = brokers.clients[1]
    wait_until(lambda: code(read(follower, topic, 0).error_code) == 0)
    asked = follower.send("Fetch", 12, **read_values(topic, 0, wait_ms=15_000))
    produce_three(brokers, topic)
    answer = follower.receive("Fetch", 12, asked).responses[0].partitions[0]
    assert (code(answer.error_code), len(values_of(answer.records))) == (0, 3)


def new_producer_id(client: WireClient) -> int:
    """Return a producer id, once the broker has got a block of them from the controller."""
    found: list[int] = []

    def is_given() -> bool:
        fields = {"transaction_timeout": 1_000, "producer_id": -1, "producer_epoch": -1}
        answer = client.call("InitProducerId", 4, transactional_id=None, **fields)
        found.append(answer.producer_id)
        return code(answer.error_code) == NONE

    wait_until(is_given)
    return found[-1]


def test_followers_describe_producers_and_directories_as_the_leader_does(brokers: Brokers) -> None:
    topic = brokers.create_replicated((0, 1))
    producer_id = new_producer_id(brokers.clients[0])
    records = batch([(None, b"x" * 1_000)] * 3, producer_id=producer_id, epoch=0, sequence=0)
    answer = brokers.clients[0].call("Produce", 10, **produce_values(topic, records))
    assert code(answer.responses[0].partition_responses[0].error_code) == 0

    def producers(broker: int) -> tuple[int, list[tuple[int, int, int, int]]]:
        asked = [{"name": topic, "partition_indexes": [0]}]
        found = brokers.clients[broker].call("DescribeProducers", 0, topics=asked).topics[0].partitions[0]
        states = [
            (each.producer_id, each.producer_epoch, each.last_sequence, each.current_txn_start_offset)
            for each in found.active_producers
        ]
        return code(found.error_code), states

    def sizes(broker: int) -> list[tuple[int, int]]:
        asked = [{"topic": topic, "partitions": [0]}]
        (directory,) = brokers.clients[broker].call("DescribeLogDirs", 4, topics=asked).results
        return [(each.partition_size, each.offset_lag) for of in directory.topics for each in of.partitions]

    expected = [(producer_id, 0, 2, -1)]
    assert producers(0) == (0, expected)
    wait_until(lambda: producers(1) == (0, expected))
    assert producers(2) == (NOT_LEADER, [])
    assert sizes(0)[0][0] > 3_000
    wait_until(lambda: sizes(1) == sizes(0))
    assert sizes(2) == []


def test_offsets_are_asked_of_the_leader(brokers: Brokers) -> None:
    topic = brokers.create(0)
    for broker, expected in ((0, NONE), (1, NOT_LEADER), (2, NOT_LEADER)):
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

    def errors(broker: int) -> list[int]:
        client = brokers.clients[broker]
        heartbeat = client.call(
            "Heartbeat", 4, group_id=group, generation_id=1, member_id="m", group_instance_id=None
        ).error_code
        described = client.call("DescribeGroups", 5, groups=[group], include_authorized_operations=False)
        offsets = client.call("OffsetFetch", 7, group_id=group, topics=None, require_stable=False)
        return [code(each) for each in (heartbeat, described.groups[0].error_code, offsets.error_code)]

    wait_until(lambda: NOT_COORDINATOR not in errors(chosen))  # it is named before its coordinator runs
    for broker in {*range(BROKERS)} - {chosen}:
        assert errors(broker) == [NOT_COORDINATOR] * 3


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
