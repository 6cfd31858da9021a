"""A consumer with client.rack reads from the follower in its rack, from the leader when that is killed, and from it again."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka_reference import Cluster, Clusters, rack_of, topic_name
from waiting import wait_until

pytestmark = pytest.mark.peer

LEADER, CLOSEST = 0, 2


@pytest.fixture(params=["kafkalake", pytest.param("apache-kafka", marks=pytest.mark.long)])
def cluster(request: pytest.FixtureRequest, three_brokers: Clusters) -> Cluster:
    return three_brokers.kafkalake if request.param == "kafkalake" else three_brokers.apache_kafka


@pytest.fixture
def replicated(cluster: Cluster) -> str:
    """A topic of one partition on all brokers."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = topic_name("replicated")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, replica_assignment=[[LEADER, 1, CLOSEST]])])[name].result(30)
    wait_until(lambda: isr(cluster, name) == {0, 1, 2}, timeout_s=30)
    return name


def isr(cluster: Cluster, topic: str) -> set[int]:
    from confluent_kafka.admin import AdminClient

    found = AdminClient({"bootstrap.servers": cluster.brokers[0].bootstrap_servers, "log_level": 0})
    partitions = found.list_topics(topic, timeout=10).topics[topic].partitions
    return set(partitions[0].isrs) if 0 in partitions else set()


class RackAware:
    """A consumer in the rack of a broker, which knows from which broker it reads."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.reads_from = -1
        self.values: list[bytes] = []
        self._topic = topic
        settings = {
            "client.rack": rack_of(CLOSEST),
            "statistics.interval.ms": 50,
            "topic.metadata.refresh.interval.ms": 1_000,
        }
        servers = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic_name("g"), "log_level": 0}
        self._consumer = Consumer({**servers, **settings, "stats_cb": self._see})
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def _see(self, text: str) -> None:
        partitions = json.loads(text)["topics"].get(self._topic, {}).get("partitions", {})
        self.reads_from = partitions.get("0", {}).get("broker", -1)

    def has(self, count: int, broker: int) -> bool:
        """Read on, and return whether there are so many records, and the broker is the one that is read from."""
        self.values += [each.value() for each in self._consumer.consume(100, 0.1) if each.error() is None]
        return len(self.values) == count and self.reads_from == broker

    def close(self) -> None:
        self._consumer.close()


def produce(cluster: Cluster, topic: str, first: int, last: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(first, last):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(30) == 0


def test_a_consumer_reads_from_the_follower_in_its_rack_and_from_the_leader_while_that_is_gone(
    cluster: Cluster, replicated: str
) -> None:
    produce(cluster, replicated, 0, 100)
    consumer = RackAware(cluster, replicated)
    try:
        wait_until(lambda: consumer.has(100, CLOSEST), timeout_s=30)
        produce(cluster, replicated, 100, 200)
        wait_until(lambda: consumer.has(200, CLOSEST), timeout_s=30)
        cluster.brokers[CLOSEST].kill()
        try:
            produce(cluster, replicated, 200, 300)
            wait_until(lambda: consumer.has(300, LEADER), timeout_s=60)
        finally:
            cluster.brokers[CLOSEST].start()
        wait_until(lambda: isr(cluster, replicated) == {0, 1, 2}, timeout_s=60)
        produce(cluster, replicated, 300, 400)
        wait_until(lambda: consumer.has(400, CLOSEST), timeout_s=60)
        assert consumer.values == [b"%d" % number for number in range(400)]
    finally:
        consumer.close()
