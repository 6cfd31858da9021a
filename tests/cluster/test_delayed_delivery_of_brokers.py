"""Records that wait at three brokers: a broker that is killed loses none of them, and none is delivered twice or early."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from delayed_load import IMPATIENT, DelayedLoad
from kafka_reference import Cluster, Kafkalake, kafkalake_cluster, topic_name
from waiting import wait_until

from kafkalake.delayed_headers import DELAY_MS
from kafkalake.internal_topics import DELAYED_JOURNAL

pytestmark = pytest.mark.process

PARTITIONS = 4
TIMEOUT_S = 30.0
SETTINGS = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "2000",
    "delayed.topic.num.partitions": "3",
    "replica.lag.time.max.ms": "3000",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster[Kafkalake]]:
    with kafkalake_cluster(tmp_path_factory.mktemp("delayed"), SETTINGS) as started:
        yield started


@pytest.fixture
def admin(cluster: Cluster[Kafkalake]) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0} | IMPATIENT)


def in_sync(admin: AdminClient, topic: str) -> bool:
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions.values()
    return bool(found) and all(len(each.isrs) == 3 for each in found)


def create(admin: AdminClient, **config: str) -> str:
    name = topic_name("delayed")
    settings = {"min.insync.replicas": "2"} | {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, PARTITIONS, 3, config=settings)])[name].result(TIMEOUT_S)
    wait_until(lambda: in_sync(admin, name))
    return name


def test_brokers_that_are_killed_lose_and_double_nothing(cluster: Cluster[Kafkalake], admin: AdminClient) -> None:
    topic = create(admin, delayed_delivery_enable="true")

    def recovered() -> None:
        for each in (topic, DELAYED_JOURNAL):
            wait_until(lambda each=each: in_sync(admin, each))

    with DelayedLoad(cluster.bootstrap_servers, topic, PARTITIONS) as load:
        load.kill_at_random(cluster.brokers, recovered, at_most=800)
    load.check()


@pytest.mark.long
def test_settings_that_change_while_brokers_are_killed_lose_and_double_nothing(
    cluster: Cluster[Kafkalake], admin: AdminClient
) -> None:
    """A batch is tried under some settings by one leader, and again under others by the next."""
    topic = create(admin, delayed_delivery_enable="true")
    enabled = itertools.cycle(["false", "true"])
    ended = threading.Event()

    def change_settings() -> None:
        while not ended.wait(0.3):
            entry = ConfigEntry("delayed.delivery.enable", next(enabled), incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
            with contextlib.suppress(KafkaException):  # no controller for a moment
                admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    def recovered() -> None:
        for each in (topic, DELAYED_JOURNAL):
            wait_until(lambda each=each: in_sync(admin, each))

    changing = threading.Thread(target=change_settings)
    changing.start()
    try:
        with DelayedLoad(cluster.bootstrap_servers, topic, PARTITIONS) as load:
            load.kill_at_random(cluster.brokers, recovered, at_most=800)
    finally:
        ended.set()
        changing.join()
    load.check(may_be_early=True)


def transact(producer: Producer, topic: str, number: int, *, committed: bool) -> list[bytes]:
    """Send records that wait to each partition in one transaction, and end it. Return their values."""
    producer.begin_transaction()
    sent = [b"%d-%d-%s" % (number, partition, b"yes" if committed else b"no") for partition in range(PARTITIONS)]
    for partition, value in enumerate(sent):
        headers = [] if "-delay-" in topic else [(DELAY_MS, b"%d" % (50 + 50 * partition))]
        producer.produce(topic, value, partition=partition, headers=headers)
    assert producer.flush(TIMEOUT_S) == 0
    (producer.commit_transaction if committed else producer.abort_transaction)(TIMEOUT_S)
    return sent


def test_transactions_over_all_brokers_decide_on_what_waits(cluster: Cluster[Kafkalake], admin: AdminClient) -> None:
    """Coordinators of transactions, of what waits and leaders of the targets are different brokers."""
    topic = create(admin, delayed_delivery_enable="true", delay_levels="100ms")
    wait_until(lambda: in_sync(admin, f"{topic}-delay-100ms"))
    expected: set[bytes] = set()
    count = 0
    for name in ("a", "b"):
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"{topic}-{name}", "log_level": 0}
        )
        producer.init_transactions(TIMEOUT_S)
        for number in range(3):
            committed = number != 1
            for each in (topic, f"{topic}-delay-100ms"):
                count += 1
                sent = transact(producer, each, count, committed=committed)
                expected |= set(sent) if committed else set()
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none", "enable.auto.commit": False}
        | {"isolation.level": "read_uncommitted", "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    found: list[bytes] = []

    def is_complete() -> bool:
        found.extend(each.value() for each in consumer.consume(100, 0.2) if each.error() is None)
        return expected <= set(found)

    wait_until(is_complete, lambda: f"{len(found)} of {len(expected)}")
    found += [each.value() for each in consumer.consume(10, 1.0) if each.error() is None]
    consumer.close()
    assert sorted(found) == sorted(expected), "each once, and none of those that were aborted"
