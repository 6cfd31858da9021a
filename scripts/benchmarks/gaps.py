"""Rows that compare how long a producer waits while something happens to its leader."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from kafka_reference import Cluster

from benchmarks.clusters import SESSION
from benchmarks.plan import Plan, progress, take_turns
from benchmarks.rows import Row, compare_times, limited

SESSION_S = int(SESSION["broker.session.timeout.ms"]) / 1000

Gap = Callable[[Cluster, int], tuple[float, Sequence[object]]]
"""Returns a producer's longest gap in seconds and its errors. Takes the cluster and the number of its gaps before."""


def compare_gaps(plan: Plan, pair: tuple[Cluster, Cluster], key: str, title: str, times: int, gap: Gap) -> Row:
    """Take so many gaps in a round. The row's figures are medians of a round; `gaps_s` has every gap, by the broker's name."""
    gaps_s: dict[str, list[float]] = {cluster.name: [] for cluster in pair}
    errors = {cluster.name: 0 for cluster in pair}

    def work(cluster: Cluster) -> float:
        found = gaps_s[cluster.name]
        for _ in range(times):
            gap_s, failed = gap(cluster, len(found))
            if failed:
                progress(f"{cluster.name}: {len(failed)} errors, the first: {failed[0]}")
            found.append(gap_s)
            errors[cluster.name] += len(failed)
        return statistics.median(found[-times:])

    ours, theirs = take_turns(key, plan.rounds, pair, work, "s")
    return compare_times(
        key,
        f"three replicas, {title}: longest gap of a producer, median of {plan.rounds * times}",
        ours,
        theirs,
        at_least=1,
        unit="s",
        gaps_s=gaps_s,
        errors=errors,
    )


def limit_by_session(row: Row) -> Row:
    """The row with the limit for a leader that falls silent: its session and a second, Apache Kafka's time and half a second."""
    return limited(row, min(SESSION_S + 1, statistics.median(row.figures["apache_kafka"]) + 0.5))
