"""Three brokers of each kind: what several brokers cost, and what replication costs.

Topics are replicated three times, `min.insync.replicas` is 2, producers ask for acks=all. Processor time is that of all three
brokers together.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from contract.wire_client import WireClient
from kafka_reference import BROKERS, BrokerProcess, Cluster, create_topic
from waiting import wait_until

from benchmarks import kafka_tools
from benchmarks.clusters import RECORD_BYTES, TIMEOUT_S, admin, clusters, create_replicated, isr_sizes
from benchmarks.java_clients import JavaClients
from benchmarks.plan import Plan, costing, progress, take_turns
from benchmarks.rows import Cost, Row, compare_rates, compare_times, limited

LARGE_RECORD_BYTES = 1_000
LARGE_BATCHES = {"batch.size": "262144", "linger.ms": "10"}


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
        if plan.wants("cluster-cpu"):
            load = _Load(6, plan.size(3_000_000, 300_000))
            yield _cluster_cpu(plan, pair, "cluster-cpu", "the same 6 partitions, default settings", load, load)
        if plan.wants("cluster-cpu-per-broker"):
            title = "6 partitions, 40,000 records/s a broker, `linger.ms=5`"
            one, three = (_Load(6 * many, plan.size(600_000, 200_000) * many, 40_000 * many) for many in (1, BROKERS))
            yield _cluster_cpu(plan, pair, "cluster-cpu-per-broker", title, one, three)
        if plan.wants("cluster-transactions"):
            yield _transactions(plan, pair)
        if plan.wants("replica-refilled"):
            yield _refill(plan, pair)


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


class _Load(NamedTuple):
    """What is produced to a topic, with `linger.ms=5`, Kafka's default. rate: records a second, -1: as many as possible."""

    partitions: int
    records: int
    rate: int = -1


def _cluster_cpu(
    plan: Plan, clusters_of_three: tuple[Cluster, Cluster], key: str, what: str, of_one: _Load, of_three: _Load
) -> Row:
    """What three brokers take in processor time for a GB, against one.

    With the same load in all, each of three brokers gets as many requests as one alone, with fewer batches in each. With the same
    load a broker the requests are alike, and what is left is what it costs to be a cluster.
    """
    cost = Cost("GB")

    def cost_of(brokers: BrokerProcess | Cluster, load: _Load) -> float:
        settings = {"linger.ms": "5"}
        with costing(cost, brokers, load.records * RECORD_BYTES / 1e9):
            kafka_tools.produce(
                brokers.bootstrap_servers, key, records=load.records, throughput=load.rate, settings=settings
            )
        return cost.seconds[brokers.name][-1]

    with plan.brokers() as singles:
        for cluster, single in zip(clusters_of_three, singles, strict=True):
            progress(f"{key}: warming {cluster.name}")
            create_topic(single, key, partitions=of_one.partitions, timeout_s=TIMEOUT_S)
            create_topic(cluster.brokers[0], key, partitions=of_three.partitions, timeout_s=TIMEOUT_S)
            cost_of(single, of_one)
            cost_of(cluster, of_three)

        def work(cluster: Cluster) -> float:
            single = singles[clusters_of_three.index(cluster)]
            return cost_of(cluster, of_three) / cost_of(single, of_one)

        ours, theirs = take_turns(key, plan.rounds, clusters_of_three, work, "x")
    title = f"produce to {what}: CPU s/GB of three brokers against one's"
    row = compare_times(key, title, ours, theirs, at_least=1.0, unit="x", records=of_three.records, rate=of_three.rate)
    return limited(row, 1.15)


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
        left = [len(kept)]
        wait_until(lambda: all(isr_sizes(each, key) == left for each in cluster.brokers), None, TIMEOUT_S)
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
    client = admin(cluster)
    return client.list_topics(topic, timeout=10).topics[topic].partitions[0]


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
