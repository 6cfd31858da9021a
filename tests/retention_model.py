"""Kafka's rules of retention in plain Python, a segment at a time: what the tests compare decision and job with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafkalake.storage.retention import BLOCK, RetentionRule, SealedRange


def taken(
    segments: Sequence[SealedRange],
    rule: RetentionRule,
    committed: Mapping[str, int],
    *,
    now_ms: int,
    log_start: int,
    end_offset: int,
    active_bytes: int,
) -> list[SealedRange]:
    """Is the oldest one to go? Then take it and ask again, first by time, then by size."""
    left = [segment for segment in segments if segment.next_offset > log_start]
    gone: list[SealedRange] = []

    def may_go(segment: SealedRange) -> bool:
        unread = any(offset < segment.next_offset for offset in committed.values())
        return segment.next_offset <= end_offset and not (rule.guard == BLOCK and unread)

    while left and rule.delete and rule.retention_ms >= 0 and may_go(left[0]):
        if now_ms - left[0].max_timestamp_ms <= rule.retention_ms:
            break
        gone.append(left.pop(0))
    while left and rule.delete and rule.retention_bytes >= 0 and may_go(left[0]):
        without_it = sum(segment.bytes for segment in left[1:]) + active_bytes
        if without_it < rule.retention_bytes:
            break
        gone.append(left.pop(0))
    return gone
