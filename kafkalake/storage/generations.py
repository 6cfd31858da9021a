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

from kafkalake.storage.segment import SUFFIXES, parse_name


class SwappedSegment(NamedTuple):
    """A rewritten segment that Delta names: offsets [base_offset, next_offset), in place of all older generations there."""

    base_offset: int
    next_offset: int
    generation: int


def covering(swapped: Sequence[SwappedSegment], offset: int) -> SwappedSegment | None:
    """The one of `swapped`, in order and without overlaps, whose range holds `offset`."""
    number = bisect_right(swapped, offset, key=lambda each: each.base_offset) - 1
    return swapped[number] if number >= 0 and offset < swapped[number].next_offset else None


class StaleFiles(NamedTuple):
    """Files of a partition that do not count: `superseded`, by name, each with what replaced it; `uncommitted` leftovers."""

    superseded: list[tuple[str, SwappedSegment]]
    uncommitted: list[str]


def stale_files(names: Iterable[str], current: Sequence[SwappedSegment], log_start_offset: int) -> StaleFiles:
    """Sort out the files beside the sealed segments that Delta names, `current`, in order, whatever their generation.

    What lies below the log start is retention's, what Delta does not know yet the broker's.
    """
    counting = {(each.base_offset, each.generation) for each in current}
    found = StaleFiles([], [])
    for name in sorted(names):
        parsed = parse_name(name)
        if parsed is None or parsed.suffix not in SUFFIXES or (parsed.base_offset, parsed.generation) in counting:
            continue
        newer = covering(current, parsed.base_offset)
        if newer is not None and newer.generation > parsed.generation:
            found.superseded.append((name, newer))
        elif parsed.generation and parsed.base_offset >= log_start_offset:
            found.uncommitted.append(name)
    return found


def with_swapped(swapped: Iterable[SwappedSegment], new: SwappedSegment) -> tuple[SwappedSegment, ...]:
    """`swapped` with `new` in place of what it replaces, in order."""
    kept = [each for each in swapped if not new.base_offset <= each.base_offset < new.next_offset]
    return tuple(sorted([*kept, new]))
