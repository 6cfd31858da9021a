"""Sequence numbers of a producer's records in a partition: 31 bits, which begin again at 0 (KIP-98)."""

from __future__ import annotations

SEQUENCE_MAX = (1 << 31) - 1


def advance_sequence(sequence: int, count: int) -> int:
    """Return the sequence `count` after `sequence` (before it, if negative), wrapping to 0 after 2^31 - 1."""
    return (sequence + count) & SEQUENCE_MAX


def is_before(sequence: int, other: int) -> bool:
    """Return whether a sequence comes before another one: by less than half of all numbers."""
    return 0 < (other - sequence) & SEQUENCE_MAX <= SEQUENCE_MAX // 2
