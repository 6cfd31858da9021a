"""Checks one segment against its index files: every byte is under a checksum or exactly as kafkalake writes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kafkalake.errors import CorruptSegmentError
from kafkalake.record import layout as at
from kafkalake.record.arrays import Int64s
from kafkalake.record.message_set import MessageSet
from kafkalake.record.schema import footer
from kafkalake.storage.active_segment import SegmentContent
from kafkalake.storage.files import REAL_FILES, read_file
from kafkalake.storage.index import ENTRY_BYTES, decode_entries
from kafkalake.storage.lost_records import lost_ranges
from kafkalake.storage.producer_state import AbortedTransaction, Producers
from kafkalake.storage.replay import replay_headers
from kafkalake.storage.scanner import SegmentScan, scan_segment
from kafkalake.storage.segment import Segment
from kafkalake.storage.segment_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from kafkalake.storage.segment_reader import Stop, bases_of

Entries = list[tuple[int, int]]


class Problem(NamedTuple):
    """A problem: the file, the position in it (bytes, -1: the whole file), and a description."""

    file: str
    position: int
    what: str


@dataclass(slots=True)
class SegmentContents:
    """The content of a segment's messages that its index files must match. Arrays are int64[M], one item per message."""

    producers: Producers
    positions: list[Int64s] = field(default_factory=list)
    bases: list[Int64s] = field(default_factory=list)
    tops: list[Int64s] = field(default_factory=list)
    blocks: list[Int64s] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    lost: list[range] = field(default_factory=list)

    def __call__(self, messages: MessageSet, origin: int) -> None:
        """Visit whole messages."""
        headers, positions = messages.headers, messages.positions + origin
        metadata = (at.FIRST_HEADER + at.HEADER_CHARACTERS * np.diff(messages.first_batch) + 8) // 8 * 8
        self.positions.append(positions[:-1])
        self.bases.append(bases_of(messages))
        tops = np.where(headers[:, at.RECORDS] > 0, headers[:, at.MAX_TIMESTAMP], -1)
        self.tops.append(np.maximum.reduceat(tops, messages.first_batch[:-1]))
        self.blocks.append(np.stack([positions[:-1], metadata, np.diff(positions) - metadata], axis=1))
        self.aborted += replay_headers(headers, self.producers, -1, 0)
        self.lost += lost_ranges(messages)


class Verified(NamedTuple):
    """The result of the checks: the segment's content, its first time index entry (ms, None if missing or damaged), the scan."""

    content: SegmentContent
    earlier_max_timestamp: int | None
    scan: SegmentScan


