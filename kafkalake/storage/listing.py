"""The files of a partition's directory, by their names: segments, snapshots, and what is left over. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from kafkalake.storage.generations import RewrittenSegment, covering
from kafkalake.storage.segment_names import DATA_SUFFIX, SUFFIXES, file_name, parse_name
from kafkalake.storage.snapshot import SNAPSHOT_SUFFIX


@dataclass(slots=True)
class Listing:
    """The files of a partition's directory: base offsets of segments and offsets of snapshots, ascending, and leftovers to remove.

    generations: by base offset, of segments rewritten by a job. superseded: files of segments replaced by newer generations.
    A query planned with them may still read them.
    """

    bases: list[int]
    snapshots: list[int]
    leftovers: list[str]
    generations: dict[int, int] = field(default_factory=dict)
    superseded: list[str] = field(default_factory=list)


def list_directory(names: list[str]) -> Listing:
    """Classify a directory's file names."""
    bases, snapshots, leftovers, beside = [], [], [], []
    for name in names:
        stem, dot, suffix = name.partition(".")
        if name.endswith(".tmp"):
            leftovers.append(name)
        elif len(stem) == 20 and stem.isdigit():
            if dot + suffix == DATA_SUFFIX:
                bases.append(int(stem))
            elif dot + suffix == SNAPSHOT_SUFFIX:
                snapshots.append(int(stem))
            elif dot + suffix in SUFFIXES:
                beside.append(name)
    known = set(bases)
    # Files of other generations belong to a job. Delta decides whether they are in use.
    leftovers += [name for name in beside if int(name[:20]) not in known]
    return Listing(sorted(bases), sorted(snapshots), leftovers)


def with_generations(listing: Listing, names: Iterable[str], swapped: Iterable[RewrittenSegment]) -> Listing:
    """Apply Delta's rewritten segments to the listing of a directory with the file names `names`.

    Rewritten segments without a file are ignored: the segments they replaced may still exist.
    """
    there = set(names)
    found = [each for each in swapped if file_name(each.base_offset, DATA_SUFFIX, each.generation) in there]
    bases = [base for base in listing.bases if covering(found, base) is None]
    old = []
    for name in sorted(there):
        parsed = parse_name(name)
        if parsed is not None and parsed.suffix in SUFFIXES:
            newer = covering(found, parsed.base_offset)
            if newer is not None and parsed.generation < newer.generation:
                old.append(name)
    bases = sorted([*bases, *(each.base_offset for each in found)])
    return Listing(
        bases,
        listing.snapshots,
        [name for name in listing.leftovers if name not in old],
        {each.base_offset: each.generation for each in found},
        old,
    )


def removed_generations(names: Iterable[str], bases: list[int], log_start_offset: int) -> list[str]:
    """Return the files that jobs wrote before the segment in which a log with segments at `bases`, ascending, begins.

    They were removed from the log, or are left over from a killed job. Return none if the segment in which it begins is missing.
    """
    number = bisect_right(bases, log_start_offset) - 1
    if number < 0:
        return []
    return [
        name
        for name in names
        if (parsed := parse_name(name)) and parsed.generation and parsed.base_offset < bases[number]
    ]
