"""Reads a segment file from any process: verified messages in chunks of a few MiB, starting at an offset.

No Python runs per message: a chunk is read by one pread and walked by one compiled call. The offset index gives the start
position. It is only a hint: the data there is verified like any other. numba is imported with the first
chunk, not with this module, because planning a read does not need it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kafkalake.errors import CorruptSegmentError, LakeError
from kafkalake.storage.index import Index
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.partition_metadata import read_topic_id
from kafkalake.uuid_text import encode_uuid

if TYPE_CHECKING:
    from kafkalake.record.message_set import MessageSet

CHUNK_BYTES = 4 << 20
_FIRST_CHUNK_BYTES = 128 << 10
_PLAIN_BYTES = 16 << 20
"""Chunks of compressed messages are shrunk until they decompress to about this size."""
_CHUNK_BYTES_MIN = 64 << 10
_INDEX_ENTRY = np.dtype([("offset", "<i8"), ("position", "<u4"), ("checksum", "<u4")])

Bytes = npt.NDArray[np.uint8]


class SegmentScan:
    """One pass over a segment file. Close it by using it in a `with`."""

    def __init__(
        self, path: str, size: int = -1, *, topic_id: str = "", first_chunk_bytes: int = _FIRST_CHUNK_BYTES
    ) -> None:
        """Open the file, of which only the first `size` bytes are read (-1: all). first_chunk_bytes: size of the first read.

        Raise `LakeError` if this host cannot read it, or if its directory no longer belongs to topic `topic_id`.
        """
        self.path = path
        self.bytes_read = 0
        self._first_chunk_bytes = first_chunk_bytes
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise LakeError(
                f"{path} cannot be read on host {socket.gethostname()}: {error.strerror}. Every executor must see the "
                "lake under the same path; where it does, retention or compaction has removed the segment since the "
                "query was planned"
            ) from None
        try:
            _check_topic(path, topic_id)
        except LakeError:
            os.close(self._descriptor)
            raise
        self._size = os.fstat(self._descriptor).st_size
        if size >= 0:
            self._size = min(size, self._size)
        self._buffer: Bytes = np.empty(0, dtype=np.uint8)

    def __enter__(self) -> SegmentScan:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def messages(self, from_offset: int, to_offset: int, columns: int) -> Iterator[MessageSet]:
        """Yield messages that overlap offsets [from_offset, to_offset), verified in the columns of the bit mask `columns`.

        A message set is valid until the next one is requested. Raise `CorruptSegmentError` if data is damaged or the file ends
        before `to_offset`.
        """
        start = self._position_of(from_offset)
        try:
            yield from self._walk(start, from_offset, to_offset, columns)
        except _WrongStart:
            yield from self._walk(_preamble_bytes(), from_offset, to_offset, columns)

    def _walk(self, start: int, from_offset: int, to_offset: int, columns: int) -> Iterator[MessageSet]:
        from kafkalake.record.message import REASONS, TORN
        from kafkalake.record.message_set import scan
        from kafkalake.record.schema import END_OF_STREAM

        position, length, length_max = start, self._first_chunk_bytes, CHUNK_BYTES
        while position < self._size:
            chunk = self._read(position, length)
            found = scan(chunk, 0, len(chunk), columns)
            messages = found.messages
            if len(messages):
                if position == start and start > _preamble_bytes() and messages.base_offset > from_offset:
                    raise _WrongStart
                plain = len(messages.data)
                first, last = _overlap(messages, from_offset, to_offset)
                done = messages.next_offset >= to_offset
                if last > first:
                    yield messages.slice(first, last)
                if done:
                    return
                position += found.end
                if plain > len(chunk):
                    length_max = max(_CHUNK_BYTES_MIN, min(length_max, len(chunk) * _PLAIN_BYTES // plain))
                length = min(2 * length, length_max)
            elif found.status == TORN and position + len(chunk) < self._size:
                length = min(max(2 * length, _message_bytes(chunk)), self._size - position)
            elif start > _preamble_bytes() and position == start:
                raise _WrongStart
            elif bytes(chunk[:8]) == END_OF_STREAM:
                return
            else:
                raise CorruptSegmentError(self.path, position, REASONS[found.status])
        raise CorruptSegmentError(
            self.path, position, f"the file ends before offset {to_offset - 1}, which it should hold"
        )

    def _read(self, position: int, length: int) -> Bytes:
        """Read the next bytes into the reused buffer (a new one after `give_away_buffer`)."""
        length = min(length, self._size - position)
        if len(self._buffer) < length:
            self._buffer = np.empty(length, dtype=np.uint8)
        done = 0
        while done < length:
            count = os.preadv(self._descriptor, [self._buffer.data[done:length]], position + done)
            if not count:
                raise CorruptSegmentError(self.path, position + done, "the file became shorter while it was read")
            done += count
        self.bytes_read += length
        return self._buffer[:length]

    def give_away_buffer(self) -> None:
        """Continue in a new buffer, because the caller keeps the last message set."""
        self._buffer = np.empty(0, dtype=np.uint8)

    def _position_of(self, offset: int) -> int:
        index = Index(self.path.removesuffix(".arrow") + ".index", OpenFiles(limit=1))
        entry = index.lookup(offset)
        if entry is None or not _preamble_bytes() <= entry[1] < self._size:
            return _preamble_bytes()
        return entry[1]


class _WrongStart(Exception):
    """The index gave a position at which no message starts, or one after the offset."""


def _overlap(messages: MessageSet, from_offset: int, to_offset: int) -> tuple[int, int]:
    """Return the range [first, last) of messages that hold any of the offsets, by their batch headers."""
    from kafkalake.record import layout as at

    headers, batches = messages.headers, messages.first_batch
    bases = headers[batches[:-1], at.BASE_OFFSET]
    last_batches = batches[1:] - 1
    ends = headers[last_batches, at.BASE_OFFSET] + headers[last_batches, at.LAST_OFFSET_DELTA] + 1
    first = int(np.searchsorted(ends, from_offset, side="right"))
    return first, max(first, int(np.searchsorted(bases, to_offset, side="left")))


def _message_bytes(chunk: Bytes) -> int:
    """Return the length of the chunk's first message according to its frame, or 0 if the frame is damaged."""
    from kafkalake.record.message import OK, check_frame

    lengths = np.zeros(3, dtype=np.int64)
    return int(lengths[0] + lengths[1]) if check_frame(chunk, 0, len(chunk), lengths) == OK else 0


def _check_topic(path: str, topic_id: str) -> None:
    """Raise `LakeError` if an opened file's directory names another topic: a later topic of the same name has the same paths.

    Called after the file is open, because a new directory names its topic before it gets any file.
    """
    if not topic_id:
        return
    directory = os.path.dirname(path)
    found = read_topic_id(directory)
    if found is not None and encode_uuid(found) != topic_id:
        raise LakeError(
            f"{directory} belongs to another topic since the query was planned: the topic was deleted and created again "
            f"(its id was {topic_id}, and is {encode_uuid(found)} now)"
        )


def _preamble_bytes() -> int:
    from kafkalake.record.schema import PREAMBLE

    return len(PREAMBLE)


def index_entries(path: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the offsets and positions (ascending, int64[n]) of the segment's index, as hints for splitting."""
    try:
        entries = np.fromfile(path.removesuffix(".arrow") + ".index", dtype=_INDEX_ENTRY)
    except OSError:
        entries = np.empty(0, dtype=_INDEX_ENTRY)
    return entries["offset"].astype(np.int64), entries["position"].astype(np.int64)
