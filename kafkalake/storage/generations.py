"""Generations of a segment: the files that jobs wrote in place of sealed segments. Pure.

The log writes generation 0. A job that rewrites sealed segments (compaction) writes files of a higher generation beside
them, `<base offset>-<generation>.arrow` and its indexes, and activates them by one commit to Delta's `segments`. A higher
generation is in use only if named in Delta. Otherwise it is left over from a failed job, or still being written.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kafkalake.storage.segment_names import SUFFIXES, file_name, parse_name


class RewrittenSegment(NamedTuple):
    """A rewritten segment named in Delta. It replaces all older generations in [base_offset, next_offset)."""

    base_offset: int
    next_offset: int
    generation: int


def covering(swapped: Sequence[RewrittenSegment], offset: int) -> RewrittenSegment | None:
    """Return the one of `swapped`, ascending and without overlaps, whose range holds `offset`. None if there is none."""
    number = bisect_right(swapped, offset, key=lambda each: each.base_offset) - 1
    return swapped[number] if number >= 0 and offset < swapped[number].next_offset else None


class StaleFiles(NamedTuple):
    """The unused files of a partition: `superseded` names, each with its replacement, and `uncommitted` leftovers."""

    superseded: list[tuple[str, RewrittenSegment]]
    uncommitted: list[str]


def stale_files(names: Iterable[str], current: Sequence[RewrittenSegment], log_start_offset: int) -> StaleFiles:
    """Return the files superseded by or not among `current`: all sealed segments in Delta, ascending, of any generation.

    Leftovers below the log start are excluded (the broker's next start removes them), and so is generation 0 not yet in Delta (the
    broker's), and what a newer file would supersede that is not among `names`: this replica does not have it yet.
    """
    counting = {(each.base_offset, each.generation) for each in current}
    found = StaleFiles([], [])
    names = sorted(names)
    there = frozenset(names)
    for name in names:
        parsed = parse_name(name)
        if parsed is None or parsed.suffix not in SUFFIXES or (parsed.base_offset, parsed.generation) in counting:
            continue
        newer = covering(current, parsed.base_offset)
        if newer is not None and newer.generation > parsed.generation:
            if file_name(newer.base_offset, generation=newer.generation) in there:
                found.superseded.append((name, newer))
        elif parsed.generation and parsed.base_offset >= log_start_offset:
            found.uncommitted.append(name)
    return found


def with_swapped(swapped: Iterable[RewrittenSegment], new: RewrittenSegment) -> tuple[RewrittenSegment, ...]:
    """Return `swapped`, ascending, with `new` in place of the segments it replaces."""
    kept = [each for each in swapped if not new.base_offset <= each.base_offset < new.next_offset]
    return tuple(sorted([*kept, new]))
