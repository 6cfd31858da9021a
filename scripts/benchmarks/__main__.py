"""The command line of `scripts/benchmark`."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import tempfile
import traceback
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

from kafka_reference import PROJECT

from benchmarks import report
from benchmarks.plan import Plan, progress
from benchmarks.rows import Row

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
        ("client-send", "client-send-arrow", "client-poll", "client-poll-arrow", "client-memory"),
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


def main() -> int:
    options = _arguments()
    signal.signal(signal.SIGTERM, _end)
    options.directory.mkdir(parents=True, exist_ok=True)
    plan = Plan(
        options.directory,
        options.quick,
        options.rounds or (2 if options.quick else 5),
        options.partitions,
        tuple(tuple(pair.split("=", 1)) for pair in options.config),
        refill_bytes=options.refill_bytes,
    )
    measures = selected(options.measures)
    rows: list[Row] = []
    failed: list[str] = []
    for name, wanted in measures.items():
        progress(f"--- {name}")
        try:
            for row in importlib.import_module(f"benchmarks.{MEASURES[name][0]}").measure(replace(plan, rows=wanted)):
                rows.append(row)
        except Exception:
            failed.append(name)
            traceback.print_exc()
    results = options.output or (
        PROJECT / ".cache" / "benchmark-quick.json" if options.quick else PROJECT / "scripts" / "benchmark-results.json"
    )
    results.parent.mkdir(parents=True, exist_ok=True)
    text = report.write(results, rows)
    print(text)
    if options.write_readme:
        report.write_readme(PROJECT / "README.md", text)
    if failed:
        print(f"not measured: {', '.join(failed)}", file=sys.stderr)
        return 1
    return int(options.check and not all(row.holds for row in rows))


def _arguments() -> argparse.Namespace:
    names = "; ".join(f"{name} ({', '.join(rows)})" if rows else name for name, (_, rows) in MEASURES.items())
    parser = argparse.ArgumentParser(prog="scripts/benchmark", description="kafkalake and Apache Kafka, side by side.")
    parser.add_argument(
        "measures",
        nargs="*",
        metavar="MEASURE",
        help=f"{names}. Without one, all; a row of a measure can be named alone",
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, to see that it runs")
    parser.add_argument("--rounds", type=int, help="alternating rounds (5; 2 with --quick)")
    parser.add_argument("--partitions", type=int, default=1, help="partitions of the produce and consume topics (1)")
    parser.add_argument(
        "--config", action="append", default=[], metavar="KEY=VALUE", help="a setting of kafkalake's broker"
    )
    parser.add_argument(
        "--directory", type=Path, default=Path(tempfile.gettempdir()), help="where both brokers' data goes"
    )
    parser.add_argument(
        "--refill-bytes", type=int, default=0, help="what an empty replica copies (5 GB; 500 MB with --quick)"
    )
    parser.add_argument("--output", type=Path, help="the JSON file; the table is written beside it as .md")
    parser.add_argument("--write-readme", action="store_true", help="put the table into README.md")
    parser.add_argument("--check", action="store_true", help="fail where a promise is missed")
    options = parser.parse_args()
    try:
        selected(options.measures)
    except KeyError as unknown:
        parser.error(f"no measure or row {unknown}; there are {names}")
    if any("=" not in pair for pair in options.config):
        parser.error("--config takes KEY=VALUE")
    return options


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM ends the run through every `with`, so that no process stays."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
