"""Clients of several libraries use three brokers, each of which leads a partition and follows the others; one of them is killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import confluent_kafka
import kafka
import pytest
from benchmarks import kafka_tools
from group_processes import SMALL_JVM, Speaker
from interop import go_client
from interop.go_client import GoClient
from kafka_clients import CLIENTS, COMMITTED, Client, Record
from kafka_reference import Cluster, Clusters, topic_name
from transactional_clients import TRANSACTIONAL_CLIENTS, TransactionalProducer
from waiting import wait_until

pytestmark = pytest.mark.peer

PARTITIONS = 3
RECORDS, RECORDS_PER_S = 4_000, 1_000


@pytest.fixture
def cluster(three_brokers: Clusters) -> Cluster:
    return three_brokers.kafkalake


@pytest.fixture
def spread(cluster: Cluster) -> str:
    """A topic of which each broker leads a partition, with three replicas each."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = topic_name("clients")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    replicas = [[(each + more) % PARTITIONS for more in range(PARTITIONS)] for each in range(PARTITIONS)]
    wanted = NewTopic(name, PARTITIONS, replica_assignment=replicas, config={"min.insync.replicas": "2"})
    admin.create_topics([wanted])[name].result(30)
    wait_until(lambda: leaders(admin, name) == list(range(PARTITIONS)))
    wait_until(lambda: has_all_in_sync(admin, name), timeout_s=30)
    return name


def leaders(admin: object, name: str) -> list[int]:
    found = admin.list_topics(name, timeout=10).topics[name].partitions  # type: ignore[attr-defined]
    return [found[index].leader for index in sorted(found)]


def has_all_in_sync(admin: object, name: str) -> bool:
    found = admin.list_topics(name, timeout=10).topics[name].partitions  # type: ignore[attr-defined]
    return all(len(each.isrs) == PARTITIONS for each in found.values())


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


@pytest.mark.long  # a fresh machine compiles the client for a minute
def test_franz_go_reaches_all_brokers_and_takes_them_for_those_of_apache_kafka(
    three_brokers: Clusters, spread: str
) -> None:
    own, peer = three_brokers.kafkalake, three_brokers.apache_kafka
    with GoClient(peer.brokers[1].bootstrap_servers) as client:
        releases = client.ask("releases")
    with GoClient(own.brokers[1].bootstrap_servers) as client:
        assert client.ask("releases") == releases == ["v4.1"] * PARTITIONS
        written = client.ask("write", spread, 0, 60)
        assert sorted(map(int, written)) == list(range(60))
        assert client.ask("abort", spread, f"{spread}-id", "aborted") == []
        assert client.ask("transact", spread, f"{spread}-id", "committed") == ["committed"]
        expected = sorted([*written, *["committed"] * PARTITIONS])
        assert sorted(client.ask("read", spread, spread, len(expected))) == expected
        client.ask("write", spread, 60, 6)
        assert sorted(client.ask("read", spread, spread, 6)) == [str(number) for number in range(60, 66)]


def java(servers: str, topic: str, directory: Path) -> list[bytes]:
    """Write through Kafka's VerifiableProducer, which retries nothing by itself. Return what was acknowledged."""
    settings = directory / "producer.properties"
    settings.write_text("acks=all\nenable.idempotence=true\nretries=2147483647\n")
    options = {
        "bootstrap-server": servers,
        "topic": topic,
        "max-messages": str(RECORDS),
        "repeating-keys": "9",
        "throughput": str(RECORDS_PER_S),
        "producer.config": str(settings),
    }
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    command = kafka_tools.tool_command("org.apache.kafka.tools.VerifiableProducer", arguments, *SMALL_JVM)
    producer = Speaker(command)
    assert producer.finish() == 0
    return [b"%s" % event["value"].encode() for event in producer.events if event["name"] == "producer_send_success"]


def librdkafka(servers: str, topic: str, directory: Path) -> list[bytes]:
    """Write through an idempotent producer. Return what was acknowledged."""
    acknowledged: list[bytes] = []

    def delivered(error: object, message: confluent_kafka.Message) -> None:
        if error is None:
            acknowledged.append(message.value() or b"")

    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, key=b"%d" % (number % 9), on_delivery=delivered)
        producer.poll(1 / RECORDS_PER_S)
    assert producer.flush(60) == 0
    return acknowledged


def kafka_python(servers: str, topic: str, directory: Path) -> list[bytes]:
    """Write through an idempotent producer. Return what was acknowledged."""
    producer = kafka.KafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=True)
    sent = []
    for number in range(RECORDS):
        value = b"%d" % number
        sent.append((value, producer.send(topic, value, key=b"%d" % (number % 9))))
        time.sleep(1 / RECORDS_PER_S)
    producer.flush(60)
    producer.close(timeout=10)
    return [value for value, future in sent if future.succeeded()]


def franz_go(servers: str, topic: str, directory: Path) -> list[bytes]:
    """Write through an idempotent producer. Return what was acknowledged."""
    with GoClient(servers) as client:
        return [value.encode() for value in client.ask("write", topic, 0, RECORDS)]


@pytest.mark.parametrize(
    "write", [java, *(pytest.param(each, marks=pytest.mark.long) for each in (franz_go, librdkafka, kafka_python))]
)
def test_a_client_writes_on_when_a_leader_is_killed(
    cluster: Cluster, spread: str, write: Callable[[str, str, Path], list[bytes]], tmp_path: Path
) -> None:
    from confluent_kafka.admin import AdminClient

    if write is franz_go:
        go_client.program()  # compiled before anybody waits for what it writes
    killed = cluster.brokers[0]
    admin = AdminClient({"bootstrap.servers": cluster.brokers[1].bootstrap_servers, "log_level": 0})
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.brokers[1].bootstrap_servers, "group.id": spread, "log_level": 0}
    )
    reader.assign([confluent_kafka.TopicPartition(spread, each, 0) for each in range(PARTITIONS)])
    read: list[bytes] = []

    def has_read(count: int) -> bool:
        read.extend(each.value() for each in reader.consume(1_000, 0.1) if each.error() is None)
        return len(read) >= count

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write, cluster.bootstrap_servers, spread, tmp_path)
        try:
            wait_until(lambda: has_read(RECORDS // 10), timeout_s=60)
            killed.kill()
            acknowledged = writing.result(120)
        finally:
            if not killed.is_running():
                killed.start()
    wait_until(lambda: has_read(len(acknowledged)), timeout_s=60)
    reader.close()
    assert len(acknowledged) == RECORDS
    assert sorted(read) == sorted(acknowledged)
    wait_until(lambda: has_all_in_sync(admin, spread), timeout_s=60)
