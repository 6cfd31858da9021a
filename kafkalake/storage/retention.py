"""Decides which sealed segments retention removes. Pure: no files, no clock.

Kafka's rules (`UnifiedLog.deleteOldSegments`): from the oldest segment on, remove all whose largest timestamp is older than
`retention.ms`, up to the first that is not. Then remove as many as leave the partition, including the active segment, at
`retention.bytes` or more. So the removed segments are always a prefix. Topics whose `cleanup.policy` lacks `delete` keep all.

The broker calls it for its logs (`Log.enforce_retention`), with the active segment as the last one, rolled if it expires. The
retention job calls it for the sealed segments in Delta. Both get the same decision for the same segments.

    retention.ms 1 h       [2 h ago][90 min ago][30 min ago][70 min ago][active]
                            removed  removed      stays       stays, because it follows one that stays

The guard is kafkalake's own: a group with a committed offset below a segment's end has not read it. `warn` reports this and
removes the segment. `block` ends the prefix there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

OFF, WARN, BLOCK = "off", "warn", "block"
GUARDS = (OFF, WARN, BLOCK)

TIME, SIZE = "time", "size"


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """The retention settings of a topic. `delete`: cleanup.policy has it. `retention_ms`, `retention_bytes` below 0: no limit."""

    delete: bool
    retention_ms: int
    retention_bytes: int
    guard: str = OFF

    @property
    def has_limit(self) -> bool:
        """Return whether retention can ever remove a segment."""
        return self.delete and (self.retention_ms >= 0 or self.retention_bytes >= 0)


@dataclass(frozen=True, slots=True)
class SealedRange:
    """A sealed segment: offsets [base_offset, next_offset), bytes, its largest timestamp (ms) or seal time."""

    base_offset: int
    next_offset: int
    bytes: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class PartitionRetention:
    """The retention decision for a partition.

    segments, reasons: the removed segments, oldest first, each with `time` or `size`. log_start_offset: the new log start.
    unread: groups that have not read all removed segments, with their committed offset. kept_for: groups for which the guard
    keeps expired segments, of `kept_bytes` bytes.
    """

    segments: tuple[SealedRange, ...]
    reasons: tuple[str, ...]
    log_start_offset: int
    unread: Mapping[str, int]
    kept_for: Mapping[str, int]
    kept_bytes: int = 0

    @property
    def bytes(self) -> int:
        """The bytes of the removed segments."""
        return sum(segment.bytes for segment in self.segments)


def expired(
    segments: Sequence[SealedRange], rule: RetentionRule, *, now_ms: int, end_offset: int, active_bytes: int
) -> tuple[list[SealedRange], list[str]]:
    """Return the segments expired by time and size, without the guard, and the reason for each.

    segments: ascending, without those below the log start. end_offset: segments beyond it (the high watermark) stay.
    """
    if not rule.delete:
        return [], []
    count = 0
    reasons = []
    if rule.retention_ms >= 0:
        for segment in segments:
            if segment.next_offset > end_offset or now_ms - segment.max_timestamp_ms <= rule.retention_ms:
                break
            reasons.append(TIME)
            count += 1
    if rule.retention_bytes >= 0:
        excess = sum(segment.bytes for segment in segments[count:]) + active_bytes - rule.retention_bytes
        for segment in segments[count:]:
            if segment.next_offset > end_offset or excess < segment.bytes:
                break
            excess -= segment.bytes
            reasons.append(SIZE)
            count += 1
    return list(segments[:count]), reasons


def decide_retention(
    segments: Sequence[SealedRange],
    rule: RetentionRule,
    committed: Mapping[str, int],
    *,
    now_ms: int,
    log_start_offset: int,
    end_offset: int,
    active_bytes: int = 0,
) -> PartitionRetention:
    """Return the retention decision for a partition with the sealed segments `segments`, ascending.

    committed: each group's committed offset in this partition. end_offset: the high watermark. active_bytes: unsealed bytes.
    """
    here = [segment for segment in segments if segment.next_offset > log_start_offset]
    going, reasons = expired(here, rule, now_ms=now_ms, end_offset=end_offset, active_bytes=active_bytes)
    kept_for: dict[str, int] = {}
    kept_bytes = 0
    if rule.guard == BLOCK and going:
        slowest = min(committed.values(), default=going[-1].next_offset)
        stays = [segment for segment in going if segment.next_offset > slowest]
        kept_bytes = sum(segment.bytes for segment in stays)
        if stays:
            kept_for = _behind(committed, going[-1].next_offset)
            going = going[: len(going) - len(stays)]
    start = going[-1].next_offset if going else log_start_offset
    unread = _behind(committed, start) if rule.guard == WARN and going else {}
    return PartitionRetention(tuple(going), tuple(reasons[: len(going)]), start, unread, kept_for, kept_bytes)


def _behind(committed: Mapping[str, int], offset: int) -> dict[str, int]:
    return {group: position for group, position in sorted(committed.items()) if position < offset}
