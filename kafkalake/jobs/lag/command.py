"""The lag job: measures how far every group is behind, from the lake's files alone, so also with the broker down.

`measurement.py` measures. Rows go to the Delta table `lag`. If it does not exist yet, the last hours are measured as well, from the
history of the tables. Alerts set the exit code (3), and go to stderr, to `job_runs` and, if configured, to a webhook.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads

from kafkalake.counted import counted, counted_as_subject
from kafkalake.errors import ConfigurationError, LakeError
from kafkalake.jobs.arguments import number
from kafkalake.jobs.frame import Done, Job, Run, Step, fault_point
from kafkalake.jobs.frame import check_arguments as check_job
from kafkalake.jobs.frame import main as run_job
from kafkalake.jobs.lag.measurement import WINDOW_MS, Measurement, commits_of, past_edges
from kafkalake.jobs.lag.report import (
    Alert,
    AlertRules,
    CommitHistory,
    GroupTopic,
    Lag,
    alerts,
    catching_up,
    measure,
)
from kafkalake.jobs.progress import print_table, say, show
from kafkalake.jobs.webhook import post, webhook_url
from kafkalake.metadata import paths
from kafkalake.metadata.history import History
from kafkalake.metadata.tables.job_tables import LAG_SCHEMA, JobTable, exists

ALERT_EXIT_CODE = 3
PAST_POINTS = 24

_HOUR_MS = 3_600_000
_LOOKS_BACK_HOURS = (1, 6, 48, 384, None)
"""How far back earlier runs are looked for, one after the other while there are too few (None: as far as the table goes)."""


class LagJob(Job):
    name = "lag"
    summary = "Report how far groups are behind: records, seconds, rates, time to catch up."

    def __init__(self) -> None:
        self._rows: list[Lag] = []
        self._alerts: list[Alert] = []
        self._now_ms = 0

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--group", metavar="REGEX", help="groups whose whole name matches (default: all)")
        parser.add_argument("--html", metavar="FILE", type=Path, help="write a page with plots that needs nothing else")
        parser.add_argument("--show", metavar="N", type=int, default=50, help="lines of the table (50; 0 for all)")
        parser.add_argument(
            "--window", metavar="SECONDS", type=number, default=WINDOW_MS / 1000, help="over which rates are taken"
        )
        parser.add_argument("--max-lag", metavar="N", type=int, help="alert: a group is more records behind in a topic")
        parser.add_argument("--max-lag-seconds", metavar="S", type=number, help="alert: its next record is older")
        parser.add_argument("--growing", metavar="RUNS", type=int, help="alert: the lag grew so many runs in a row")
        parser.add_argument("--webhook", metavar="URL", help="POST alerts there, as JSON")
        parser.add_argument(
            "--webhook-file", metavar="FILE", type=Path, help="the same, with the URL in a file, as it is a secret"
        )
        parser.add_argument(
            "--history",
            metavar="HOURS",
            type=number,
            help="also measure the past (default: 24 in the first run, then 0)",
        )

    def check(self, arguments: argparse.Namespace) -> None:
        if arguments.window <= 0:
            raise ConfigurationError(f"--window {arguments.window:g}: a window is longer than 0 seconds")
        for name in ("max_lag", "max_lag_seconds", "history", "show"):
            value = getattr(arguments, name)
            if value is not None and value < 0:
                raise ConfigurationError(f"--{name.replace('_', '-')} {value:g}: it cannot be negative")
        if arguments.growing is not None and arguments.growing < 1:
            raise ConfigurationError(f"--growing {arguments.growing}: it takes at least one run")
        arguments.webhook = webhook_url(arguments.webhook, arguments.webhook_file)
        if arguments.group is not None:
            try:
                re.compile(arguments.group)
            except re.error as error:
                raise ConfigurationError(f"--group {arguments.group!r} is no regular expression: {error}") from None

    def plan(self, run: Run) -> Sequence[Step]:
        self._now_ms = run.clock.now_ms()
        group = run.arguments.group
        commits = commits_of(run.lake, run.topics, lambda name: group is None or bool(re.fullmatch(group, name)))
        why = "groups have committed offsets"
        steps = [Step("measure", None, None, why, {"groups": len(commits.groups)}, commits)]
        hours = run.arguments.history
        if hours is None:
            hours = 0 if exists(run.lake, paths.LAG) else PAST_POINTS
        if hours:
            first = Step("measure the past", None, None, f"of the last {hours:g} h", {"points": PAST_POINTS}, commits)
            steps.insert(0, first)
        return steps

    def perform(self, run: Run, step: Step) -> Done:
        table = JobTable(run.lake, paths.LAG)
        if step.action == "measure the past":
            hours = PAST_POINTS if run.arguments.history is None else run.arguments.history
            rows = self._measure_past(run, step.detail, hours)
            version = table.append(rows) if rows.num_rows else None
            return Done({"rows": rows.num_rows}, paths.LAG, version)
        measured = Measurement(run.lake, run.store, run.topics, step.detail, lambda: run.spark, run.reading)
        self._rows = measured.now(self._now_ms, int(run.arguments.window * 1000))
        fault_point("measured")
        version = table.append(lag_table(run.run_id, self._now_ms, self._rows)) if self._rows else None
        fault_point("appended")
        return Done({"rows": len(self._rows), "lag": sum(row.lag for row in self._rows)}, paths.LAG, version)

    @property
    def measured(self) -> list[Lag]:
        """The lag, once it was measured."""
        return self._rows

    def report(self, run: Run) -> None:
        _print(self._rows, run.arguments.show or len(self._rows))

    def finish(self, run: Run) -> int:
        arguments = run.arguments
        rules = AlertRules(arguments.max_lag, arguments.max_lag_seconds, arguments.growing)
        behind = {row.group_topic for row in self._rows if row.lag}
        earlier = _earlier_totals(run, self._now_ms, behind, arguments.growing) if arguments.growing else {}
        self._alerts = alerts(self._rows, earlier, rules)
        for alert in self._alerts:
            say(f"lag: alert: {alert.text}")
            run.note(
                Step("alert", alert.topic, None, alert.text, {"limit": alert.limit}),
                Done({"group": alert.group, "rule": alert.rule, "value": alert.value}, outcome="raised"),
            )
        try:
            if self._alerts and arguments.webhook:
                _post(arguments.webhook, run, self._now_ms, self._alerts)
        finally:
            if arguments.html is not None:
                self._write_page(run, arguments.html)
        return ALERT_EXIT_CODE if self._alerts else 0

    def _write_page(self, run: Run, path: Path) -> None:
        from kafkalake.jobs.lag.page import write_page

        write_page(path, run.lake, self._now_ms, self._rows, self._alerts)
        show(lambda: print(f"written: {path}"))

    def _measure_past(self, run: Run, commits: CommitHistory, hours: float) -> pa.Table:
        """Return the lag in the last hours from the tables' history, without seconds, because the records may be gone."""
        history = History(run.lake)
        tables, done = [LAG_SCHEMA.empty_table()], set()
        for point in range(PAST_POINTS, 0, -1):
            then_ms = max(self._now_ms - int(point * hours * _HOUR_MS / PAST_POINTS), 0)
            past = history.partitions_at(then_ms)
            if past.time_ms >= self._now_ms or past.time_ms in done:
                continue
            done.add(past.time_ms)
            edges = past_edges(past.rows, run.topics)
            rows = [
                measure(key, commit, edges[where], now_ms=past.time_ms, next_record_ms=None, rate_out=None)
                for key, commit in commits.at(past.time_ms).items()
                if (where := (key.topic, key.partition)) in edges
            ]
            tables.append(lag_table(f"history of {run.run_id}", past.time_ms, rows))
        return pa.concat_tables(tables)


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code: 3 if an alert was raised."""
    return run_job(LagJob(), arguments)


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise `ConfigurationError` for a command line that `main` would refuse."""
    check_job(LagJob(), arguments)


