"""Three brokers of each kind: what several brokers cost, what replication costs, and how long a producer waits when a leader ends.

Topics are replicated three times, `min.insync.replicas` is 2, producers ask for acks=all, both kinds of broker with their default
sessions unless a row says otherwise. Processor time is that of all three brokers together.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
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

from benchmarks import kafka_tools
from benchmarks.java_clients import JavaClients
from benchmarks.plan import APACHE_KAFKA_HEAP, Plan, costing, progress, take_turns
from benchmarks.rows import Cost, Row, compare_rates, compare_times

RECORD_BYTES = 100
LARGE_RECORD_BYTES = 1_000
LARGE_BATCHES = {"batch.size": "262144", "linger.ms": "10"}
SESSION = {"broker.heartbeat.interval.ms": "1000", "broker.session.timeout.ms": "3000"}
"""Of both kinds of broker, so that a stopped leader is noticed after the same time."""
DURABLE = {"min.insync.replicas": "2"}
TIMEOUT_S = 60.0


def measure(plan: Plan) -> Iterator[Row]:
    with clusters(plan) as pair:
        default = plan.size(2_000_000, 200_000)
        if plan.wants("replicated-default"):
            yield _produce(plan, pair, "replicated-default", "default settings", default, 0.7, {})
        if plan.wants("replicated-large"):
            yield _produce(
                plan,
                pair,
                "replicated-large",
                "`batch.size=262144 linger.ms=10`",
                plan.size(5_000_000, 500_000),
                0.9,
                LARGE_BATCHES,
            )
        if plan.wants("replicated-p99"):
            yield _latency(plan, pair)
        if plan.wants("cluster-transactions"):
            yield _transactions(plan, pair)
        for key, title, end in (
            ("leader-killed", "SIGKILL of the leader", _kill),
            ("leader-stopped", f"SIGSTOP of the leader, session {SESSION['broker.session.timeout.ms']} ms", _stop),
            ("leader-leaves", "SIGTERM of the leader", _leave),
        ):
            if plan.wants(key):
                yield _failover(plan, pair, key, title, end)
        if plan.wants("replica-refilled"):
            yield _refill(plan, pair)


@contextlib.contextmanager
def clusters(plan: Plan) -> Iterator[tuple[Cluster, Cluster]]:
    """Three brokers of each kind, running, with their data in a directory of this measure that is removed at the end."""
    with tempfile.TemporaryDirectory(
        prefix="kafkalake-benchmark-", dir=plan.directory, ignore_cleanup_errors=True
    ) as directory:
        place = Path(directory)
        quorum = KafkaQuorum(BROKERS)
        replicated = {
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            **SESSION,
        }
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
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    new = NewTopic(topic, partitions, BROKERS, config={**DURABLE, **config})
    made = admin.create_topics([new], operation_timeout=TIMEOUT_S)
    made[topic].result(TIMEOUT_S)
    _wait_for_isr(cluster, topic)


def _wait_for_isr(cluster: Cluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})

    def is_whole() -> bool:
        found = admin.list_topics(topic, timeout=10).topics[topic].partitions.values()
        return bool(found) and all(len(each.isrs) == BROKERS for each in found)

    wait_until(is_whole, lambda: f"{cluster.name}: not all replicas of {topic} are in sync", TIMEOUT_S)


def _leader(cluster: Cluster, topic: str) -> BrokerProcess:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    return cluster.brokers[admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader]


def _produce(
    plan: Plan,
    pair: tuple[Cluster, Cluster],
    key: str,
    title: str,
    records: int,
    at_least: float,
    settings: dict[str, str],
) -> Row:
    cost = Cost("GB")

    def work(cluster: Cluster) -> float:
        with costing(cost, cluster, records * RECORD_BYTES / 1e9):
            return kafka_tools.produce(
                cluster.bootstrap_servers, key, records=records, record_bytes=RECORD_BYTES, settings=settings
            ).records_per_s

    for cluster in pair:
        progress(f"{key}: warming {cluster.name}")
        create_replicated(cluster, key, plan.partitions)
        kafka_tools.produce(cluster.bootstrap_servers, key, records=records // 2, settings=settings)
    ours, theirs = take_turns(key, plan.rounds, pair, work, "records/s")
    return compare_rates(
        key,
        f"three brokers, three replicas, produce, {RECORD_BYTES}-byte records, acks=all, {title}",
        ours,
        theirs,
        at_least=at_least,
        unit="records/s",
        cost=cost,
        records=records,
        partitions=plan.partitions,
    )


def _latency(plan: Plan, pair: tuple[Cluster, Cluster]) -> Row:
    key, rate, seconds = "replicated-p99", 1_000, plan.size(20, 5)

    def work(cluster: Cluster) -> float:
        return kafka_tools.produce(
            cluster.bootstrap_servers, key, records=seconds * rate, throughput=rate
        ).latency_ms_p99

    for cluster in pair:
        progress(f"{key}: warming {cluster.name}")
        create_replicated(cluster, key)
        work(cluster)
    ours, theirs = take_turns(key, plan.rounds, pair, work, "ms")
    title = f"three replicas, produce {rate:,} records/s, acks=all, p99 of the latency"
    return compare_times(key, title, ours, theirs, at_least=0.5, unit="ms", seconds=seconds)


def _transactions(plan: Plan, pair: tuple[Cluster, Cluster]) -> Row:
    key, partitions, records, count = "cluster-transactions", 6, 10, plan.size(500, 50)
    with JavaClients() as java:

        def work(cluster: Cluster) -> float:
            return java.transactions_per_s(cluster.bootstrap_servers, key, partitions, count, records, RECORD_BYTES)

        for cluster in pair:
            progress(f"{key}: warming {cluster.name}")
            create_replicated(cluster, key, partitions)
            work(cluster)
        ours, theirs = take_turns(key, plan.rounds, pair, work, "transactions/s")
    title = (
        f"three brokers, three replicas, transactions of {records} records over {partitions} partitions, Java client"
    )
    return compare_rates(
        key, title, ours, theirs, at_least=0.7, unit="transactions/s", transactions=count, partitions=partitions
    )


# An empty replica


def _refill(plan: Plan, pair: tuple[Cluster, Cluster]) -> Row:
    """How fast a replica that a reassignment adds is in the ISR. Its segments are a fifth of the log."""
    key, size = "replica-refilled", plan.refill_bytes or plan.size(5_000_000_000, 500_000_000)
    cost = Cost("GB")

    def work(cluster: Cluster) -> float:
        kept = _replicas(cluster, key)[:-1]
        _move(cluster, key, kept)
        wait_until(lambda: len(_replicas(cluster, key)) == len(kept), None, TIMEOUT_S)
        added = (set(range(BROKERS)) - set(kept)).pop()
        with costing(cost, cluster, size / 1e9):
            began_s = time.monotonic()
            _move(cluster, key, [*kept, added])
            wait_until(lambda: added in _isr(cluster, key), None, 60 * TIMEOUT_S)
            return size / 1e6 / (time.monotonic() - began_s)

    for cluster in pair:
        progress(f"{key}: filling {cluster.name}")
        create_replicated(cluster, key, **{"segment.bytes": str(size // 5)})
        records = size // LARGE_RECORD_BYTES
        kafka_tools.produce(
            cluster.bootstrap_servers,
            key,
            records=records,
            record_bytes=LARGE_RECORD_BYTES,
            settings=LARGE_BATCHES,
            timeout_s=60 * TIMEOUT_S,
        )
    ours, theirs = take_turns(key, plan.rounds, pair, work, "MB/s")
    title = f"three brokers, an empty replica of {size / 1e9:g} GB into the ISR"
    return compare_rates(key, title, ours, theirs, at_least=1.0, unit="MB/s", cost=cost, bytes=size)


def _partition(cluster: Cluster, topic: str) -> Any:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    return admin.list_topics(topic, timeout=10).topics[topic].partitions[0]


def _replicas(cluster: Cluster, topic: str) -> list[int]:
    """Return the replicas of a topic's only partition, its leader first."""
    found = _partition(cluster, topic)
    return sorted(found.replicas, key=lambda each: each != found.leader)


