"""The retention job: removes the sealed segments that a topic's settings no longer keep, oldest first.

`storage.retention` decides. This module provides its input and carries out the decision, in just two commits to Delta:

    1. `partitions`: the new log starts            readers begin there from then on; no publish of a broker lowers it
    2. `segments`: without the rows below          if killed between the two, the broker or the next run removes the rest

The broker notices the first within a second, moves its log start durably, and unlinks files after `file.delete.delay.ms`.
While it is down, its next start does that, or `maintenance` unlinks the files. So the job touches no file that a broker may
hold open, and running it twice removes nothing more. A running broker does all of it itself, by the
same rule (`broker/partitions/retention.py`). This job is for lakes whose broker is down, for previews (`--dry-run`), and
for its warnings of slow groups.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafkalake.config.topics import TopicConfig
from kafkalake.counted import counted
from kafkalake.jobs.cleaned_partitions import CleanedPartition, cleaned_partitions, cleaned_topics
from kafkalake.jobs.frame import Done, Job, Run, Step, fault_point
from kafkalake.jobs.frame import check_arguments as check_job
from kafkalake.jobs.frame import main as run_job
from kafkalake.jobs.progress import print_table
from kafkalake.metadata import paths
from kafkalake.metadata.catalog import is_committed_to
from kafkalake.metadata.lock_file import running_brokers
from kafkalake.metadata.tables.schemas import SegmentRow
from kafkalake.storage.retention import GUARDS, PartitionRetention, RetentionRule, SealedRange, decide_retention
from kafkalake.storage.state import read_state
from kafkalake.topic_partition import TopicPartition

DELETE, KEEP, FINISH = "delete segments", "keep segments", "finish"

_BROKER_TIMEOUT_S = 10.0
_GROUPS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class _Partition:
    """The input of a decision on a partition, and the decision."""

    log: CleanedPartition
    decision: PartitionRetention

    @property
    def rows_before_start(self) -> list[SegmentRow]:
        """The rows of segments that lie wholly below the decided log start."""
        return [row for row in self.log.rows if row.next_offset <= self.decision.log_start_offset]


class Retention(Job):
    name = "retention"
    summary = "Remove sealed segments that retention.ms and retention.bytes no longer keep."

    _partitions_version = -1
    _running: frozenset[int] = frozenset()
    _deadline = 0.0

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--guard",
            choices=GUARDS,
            help="what to do about segments that a group has not read (default: each topic's retention.groups.guard)",
        )

    def plan(self, run: Run) -> Sequence[Step]:
        now_ms = run.clock.now_ms()
        rules = {topic: _rule(config, run.arguments.guard) for topic, config in run.topic_configs.items()}
        wanted = [topic for topic in cleaned_topics(run) if rules[topic.topic].has_limit]
        committed = _committed(run) if wanted else {}
        self._running = running_brokers(run.lake, run.store.load_brokers(), now_ms)
        steps: list[Step] = []
        for log in cleaned_partitions(run, wanted):
            rule = rules[log.topic.topic]
            decision = decide_retention(
                [_range(row) for row in log.rows],
                rule,
                committed.get((log.topic.topic, log.number), {}),
                now_ms=now_ms,
                log_start_offset=log.state.log_start_offset,
                end_offset=log.state.high_watermark,
                active_bytes=log.state.active_position,
            )
            steps += _steps(_Partition(log, decision), rule, broker_runs=log.broker_id in self._running)
        return steps

    def begin(self, run: Run, steps: Sequence[Step]) -> None:
        going: list[_Partition] = [step.detail for step in steps if step.action != KEEP]
        if not going:
            return
        starts = {(each.log.topic.topic_id, each.log.number): each.decision.log_start_offset for each in going}
        self._partitions_version = run.store.raise_log_starts(starts)
        fault_point("log starts raised")
        run.store.remove_segments([row.key for each in going for row in each.rows_before_start])
        fault_point("segments removed")
        self._deadline = time.monotonic() + _BROKER_TIMEOUT_S

    def perform(self, run: Run, step: Step) -> Done:
        partition: _Partition = step.detail
        start = partition.decision.log_start_offset
        if step.action == KEEP:
            return Done({"log_start_offset": start}, outcome="blocked")
        left = [row for row in partition.log.rows if row.next_offset > start]
        after = {
            "log_start_offset": start,
            "sealed_segments": len(left),
            "sealed_bytes": sum(row.bytes for row in left),
            "broker": self._broker_says(partition),
        }
        return Done(after, paths.PARTITIONS, self._partitions_version)

    def report(self, run: Run) -> None:
        rows = []
        for step, done in run.performed:
            decision: PartitionRetention = step.detail.decision
            removed = (0, 0) if step.action == KEEP else (len(decision.segments), decision.bytes)
            rows.append(
                (step.subject, *removed, step.before["log_start_offset"], done.after["log_start_offset"], step.why)
            )
        if rows:
            columns = ["partition", "segments", "bytes", "log start", "now", "why"]
            print_table(columns, rows, right=columns[1:5])
        segments, freed = counted(sum(row[1] for row in rows), "segment"), sum(row[2] for row in rows)
        print(f"{segments}, {counted(freed, 'byte')} removed")

    def _broker_says(self, partition: _Partition) -> str:
        """Wait for a running broker to move its log start, and return the outcome for `job_runs`."""
        if partition.log.broker_id not in self._running:
            return "not running: its next start removes the files"
        while read_state(partition.log.directory).log_start_offset < partition.decision.log_start_offset:
            if time.monotonic() > self._deadline:
                return "has not moved its log start yet"
            time.sleep(0.05)
        return "has moved its log start"


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code."""
    return run_job(Retention(), arguments)


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise `ConfigurationError` for a command line that `main` would refuse."""
    check_job(Retention(), arguments)


def _rule(config: TopicConfig, guard: str | None) -> RetentionRule:
    guard = guard or config.retention_groups_guard
    return RetentionRule(config.deletes, config.retention_ms, config.retention_bytes, guard)


def _range(row: SegmentRow) -> SealedRange:
    latest_ms = row.max_timestamp_ms if row.max_timestamp_ms is not None else row.sealed_at_ms
    return SealedRange(row.base_offset, row.next_offset, row.bytes, latest_ms)


def _committed(run: Run) -> dict[TopicPartition, dict[str, int]]:
    """Return the groups' committed offsets by topic and partition, without those of an earlier topic of the same name."""
    topics = {topic.topic: topic for topic in run.topics}
    found: dict[TopicPartition, dict[str, int]] = {}
    for row in run.store.load_group_offsets().rows:
        if row.offset is not None and is_committed_to(row, topics.get(row.topic)):
            found.setdefault((row.topic, row.partition), {})[row.group] = row.offset
    return found


