"""Rewrites sealed segments into one, with only the records kept by compaction.

The offsets stay contiguous. A batch keeps its offset range and its header, with fewer rows. Runs of removed batches become
fillers: empty batches over their ranges. Batches that mark lost offsets stay as they are. So readers need no special case, and
consumers see the same as from Kafka's cleaner: batches with gaps inside, and empty ones.

Of a batch without rows the header is kept, without the transactional bit, if it is its producer's last one here: the producer
continues its sequence from there. A transaction's marker is kept while records of the transaction exist, and then for
`delete.retention.ms`. A tombstone is kept that long, too: the first run gives its batch a delete horizon (attribute bit 6, with
the time in place of the base timestamp, KIP-534), and the first run after that time removes the tombstone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.arrow_body import body_from_arrow
from kafkalake.record.merge import merge_bodies, merged_bound
from kafkalake.record.message import IN_BODY, frame, metadata_bytes
from kafkalake.record.message_set import CODECS, MessageSet, compress_body, to_arrow
from kafkalake.storage.active_segment import ANY_TIMESTAMP, ActiveSegment, reset_txn_index
from kafkalake.storage.files import REAL_FILES
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.producer_state import AbortedTransaction
from kafkalake.storage.sealed_segment import SealedSegment, describe
from kafkalake.storage.segment import Segment
from kafkalake.storage.segment_kernels import NO_TIMESTAMP
from kafkalake.storage.segment_names import SUFFIXES, TXN_INDEX_SUFFIX
from kafkalake.storage.segment_reader import SEGMENTS, SegmentReader
from kafkalake.storage.timestamp_search import earlier_max

ATTRIBUTE_DELETE_HORIZON = 0x40
CHUNK_BYTES = 8 << 20
_BATCHES_MAX = at.MAXIMUM_BATCHES - 1  # one filler may come before them
_FILLER = {at.PRODUCER_ID: -1, at.PRODUCER_EPOCH: -1, at.BASE_SEQUENCE: -1, at.CONTROL_TYPE: -1}


@dataclass(frozen=True, slots=True)
class RewriteRule:
    """The records to keep. kept: int64, ascending, offsets of the newest record of each key in the partition.

    open_producers: producers of transactions with records before these segments, whose marker may be here. last_batches: base
    offset of each producer's last batch of records here. Times in ms since 1970. index_interval_bytes, compression: the topic's.
    """

    kept: Int64s
    open_producers: frozenset[int]
    last_batches: Mapping[int, int]
    now_ms: int
    delete_retention_ms: int
    index_interval_bytes: int = 4096
    compression: str = "none"


class Rewritten(NamedTuple):
    """The new segment. `changed`: whether its content differs from that of the old segments."""

    segment: SealedSegment
    changed: bool


def rewrite(paths: Sequence[str], directory: str, generation: int, rule: RewriteRule) -> Rewritten:
    """Write the adjacent segments at `paths` as one of `generation` into `directory`, force it to disk, and return it.

    Raise `CorruptSegmentError` on damage, `OSError` if I/O fails.
    """
    open_files = OpenFiles(REAL_FILES, 16)
    old = [SEGMENTS.segment(path, open_files) for path in paths]
    earlier = earlier_max(old[0])
    new = ActiveSegment(
        directory,
        old[0].base_offset,
        open_files,
        index_interval_bytes=rule.index_interval_bytes,
        earlier_max_timestamp=ANY_TIMESTAMP if earlier is None else earlier,
        generation=generation,
    )
    writer = _Writer(new, rule)
    for messages in _messages(old):
        writer.take(messages)
    writer.finish()
    aborted = [entry for segment in old for entry in segment.aborted_transactions()]
    _write_aborted(open_files, new, [entry for entry in aborted if entry.last_offset not in writer.markers_removed])
    size = new.seal()
    _force(new, open_files)
    return Rewritten(describe(new, new.content, size, rule.now_ms), writer.changed)


def _messages(segments: Sequence[Segment]) -> Iterator[MessageSet]:
    """Yield all messages in order, verified, in chunks. Raise `CorruptSegmentError` on damage, `OSError` if I/O fails."""
    for segment in segments:
        reader = SegmentReader(segment, first_chunk_bytes=CHUNK_BYTES, chunk_bytes=CHUNK_BYTES)
        for messages in reader.messages(segment.base_offset):
            yield from _divided(messages)


def _divided(messages: MessageSet) -> Iterator[MessageSet]:
    """Yield parts with at most `_BATCHES_MAX` batches. A part of one message may have more."""
    if len(messages.headers) <= _BATCHES_MAX or len(messages) == 1:
        yield messages
        return
    middle = len(messages) // 2
    yield from _divided(messages.slice(0, middle))
    yield from _divided(messages.slice(middle, len(messages)))


def _write_aborted(open_files: OpenFiles, segment: ActiveSegment, entries: list[AbortedTransaction]) -> None:
    reset_txn_index(open_files, segment.path_of(TXN_INDEX_SUFFIX), entries, sealed=True)


def _force(segment: Segment, open_files: OpenFiles) -> None:
    for suffix in SUFFIXES:
        path = segment.path_of(suffix)
        if os.path.exists(path):
            file = open_files.get(path, write=True)
            REAL_FILES.sync(file.descriptor)
    segment.forget()


@dataclass(slots=True)
class _Writer:
    """A writer that filters the messages of the old segments, in order, into the new one."""

    segment: ActiveSegment
    rule: RewriteRule
    markers_removed: set[int] = field(default_factory=set)
    changed: bool = False
    _open: set[int] = field(default_factory=set)
    _filler: Int64s | None = None
    _scratch: Bytes = field(default_factory=lambda: np.zeros(64, dtype=np.uint8))

    def __post_init__(self) -> None:
        self._open = set(self.rule.open_producers)

    def take(self, messages: MessageSet) -> None:
        """Append the records to keep of these messages."""
        headers = messages.headers.copy()
        rows = to_arrow(messages)
        batch_of = np.repeat(np.arange(len(headers)), headers[:, at.RECORDS])
        mask = self._kept_rows(headers, rows, batch_of)
        counts = np.bincount(batch_of[mask], minlength=len(headers))
        self.changed |= len(mask) != int(counts.sum())
        self._set_horizons(headers, rows, batch_of, mask)
        kept = (counts > 0) | self._kept_markers(headers) | self._kept_headers(headers, counts)
        kept |= headers[:, at.CONTROL_TYPE] == at.LOST_RECORDS
        timestamps = rows.column("timestamp").view(pa.int64()).to_numpy()
        tops = np.full(len(headers), -1, dtype=np.int64)
        np.maximum.at(tops, batch_of[mask], timestamps[mask])
        emptied = kept & (counts == 0) & (headers[:, at.RECORDS] > 0)
        headers[emptied, at.ATTRIBUTES] &= ~at.ATTRIBUTE_TRANSACTIONAL
        headers[counts > 0, at.MAX_TIMESTAMP] = tops[counts > 0]
        headers[:, at.RECORDS] = counts
        if not mask.all():
            rows = rows.filter(pa.array(mask))
        self._append(self._with_fillers(headers, kept), rows)

    def finish(self) -> None:
        """Write the filler over the removed offsets at the end, if any."""
        filler, self._filler = self._filler, None
        if filler is not None:
            self._write(filler.reshape(1, -1), None)

    def _kept_rows(
        self, headers: Int64s, rows: pa.RecordBatch, batch_of: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.bool_]:
        offsets = rows.column("offset").to_numpy()
        mask = np.zeros(len(offsets), dtype=bool)
        if not len(offsets):
            return mask
        first, last = np.searchsorted(self.rule.kept, (offsets[0], offsets[-1] + 1))
        mask[np.searchsorted(offsets, self.rule.kept[first:last])] = True
        due = self._horizon_passed(headers)
        if due.any() and rows.column("value").null_count:
            mask &= ~(rows.column("value").is_null().to_numpy(zero_copy_only=False) & due[batch_of])
        return mask

    def _horizon_passed(self, headers: Int64s) -> npt.NDArray[np.bool_]:
        flagged = (headers[:, at.ATTRIBUTES] & ATTRIBUTE_DELETE_HORIZON) != 0
        passed: npt.NDArray[np.bool_] = flagged & (headers[:, at.BASE_TIMESTAMP] <= self.rule.now_ms)
        return passed

    def _set_horizons(
        self,
        headers: Int64s,
        rows: pa.RecordBatch,
        batch_of: npt.NDArray[np.intp],
        mask: npt.NDArray[np.bool_],
    ) -> None:
        """Set a delete horizon on batches with kept tombstones, unless they have one."""
        if not rows.column("value").null_count:
            return
        nulls = rows.column("value").is_null().to_numpy(zero_copy_only=False)
        batches = np.unique(batch_of[mask & nulls])
        self._mark(headers, batches[(headers[batches, at.ATTRIBUTES] & ATTRIBUTE_DELETE_HORIZON) == 0])

    def _mark(self, headers: Int64s, batches: npt.NDArray[np.intp]) -> None:
        if len(batches):
            headers[batches, at.ATTRIBUTES] |= ATTRIBUTE_DELETE_HORIZON
            headers[batches, at.BASE_TIMESTAMP] = self.rule.now_ms + self.rule.delete_retention_ms
            self.changed = True

    def _kept_markers(self, headers: Int64s) -> npt.NDArray[np.bool_]:
        """Return a mask of the markers of transactions with records, and of others before their delete horizon."""
        kept = np.zeros(len(headers), dtype=bool)
        passed = self._horizon_passed(headers)
        for number in np.flatnonzero(headers[:, at.ATTRIBUTES] & at.ATTRIBUTE_TRANSACTIONAL).tolist():
            producer, attributes = int(headers[number, at.PRODUCER_ID]), int(headers[number, at.ATTRIBUTES])
            if not attributes & at.ATTRIBUTE_CONTROL:
                if headers[number, at.RECORDS]:
                    self._open.add(producer)
                continue
            if producer in self._open:
                self._open.discard(producer)
            elif passed[number]:
                self.markers_removed.add(int(headers[number, at.BASE_OFFSET]))
                self.changed = True
                continue
            elif not attributes & ATTRIBUTE_DELETE_HORIZON:
                self._mark(headers, np.array([number]))
            kept[number] = True
        return kept

    def _kept_headers(self, headers: Int64s, counts: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
        """Return a mask of the last batches of producers that lose all their records."""
        kept = np.zeros(len(headers), dtype=bool)
        data = (headers[:, at.ATTRIBUTES] & at.ATTRIBUTE_CONTROL) == 0
        for number in np.flatnonzero((counts == 0) & data & (headers[:, at.PRODUCER_ID] >= 0)).tolist():
            last = self.rule.last_batches.get(int(headers[number, at.PRODUCER_ID]))
            kept[number] = last == headers[number, at.BASE_OFFSET]
        return kept

    def _with_fillers(self, headers: Int64s, kept: npt.NDArray[np.bool_]) -> Int64s:
        """Return the kept headers, with one filler per removed run of one leader epoch. A filler at the end is held back."""
        epochs = headers[:, at.LEADER_EPOCH]
        starts = kept.copy()
        starts[0] = True
        starts[1:] |= ~kept[1:] & (kept[:-1] | (epochs[1:] != epochs[:-1]))
        end = int(headers[-1, at.BASE_OFFSET] + headers[-1, at.LAST_OFFSET_DELTA]) + 1
        numbers = np.flatnonzero(starts)
        out: Int64s = headers[numbers]
        fillers = ~kept[numbers]
        nexts = np.append(out[1:, at.BASE_OFFSET], end)
        out[fillers, at.LAST_OFFSET_DELTA] = (nexts - out[:, at.BASE_OFFSET] - 1)[fillers]
        for column in (at.ATTRIBUTES, at.COORDINATOR_EPOCH, at.FLAGS, at.RECORDS):
            out[fillers, column] = 0
        for column, value in _FILLER.items():
            out[fillers, column] = value
        out[fillers, at.BASE_TIMESTAMP] = out[fillers, at.MAX_TIMESTAMP] = -1
        waiting = self._filler
        if waiting is not None:
            if fillers[0] and out[0, at.LEADER_EPOCH] == waiting[at.LEADER_EPOCH]:
                out[0, at.LAST_OFFSET_DELTA] += out[0, at.BASE_OFFSET] - waiting[at.BASE_OFFSET]
                out[0, at.BASE_OFFSET] = waiting[at.BASE_OFFSET]
            else:
                out = np.vstack([waiting, out])
        self._filler = out[-1].copy() if fillers[-1] else None
        return out[:-1] if fillers[-1] else out

    def _append(self, headers: Int64s, rows: pa.RecordBatch) -> None:
        if len(headers):
            self._write(headers, rows if rows.num_rows else None)

    def _write(self, headers: Int64s, rows: pa.RecordBatch | None) -> None:
        """Append one message."""
        headers = np.ascontiguousarray(headers)
        start = int(metadata_bytes(len(headers)))
        layout = np.zeros(at.LAYOUT_SIZE, dtype=np.int64)
        smallest, codec = NO_TIMESTAMP, CODECS[self.rule.compression] if rows is not None else at.NO_CODEC
        if rows is None:
            empty = layout.reshape(1, -1).copy()
            out = np.empty(start + int(merged_bound(empty, at.ALL_COLUMNS)), dtype=np.uint8)
            nothing: Any = np.zeros(0, dtype=np.uint8)
            first = np.zeros(1, dtype=np.int64)
            length = int(merge_bodies(nothing, first, empty, headers[:1], out, start, layout, False))
        else:
            body, layout = body_from_arrow(rows)
            if codec != at.NO_CODEC:
                body, layout = compress_body(body, layout, codec)
            length = len(body)
            out = np.empty(start + length, dtype=np.uint8)
            out[start:] = body
            smallest = int(rows.column("timestamp").view(pa.int64()).to_numpy().min())
        end = int(frame(out, length, layout, headers, codec, self._scratch, IN_BODY))
        tops = np.where(headers[:, at.RECORDS] > 0, headers[:, at.MAX_TIMESTAMP], -1)
        top = int(np.argmax(tops))
        self.segment.append(
            [memoryview(out.data)[:end]],
            int(headers[0, at.BASE_OFFSET]),
            0 if rows is None else rows.num_rows,
            int(headers[-1, at.BASE_OFFSET] + headers[-1, at.LAST_OFFSET_DELTA]) + 1,
            smallest,
            int(tops[top]),
            int(headers[top, at.BASE_OFFSET]),
        )
