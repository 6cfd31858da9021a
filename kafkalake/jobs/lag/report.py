"""Computes how far groups are behind. Pure: no file, no table and no clock.

A group's lag in a partition is defined as in Kafka's tools: high watermark minus committed offset. In seconds it is the age of
the next record to read. Rates are the records added and committed within a window. A group that reads faster than
records arrive catches up in lag / (out - in).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from kafkalake.metadata.tables.schemas import GroupOffsetRow


class GroupPartition(NamedTuple):
    """The key of a committed offset: a group and a partition."""

    group: str
    topic: str
    partition: int


class GroupTopic(NamedTuple):
    """The key of an alert: a group in a topic, all partitions together."""

    group: str
    topic: str


class Commit(NamedTuple):
    """A committed offset and when it was committed (ms)."""

    offset: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class PartitionEdge:
    """The first offset and the end (high watermark) of a partition, and records added per second (None: unknown)."""

    log_start_offset: int
    log_end_offset: int
    rate_in: float | None = None


@dataclass(frozen=True, slots=True)
class Lag:
    """A row of the report. Offsets and `lag` in records, `lost` of them removed before the group read them. Rates per second."""

    group: str
    topic: str
    partition: int
    committed_offset: int
    committed_at_ms: int
    log_start_offset: int
    log_end_offset: int
    lag: int
    lag_seconds: float | None
    rate_in: float | None
    rate_out: float | None
    catch_up_seconds: float | None
    lost: int

    @property
    def group_topic(self) -> GroupTopic:
        return GroupTopic(self.group, self.topic)


class CommitHistory:
    """Commits by group and partition, in journal order."""

    def __init__(self, rows: Iterable[GroupOffsetRow]) -> None:
        """Index `rows` of `group_offsets`, newest last. A row without an offset means that the group's offset was removed."""
        self._commits: dict[GroupPartition, list[Commit | None]] = defaultdict(list)
        self._times: dict[GroupPartition, list[int]] = defaultdict(list)
        for row in rows:
            key = GroupPartition(row.group, row.topic, row.partition)
            self._commits[key].append(None if row.offset is None else Commit(row.offset, row.committed_at_ms))
            self._times[key].append(row.committed_at_ms)

    @property
    def groups(self) -> set[str]:
        """The groups that have committed."""
        return {key.group for key in self._commits}

    def at(self, time_ms: int) -> dict[GroupPartition, Commit]:
        """Return the committed offsets at a time."""
        found = {}
        for key, times in self._times.items():
            number = _last_not_after(times, time_ms)
            commit = self._commits[key][number] if number is not None else None
            if commit is not None:
                found[key] = commit
        return found

    def rate(self, key: GroupPartition, from_ms: int, to_ms: int) -> float | None:
        """Return the offsets per second committed in a window, or None if the group's only commit lies inside the window."""
        times, commits = self._times[key], self._commits[key]
        last, first = _last_not_after(times, to_ms), _last_not_after(times, from_ms)
        if last is None:
            return None
        begin_ms = from_ms
        if first is None:
            first, begin_ms = 0, times[0]
            if last == 0:
                return None
        before, after = commits[first], commits[last]
        if before is None or after is None or to_ms <= begin_ms:
            return None
        return max(0, after.offset - before.offset) * 1000 / (to_ms - begin_ms)


def _last_not_after(times: Sequence[int], time_ms: int) -> int | None:
    """Return the index of the last commit at or before a time. Commits are in journal order, so times are only nearly sorted."""
    for number in range(len(times) - 1, -1, -1):
        if times[number] <= time_ms:
            return number
    return None


def position(commit: Commit, edge: PartitionEdge) -> int | None:
    """Return the next offset that the group reads, or None if it has read everything."""
    return None if commit.offset >= edge.log_end_offset else max(commit.offset, edge.log_start_offset)


