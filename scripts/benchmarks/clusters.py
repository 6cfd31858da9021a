"""Three brokers of each kind, for measures of several brokers. Both have the same settings where they have the setting."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from contract.wire_client import WireClient
from kafka_reference import (
    BROKERS,
    PERFORMANCE_JVM,
    ApacheKafka,
    BrokerProcess,
    Cluster,
    Kafkalake,
    KafkaQuorum,
)
from waiting import wait_until

from benchmarks.plan import APACHE_KAFKA_HEAP, Plan

RECORD_BYTES = 100
SESSION = {"broker.heartbeat.interval.ms": "1000", "broker.session.timeout.ms": "3000"}
"""Of both kinds of broker, so that a stopped leader is noticed after the same time."""
JOURNALS = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
DURABLE = {"min.insync.replicas": "2"}
ATTENTIVE = {
    "request.timeout.ms": 1_000,
    "socket.timeout.ms": 1_000,
    "topic.metadata.refresh.interval.ms": 200,
    "retry.backoff.ms": 50,
    "reconnect.backoff.max.ms": 200,
}
"""Of a producer that soon asks who leads when nothing comes back: with its defaults it waits for half a minute."""
TIMEOUT_S = 60.0


@contextlib.contextmanager
def clusters(plan: Plan, settings: Mapping[str, str] = SESSION) -> Iterator[tuple[Cluster, Cluster]]:
    """Three brokers of each kind, running, with their data in a directory of this measure that is removed at the end."""
    with tempfile.TemporaryDirectory(
        prefix="kafkalake-benchmark-", dir=plan.directory, ignore_cleanup_errors=True
    ) as directory:
        place = Path(directory)
        quorum = KafkaQuorum(BROKERS)
        replicated = {**JOURNALS, **settings}
        ours = [
            Kafkalake(
                place / "lake",
                directory=place / f"kafkalake-{each}",
                broker_id=each,
                settings={**replicated, **dict(plan.settings)},
            )
            for each in range(BROKERS)
        ]
        theirs = [
            ApacheKafka(
                place / f"apache-kafka-{each}",
                broker_id=each,
                quorum=quorum,
                settings=replicated,
                heap=APACHE_KAFKA_HEAP,
                jvm=PERFORMANCE_JVM,
            )
            for each in range(BROKERS)
        ]
        with Cluster(ours) as kafkalake, Cluster(theirs) as apache_kafka:
            yield kafkalake, apache_kafka


def create_replicated(cluster: Cluster, topic: str, partitions: int = 1, **config: str) -> None:
    """Create a topic with a replica on each broker, and wait until all are in sync."""
    client = admin(cluster)  # which has to live as long as its futures
    made = client.create_topics([NewTopic(topic, partitions, BROKERS, config={**DURABLE, **config})])
    made[topic].result(TIMEOUT_S)
    wait_for_isr(cluster, topic)


def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})


def isr_sizes(broker: BrokerProcess, topic: str) -> list[int]:
    """Return the number of replicas in sync of each partition of a topic, as a broker knows it."""
    with WireClient(broker.bootstrap_servers) as client:
        found = client.call("Metadata", 4, topics=[{"name": topic}], allow_auto_topic_creation=False).topics[0]
    return [len(each.isr_nodes) for each in found.partitions]


def wait_for_isr(
    cluster: Cluster, topic: str, sizes: Collection[int] = (BROKERS,), asked: BrokerProcess | None = None
) -> float:
    """Wait until every partition has one of these numbers of replicas in sync, and return the time (monotonic).

    `asked`: the broker that is asked, the first one if it is None.
    """

    def has_them() -> bool:
        found = isr_sizes(asked or cluster.brokers[0], topic)
        return bool(found) and all(each in sizes for each in found)

    wait_until(has_them, lambda: f"{cluster.name}: not {sizes} replicas of {topic} are in sync", TIMEOUT_S)
    return time.monotonic()


def leader(cluster: Cluster, topic: str) -> BrokerProcess:
    """Return the leader of the first partition of a topic."""
    client = admin(cluster)
    return cluster.brokers[client.list_topics(topic, timeout=10).topics[topic].partitions[0].leader]


def followers(cluster: Cluster, topic: str) -> list[BrokerProcess]:
    """Return the brokers that do not lead the first partition of a topic."""
    leads = leader(cluster, topic)
    return [each for each in cluster.brokers if each is not leads]


def controller_id(broker: BrokerProcess) -> int:
    """Return the id of the broker that is the controller, as a broker knows it."""
    asked = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    with WireClient(broker.bootstrap_servers) as client:
        return int(client.call("DescribeQuorum", 0, topics=asked).topics[0].partitions[0].leader_id)


class SteadyProducer:
    """Sends a record every 5 ms from a thread and notes when each was acknowledged. Use as a context manager."""

    INTERVAL_S = 0.005

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, "acks": "all", "log_level": 0} | ATTENTIVE
        )
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acknowledged_s: list[float] = []
        self.errors: list[str] = []

    def _run(self) -> None:
        while not self._ends.is_set():
            self._producer.produce(self._topic, bytes(RECORD_BYTES), on_delivery=self._delivered)
            self._producer.poll(self.INTERVAL_S)
        self._producer.flush(TIMEOUT_S)

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self.errors.append(str(error))
        self.acknowledged_s.append(time.monotonic())

    def __enter__(self) -> SteadyProducer:
        self._thread.start()
        wait_until(lambda: len(self.acknowledged_s) > 100, lambda: "nothing is acknowledged", TIMEOUT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(2 * TIMEOUT_S)

    def wait_for_progress(self) -> None:
        """Wait until records that are sent from now on are acknowledged."""
        count = len(self.acknowledged_s) + 400
        wait_until(lambda: len(self.acknowledged_s) > count, lambda: "nothing is acknowledged any more", TIMEOUT_S)

    def longest_gap_s(self, since_s: float) -> float:
        """Return the longest time without an acknowledgement since then."""
        times = [since_s, *(each for each in self.acknowledged_s if each >= since_s)]
        return max(after - before for before, after in pairwise(times))


def work_on(cluster: Cluster, topic: str, act: Callable[[], float]) -> float:
    """Return what `act` measures while a producer writes steadily to a topic. Raise `AssertionError` if a record failed."""
    with SteadyProducer(cluster, topic) as producer:
        found = act()
    assert not producer.errors, f"{cluster.name}: {producer.errors[0]}"
    return found
