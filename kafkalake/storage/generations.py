"""Generations of a segment: what a job wrote in place of sealed segments. Pure.

The log writes generation 0. A job that rewrites sealed segments (compaction) writes files of a higher generation beside
them, `<base offset>-<generation>.arrow` and its indexes, and one commit to Delta's `segments` makes them count. What
Delta names counts; a file of a higher generation that it does not name was left by a job that died, or a job is
still writing it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class SwappedSegment(NamedTuple):
    """A rewritten segment that Delta names: offsets [base_offset, next_offset), in place of all older generations there."""

    base_offset: int
    next_offset: int
    generation: int


def covering(swapped: Sequence[SwappedSegment], offset: int) -> SwappedSegment | None:
    """The one of `swapped`, in order and without overlaps, whose range holds `offset`."""
    number = bisect_right(swapped, offset, key=lambda each: each.base_offset) - 1
    return swapped[number] if number >= 0 and offset < swapped[number].next_offset else None


def with_swapped(swapped: Iterable[SwappedSegment], new: SwappedSegment) -> tuple[SwappedSegment, ...]:
    """`swapped` with `new` in place of what it replaces, in order."""
    kept = [each for each in swapped if not new.base_offset <= each.base_offset < new.next_offset]
    return tuple(sorted([*kept, new]))
