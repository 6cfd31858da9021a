"""How long a producer waits when a leader ends, in three brokers of each kind, replicated three times, acks=all."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from kafka_reference import BrokerProcess, Cluster

from benchmarks.clusters import SteadyProducer, clusters, create_replicated, leader, wait_for_isr
from benchmarks.gaps import SESSION_S, compare_gaps, limit_by_session
from benchmarks.plan import Plan, take_turns
from benchmarks.rows import Row, compare_times, limited

End = Callable[[BrokerProcess], None]


def kill(broker: BrokerProcess) -> None:
    broker.kill()


def stop(broker: BrokerProcess) -> None:
    os.killpg(broker.pid, signal.SIGSTOP)


def leave(broker: BrokerProcess) -> None:
    broker.stop()


def measure(plan: Plan) -> Iterator[Row]:
    with clusters(plan) as pair:
        if plan.wants("leader-killed"):
            row = _failover(plan, pair, "leader-killed", "SIGKILL of the leader", kill, plan.size(20, 1))
            yield _with_tail(limited(row, 1.0), 1.0, most_s=2.0)
        if plan.wants("leader-stopped"):
            title = f"SIGSTOP of the leader, session {SESSION_S:g} s"
            yield limit_by_session(_failover(plan, pair, "leader-stopped", title, stop, plan.size(4, 1)))
        if plan.wants("leader-leaves"):
            row = _failover(plan, pair, "leader-leaves", "SIGTERM of the leader", leave, plan.size(20, 1))
            yield _with_tail(limited(row, 0.3), 0.99, most_s=0.3)
        if plan.wants("rolling-restart"):
            yield _rolling_restart(plan, pair)


def _failover(plan: Plan, pair: tuple[Cluster, Cluster], key: str, title: str, end: End, times: int) -> Row:
    """`times` leaders end in a round."""
    for cluster in pair:
        create_replicated(cluster, key)
    return compare_gaps(plan, pair, key, title, times, lambda cluster, _: _gap_s(cluster, key, end))


def _with_tail(row: Row, share: float, most_s: float) -> Row:
    """The row with the gap below which that share of all gaps is, which has to be `most_s` at most too."""
    name = "worst" if share == 1 else f"p{100 * share:g}"
    ours, theirs = (_quantile(row.figures["gaps_s"][each], share) for each in ("kafkalake", "apache-kafka"))
    return replace(
        row,
        kafkalake=f"{row.kafkalake}, {name} {ours:.2f} s",
        apache_kafka=f"{row.apache_kafka}, {name} {theirs:.2f} s",
        promise=f"{row.promise}, {name} {most_s:g} s",
        holds=row.holds and ours <= most_s,
    )


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[math.ceil(share * len(values)) - 1]


def _gap_s(cluster: Cluster, topic: str, end: End) -> tuple[float, Sequence[object]]:
    """Return a producer's longest gap while the leader of a topic ends and comes back, and its errors."""
    wait_for_isr(cluster, topic)
    leads = leader(cluster, topic)
    with SteadyProducer(cluster, topic) as producer:
        since_s = time.monotonic()
        end(leads)
        producer.wait_for_progress()
        gap_s = producer.longest_gap_s(since_s)
    if leads.is_running():
        os.killpg(leads.pid, signal.SIGCONT)
    else:
        leads.start()
    return gap_s, producer.errors


def _rolling_restart(plan: Plan, pair: tuple[Cluster, Cluster]) -> Row:
    """Each broker is restarted in order, the next one once all replicas are in sync again."""
    key = "rolling-restart"
    errors = {cluster.name: 0 for cluster in pair}

    def work(cluster: Cluster) -> float:
        with SteadyProducer(cluster, key) as producer:
            since_s = time.monotonic()
            for broker in cluster.brokers:
                broker.restart()
                wait_for_isr(cluster, key)
            producer.wait_for_progress()
            gap_s = producer.longest_gap_s(since_s)
        errors[cluster.name] += len(producer.errors)
        return gap_s

    for cluster in pair:
        create_replicated(cluster, key, partitions=3)
    ours, theirs = take_turns(key, plan.rounds, pair, work, "s")
    title = "three replicas, rolling restart: longest gap of a producer"
    row = compare_times(key, title, ours, theirs, at_least=1, unit="s", errors=errors)
    return replace(
        row,
        kafkalake=f"{row.kafkalake}, {errors['kafkalake']} errors",
        apache_kafka=f"{row.apache_kafka}, {errors['apache-kafka']} errors",
        promise=f"{row.promise}, 0 errors",
        holds=row.holds and not errors["kafkalake"],
    )
