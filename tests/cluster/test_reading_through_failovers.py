"""Three real brokers: what is acknowledged is read from the files at once, whoever leads, and by every reader the same."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka_reference import BROKERS, Kafkalake, create_topic, kafkalake_cluster, topic_name
from waiting import wait_until

from kafkalake.dataset import topic_dataset, topic_reader

pytestmark = pytest.mark.process

PARTITIONS = 3
SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "metadata.publish.interval.ms": "200",
    "log.segment.bytes": "1048576",
}
IN_FLIGHT_MAX = 500
PAUSE_S = 0.004
"""Between two records: queries read the whole topic again and again."""
PADDING = bytes(2_000)
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Kafkalake]]:
    """Three brokers of one lake. A test leaves them running."""
    with kafkalake_cluster(tmp_path_factory.mktemp("replicas"), SETTINGS) as cluster:
        yield list(cluster.brokers)


@pytest.fixture
def topic(brokers: list[Kafkalake]) -> str:
    name = topic_name("replicated")
    create_topic(brokers[0], name, partitions=PARTITIONS, replicas=BROKERS, config={"min.insync.replicas": "2"})
    return name


def servers(brokers: list[Kafkalake]) -> str:
    return ",".join(each.bootstrap_servers for each in brokers)


class Writer:
    """Produces numbered records with acks=all on a thread, and counts what is acknowledged."""

    def __init__(self, brokers: list[Kafkalake], topic: str) -> None:
        self.acknowledged = 0
        self.failed: list[KafkaError] = []
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": servers(brokers), "enable.idempotence": True, "linger.ms": 1, "log_level": 0}
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._stopped.is_set():
            value = b"%d %s" % (number, PADDING)
            self._producer.produce(self._topic, value, partition=number % PARTITIONS, on_delivery=self._done)
            number += 1
            self._producer.poll(PAUSE_S)
            while number - self.acknowledged > IN_FLIGHT_MAX and not self._stopped.is_set():
                self._producer.poll(0.01)
        self._producer.flush(TIMEOUT_S)

    def _done(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed.append(error)

    def end(self) -> int:
        """Stop, and return the number of records when all are acknowledged."""
        self._stopped.set()
        self._thread.join(TIMEOUT_S)
        assert self.failed == []
        return self.acknowledged


def count(lake: Path, topic: str) -> int:
    return int(topic_reader(lake, topic, columns=["offset"]).read_all().num_rows)


def consumed(brokers: list[Kafkalake], topic: str, records: int) -> list[tuple[int, int, bytes]]:
    """What a Kafka client reads: partition, offset and value."""
    consumer = Consumer({"bootstrap.servers": servers(brokers), "group.id": topic, "log_level": 0})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: list[tuple[int, int, bytes]] = []

    def more() -> bool:
        for message in consumer.consume(10_000, 0.2):
            if message.error() is None:
                found.append((message.partition(), message.offset(), message.value()))
        return len(found) >= records

    wait_until(more, lambda: len(found))
    consumer.close()
    return sorted(found)


def from_files(lake: Path, topic: str) -> list[tuple[int, int, bytes]]:
    """What DuckDB reads of the files."""
    flights = topic_dataset(lake, topic)  # noqa: F841
    rows = duckdb.sql('SELECT "partition", "offset", value FROM flights').fetchall()
    return sorted((partition, offset, bytes(value)) for partition, offset, value in rows)


def leaders(brokers: list[Kafkalake], topic: str) -> list[int]:
    client = AdminClient({"bootstrap.servers": servers(brokers), "log_level": 0})
    found = client.list_topics(topic, timeout=10).topics[topic].partitions
    return [found[number].leader for number in sorted(found)]


def in_sync(brokers: list[Kafkalake], topic: str) -> bool:
    client = AdminClient({"bootstrap.servers": servers(brokers), "log_level": 0})
    found = client.list_topics(topic, timeout=10).topics[topic].partitions
    return all(len(each.isrs) == BROKERS for each in found.values())


def verified(lake: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kafkalake.cli.main", "log", "verify", str(lake)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)


def test_each_acknowledged_record_is_in_a_query_that_starts_then_while_leaders_are_killed(
    brokers: list[Kafkalake], topic: str
) -> None:
    """Every broker once: it comes back before the next one is killed, and all replicas are equal in the end."""
    lake = brokers[0].lake
    writer = Writer(brokers, topic)
    for victim in brokers:
        before = writer.acknowledged
        wait_until(lambda before=before: writer.acknowledged > before + 300)
        victim.kill()
        killed = writer.acknowledged
        while writer.acknowledged < killed + 300:
            acknowledged = writer.acknowledged
            assert count(lake, topic) >= acknowledged
            assert writer.failed == []
        victim.start()
        wait_until(lambda: in_sync(brokers, topic))
        acknowledged = writer.acknowledged
        assert count(lake, topic) >= acknowledged
    while_written = verified(lake)
    written = writer.end()
    assert count(lake, topic) == written
    of_client = consumed(brokers, topic, written)
    assert sorted(int(value.split()[0]) for _, _, value in of_client) == list(range(written))
    assert from_files(lake, topic) == of_client
    for found in (while_written, verified(lake)):
        assert found.returncode == 0, found.stderr


def test_all_brokers_killed_leave_every_acknowledged_record_readable(brokers: list[Kafkalake], topic: str) -> None:
    writer = Writer(brokers, topic)
    wait_until(lambda: writer.acknowledged > 300)
    acknowledged = writer.end()
    lake = brokers[0].lake
    for each in brokers:
        each.kill()
    found = from_files(lake, topic)
    assert len(found) == acknowledged
    with ThreadPoolExecutor() as pool:
        list(pool.map(Kafkalake.start, brokers))
    assert from_files(lake, topic) == found == consumed(brokers, topic, acknowledged)