def lag_table(run_id: str, measured_at_ms: int, rows: Sequence[Lag]) -> pa.Table:
    """Return rows of the Delta table `lag`."""
    columns = {
        "run_id": [run_id] * len(rows),
        "measured_at": [measured_at_ms * 1000] * len(rows),
        "committed_at": [row.committed_at_ms * 1000 for row in rows],
    }
    arrays = [
        pa.array(
            columns[name] if name in columns else [getattr(row, name) for row in rows], LAG_SCHEMA.field(name).type
        )
        for name in LAG_SCHEMA.names
    ]
    return pa.Table.from_arrays(arrays, schema=LAG_SCHEMA)


def _earlier_totals(run: Run, now_ms: int, wanted: Iterable[GroupTopic], runs: int) -> dict[GroupTopic, list[int]]:
    """Return the lag of groups by topic in the last runs that measured it, oldest first, and no older rows than that takes."""
    found: dict[GroupTopic, list[int]] = {}
    lacking = set(wanted)
    for hours in _LOOKS_BACK_HOURS:
        if not lacking:
            break
        since_ms = None if hours is None else now_ms - hours * _HOUR_MS
        found |= {key: totals[-runs:] for key, totals in _totals_since(run, since_ms, lacking).items()}
        lacking = {key for key in lacking if len(found.get(key, ())) < runs}
    return found


