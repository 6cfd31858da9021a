"""Compares the segments of two replicas of a partition, byte by byte, while brokers may write to both.

Replicas have the same segments with the same messages below the high watermark. Footers are not compared: a replica seals a segment
when it likes. Segments that a job has rewritten in one replica only, so far, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from kafkalake.record.message_set import MessageSet
from kafkalake.storage.files import REAL_FILES
from kafkalake.storage.generations import RewrittenSegment, covering
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.scanner import scan_segment
from kafkalake.storage.segment import Segment
from kafkalake.storage.segment_names import DATA_SUFFIX, SegmentName, parse_name
from kafkalake.storage.segment_reader import Stop, bases_of
from kafkalake.storage.verify_segment import Problem

_CHUNK_BYTES = 4 << 20


def compare_replicas(
    leader: Path, follower: Path, start: int, end: int, rewritten: Sequence[RewrittenSegment] = ()
) -> Iterator[Problem]:
    """Yield where a follower's records in [start, end), offsets that both have, are not its leader's.

    rewritten: the segments rewritten by jobs, as named in Delta, ascending. Raise `OSError` if a file cannot be read.
    """
    ours, theirs = _segments(leader), _segments(follower)
    for name in sorted(ours & theirs):
        if name.base_offset < end:
            yield from _compare(leader, follower, name, end)
    for name in sorted(ours ^ theirs):
        if start <= name.base_offset < end and not name.generation and covering(rewritten, name.base_offset) is None:
            has, lacks = (leader, follower) if name in ours else (follower, leader)
            yield Problem(str(follower), -1, f"{lacks} has no segment at offset {name.base_offset}, as {has} has")


def _segments(directory: Path) -> set[SegmentName]:
    found = map(parse_name, REAL_FILES.list(str(directory)))
    return {name for name in found if name is not None and name.suffix == DATA_SUFFIX}


def _compare(leader: Path, follower: Path, name: SegmentName, end: int) -> Iterator[Problem]:
    open_files = OpenFiles(limit=4)
    here, there = (Segment(str(each), name.base_offset, open_files, name.generation) for each in (leader, follower))
    position = _first_difference(here, there)
    offset = None if position is None else _offset_at(here, position)
    if position is not None and offset is not None and offset < end:
        yield Problem(there.path, position, f"differs from {here.path}, where offset {offset} is")


def _first_difference(first: Segment, second: Segment) -> int | None:
    """Return the position of the first byte that differs, or that only one of two files has; None if they are equal."""
    position = 0
    while True:
        left, right = first.read_bytes(position, _CHUNK_BYTES), second.read_bytes(position, _CHUNK_BYTES)
        both = min(len(left), len(right))
        differs = left[:both] != right[:both]
        if differs.any():
            return position + int(differs.argmax())
        if len(left) != len(right):
            return position + both
        if not both:
            return None
        position += both


def _offset_at(segment: Segment, position: int) -> int | None:
    """Return the first offset of the message with the byte at `position`, None if that is behind the messages."""
    offset = segment.base_offset

    def visit(messages: MessageSet, origin: int) -> None:
        nonlocal offset
        begun = int(np.searchsorted(messages.positions[:-1] + origin, position, side="right"))
        if begun:
            offset = int(bases_of(messages)[begun - 1])

    scan = scan_segment(segment, visit, columns=0)
    if position < scan.end:
        return offset
    return scan.content.next_offset if scan.stop is Stop.DAMAGE else None
