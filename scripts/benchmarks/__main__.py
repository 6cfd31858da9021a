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
from benchmarks.measures import MEASURES, selected
from benchmarks.plan import Plan, progress
from benchmarks.rows import Row


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