def _isr(cluster: Cluster, topic: str) -> list[int]:
    return list(_partition(cluster, topic).isrs)


def _move(cluster: Cluster, topic: str, replicas: list[int]) -> None:
    partitions = [{"partition_index": 0, "replicas": replicas}]
    with WireClient(cluster.brokers[replicas[0]].bootstrap_servers, timeout_s=TIMEOUT_S) as client:
        answer = client.call(
            "AlterPartitionReassignments", 0, timeout=30_000, topics=[{"name": topic, "partitions": partitions}]
        )
    assert answer.error_code == answer.responses[0].partitions[0].error_code == 0, answer


# What a producer notices of the end of a leader


class SteadyProducer:
    """Sends a record every 5 ms from a thread and notes when each was acknowledged. Use as a context manager."""

    INTERVAL_S = 0.005

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, "acks": "all", "log_level": 0}
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


def _failover(
    plan: Plan, pair: tuple[Cluster, Cluster], key: str, title: str, end: Callable[[BrokerProcess], None]
) -> Row:
    times = plan.size(5, 1)
    worst: dict[str, list[float]] = {cluster.name: [] for cluster in pair}

    def work(cluster: Cluster) -> float:
        gaps = [_gap_s(cluster, key, end) for _ in range(times)]
        worst[cluster.name].append(max(gaps))
        return statistics.median(gaps)

    for cluster in pair:
        create_replicated(cluster, key)
    ours, theirs = take_turns(key, plan.rounds, pair, work, "s")
    return compare_times(
        key,
        f"three replicas, {title}: longest gap of a producer, median",
        ours,
        theirs,
        at_least=1,
        unit="s",
        worst_s=worst,
        times=times,
    )


def _gap_s(cluster: Cluster, topic: str, end: Callable[[BrokerProcess], None]) -> float:
    """Return the longest gap of a producer while the leader of a topic ends and comes back."""
    _wait_for_isr(cluster, topic)
    leader = _leader(cluster, topic)
    with SteadyProducer(cluster, topic) as producer:
        since_s = time.monotonic()
        end(leader)
        producer.wait_for_progress()
        gap_s = producer.longest_gap_s(since_s)
    if leader.is_running():
        os.killpg(leader.pid, signal.SIGCONT)
    else:
        leader.start()
    if producer.errors:
        progress(f"{cluster.name}: {len(producer.errors)} errors, the first: {producer.errors[0]}")
    return gap_s


def _kill(broker: BrokerProcess) -> None:
    broker.kill()


def _stop(broker: BrokerProcess) -> None:
    os.killpg(broker.pid, signal.SIGSTOP)


def _leave(broker: BrokerProcess) -> None:
    broker.stop()