def measure(
    key: GroupPartition,
    commit: Commit,
    edge: PartitionEdge,
    *,
    now_ms: int,
    next_record_ms: int | None,
    rate_out: float | None,
) -> Lag:
    """Return the lag of a group in a partition. next_record_ms: timestamp of the next record it reads (None: unknown)."""
    lag = max(0, edge.log_end_offset - commit.offset)
    seconds = None if next_record_ms is None else max(0, now_ms - next_record_ms) / 1000
    catch_up = None
    if lag == 0:
        seconds = catch_up = 0.0
    elif rate_out is not None and rate_out > (edge.rate_in or 0.0):
        catch_up = lag / (rate_out - (edge.rate_in or 0.0))
    lost = max(0, edge.log_start_offset - commit.offset) if lag else 0
    return Lag(
        key.group,
        key.topic,
        key.partition,
        commit.offset,
        commit.time_ms,
        edge.log_start_offset,
        edge.log_end_offset,
        lag,
        seconds,
        edge.rate_in,
        rate_out,
        catch_up,
        lost,
    )


@dataclass(frozen=True, slots=True)
class AlertRules:
    """Limits for alerts on a group in a topic (None: no alert). `growing_runs`: the lag grew in each of so many runs."""

    max_lag: int | None = None
    max_lag_seconds: float | None = None
    growing_runs: int | None = None


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule that a group broke in a topic."""

    group: str
    topic: str
    rule: str
    value: float
    limit: float

    @property
    def text(self) -> str:
        return {
            "max-lag": f"group {self.group!r} is {self.value:,.0f} records behind in {self.topic}, above {self.limit:,.0f}",
            "max-lag-seconds": f"group {self.group!r} is {self.value:,.0f} s behind in {self.topic}, above {self.limit:,.0f} s",
            "growing": f"the lag of group {self.group!r} in {self.topic} grew {self.limit:.0f} runs in a row, "
            f"to {self.value:,.0f} records",
        }[self.rule]


def totals(rows: Iterable[Lag]) -> dict[GroupTopic, int]:
    """Return the lag of each group in each topic."""
    found: dict[GroupTopic, int] = defaultdict(int)
    for row in rows:
        found[row.group_topic] += row.lag
    return dict(found)


def alerts(rows: Sequence[Lag], earlier: Mapping[GroupTopic, Sequence[int]], rules: AlertRules) -> list[Alert]:
    """Return the alerts that the rules raise for this run.

    earlier: of `totals`, those of the previous runs that measured the group in the topic, oldest first.
    """
    found = []
    now = totals(rows)
    seconds: dict[GroupTopic, float] = defaultdict(float)
    for row in rows:
        seconds[row.group_topic] = max(seconds[row.group_topic], row.lag_seconds or 0.0)
    for key, lag in sorted(now.items()):
        if rules.max_lag is not None and lag > rules.max_lag:
            found.append(Alert(key.group, key.topic, "max-lag", lag, rules.max_lag))
        if rules.max_lag_seconds is not None and seconds[key] > rules.max_lag_seconds:
            found.append(Alert(key.group, key.topic, "max-lag-seconds", seconds[key], rules.max_lag_seconds))
        if rules.growing_runs is not None:
            past = [*earlier.get(key, ())[-rules.growing_runs :], lag]
            if len(past) > rules.growing_runs and all(a < b for a, b in pairwise(past)):
                found.append(Alert(key.group, key.topic, "growing", lag, rules.growing_runs))
    return found


def duration(seconds: float | None) -> str:
    """Return a text such as `0 s`, `90 s`, `2.5 h`, or `never`."""
    if seconds is None:
        return "never"
    if seconds < 600:
        return f"{seconds:.0f} s"
    if seconds < 36_000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.1f} h"


def catching_up(row: Lag) -> str:
    """Return the time to catch up as a `duration`, `never` at these rates, or an empty text if no rate is known."""
    return "" if row.catch_up_seconds is None and row.rate_out is None else duration(row.catch_up_seconds)
