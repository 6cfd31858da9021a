"""Three brokers are killed, stopped and cut off at random while a producer writes with acks=all: nothing is lost, changed, or goes
back.

REPLICA_ROUNDS says how many faults, REPLICA_SEED chooses them (0: at random). A round ends when the producer goes on, and by
chance when every replica is in sync again.
Brokers reach each other through proxies (`broker_proxies`); clients, and the lake with the control store, are always reached. So an
isolated leader still learns who leads, and a controller without a network still commits.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from broker_proxies import ways_of
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from contract.wire_client import WireClient, batch, code, produce_values
from kafka_reference import BROKERS
from recording_producer import RecordingProducer, check_nothing_lost_nothing_twice, read_all
from replica_faults import FAULTS, ReplicaCluster, replica_cluster
from waiting import wait_until

from kafkalake.dataset import topic_reader
from kafkalake.metadata.delta import DeltaMetadataStore

ROUNDS = int(os.environ.get("REPLICA_ROUNDS", "12"))
SEED = int(os.environ.get("REPLICA_SEED", "7")) or random.SystemRandom().randrange(1, 2**31)
PARTITIONS = 3
TOPIC = "fire"
SESSION_MS = 1_000
SETTINGS = {
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": "1500",
    "metadata.publish.interval.ms": "200",
    "offsets.topic.replication.factor": "3",
    "internal.segment.bytes": "500000",
}
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaCluster]:
    with replica_cluster(tmp_path_factory.mktemp("fire"), SETTINGS, SESSION_MS / 1000) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        wait_until(lambda: len(admin.list_topics(timeout=5).brokers) == BROKERS)
        yield cluster


def test_an_isolated_leader_acknowledges_nothing_alone_though_it_is_the_controller(cluster: ReplicaCluster) -> None:
    """It still commits to the control store. Whatever ISR it asks itself for, one replica is too few."""
    controller = DeltaMetadataStore(cluster.brokers[0].lake).newest_image().controller_id
    replicas = [controller, *(each for each in range(BROKERS) if each != controller)]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    new = NewTopic("alone", 1, config={"min.insync.replicas": "2"}, replica_assignment=[replicas])
    admin.create_topics([new])["alone"].result(TIMEOUT_S)
    wait_until(lambda: in_sync(admin, "alone", 1))
    others = ",".join(cluster.brokers[each].bootstrap_servers for each in replicas[1:])
    cluster.proxies.cut(ways_of(controller))
    try:
        with WireClient(cluster.brokers[controller].bootstrap_servers, TIMEOUT_S) as client:
            sent = client.send("Produce", 9, **produce_values("alone", batch([(None, b"alone")])))
            producer = RecordingProducer(others, "alone", 1).start()
            producer.wait_for_acknowledged(20, TIMEOUT_S)  # another one leads
            answer = client.receive("Produce", 9, sent)
        assert code(answer.responses[0].partition_responses[0].error_code)
    finally:
        cluster.proxies.heal()
    producer.stop()
    wait_until(lambda: in_sync(admin, "alone", 1))
    check_nothing_lost_nothing_twice(cluster.bootstrap_servers, "alone", producer)


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


def in_sync(admin: AdminClient, topic: str, partitions: int) -> bool:
    try:
        found = admin.list_topics(topic, timeout=5).topics[topic].partitions.values()
    except KafkaException:
        return False
    return len(found) == partitions and all(len(each.isrs) == BROKERS for each in found)


def test_rounds_of_faults_lose_and_change_nothing(cluster: ReplicaCluster) -> None:
    chance = random.Random(SEED)
    servers = cluster.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    new = NewTopic(TOPIC, PARTITIONS, BROKERS, config={"min.insync.replicas": "2"})
    admin.create_topics([new])[TOPIC].result(TIMEOUT_S)
    wait_until(lambda: in_sync(admin, TOPIC, PARTITIONS))
    producer = RecordingProducer(servers, TOPIC, PARTITIONS, pause_s=0.02).start()
    faults = chance.sample(FAULTS, len(FAULTS))  # each of them once, then any
    with Watch(servers) as watch:
        for number in range(ROUNDS):
            fault = faults.pop() if faults else chance.choice(FAULTS)
            print(f"round {number + 1} of seed {SEED}: {fault.__name__}", flush=True)
            producer.wait_for_acknowledged(chance.randrange(20, 400), TIMEOUT_S)
            fault(cluster, chance)
            producer.wait_for_acknowledged(200, TIMEOUT_S)
            if chance.random() < 0.5 or number == ROUNDS - 1:
                wait_until(lambda: in_sync(admin, TOPIC, PARTITIONS), lambda: f"seed {SEED}: not in sync", TIMEOUT_S)
            assert not watch.faults, f"seed {SEED}: {watch.faults[0]}"
    producer.stop()
    assert watch.looks > 0
    assert not producer.failed, f"seed {SEED}: {producer.failed[0]}"
    check_nothing_lost_nothing_twice(servers, TOPIC, producer)
    _check_readers(cluster)


def _check_readers(cluster: ReplicaCluster) -> None:
    """The lake has what a Kafka client reads, and the files of all replicas are equal."""
    through_kafka = {
        partition: read_all(cluster.bootstrap_servers, TOPIC, partition) for partition in range(PARTITIONS)
    }
    lake = str(cluster.brokers[0].lake)
    through_arrow: dict[int, dict[int, bytes]] = {partition: {} for partition in range(PARTITIONS)}
    for found in topic_reader(lake, TOPIC, columns=["partition", "offset", "value"]):
        for partition, offset, value in zip(*(column.to_pylist() for column in found.columns), strict=True):
            through_arrow[partition][offset] = value
    assert through_arrow == through_kafka, f"seed {SEED}"
    for each in cluster.brokers:
        each.stop()
    verified = subprocess.run(
        [sys.executable, "-m", "kafkalake", "log", "verify", lake],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
