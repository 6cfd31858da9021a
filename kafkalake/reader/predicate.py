"""The filters of a query as ranges and sets. Pure, and free of pyspark.

A `Selection` prunes whole segments at planning and single records at reading. Both use the same numbers, and both
are exact, so Spark need not filter again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Selection:
    """Records of `topics`, of `partitions` in [`partition_min`, `partition_end`), with an offset in [`offset_min`, `offset_end`)
    and in `offsets`, and a timestamp (microseconds since 1970) in [`time_min_us`, `time_end_us`). None: all.

    `either`: of each of these groups at least one selection takes the record. Groups prune what is planned, not what is read.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition_min: int = 0
    partition_end: int = INT64_MAX
    offset_min: int = 0
    offset_end: int = INT64_MAX
    offsets: tuple[int, ...] | None = None
    time_min_us: int = INT64_MIN
    time_end_us: int = INT64_MAX
    either: tuple[tuple[Selection, ...], ...] = ()

    def with_topics(self, topics: Iterable[str]) -> Selection:
        """Return the selection restricted to these topics."""
        return replace(self, topics=_intersection(self.topics, topics))

    def with_partitions(self, partitions: Iterable[int]) -> Selection:
        """Return the selection restricted to these partitions."""
        return replace(self, partitions=_intersection(self.partitions, partitions))

    def with_partition_range(self, first: int, end: int) -> Selection:
        """Return the selection restricted to partitions [first, end)."""
        return replace(self, partition_min=max(self.partition_min, first), partition_end=min(self.partition_end, end))

    def with_offset_range(self, first: int, end: int) -> Selection:
        """Return the selection restricted to offsets [first, end)."""
        return replace(self, offset_min=max(self.offset_min, first), offset_end=min(self.offset_end, end))

    def with_offsets(self, offsets: Iterable[int]) -> Selection:
        """Return the selection restricted to these offsets."""
        wanted = set(offsets) if self.offsets is None else set(offsets) & set(self.offsets)
        return replace(self, offsets=tuple(sorted(wanted)))

    def with_time_range(self, first_us: int, end_us: int) -> Selection:
        """Return the selection restricted to timestamps [first_us, end_us)."""
        return replace(self, time_min_us=max(self.time_min_us, first_us), time_end_us=min(self.time_end_us, end_us))

    def with_either(self, group: Iterable[Selection]) -> Selection:
        """Return the selection restricted to records that a selection of the group takes."""
        return replace(self, either=(*self.either, tuple(group)))

    @property
    def has_time(self) -> bool:
        """Return whether timestamps are restricted."""
        return self.time_min_us > INT64_MIN or self.time_end_us < INT64_MAX

    def takes_partition(self, topic: str, partition: int) -> bool:
        """Return whether the partition may hold selected records."""
        return (
            (self.topics is None or topic in self.topics)
            and (self.partitions is None or partition in self.partitions)
            and self.partition_min <= partition < self.partition_end
            and all(any(each.takes_partition(topic, partition) for each in group) for group in self.either)
        )

    def of_partition(self, topic: str, partition: int) -> Selection:
        """Return the selection for a partition that it takes: without the members of groups that do not take it."""
        either = (tuple(each for each in group if each.takes_partition(topic, partition)) for group in self.either)
        return replace(self, either=tuple(either)) if self.either else self

    def takes_times(self, min_ms: int | None, max_ms: int | None) -> bool:
        """Return whether a segment with timestamps in [min_ms, max_ms] may hold selected records. None: unknown."""
        return (
            (max_ms is None or max_ms * 1000 >= self.time_min_us)
            and (min_ms is None or min_ms * 1000 < self.time_end_us)
            and all(any(each.takes_times(min_ms, max_ms) for each in group) for group in self.either)
        )

    def takes_range(self, first: int, end: int, min_ms: int | None, max_ms: int | None) -> bool:
        """Return whether offsets [first, end) with timestamps in [min_ms, max_ms] may hold selected records."""
        return (
            self.takes_times(min_ms, max_ms)
            and bool(self.offset_ranges(first, end))
            and all(any(each.takes_range(first, end, min_ms, max_ms) for each in group) for group in self.either)
        )

    def offset_ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the selected ranges of offsets [start, end), ascending. Single offsets near each other become one range."""
        start, end = max(start, self.offset_min), min(end, self.offset_end)
        if start >= end:
            return []
        ranges = [(start, end)]
        if self.offsets is not None:
            ranges = _near([(offset, offset + 1) for offset in self.offsets if start <= offset < end], NEAR_OFFSETS)
        for group in self.either:
            either = _near(sorted(found for each in group for found in each.offset_ranges(start, end)))
            ranges = [
                (max(first, other), min(last, other_last))
                for first, last in ranges
                for other, other_last in either
                if max(first, other) < min(last, other_last)
            ]
        return ranges


NEAR_OFFSETS = 10_000
"""Offsets closer than this are read in one range instead of being looked up one by one."""


def _near(ranges: Iterable[tuple[int, int]], distance: int = 1) -> list[tuple[int, int]]:
    """Return ascending ranges with those joined that overlap, touch, or are less than `distance` apart."""
    joined: list[tuple[int, int]] = []
    for first, end in ranges:
        if joined and first - joined[-1][1] < distance:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((first, end))
    return joined


def _intersection(first: frozenset[Any] | None, second: Iterable[Any]) -> frozenset[Any]:
    return frozenset(second) if first is None else first & frozenset(second)
