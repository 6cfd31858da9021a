"""Kafka's rules of retention in plain Python, a segment at a time: what the tests compare the job with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SealedFile:
    """A sealed segment on the disk: its offsets [base_offset, next_offset), its size, the largest timestamp in it."""

    base_offset: int
    next_offset: int
    bytes: int
    newest_ms: int


def log_start_after(
    sealed: Sequence[SealedFile], active_bytes: int, *, now_ms: int, retention_ms: int, retention_bytes: int
) -> int:
    """Where a log of these segments, oldest first, begins once time and then size have taken theirs; -1: no limit."""
    left = list(sealed)
    while left and retention_ms >= 0 and now_ms - left[0].newest_ms > retention_ms:
        left.pop(0)
    while left and retention_bytes >= 0:
        without_oldest = active_bytes + sum(segment.bytes for segment in left[1:])
        if without_oldest < retention_bytes:
            break
        left.pop(0)
    return left[0].base_offset if left else sealed[-1].next_offset if sealed else 0
