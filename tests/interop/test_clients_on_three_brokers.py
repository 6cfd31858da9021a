"""Clients of three libraries use three brokers: each broker leads a partition, records and transactions go over all of them."""

from __future__ import annotations

import pytest
from kafka_clients import CLIENTS, COMMITTED, Client, Record
from kafka_reference import Cluster, Clusters, topic_name
from transactional_clients import TRANSACTIONAL_CLIENTS, TransactionalProducer
from waiting import wait_until

pytestmark = pytest.mark.peer

PARTITIONS = 3


@pytest.fixture
def cluster(three_brokers: Clusters) -> Cluster:
    return three_brokers.kafkalake


@pytest.fixture
def spread(cluster: Cluster) -> str:
    """A topic with a partition on each broker."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = topic_name("clients")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    wanted = NewTopic(name, num_partitions=PARTITIONS, replica_assignment=[[each] for each in range(PARTITIONS)])
    admin.create_topics([wanted])[name].result(30)
    wait_until(lambda: leaders(admin, name) == list(range(PARTITIONS)))
    return name


def leaders(admin: object, name: str) -> list[int]:
    found = admin.list_topics(name, timeout=10).topics[name].partitions  # type: ignore[attr-defined]
    return [found[index].leader for index in sorted(found)]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_that_knows_one_broker_reaches_all(cluster: Cluster, spread: str, client: Client) -> None:
    servers = cluster.brokers[1].bootstrap_servers
    for partition in range(PARTITIONS):
        records = [Record(b"%d" % number, b"%d-%d" % (partition, number)) for number in range(20)]
        assert client.write(servers, spread, partition, records, "none") == list(range(20))
        found = client.read(servers, spread, partition, 0, 20)
        assert [each.value for each in found] == [each.value for each in records]


@pytest.mark.parametrize("kind", TRANSACTIONAL_CLIENTS, ids=lambda kind: kind.name)
def test_a_transaction_over_all_brokers(cluster: Cluster, spread: str, kind: type[TransactionalProducer]) -> None:
    producer = kind(cluster.brokers[2].bootstrap_servers, f"{spread}-id")  # type: ignore[call-arg]
    for ends in (producer.abort, producer.commit):
        producer.begin()
        for partition in range(PARTITIONS):
            producer.send(spread, partition, ends.__name__.encode())
        ends()
    producer.close()
    reader = CLIENTS[0]
    for partition in range(PARTITIONS):
        found = reader.read(cluster.bootstrap_servers, spread, partition, 0, 1, COMMITTED)
        assert [each.value for each in found] == [b"commit"]
