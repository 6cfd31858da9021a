"""Reads the messages of one segment in order: the one loop over a segment, for the log, its recovery, readers of the lake and jobs.

Any process may read, without a lock, while a broker appends. No Python runs per message: a chunk of a few MiB is read into one
reused buffer and verified by one compiled call. The offset index says where to start. It is only a hint: the data there is
verified like any other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import numpy as np

from kafkalake.errors import CorruptSegmentError
from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes, Int64s
from kafkalake.record.message import OK, REASONS, TORN
from kafkalake.record.message_set import MessageSet, scan
from kafkalake.record.schema import END_OF_STREAM
from kafkalake.storage.files import REAL_FILES, Files
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.segment import FIRST_MESSAGE, Segment
from kafkalake.storage.segment_names import name_of

CHUNK_BYTES = 4 << 20
FIRST_CHUNK_BYTES = 128 << 10
_PLAIN_BYTES = 16 << 20
"""Chunks of compressed messages are shrunk until they decompress to about this size."""
_CHUNK_BYTES_MIN = 64 << 10
_OPEN_FILES_MAX = 8


class Stop(Enum):
    """The bytes after the last whole message."""

    END_OF_FILE = "the file ends"
    END_OF_STREAM = "the footer begins"
    DAMAGE = "bytes that are no message"
    SHORTER = "the file became shorter while it was read"


class MessageRun(NamedTuple):
    """Whole messages: message m begins at file position `position + messages.positions[m]`."""

    messages: MessageSet
    position: int


class End(NamedTuple):
    """The end of a pass at file position `position`, and why there is no message."""

    position: int
    stop: Stop
    reason: str


class SegmentReader:
    """One pass over a segment. Message sets are valid until the next one is requested. Not thread-safe.

    size: the bytes to read, as if the file ended there (-1: all). first_chunk_bytes: size of the first read. Each further read
    is twice as large, up to `chunk_bytes`.
    """

    def __init__(
        self,
        segment: Segment,
        size: int = -1,
        *,
        first_chunk_bytes: int = FIRST_CHUNK_BYTES,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self.segment = segment
        self.size = segment.size_bytes() if size < 0 else min(size, segment.size_bytes())
        self.bytes_read = 0
        self._first_chunk_bytes = first_chunk_bytes
        self._chunk_bytes = chunk_bytes
        self._buffer: Bytes = np.empty(0, dtype=np.uint8)

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.segment.forget()

    def messages(
        self, from_offset: int, to_offset: int | None = None, columns: int = at.ALL_COLUMNS
    ) -> Iterator[MessageSet]:
        """Yield whole messages that overlap offsets [from_offset, to_offset), verified in the columns of the bit mask `columns`.

        Without `to_offset`, yield all from `from_offset` on. Raise `CorruptSegmentError` if data is damaged or the unsealed file
        ends before `to_offset`, `OSError` if I/O fails.
        """
        if to_offset is not None and from_offset >= to_offset:
            return
        entry = self.segment.index.lookup(from_offset)
        start = entry[1] if entry is not None and FIRST_MESSAGE < entry[1] < self.size else FIRST_MESSAGE
        try:
            yield from self._overlapping(start, from_offset, to_offset, columns)
        except _WrongStart:
            yield from self._overlapping(FIRST_MESSAGE, from_offset, to_offset, columns)

    def _overlapping(self, start: int, from_offset: int, to_offset: int | None, columns: int) -> Iterator[MessageSet]:
        for found in self.runs(start, columns):
            if isinstance(found, End):
                if found.position == start > FIRST_MESSAGE:
                    raise _WrongStart
                if found.stop in (Stop.DAMAGE, Stop.SHORTER):
                    raise CorruptSegmentError(self.segment.path, found.position, found.reason)
                if found.stop is Stop.END_OF_FILE and to_offset is not None:
                    reason = f"the file ends before offset {to_offset - 1}, which it should hold"
                    raise CorruptSegmentError(self.segment.path, found.position, reason)
                return
            messages = found.messages
            if found.position == start > FIRST_MESSAGE and messages.base_offset > from_offset:
                raise _WrongStart
            first = int(np.searchsorted(ends_of(messages), from_offset, side="right"))
            last = len(messages)
            if to_offset is not None:
                last = int(np.searchsorted(bases_of(messages), to_offset, side="left"))
            is_done = to_offset is not None and messages.next_offset >= to_offset
            if last > first:
                yield messages.slice(first, last)
            if is_done:
                return

    def runs(
        self, position: int = FIRST_MESSAGE, columns: int = at.ALL_COLUMNS, plain_columns: int = at.ALL_COLUMNS
    ) -> Iterator[MessageRun | End]:
        """Yield the whole messages from file position `position` on, and then the end of the pass.

        Only `columns` (a bit mask) are verified, and of compressed messages only those of them in `plain_columns` are
        decompressed. Raise `OSError` if I/O fails.
        """
        length, length_max = self._first_chunk_bytes, self._chunk_bytes
        while position < self.size:
            wanted = min(length, self.size - position)
            chunk = self._read(position, wanted)
            if len(chunk) < wanted:
                yield End(position + len(chunk), Stop.SHORTER, Stop.SHORTER.value)
                return
            found = scan(chunk, 0, len(chunk), columns, plain_columns=plain_columns)
            chunk_end = position + len(chunk)
            if len(found.messages):
                yield MessageRun(found.messages, position)
                position += found.end
                plain = len(found.messages.data)
                if plain > len(chunk):
                    length_max = max(_CHUNK_BYTES_MIN, min(length_max, len(chunk) * _PLAIN_BYTES // plain))
                length = min(2 * length, length_max)
                if found.status == OK or (found.status == TORN and chunk_end < self.size):
                    continue
            elif found.status == TORN and chunk_end < self.size:
                try:
                    length = self.segment.message_length(position, self.size)  # a message longer than the chunk
                    continue
                except CorruptSegmentError:
                    pass
            begin = position - (chunk_end - len(chunk))
            is_end = chunk[begin : begin + 8].tobytes() == END_OF_STREAM
            yield End(position, Stop.END_OF_STREAM if is_end else Stop.DAMAGE, REASONS[found.status])
            return
        yield End(min(position, self.size), Stop.END_OF_FILE, "")

    def _read(self, position: int, length: int) -> Bytes:
        """Read the next bytes into the reused buffer (a new one after `give_away_buffer`)."""
        if len(self._buffer) < length:
            self._buffer = np.empty(length, dtype=np.uint8)
        count = self.segment.read_into(self._buffer[:length], position)
        self.bytes_read += count
        return self._buffer[:count]

    def give_away_buffer(self) -> None:
        """Continue in a new buffer, because the caller keeps the last message set."""
        self._buffer = np.empty(0, dtype=np.uint8)


class _WrongStart(Exception):
    """The index gave a position at which no message starts, or one after the offset."""


def bases_of(messages: MessageSet) -> Int64s:
    """Return int64[M]: first offset of each message."""
    bases: Int64s = messages.headers[messages.first_batch[:-1], at.BASE_OFFSET]
    return bases


def ends_of(messages: MessageSet) -> Int64s:
    """Return int64[M]: next offset of each message."""
    last = messages.first_batch[1:] - 1
    ends: Int64s = messages.headers[last, at.BASE_OFFSET] + messages.headers[last, at.LAST_OFFSET_DELTA] + 1
    return ends


def messages_in_order(messages: MessageSet, next_offset: int) -> int:
    """Return the number of messages with contiguous offsets from `next_offset` on, batch by batch."""
    if not len(messages):
        return 0
    bases = messages.headers[:, at.BASE_OFFSET]
    ends = bases + messages.headers[:, at.LAST_OFFSET_DELTA] + 1
    floors = np.concatenate(([next_offset], ends[:-1]))
    wrong = np.nonzero((bases != floors) | (ends <= bases))[0]
    if not len(wrong):
        return len(messages)
    return int(np.searchsorted(messages.first_batch, wrong[0], side="right")) - 1


class SegmentStore:
    """The one opener of segment files, for whatever is not the log itself.

    A location is a path: a lake is a directory. Readers of another kind of storage need another `Files`.
    """

    def __init__(self, files: Files = REAL_FILES) -> None:
        self._files = files

    def segment(self, location: str | os.PathLike[str], open_files: OpenFiles | None = None) -> Segment:
        """Return the segment at `location`, with `open_files` or its own. Opens none yet.

        Raise `LakeError` if the file name is not a segment's.
        """
        directory, parsed = os.path.dirname(os.fspath(location)), name_of(location)
        if open_files is None:
            open_files = OpenFiles(self._files, _OPEN_FILES_MAX)
        return Segment(directory or ".", parsed.base_offset, open_files, parsed.generation)

    def open(
        self, location: str | os.PathLike[str], size: int = -1, *, first_chunk_bytes: int = FIRST_CHUNK_BYTES
    ) -> SegmentReader:
        """Open the segment at `location` for one pass. Close it by using it in a `with`. Arguments as of `SegmentReader`.

        Raise `LakeError` if the file name is not a segment's, `OSError` if the file cannot be opened.
        """
        return SegmentReader(self.segment(location), size, first_chunk_bytes=first_chunk_bytes)


SEGMENTS = SegmentStore()
"""The segments in the file system."""
