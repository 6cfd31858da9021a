"""The segment being appended to: one write per message, sparse index entries, and the footer that seals it.

A message becomes visible to readers in this process once all its bytes are written, when `_end` moves. A failed write is
truncated, so the next one starts at the end of the last whole message.

Time index entries are (timestamp, relative offset): the largest timestamp of the segment's records below that offset. The
first entry, at relative offset 0, is the largest timestamp of all earlier segments, or a larger one where that is not known, so
that a search by time can bisect segments. The last entry, written at sealing, is the largest of the whole segment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kafkalake.buffers import Buffer
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.schema import PREAMBLE, footer
from kafkalake.storage.files import overwrite, write_all, write_parts
from kafkalake.storage.index import ENTRY_BYTES, decode_position
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.producer_state import AbortedTransaction
from kafkalake.storage.replica_kernels import index_entries
from kafkalake.storage.replica_run import ReplicaRun
from kafkalake.storage.segment import FIRST_MESSAGE, Segment
from kafkalake.storage.segment_kernels import NO_TIMESTAMP, walk_blocks
from kafkalake.storage.segment_names import TXN_INDEX_SUFFIX
from kafkalake.storage.txn_index import ENTRY_BYTES as TXN_ENTRY_BYTES
from kafkalake.storage.txn_index import encode_aborted, encode_seal

_NOTHING = np.empty(0, dtype=np.uint8)
_WINDOW_BYTES = 64 << 20
_WINDOW_BLOCKS = 1 << 16
_READ_BYTES = 4 << 20
ANY_TIMESTAMP = (1 << 63) - 1
"""As the largest timestamp of the earlier segments, in ms: it is not known."""
LISTED_AT_ONCE = 10_000
"""The number of messages that `seal` lists at once. It takes about 0.6 µs for each, all of them together up to a second."""
_MESSAGE_BYTES_MIN = 512
MAXIMUM_RELATIVE_OFFSET = (1 << 31) - 1


@dataclass(slots=True)
class SegmentContent:
    """A summary of a segment's records. Timestamps in ms. `max_timestamp_offset`: base offset of its batch, -1: none.

    `min_timestamp` includes values below 0 (before 1970, or -1 if the producer set none), because readers skip segments by
    it. NO_TIMESTAMP: no records.
    """

    records: int = 0
    next_offset: int = 0
    min_timestamp: int = NO_TIMESTAMP
    max_timestamp: int = -1
    max_timestamp_offset: int = -1

    def add(self, records: int, next_offset: int, smallest: int, largest: int, largest_at: int) -> None:
        """Add one message."""
        self.records += records
        self.next_offset = next_offset
        if smallest < self.min_timestamp:
            self.min_timestamp = smallest
        if largest > self.max_timestamp:
            self.max_timestamp = largest
            self.max_timestamp_offset = largest_at


class _Listed(NamedTuple):
    """The messages of a segment before position `end`, as `ActiveSegment.blocks`."""

    blocks: Int64s
    end: int


class ActiveSegment(Segment):
    """The one growing segment of a log. One writer at a time. Reads are safe from any thread."""

    def __init__(
        self,
        directory: str,
        base_offset: int,
        open_files: OpenFiles,
        *,
        index_interval_bytes: int,
        earlier_max_timestamp: int,
        generation: int = 0,
    ) -> None:
        super().__init__(directory, base_offset, open_files, generation)
        self.content = SegmentContent(next_offset=base_offset)
        self.created_ms = 0
        self.first_timestamp = -1
        self._end: int = 0
        self._index_interval_bytes = index_interval_bytes
        self._indexed_at = FIRST_MESSAGE
        self._has_last_entry = False
        """Whether the time index has its last entry already, of a `seal` that has failed."""
        self._aborted = 0
        self._has_uncounted = False
        """Whether the index of aborted transactions may end in an entry whose marker was not written."""
        self.earlier_max_timestamp = earlier_max_timestamp
        self._listed = _Listed(np.empty((0, 3), dtype=np.int64), FIRST_MESSAGE)
        self._unlisted = 0

    def end(self) -> int:
        """Return the position after the last whole message, 0 without a file."""
        return self._end

    def size_bytes(self) -> int:
        """Return the bytes written."""
        return self._end

    def _readable(self, position: int, length: int) -> Bytes:
        available = min(length, self._end - position)
        # Before the first append there is no file.
        return self.read_bytes(position, available) if available > 0 else _NOTHING

    @property
    def empty(self) -> bool:
        """Return whether nothing has been appended."""
        return self._end <= FIRST_MESSAGE

    def resume(self, end: int, content: SegmentContent, indexed_at: int, aborted: int, created_ms: int) -> None:
        """Resume appending after recovery found `end` bytes of whole messages."""
        self._end = end
        self.content = content
        self._indexed_at = indexed_at
        self._aborted = aborted
        self._unlisted = end // _MESSAGE_BYTES_MIN
        self.created_ms = created_ms
        self.first_timestamp = content.min_timestamp if content.records else -1

    def begin(self, created_ms: int, first_timestamp: int) -> None:
        """Note the wall clock of the first append and its largest timestamp, both in ms since 1970."""
        self.created_ms = created_ms
        self.first_timestamp = first_timestamp

    def ends_at(self, position: int) -> None:
        """Read nothing at and above `position`, where the file was truncated."""
        self._end = position
        self._listed = _Listed(self._listed.blocks[:0], FIRST_MESSAGE)

    def age_ms(self, timestamp: int, now_ms: int) -> int:
        """Return the segment's age for a batch with that largest timestamp, as Kafka computes it for `segment.ms`.

        The age is record time since the first batch, or wall clock time if either has no timestamp.
        """
        if timestamp >= 0 and self.first_timestamp >= 0:
            return timestamp - self.first_timestamp
        return now_ms - self.created_ms

    def append(
        self,
        parts: Sequence[Buffer],
        base_offset: int,
        records: int,
        next_offset: int,
        smallest: int,
        largest: int,
        largest_at: int,
    ) -> None:
        """Write the parts of one message. `smallest` (NO_TIMESTAMP: none), `largest` (-1: none): timestamps (ms), the latter in the
        batch at offset `largest_at`.

        Raise `OSError` if I/O fails, leaving the segment unchanged.
        """
        position, end = self._write(parts)
        self._index_behind_last_entry(base_offset, position)
        if position - self._indexed_at >= self._index_interval_bytes:
            self._index(base_offset, position, self.content.max_timestamp)
        self.content.add(records, next_offset, smallest, largest, largest_at)
        self._unlisted += 1
        self._end = end

    def append_run(self, messages: Buffer, run: ReplicaRun) -> None:
        """Write the bytes of whole messages, which `run` describes. Raise `OSError` if I/O fails, leaving the segment unchanged."""
        origin, end = self._write((messages,))
        self._index_behind_last_entry(int(run.bases[0]), origin)
        self._index_run(run, origin)
        self.content.add(run.records, run.next_offset, run.min_timestamp, run.max_timestamp, run.max_timestamp_offset)
        self._unlisted += len(run.bases)
        self._end = end

    def _index_run(self, run: ReplicaRun, origin: int) -> None:
        entries = np.empty((2, ENTRY_BYTES * len(run.bases)), dtype=np.uint8)
        indexed_at, largest, interval = self._indexed_at, self.content.max_timestamp, self._index_interval_bytes
        count = index_entries(
            run.positions, run.bases, run.tops, origin, self.base_offset, indexed_at, largest, interval, entries
        )
        if not count:
            return
        both, size = entries.tobytes(), ENTRY_BYTES * int(count)  # slices of bytes cost less than those of arrays
        self._indexed_at = decode_position(both[size - ENTRY_BYTES : size])
        self.index.extend(both[:size])
        self.time_index.extend(both[len(both) // 2 : len(both) // 2 + size])

    def _write(self, parts: Sequence[Buffer]) -> tuple[int, int]:
        """Write bytes behind the last message and return their begin and end. Raise `OSError` if I/O fails."""
        if not self._end:
            self._create()
        file = self._open_files.get(self.path, write=True)
        try:
            end = write_parts(self._open_files.files, file.descriptor, parts, self._end)
        except OSError:
            self._cut()
            raise
        return self._end, end

    def write_aborted(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Write the index entries of the transactions that the next messages abort. `count_aborted` makes them permanent.

        Precedes the markers, so that no reader sees a marker without its entry. Raise `OSError` if I/O fails.
        """
        self._has_uncounted = True
        file = self._open_files.get(self.path_of(TXN_INDEX_SUFFIX), write=True, create=True)
        entries = b"".join(encode_aborted(each, number) for number, each in enumerate(aborted, self._aborted))
        write_all(self._open_files.files, file.descriptor, entries, self._aborted * TXN_ENTRY_BYTES)

    def count_aborted(self, entries: int) -> None:
        """Keep the entries of `write_aborted`, after their markers were appended."""
        self._aborted += entries
        self._has_uncounted = False

    def seal(self) -> int:
        """Write the buffered index entries and the footer, which makes the file an ordinary Arrow file.

        Return its size in bytes. Raise `OSError` if I/O fails. The call can be retried.
        """
        files = self._open_files.files
        self._seal_indexes()
        file = self._open_files.get(self.path, write=True)
        try:
            end = footer(self.blocks())
            write_all(files, file.descriptor, end, self._end)
        except OSError:
            self._cut()
            raise
        return self._end + len(end)

    @property
    def is_listed(self) -> bool:
        """Return whether `seal` has few messages to list, or their listing has failed since the last ones."""
        return self._unlisted <= LISTED_AT_ONCE

    def list_messages(self) -> None:
        """List the messages written so far, so that `seal` need not. May run in any thread, beside appends.

        A file that becomes shorter meanwhile is no error: nothing is kept then. Raise `OSError` if I/O fails.
        """
        unlisted, end = self._unlisted, self._end
        self._unlisted -= unlisted  # at once: an error must not have it tried again and again
        # Read and not mapped: a failed flush may truncate the file in another thread.
        found = self._list(end, lambda position: self.read_bytes(position, min(_READ_BYTES, end - position)))
        if found.end == end:
            self._listed = found

    def blocks(self) -> Int64s:
        """Return int64[N, 3]: position, metadata length and body length of each message."""
        file, end = self._open_files.get(self.path), self._end

        def mapped(position: int) -> Bytes:
            length = min(_WINDOW_BYTES, end - position)
            return np.frombuffer(self._open_files.files.view(file.descriptor, length, position), dtype=np.uint8)

        found = self._list(end, mapped)
        if found.end < end:
            raise AssertionError(f"{self.path}: no message at {found.end}, where one was written")
        return found.blocks

    def _list(self, end: int, window: Callable[[int], Bytes]) -> _Listed:
        """Return the messages up to `end`, or to a window that does not begin with one. window: the bytes from a position on."""
        blocks, position = self._listed
        parts = [blocks]
        while position < end and len(blocks := _blocks_in(window(position), position)):
            parts.append(blocks)
            position = int(blocks[-1].sum())
        return _Listed(np.concatenate(parts), position)

    def _create(self) -> None:
        file = self._open_files.get(self.path, write=True, create=True)
        files = self._open_files.files
        write_all(files, file.descriptor, PREAMBLE, 0)
        self._end = FIRST_MESSAGE
        for index in (self.index, self.time_index):
            with contextlib.suppress(OSError):
                index.rewrite([])
        self.time_index.append(self.earlier_max_timestamp, 0)

    def _index(self, offset: int, position: int, earlier_max_timestamp: int) -> None:
        self.index.append(offset, position)
        self.time_index.append(earlier_max_timestamp, offset - self.base_offset)
        self._indexed_at = position

    def _index_behind_last_entry(self, offset: int, position: int) -> None:
        """Index a message that came after all if the time index has its entry already: the two indexes have the same messages."""
        if self._has_last_entry:
            self.index.append(offset, position)
            self._indexed_at, self._has_last_entry = position, False

    def _seal_indexes(self) -> None:
        if not self._has_last_entry:
            self.time_index.append(self.content.max_timestamp, self.content.next_offset - self.base_offset)
            self._has_last_entry = True
        self.index.flush()
        self.time_index.flush()
        if self._aborted:
            file = self._open_files.get(self.path_of(TXN_INDEX_SUFFIX), write=True, create=True)
            write_all(
                self._open_files.files, file.descriptor, encode_seal(self._aborted), self._aborted * TXN_ENTRY_BYTES
            )
        elif self._has_uncounted:
            reset_txn_index(self._open_files, self.path_of(TXN_INDEX_SUFFIX), [], sealed=True)

    def _cut(self) -> None:
        """Truncate a failed write. If that fails too, the next write overwrites it, and readers stop at `state`."""
        with contextlib.suppress(OSError):
            file = self._open_files.get(self.path, write=True)
            self._open_files.files.truncate(file.descriptor, self._end)

    def has_aborted(self) -> bool:
        """Return whether an abort marker was appended or is being appended."""
        return self._has_uncounted or self._aborted > 0

    def aborted_from(self, offset: int, *, sealed: bool = False) -> Iterator[AbortedTransaction]:
        """Yield the transactions as for any segment. Entries are whole up to the last appended one."""
        return super().aborted_from(offset, sealed=sealed)


def _blocks_in(window: Bytes, position: int) -> Int64s:
    """Return the messages from the one with which `window` begins, at `position`, as `ActiveSegment.blocks`.

    The last one of a window may begin too close to its end.
    """
    buffer = np.empty((_WINDOW_BLOCKS, 3), dtype=np.int64)
    return buffer[: int(walk_blocks(window, 0, position, buffer))].copy()


def reset_txn_index(open_files: OpenFiles, path: str, entries: list[AbortedTransaction], *, sealed: bool) -> None:
    """Replace a segment's index of aborted transactions by `entries`, or remove the file if empty. Raise `OSError` if I/O fails."""
    if not entries:
        with contextlib.suppress(FileNotFoundError):
            open_files.unlink(path)
        return
    data = b"".join(encode_aborted(entry, number) for number, entry in enumerate(entries))
    data += encode_seal(len(entries)) if sealed else b""
    file = open_files.get(path, write=True, create=True)
    overwrite(open_files.files, file.descriptor, data)
