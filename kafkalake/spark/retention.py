"""The retention job: removes the sealed segments that a topic's settings no longer keep, oldest first.

`storage.retention` decides; here is what it decides on, and what follows. Two commits to Delta are all that this job writes:

    1. `partitions`: where each log begins now     readers begin there from then on; no publish of a broker lowers it
    2. `segments`: without the rows below          what a kill between the two leaves, the broker or the next run removes

The broker notices the first within a second, moves its log start durably, and unlinks files after `file.delete.delay.ms`.
While it is down, its next start does that, or `maintenance` unlinks the files. So the job touches no file that a broker may
hold open, and running it twice removes nothing more.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kafkalake.config import TopicConfig
from kafkalake.metadata import paths
from kafkalake.metadata.lease import running_brokers
from kafkalake.metadata.schemas import SegmentKey, SegmentRow, TopicRow
from kafkalake.spark.job import Done, Job, Run, Step, reached
from kafkalake.spark.job import main as run_job
from kafkalake.spark.progress import print_table
from kafkalake.spark.snapshot import log_start
from kafkalake.storage.retention import GUARDS, PartitionRetention, RetentionRule, SealedRange, decide_retention
from kafkalake.storage.state import PartitionState, read_state

DELETE, KEEP = "delete segments", "keep segments"
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
"""The broker trims its journals itself."""

_BROKER_TIMEOUT_S = 10.0
_GROUPS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class _Partition:
    """A partition as the decision was made on it, and the decision."""

    topic_id: str
    leader: int
    rows: Sequence[SegmentRow]
    state: PartitionState
    decision: PartitionRetention


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
        wanted = [
            topic for topic in run.topics if topic.topic not in INTERNAL_TOPICS and _has_limit(rules[topic.topic])
        ]
        segments = _segments_by_partition(run.store.load_segments()) if wanted else {}
        leaders = {(row.topic_id, row.partition): row for row in run.store.load_partitions()}
        committed = _committed(run) if wanted else {}
        steps: list[Step] = []
        for topic in wanted:
            for number in range(topic.partitions):
                row = leaders.get((topic.topic_id, number))
                rows = segments.get((topic.topic_id, number), [])
                if row is None or not rows:
                    continue
                state = read_state(paths.partition_path(run.lake, row.leader, topic.topic, number))
                start = log_start(state, row)
                decision = decide_retention(
                    [_range(each) for each in rows],
                    rules[topic.topic],
                    committed.get((topic.topic, number), {}),
                    now_ms=now_ms,
                    log_start_offset=start,
                    end_offset=state.high_watermark,
                    active_bytes=state.active_position,
                )
                state = state._replace(log_start_offset=start)
                partition = _Partition(topic.topic_id, row.leader, rows, state, decision)
                steps += _steps(topic, number, rules[topic.topic], partition)
        return steps

    def begin(self, run: Run, steps: Sequence[Step]) -> None:
        going = [step for step in steps if step.action == DELETE]
        if not going:
            return
        starts = {(step.detail.topic_id, step.partition or 0): step.detail.decision.log_start_offset for step in going}
        self._partitions_version = run.store.raise_log_starts(starts)
        reached("log starts raised")
        keys = [key for step in going for key in _removed_keys(step.detail)]
        run.store.remove_segments(keys)
        reached("segments removed")
        self._running = running_brokers(run.store.load_brokers(), run.clock.now_ms())
        self._deadline = time.monotonic() + _BROKER_TIMEOUT_S

    def perform(self, run: Run, step: Step) -> Done:
        partition: _Partition = step.detail
        if step.action == KEEP:
            return Done({"log_start_offset": partition.state.log_start_offset}, outcome="blocked")
        start = partition.decision.log_start_offset
        left = [row for row in partition.rows if row.next_offset > start]
        after = {
            "log_start_offset": start,
            "sealed_segments": len(left),
            "sealed_bytes": sum(row.bytes for row in left),
            "broker": self._broker_says(run, step, partition),
        }
        return Done(after, paths.PARTITIONS, self._partitions_version)

    def finish(self, run: Run) -> int:
        rows = []
        for step, done in run.performed:
            decision: PartitionRetention = step.detail.decision
            removed = (len(decision.segments), decision.bytes) if step.action == DELETE else (0, 0)
            rows.append(
                (step.subject, *removed, step.before["log_start_offset"], done.after["log_start_offset"], step.why)
            )
        if rows:
            columns = ["partition", "segments", "bytes", "log start", "now", "why"]
            print_table(columns, rows, right=columns[1:5])
        print(f"{sum(row[1] for row in rows)} segments, {sum(row[2] for row in rows):,} bytes removed")
        return 0

    def _broker_says(self, run: Run, step: Step, partition: _Partition) -> str:
        """Wait for a running broker to move its log start; what it did, for `job_runs`."""
        if partition.leader not in self._running:
            return "not running: its next start removes the files"
        directory = paths.partition_path(run.lake, partition.leader, step.topic or "", step.partition or 0)
        while read_state(directory).log_start_offset < partition.decision.log_start_offset:
            if time.monotonic() > self._deadline:
                return "has not moved its log start yet"
            time.sleep(0.05)
        return "has moved its log start"


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the exit code."""
    return run_job(Retention(), arguments)