def _totals_since(run: Run, since_ms: int | None, wanted: Collection[GroupTopic]) -> dict[GroupTopic, list[int]]:
    """Return the lag of groups by topic in the runs since a time, oldest first, without the rows measured from history."""
    groups, topics = ({key[place] for key in wanted} for place in range(2))
    matching = pads.field("group").isin(list(groups)) & pads.field("topic").isin(list(topics))
    columns = ["measured_at", "run_id", "group", "topic"]
    table = JobTable(run.lake, paths.LAG).rows(since_ms, [*columns, "lag"], matching)
    summed = table.group_by(columns).aggregate([("lag", "sum")])
    found: dict[GroupTopic, list[int]] = defaultdict(list)
    for row in summed.sort_by([(name, "ascending") for name in columns]).to_pylist():
        key = GroupTopic(row["group"], row["topic"])
        if key in wanted and row["run_id"] != run.run_id and not row["run_id"].startswith("history"):
            found[key].append(row["lag_sum"])
    return dict(found)


def _print(rows: Sequence[Lag], lines: int) -> None:
    ordered = sorted(rows, key=lambda row: (-row.lag, row.group, row.topic, row.partition))[:lines]
    columns = ["group", "topic", "partition", "committed", "log end", "lag", "seconds", "in/s", "out/s", "catch up"]
    print_table(
        columns,
        [
            (
                row.group,
                row.topic,
                row.partition,
                row.committed_offset,
                row.log_end_offset,
                row.lag,
                _number(row.lag_seconds),
                _number(row.rate_in),
                _number(row.rate_out),
                catching_up(row),
            )
            for row in ordered
        ],
        right=columns[2:],
    )
    groups = len({row.group for row in rows})
    behind = len({row.group for row in rows if row.lag})
    lag = counted(sum(row.lag for row in rows), "record")
    print(f"{counted(groups, 'group')} in {counted(len(rows), 'partition')}, {behind:,} behind, by {lag} in all")


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:,.1f}"


def _post(url: str, run: Run, measured_at_ms: int, raised: Sequence[Alert]) -> None:
    """Post alerts to a webhook. Raise `LakeError` if it does not accept them."""
    content = {
        "lake": str(run.lake),
        "runId": run.run_id,
        "measuredAt": datetime.fromtimestamp(measured_at_ms / 1000, UTC).isoformat(),
        "alerts": [{**asdict(alert), "text": alert.text} for alert in raised],
    }
    try:
        post(url, content)
    except LakeError as error:
        raise LakeError(f"{counted_as_subject(len(raised), 'alert')} raised, and {error}") from None
