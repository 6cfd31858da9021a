"""Three brokers are killed and stopped at random while a producer writes with acks=all: nothing is lost, changed, or goes back.

REPLICA_ROUNDS says how many faults, REPLICA_SEED chooses them (0: at random). A round ends when every replica is in sync again.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_reference import Kafkalake
from recording_producer import RecordingProducer, check_nothing_lost_nothing_twice, read_all
from waiting import wait_until

from kafkalake.dataset import topic_reader

ROUNDS = int(os.environ.get("REPLICA_ROUNDS", "8"))
SEED = int(os.environ.get("REPLICA_SEED", "7")) or random.SystemRandom().randrange(1, 2**31)
BROKERS = 3
PARTITIONS = 3
TOPIC = "fire"
SESSION_MS = 1_500
SETTINGS = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": "2000",
    "metadata.publish.interval.ms": "200",
    "offsets.topic.replication.factor": "3",
    "internal.segment.bytes": "500000",
}
TIMEOUT_S = 60.0


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[Kafkalake]]:
    started = [
        Kafkalake(tmp_path / "lake", directory=tmp_path / f"broker-{each}", broker_id=each, settings=SETTINGS)
        for each in range(BROKERS)
    ]
    try:
        for each in started:
            each.launch()
        for each in started:
            each.wait_until_ready()
        yield started
    finally:
        for each in started:
            each.close()


class Watch:
    """Asks for the end of every partition, again and again, and notes if one was seen to fall (`faults`)."""

    def __init__(self, servers: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": servers, "group.id": "watch", "log_level": 0})
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._highest = [0] * PARTITIONS
        self.faults: list[str] = []
        self.looks = 0

    def _run(self) -> None:
        while not self._ends.is_set():
            for partition in range(PARTITIONS):
                try:
                    _, end = self._consumer.get_watermark_offsets(
                        TopicPartition(TOPIC, partition), timeout=1, cached=False
                    )
                except KafkaException:
                    continue
                if end < self._highest[partition]:
                    self.faults.append(f"partition {partition} ended at {self._highest[partition]}, then at {end}")
                self._highest[partition] = max(end, self._highest[partition])
                self.looks += 1
            self._ends.wait(0.05)
        self._consumer.close()

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(TIMEOUT_S)


def kill(brokers: list[Kafkalake], chance: random.Random) -> None:
    """One broker is killed, and started again later."""
    broker = chance.choice(brokers)
    broker.kill()
    time.sleep(chance.choice([0.0, 0.3, 1.0, 2.5]))
    broker.start()


def kill_two(brokers: list[Kafkalake], chance: random.Random) -> None:
    """Two are killed one after the other: the last one does not acknowledge alone."""
    ended = chance.sample(brokers, 2)
    for each in ended:
        each.kill()
        time.sleep(chance.choice([0.0, 0.2, 0.7]))
    for each in chance.sample(ended, 2):
        each.start()


def kill_all(brokers: list[Kafkalake], chance: random.Random) -> None:
    for each in brokers:
        each.kill()
    for each in chance.sample(brokers, BROKERS):
        each.launch()
    for each in brokers:
        each.wait_until_ready()


def stop(brokers: list[Kafkalake], chance: random.Random) -> None:
    """One broker is stopped for longer than its session, and goes on as if nothing had been."""
    broker = chance.choice(brokers)
    os.killpg(broker.pid, signal.SIGSTOP)
    time.sleep(SESSION_MS / 1000 * chance.choice([0.5, 1.5, 2.5]))
    os.killpg(broker.pid, signal.SIGCONT)


FAULTS: tuple[Callable[[list[Kafkalake], random.Random], None], ...] = (kill, kill, stop, stop, kill_two, kill_all)


def in_sync(admin: AdminClient) -> bool:
    try:
        found = admin.list_topics(TOPIC, timeout=5).topics[TOPIC].partitions.values()
    except KafkaException:
        return False
    return len(found) == PARTITIONS and all(len(each.isrs) == BROKERS for each in found)


def test_rounds_of_faults_lose_and_change_nothing(brokers: list[Kafkalake]) -> None:
    chance = random.Random(SEED)
    servers = ",".join(each.bootstrap_servers for each in brokers)
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    wait_until(lambda: len(admin.list_topics(timeout=5).brokers) == BROKERS)
    new = NewTopic(TOPIC, PARTITIONS, BROKERS, config={"min.insync.replicas": "2"})
    admin.create_topics([new])[TOPIC].result(TIMEOUT_S)
    wait_until(lambda: in_sync(admin))
    producer = RecordingProducer(servers, TOPIC, PARTITIONS, pause_s=0.02).start()
    with Watch(servers) as watch:
        for number in range(ROUNDS):
            fault = chance.choice(FAULTS)
            print(f"round {number + 1} of seed {SEED}: {fault.__name__}", flush=True)
            producer.wait_for_acknowledged(chance.randrange(20, 400), TIMEOUT_S)
            fault(brokers, chance)
            producer.wait_for_acknowledged(200, TIMEOUT_S)
            wait_until(lambda: in_sync(admin), lambda: f"seed {SEED}: not all replicas are in sync", TIMEOUT_S)
            assert not watch.faults, f"seed {SEED}: {watch.faults[0]}"
    producer.stop()
    assert watch.looks > 0
    assert not producer.failed, f"seed {SEED}: {producer.failed[0]}"
    check_nothing_lost_nothing_twice(servers, TOPIC, producer)
    _check_readers(brokers, servers)


def _check_readers(brokers: list[Kafkalake], servers: str) -> None:
    """The lake has what a Kafka client reads, and the files of all replicas are equal."""
    through_kafka = {partition: read_all(servers, TOPIC, partition) for partition in range(PARTITIONS)}
    through_arrow: dict[int, dict[int, bytes]] = {partition: {} for partition in range(PARTITIONS)}
    for batch in topic_reader(str(brokers[0].lake), TOPIC, columns=["partition", "offset", "value"]):
        for partition, offset, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            through_arrow[partition][offset] = value
    assert through_arrow == through_kafka, f"seed {SEED}"
    for each in brokers:
        each.stop()
    verified = subprocess.run(
        [sys.executable, "-m", "kafkalake", "log", "verify", str(brokers[0].lake)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