def _rule(config: TopicConfig, guard: str | None) -> RetentionRule:
    policies = [policy.strip() for policy in config.cleanup_policy.split(",")]
    return RetentionRule(
        "delete" in policies, config.retention_ms, config.retention_bytes, guard or config.retention_groups_guard
    )


def _has_limit(rule: RetentionRule) -> bool:
    return rule.delete and (rule.retention_ms >= 0 or rule.retention_bytes >= 0)


def _segments_by_partition(rows: Sequence[SegmentRow]) -> dict[tuple[str, int], list[SegmentRow]]:
    """The newest generation of each segment, by topic id and partition, ascending."""
    newest: dict[tuple[str, int, int], SegmentRow] = {}
    for row in rows:
        key = (row.topic_id, row.partition, row.base_offset)
        if key not in newest or newest[key].generation < row.generation:
            newest[key] = row
    found: dict[tuple[str, int], list[SegmentRow]] = {}
    for (topic_id, partition, _), row in sorted(newest.items()):
        found.setdefault((topic_id, partition), []).append(row)
    return found


def _range(row: SegmentRow) -> SealedRange:
    latest_ms = row.max_timestamp_ms if row.max_timestamp_ms is not None else row.sealed_at_ms
    return SealedRange(row.base_offset, row.next_offset, row.bytes, latest_ms)


def _committed(run: Run) -> dict[tuple[str, int], dict[str, int]]:
    """The groups' committed offsets by topic and partition; not those that were committed in an earlier topic of that name."""
    topic_ids = {topic.topic: topic.topic_id for topic in run.topics}
    found: dict[tuple[str, int], dict[str, int]] = {}
    for row in run.store.load_group_offsets().rows:
        if row.offset is not None and row.topic_id in (None, topic_ids.get(row.topic)):
            found.setdefault((row.topic, row.partition), {})[row.group] = row.offset
    return found


def _steps(topic: TopicRow, number: int, rule: RetentionRule, partition: _Partition) -> list[Step]:
    decision, state, rows = partition.decision, partition.state, partition.rows
    here = [row for row in rows if row.next_offset > state.log_start_offset]
    before = {
        "log_start_offset": state.log_start_offset,
        "sealed_segments": len(here),
        "sealed_bytes": sum(row.bytes for row in here),
    }
    name = f"{topic.topic}-{number}"
    steps = []
    if decision.segments:
        warning = None
        if decision.unread:
            warning = (
                f"{name}: removing records that {_groups(decision.unread, decision.log_start_offset)} not read yet"
            )
        steps.append(Step(DELETE, topic.topic, number, _why(decision, rule), before, partition, warning))
    if decision.kept_for:
        why = f"retention.groups.guard=block: {_groups(decision.kept_for, None)} not read them yet"
        # The log starts where the removed ones end, if any are.
        kept = replace(partition, state=state._replace(log_start_offset=decision.log_start_offset))
        steps.append(
            Step(KEEP, topic.topic, number, why, before, kept, f"{name}: keeping {decision.kept_bytes:,} bytes, {why}")
        )
    return steps


def _why(decision: PartitionRetention, rule: RetentionRule) -> str:
    parts = []
    if by_time := decision.reasons.count("time"):
        parts.append(f"{by_time} older than retention.ms={rule.retention_ms}")
    if by_size := decision.reasons.count("size"):
        parts.append(f"{by_size} beyond retention.bytes={rule.retention_bytes}")
    return ", ".join(parts)


def _groups(behind: Mapping[str, int], end: int | None) -> str:
    """`group 'etl' (at 120, 80 records before the end) has`."""
    shown = [
        f"{group!r} (at {offset}" + (f", {end - offset} records" if end is not None else "") + ")"
        for group, offset in list(behind.items())[:_GROUPS_SHOWN]
    ]
    more = f" and {len(behind) - _GROUPS_SHOWN} more" if len(behind) > _GROUPS_SHOWN else ""
    return f"group {shown[0]} has" if len(behind) == 1 else f"groups {', '.join(shown)}{more} have"


def _removed_keys(partition: _Partition) -> list[SegmentKey]:
    start = partition.decision.log_start_offset
    return [row.key for row in partition.rows if row.next_offset <= start]
