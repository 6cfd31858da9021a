"""MirrorMaker copies topics, settings and offsets between three brokers of Apache Kafka and three of kafkalake, both ways."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jars
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from group_processes import SMALL_JVM
from kafka_reference import Cluster, Clusters, topic_name
from quick_jvm import java
from waiting import wait_until

pytestmark = [pytest.mark.peer, pytest.mark.long, pytest.mark.timeout(900)]

RECORDS, PARTITIONS = 60, 2
COMMITTED = RECORDS // PARTITIONS  # all: MirrorMaker translates no offset that is before the first that it has heard of
TIMEOUT_S = 180
SETTINGS = {
    "refresh.topics.interval.seconds": 2,
    "refresh.groups.interval.seconds": 2,
    "emit.checkpoints.interval.seconds": 1,
    "sync.topic.configs.interval.seconds": 2,
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": 1,
    "offset.lag.max": 0,
    "replication.factor": 3,
    "checkpoints.topic.replication.factor": 3,
    "heartbeats.topic.replication.factor": 3,
    "offset-syncs.topic.replication.factor": 3,
    "offset.storage.replication.factor": 3,
    "status.storage.replication.factor": 3,
    "config.storage.replication.factor": 3,
    "offset.storage.partitions": 1,
    "status.storage.partitions": 1,
}


@contextmanager
def mirrored(clusters: dict[str, Cluster], topics: dict[str, str], group: str, directory: Path) -> Iterator[None]:
    """Run MirrorMaker between two clusters. topics: of each that the other one gets."""
    settings: dict[str, object] = {**SETTINGS, "clusters": ",".join(clusters), "groups": group}
    for (name, cluster), other in zip(clusters.items(), reversed(clusters), strict=True):
        settings[f"{name}.bootstrap.servers"] = cluster.bootstrap_servers
        settings |= {f"{name}->{other}.enabled": "true", f"{name}->{other}.topics": topics[name]}
    properties, log = directory / "mirror.properties", directory / "mirror.log"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [java(), *SMALL_JVM, "-Xmx512m", "-cp", ":".join(jars.jars("mirror"))]
    with log.open("w") as said:
        process = subprocess.Popen(
            [*command, "org.apache.kafka.connect.mirror.MirrorMaker", str(properties)], stdout=said, stderr=said
        )
    try:
        yield
    except BaseException:
        print(log.read_text()[-20_000:])
        raise
    finally:
        process.kill()
        process.wait()


def fill(cluster: Cluster, topic: str, group: str) -> None:
    """Make a topic with records, and a group that has read them."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    new = NewTopic(topic, PARTITIONS, 3, config={"retention.ms": "7777777777"})
    admin.create_topics([new])[topic].result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS, timestamp=int(time.time() * 1000))
    assert producer.flush(30) == 0
    consumer = consumer_of(cluster, group)
    consumer.commit(offsets=[TopicPartition(topic, each, COMMITTED) for each in range(PARTITIONS)], asynchronous=False)
    consumer.close()


def consumer_of(cluster: Cluster, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )


def check_copy(cluster: Cluster, topic: str, group: str) -> None:
    """Wait until a cluster has all of a topic of the other one."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})

    def is_there() -> bool:
        return topic in admin.list_topics(timeout=10).topics

    wait_until(is_there, timeout_s=TIMEOUT_S)
    reader = consumer_of(cluster, f"{group}-reader")
    reader.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    found: list[bytes] = []

    def is_read() -> bool:
        found.extend(each.value() for each in reader.consume(RECORDS, 0.5) if each.error() is None)
        return len(found) >= RECORDS

    wait_until(is_read, timeout_s=TIMEOUT_S)
    assert sorted(found, key=int) == [b"%d" % number for number in range(RECORDS)]

    def has_offsets() -> bool:
        asked = [TopicPartition(topic, each) for each in range(PARTITIONS)]
        consumer = consumer_of(cluster, group)
        try:
            return all(0 < each.offset <= COMMITTED for each in consumer.committed(asked, timeout=10))
        finally:
            consumer.close()

    wait_until(has_offsets, timeout_s=TIMEOUT_S)
    reader.close()
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    wait_until(
        lambda: admin.describe_configs([resource])[resource].result(10)["retention.ms"].value == "7777777777",
        timeout_s=TIMEOUT_S,
    )


def test_topics_settings_and_offsets_are_mirrored_both_ways(three_brokers: Clusters, tmp_path: Path) -> None:
    clusters: dict[str, Cluster] = {"kafka": three_brokers.apache_kafka, "lake": three_brokers.kafkalake}
    group = topic_name("mirrored")
    topics = {name: f"{group}-of-{name}" for name in clusters}
    for name, cluster in clusters.items():
        fill(cluster, topics[name], group)
    with mirrored(clusters, topics, group, tmp_path):
        check_copy(clusters["kafka"], f"lake.{topics['lake']}", group)
        check_copy(clusters["lake"], f"kafka.{topics['kafka']}", group)
