"""What there is to measure, in the order of the table: each measure, the module that does it, and its rows."""

from __future__ import annotations

MEASURES = {
    "spark": ("spark_scan", ("spark-scan", "spark-projection", "spark-json")),
    "spark-start": ("spark_start", ("spark-first", "spark-count", "spark-tables", "spark-tables-warm")),
    "spark-write": ("spark_write", ()),
    "spark-stream": ("spark_stream", ()),
    "spark-latency": ("spark_latency", ("stream-latency", "real-time-latency")),
    "produce": (
        "produce",
        ("produce-default", "produce-large", "produce-lz4", "produce-100", "produce-1000", "produce-small"),
    ),
    "client": (
        "client_rates",
        (
            "client-send",
            "client-send-arrow",
            "client-send-arrow-to-one-partition",
            "client-poll",
            "client-poll-arrow",
            "client-memory",
        ),
    ),
    "consume": ("consume", ("consume-one", "consume-restarted", "consume-fan-out")),
    "latency": ("latency", ("latency-average", "latency-p99", "producer-p99")),
    "transactions": ("transactions", ()),
    "groups": ("groups", ("commits", "group-start", "member-replaced")),
    "planning": ("planning", ()),
    "start": ("start", ()),
    "random-fetch": ("random_fetch", ()),
    "memory": ("memory", ()),
    "lag-report": ("lag_report", ()),
    "compaction": ("compaction", ()),
    "delayed": ("delayed", ("delayed-lateness", "delayed-memory", "delayed-start")),
    "replication": (
        "replication",
        (
            "replicated-default",
            "replicated-large",
            "replicated-p99",
            "cluster-cpu",
            "cluster-cpu-per-broker",
            "cluster-transactions",
            "replica-refilled",
        ),
    ),
    "failover": ("failover", ("leader-killed", "leader-stopped", "leader-leaves", "rolling-restart")),
    "isolation": ("isolation", ("leader-isolated", "leading-controller-isolated")),
    "in-sync": ("in_sync", ("isr-shrinks", "isr-grows", "follower-cpu")),
    "cluster-events": (
        "cluster_events",
        (
            "controller-killed",
            "broker-killed",
            "broker-stopped",
            "broker-returns",
            "group-coordinator-killed",
            "transaction-coordinator-killed",
            "partitions-created",
            "idle-commits",
        ),
    ),
}
"""Each measure with its module and the rows that can be measured alone."""


def selected(names: list[str]) -> dict[str, frozenset[str]]:
    """Return the measures to run, each with its rows (none: all). Raise `KeyError` for a name of neither."""
    of_row = {row: name for name, (_, rows) in MEASURES.items() for row in rows}
    found: dict[str, set[str]] = {}
    for name in names or MEASURES:
        found.setdefault(name if name in MEASURES else of_row[name], set()).add(name)
    return {measure: frozenset() if measure in wanted else frozenset(wanted) for measure, wanted in found.items()}


def place_of(key: str) -> int:
    """Return the place of a row in the table. A row that cannot be measured alone stands with its measure, after whose name its key
    begins, and one that nothing measures any more stands last.
    """
    names = [row for measure, (_, rows) in MEASURES.items() for row in rows or (measure,)]
    places = [place for place, name in enumerate(names) if key == name or key.startswith(f"{name}-")]
    return max(places, key=lambda place: len(names[place]), default=len(names))
