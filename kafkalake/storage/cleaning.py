"""Decides which sealed segments compaction cleans, and which it merges. Pure: no files, no clock.

Kafka's rules (`LogCleanerManager`): the log has a clean part below the first dirty offset, a dirty cleanable part, and an
uncleanable part that begins with the first segment that reaches beyond the last stable offset or has a record younger than
`min.compaction.lag.ms`. Compaction is due if the dirty share of the bytes is above `min.cleanable.dirty.ratio`, or a dirty record
is older than `max.compaction.lag.ms`. It then cleans everything below the uncleanable offset, including the clean part, which
holds the older records of a key. Adjacent segments that together fit into `segment.bytes` are merged. Segments that mark lost
offsets (`lost_records`) stay as they are, so that readers still detect the loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

OFFSETS_MAX = (1 << 31) - 1
"""The maximum number of offsets of a segment: indexes store them relative to its base."""


@dataclass(frozen=True, slots=True)
class CompactionRule:
    """The compaction settings of a topic. Times in ms."""

    dirty_ratio_min: float
    lag_ms_min: int
    lag_ms_max: int
    delete_retention_ms: int
    segment_bytes: int


@dataclass(frozen=True, slots=True)
class CleanableSegment:
    """A sealed segment: offsets [base_offset, next_offset), bytes, timestamps (ms, -1: no records). lost: it marks lost offsets."""

    base_offset: int
    next_offset: int
    bytes: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Compaction:
    """The compaction of a partition. groups: numbers of the segments merged into one each. why: None if compaction is not due."""

    groups: tuple[tuple[int, ...], ...]
    clean_bytes: int
    dirty_bytes: int
    why: str | None

    @property
    def dirty_ratio(self) -> float:
        """The dirty share of the cleanable bytes."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def decide_compaction(
    segments: Sequence[CleanableSegment], rule: CompactionRule, *, cleaned_offset: int, end_offset: int, now_ms: int
) -> Compaction:
    """Decide on `segments`, ascending from the log start. cleaned_offset: first dirty offset. end_offset: last stable offset."""
    cleanable = segments[: _cleanable(segments, rule, end_offset, now_ms)]
    dirty = [segment for segment in cleanable if segment.next_offset > cleaned_offset]
    dirty_bytes = sum(segment.bytes for segment in dirty)
    clean_bytes = sum(segment.bytes for segment in cleanable) - dirty_bytes
    found = Compaction(_groups(cleanable, rule.segment_bytes), clean_bytes, dirty_bytes, None)
    if not dirty:
        return found
    oldest_ms = min((each.min_timestamp_ms for each in dirty if each.min_timestamp_ms >= 0), default=now_ms)
    why = None
    if found.dirty_ratio > rule.dirty_ratio_min:
        why = f"dirty ratio {found.dirty_ratio:.2f} is above min.cleanable.dirty.ratio={rule.dirty_ratio_min:g}"
    elif now_ms - oldest_ms > rule.lag_ms_max:
        why = f"the oldest dirty record is older than max.compaction.lag.ms={rule.lag_ms_max}"
    return Compaction(found.groups, clean_bytes, dirty_bytes, why)


def _cleanable(segments: Sequence[CleanableSegment], rule: CompactionRule, end_offset: int, now_ms: int) -> int:
    """Return the number of cleanable segments, from the first one on."""
    for number, segment in enumerate(segments):
        young = rule.lag_ms_min > 0 and segment.max_timestamp_ms > now_ms - rule.lag_ms_min
        if segment.next_offset > end_offset or young:
            return number
    return len(segments)


def _groups(segments: Sequence[CleanableSegment], bytes_max: int) -> tuple[tuple[int, ...], ...]:
    groups: list[list[int]] = []
    size = 0
    for number, segment in enumerate(segments):
        first = segments[groups[-1][0]] if groups else segment
        fits = size + segment.bytes <= bytes_max and segment.next_offset - first.base_offset <= OFFSETS_MAX
        adjoins = number > 0 and segments[number - 1].next_offset == segment.base_offset
        alone = segment.lost or (number > 0 and segments[number - 1].lost)
        if groups and fits and adjoins and not alone:
            groups[-1].append(number)
            size += segment.bytes
        else:
            groups.append([number])
            size = segment.bytes
    return tuple(map(tuple, groups))
