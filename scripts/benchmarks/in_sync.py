"""Followers: how soon they leave and join the ISR, and what following costs.

Three brokers of each kind, three replicas. Their sessions are long, so that a stopped follower leaves the ISR because it lags.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Iterator

import psutil
from kafka_reference import BrokerProcess, Cluster

from benchmarks import kafka_tools
from benchmarks.clusters import (
    DURABLE,
    RECORD_BYTES,
    clusters,
    controller_id,
    create_replicated,
    followers,
    leader,
    wait_for_isr,
    work_on,
)
from benchmarks.passing_topics import REMOVING, passing_topic
from benchmarks.plan import Plan, progress, take_turns
from benchmarks.rows import Row, compare_times, limited

LAG_MS = 2_000
LAG_SETTINGS = {
    "replica.lag.time.max.ms": str(LAG_MS),
    "broker.heartbeat.interval.ms": "2000",
    "broker.session.timeout.ms": "20000",
    **REMOVING,
}
LARGE = {"batch.size": "262144", "linger.ms": "10"}


def measure(plan: Plan) -> Iterator[Row]:
    with clusters(plan, LAG_SETTINGS) as pair:
        if plan.wants("isr-shrinks") or plan.wants("isr-grows"):
            yield from (row for row in _isr_changes(plan, pair) if plan.wants(row.key))
        if plan.wants("follower-cpu"):
            yield _follower_cost(plan, pair)


def _isr_changes(plan: Plan, pair: tuple[Cluster, Cluster]) -> list[Row]:
    """A follower, not the controller, is stopped under load, and goes on once it has left the ISR."""
    topic = "isr-changes"
    growths: dict[str, list[float]] = {cluster.name: [] for cluster in pair}

    def work(cluster: Cluster) -> float:
        asked = leader(cluster, topic)
        controls = cluster.brokers[controller_id(asked)]
        follower = next(each for each in followers(cluster, topic) if each is not controls)

        def stop_and_go_on() -> float:
            stopped_s = time.monotonic()
            os.killpg(follower.pid, signal.SIGSTOP)
            try:
                left_s = wait_for_isr(cluster, topic, (1, 2), asked)
            finally:
                os.killpg(follower.pid, signal.SIGCONT)
            continued_s = time.monotonic()
            growths[cluster.name].append(wait_for_isr(cluster, topic, asked=asked) - continued_s)
            return left_s - stopped_s

        return work_on(cluster, topic, stop_and_go_on)

    for cluster in pair:
        create_replicated(cluster, topic)
    ours, theirs = take_turns("isr-shrinks", plan.rounds, pair, work, "s")
    left = f"a follower is stopped: time until it has left the ISR, replica.lag.time.max.ms={LAG_MS}"
    joined = "a follower that was stopped goes on: time until it is in the ISR, catching up included"
    kept = growths["kafkalake"], growths["apache-kafka"]
    return [
        limited(compare_times("isr-shrinks", left, ours, theirs, at_least=1, unit="s"), 1.5 * LAG_MS / 1000),
        limited(compare_times("isr-grows", joined, *kept, at_least=1, unit="s"), 1.0),
    ]


def _follower_cost(plan: Plan, pair: tuple[Cluster, Cluster]) -> Row:
    """The processor time of a follower beside that of the leader, which appends and serves two of them, of one partition."""
    name, records = "follower-cpu", plan.size(3_000_000, 300_000)
    seconds: dict[str, dict[str, list[float]]] = {cluster.name: {"leader": [], "follower": []} for cluster in pair}

    def produce(cluster: Cluster) -> tuple[float, float]:
        """Return the seconds of the leader, and of a follower."""
        with passing_topic(cluster, name, **DURABLE) as topic:
            leads, following = leader(cluster, topic), followers(cluster, topic)
            before = {broker: _processor_seconds(broker) for broker in (leads, *following)}
            kafka_tools.produce(cluster.bootstrap_servers, topic, records=records, settings=LARGE)
            spent = {broker: _processor_seconds(broker) - before[broker] for broker in before}
        return spent[leads], statistics.mean(spent[broker] for broker in following)

    def work(cluster: Cluster) -> float:
        gigabytes = records * RECORD_BYTES / 1e9
        leader_s, follower_s = produce(cluster)
        seconds[cluster.name]["leader"].append(leader_s / gigabytes)
        seconds[cluster.name]["follower"].append(follower_s / gigabytes)
        return follower_s / leader_s

    for cluster in pair:
        progress(f"{name}: warming {cluster.name}")
        produce(cluster)
    ours, theirs = take_turns(name, plan.rounds, pair, work, "x the leader's")
    title = "processor time of a follower beside the leader's, 256 KiB batches"
    row = compare_times(name, title, ours, theirs, at_least=1, unit="x", cpu_s_a_gb=seconds)
    return limited(row, 0.4)


def _processor_seconds(broker: BrokerProcess) -> float:
    times = psutil.Process(broker.pid).cpu_times()
    return times.user + times.system