class SegmentVerifier:
    """A checker of one segment that collects `problems`."""

    def __init__(self, segment: Segment, producers: Producers, first_base: int) -> None:
        self.problems: list[Problem] = []
        self._segment = segment
        self._seen = SegmentContents(producers)
        self._first_base = first_base

    def verify(self, *, end: int | None, sealed: bool) -> Verified:
        """Check the segment, up to position `end` if it is active, and return the result. Raise `OSError` if I/O fails."""
        segment = self._segment
        found = scan_segment(segment, self._seen, end=end)
        if not found.preamble_right:
            self._add(segment.path, 0, "the schema at the start is not the one that every segment has")
        if found.stop is Stop.DAMAGE or (sealed and found.stop is Stop.END_OF_FILE):
            self._add(segment.path, found.end, found.reason or "the segment ends without a footer")
        if sealed and found.stop is Stop.END_OF_STREAM:
            self._check_footer(found)
        for lost in self._seen.lost:
            self._add(segment.path, -1, f"offsets {lost.start} to {lost.stop - 1} were acknowledged, and are lost")
        offsets = self._check_index(sealed=sealed)
        earlier = self._check_time_index(found, offsets, sealed=sealed)
        self._check_txn_index(sealed=sealed)
        return Verified(found.content, earlier, found)

    def _add(self, file: str, position: int, what: str) -> None:
        self.problems.append(Problem(file, position, what))

    def _check_footer(self, found: SegmentScan) -> None:
        actual = self._segment.read_bytes(found.end, found.size - found.end).tobytes()
        blocks = np.concatenate(self._seen.blocks) if self._seen.blocks else np.empty((0, 3), dtype=np.int64)
        expected = footer(blocks)
        if actual != expected:
            differs = next((i for i, (a, b) in enumerate(zip(actual, expected, strict=False)) if a != b), None)
            position = found.end + (differs if differs is not None else min(len(actual), len(expected)))
            self._add(self._segment.path, position, "the footer is not the one that belongs to the messages")

    def _entries(self, suffix: str) -> Entries | None:
        path = self._segment.path_of(suffix)
        try:
            data = read_file(REAL_FILES, path)
        except FileNotFoundError:
            self._add(path, -1, "the index is missing")
            return None
        if len(data) % ENTRY_BYTES:
            self._add(path, len(data) - len(data) % ENTRY_BYTES, "the index ends in a part of an entry")
        entries: Entries = []
        for number, entry in enumerate(decode_entries(data)):
            if entry is None:
                self._add(path, number * ENTRY_BYTES, "the checksum of an index entry does not match")
                return None
            entries.append(entry)
        return entries

    def _check_index(self, *, sealed: bool) -> Entries | None:
        entries = self._entries(INDEX_SUFFIX)
        if entries is None:
            return None
        path = self._segment.path_of(INDEX_SUFFIX)
        starts = _joined(self._seen.positions)
        bases = _joined(self._seen.bases)
        previous = -1
        for number, (offset, position) in enumerate(entries):
            if not sealed and len(starts) and position > starts[-1]:
                return entries[:number]
            at_message = int(np.searchsorted(starts, position))
            right = at_message < len(starts) and starts[at_message] == position and bases[at_message] == offset
            if not right or offset <= previous:
                self._add(path, number * ENTRY_BYTES, f"no message with offset {offset} begins at {position}")
                return None
            previous = offset
        return entries

    def _check_time_index(self, found: SegmentScan, offsets: Entries | None, *, sealed: bool) -> int | None:
        entries = self._entries(TIME_INDEX_SUFFIX)
        if entries is None:
            return None
        path, base = self._segment.path_of(TIME_INDEX_SUFFIX), self._segment.base_offset
        if not entries or entries[0][1] != 0:
            if sealed or entries:
                self._add(path, 0, "the first entry is not the largest timestamp of the segments before")
            return None
        inner = entries[1:]
        if sealed:
            expected = (found.content.max_timestamp, found.content.next_offset - base)
            if not inner or inner[-1] != expected:
                self._add(path, len(inner) * ENTRY_BYTES, f"the last entry is not {expected}, the segment's largest")
                return entries[0][0]
            inner = inner[:-1]
            if offsets is not None and len(offsets) != len(inner):
                self._add(path, -1, f"there are {len(offsets)} offset entries and {len(inner)} time entries")
        bases, tops = _joined(self._seen.bases), _joined(self._seen.tops)
        running = np.maximum.accumulate(np.concatenate(([-1], tops)))
        for number, (timestamp, relative) in enumerate(inner, 1):
            message = int(np.searchsorted(bases, base + relative))
            if not sealed and message >= len(bases):
                break
            if message >= len(bases) or bases[message] != base + relative or running[message] != timestamp:
                what = f"{timestamp} is not the largest timestamp below offset {base + relative}"
                self._add(path, number * ENTRY_BYTES, what)
                break
        return entries[0][0]

    def _check_txn_index(self, *, sealed: bool) -> None:
        path = self._segment.path_of(TXN_INDEX_SUFFIX)
        try:
            entries = self._segment.aborted_transactions(sealed=sealed)
        except CorruptSegmentError as error:
            self._add(path, error.position, error.reason)
            return
        # The first offset is unknown here if the transaction began in a segment deleted since.
        right = {(entry.producer_id, entry.last_offset): entry.first_offset for entry in self._seen.aborted}
        for entry in entries:
            first = right.pop((entry.producer_id, entry.last_offset), None)
            began_before = entry.first_offset < self._first_base
            if (sealed or first is not None) and not began_before and first != entry.first_offset:
                self._add(
                    path, -1, f"producer {entry.producer_id} aborted no [{entry.first_offset}, {entry.last_offset}]"
                )
        for producer_id, last_offset in right:
            self._add(path, -1, f"the transaction that producer {producer_id} aborted at {last_offset} is missing")


def _joined(parts: list[Int64s]) -> Int64s:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def overlaps(ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the ranges [first, last) that begin before an earlier one ends."""
    end = -1
    for first, last in sorted(ranges):
        if first < end:
            yield first, last
        end = max(end, last)