def _steps(partition: _Partition, rule: RetentionRule, *, broker_runs: bool) -> list[Step]:
    """Return the steps for a partition. A running broker itself removes the leftovers of a killed run."""
    log, decision = partition.log, partition.decision
    here = [row for row in log.rows if row.next_offset > log.state.log_start_offset]
    before = {
        "log_start_offset": log.state.log_start_offset,
        "sealed_segments": len(here),
        "sealed_bytes": sum(row.bytes for row in here),
    }
    name = f"{log.topic.topic}-{log.number}"
    steps = []

    def add(action: str, why: str, warning: str | None = None) -> None:
        steps.append(Step(action, log.topic.topic, log.number, why, before, partition, warning))

    if decision.segments:
        unread = _groups(decision.unread, decision.log_start_offset) if decision.unread else None
        add(DELETE, _why(decision, rule), unread and f"{name}: removing records that {unread} not read yet")
    elif partition.rows_before_start and not broker_runs:
        add(FINISH, "`segments` has rows of what was removed before")
    if decision.kept_for:
        why = f"retention.groups.guard=block: {_groups(decision.kept_for, None)} not read them yet"
        add(KEEP, why, f"{name}: keeping {decision.kept_bytes:,} bytes, {why}")
    return steps


def _why(decision: PartitionRetention, rule: RetentionRule) -> str:
    parts = []
    if by_time := decision.reasons.count("time"):
        parts.append(f"{by_time} older than retention.ms={rule.retention_ms}")
    if by_size := decision.reasons.count("size"):
        parts.append(f"{by_size} beyond retention.bytes={rule.retention_bytes}")
    return ", ".join(parts)


def _groups(behind: Mapping[str, int], end: int | None) -> str:
    """Return a text such as `group 'etl' (at 120, 80 records) has`."""
    shown = [
        f"{group!r} (at {offset}" + (f", {end - offset} records" if end is not None else "") + ")"
        for group, offset in list(behind.items())[:_GROUPS_SHOWN]
    ]
    more = f" and {len(behind) - _GROUPS_SHOWN} more" if len(behind) > _GROUPS_SHOWN else ""
    return f"group {shown[0]} has" if len(behind) == 1 else f"groups {', '.join(shown)}{more} have"
