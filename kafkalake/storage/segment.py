"""Reads one segment file: finds the message with an offset, then reads whole messages from there.

A sealed segment never changes, so it is read lazily and only the end of its messages is cached. All returned data has passed its
checksums. Other data raises `CorruptSegmentError` with the file and the position.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kafkalake.errors import CorruptSegmentError
from kafkalake.record import layout as at
from kafkalake.record.arrays import Bytes
from kafkalake.record.message import OK, REASONS, TORN
from kafkalake.record.message_set import PLAIN_BYTES, MessageSet, scan
from kafkalake.record.schema import END_OF_STREAM, MAGIC, PREAMBLE
from kafkalake.storage.files import read_all, read_file
from kafkalake.storage.index import Index
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.producer_state import AbortedTransaction
from kafkalake.storage.segment_kernels import find_message
from kafkalake.storage.segment_names import (
    DATA_SUFFIX,
    INDEX_SUFFIX,
    SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from kafkalake.storage.txn_index import decode_aborted, read_aborted

FIRST_MESSAGE = len(PREAMBLE)
_LOOK_BYTES = 32 << 10
_LEAST_READ_BYTES = 4 << 10
_LEAD_BYTES = 24 << 10
"""Extra bytes per read, because an index entry points before the message: an index interval and a typical message."""
_TAIL_BYTES = 4 + len(MAGIC)


class Messages(NamedTuple):
    """The result of a read: whole messages, and the file position of the next one."""

    messages: MessageSet
    end: int


class Segment:
    """A read-only segment. Thread-safe."""

    def __init__(self, directory: str, base_offset: int, open_files: OpenFiles, generation: int = 0) -> None:
        self.base_offset = base_offset
        self.generation = generation
        self.directory = directory
        self.path = self.path_of(DATA_SUFFIX)
        self._open_files = open_files
        self._end: int | None = None
        self.whole = False
        """Whether `end` found a footer. A file without one may have lost messages at its end."""
        self.index = Index(self.path_of(INDEX_SUFFIX), open_files)

    @cached_property
    def time_index(self) -> Index:
        """The segment's time index."""
        return Index(self.path_of(TIME_INDEX_SUFFIX), self._open_files)

    def path_of(self, suffix: str) -> str:
        """Return the path of the file with that suffix."""
        return f"{self.directory}/{file_name(self.base_offset, suffix, self.generation)}"

    def end(self) -> int:
        """Return the end position of the messages: the footer if sealed, else the file's end. Raise `OSError` if I/O fails."""
        if self._end is None:
            files = self._open_files.files
            file = self._open_files.get(self.path)
            size = files.size(file.descriptor)
            end = footer_position(size, read_all(files, file.descriptor, _TAIL_BYTES, max(0, size - _TAIL_BYTES)))
            self.whole = end is not None and read_all(files, file.descriptor, 8, end) == END_OF_STREAM
            self._end = end if end is not None and self.whole else size
        return self._end

    def size_bytes(self) -> int:
        """Return the bytes of the data file. Raise `OSError` if I/O fails."""
        file = self._open_files.get(self.path)
        return self._open_files.files.size(file.descriptor)

    def modified_ms(self) -> int:
        """Return the modification time of the data file in ms since 1970, UTC. Raise `OSError` if I/O fails."""
        file = self._open_files.get(self.path)
        return self._open_files.files.modified_ms(file.descriptor)

    def read_bytes(self, position: int, length: int) -> Bytes:
        """Return bytes of the file as uint8[<= length]. Raise `OSError` if I/O fails."""
        file = self._open_files.get(self.path)
        return np.frombuffer(read_all(self._open_files.files, file.descriptor, length, position), dtype=np.uint8)

    def read_into(self, buffer: Bytes, position: int) -> int:
        """Fill `buffer` with bytes of the file and return their number, fewer only at its end. Raise `OSError` if I/O fails."""
        file = self._open_files.get(self.path)
        done = 0
        while done < len(buffer):
            count = self._open_files.files.read_into(file.descriptor, buffer.data[done:], position + done)
            if not count:
                break
            done += count
        return done

    def locate(self, offset: int) -> int | None:
        """Return the position of the message with `offset`, or of the first one past it. None if all are below.

        Raise `CorruptSegmentError` on damage, `OSError` if I/O fails.
        """
        entry = self.index.lookup(offset)
        if entry is not None:
            found = self._find(entry[1], offset, entry[0])
            if found >= 0:
                return found
        found = self._find(FIRST_MESSAGE, offset, None)
        return found if found >= 0 else None

    def _find(self, position: int, offset: int, expected: int | None) -> int:
        """Return the position as `locate`, from the message at `position` on. Return -1 if there is none or that message does
        not begin with offset `expected`."""
        end = self.end()
        if not FIRST_MESSAGE <= position < end:
            return -1
        found = np.zeros(5, dtype=np.int64)
        length = _LOOK_BYTES
        while position < end:
            data = self.read_bytes(position, min(length, end - position))
            status = int(find_message(data, 0, len(data), offset, found))
            if expected is not None and (status == OK or found[0] > 0) and found[4] != expected:
                return -1
            if status == OK:
                return position + int(found[0])
            if status != TORN:
                raise CorruptSegmentError(self.path, position + int(found[0]), REASONS[status])
            if found[0] == 0:  # metadata longer than the bytes read, or cut short by the end of the file
                if len(data) < length:
                    raise CorruptSegmentError(self.path, position, REASONS[TORN])
                length *= 4
            else:
                expected = None
            position += int(found[0])
        return -1

    def fetch(self, offset: int, max_bytes: int, end_offset: int) -> Messages | None:
        """Return `read` from the message with `offset`, or the first one past it, with one data read in the common case.

        None if all messages are below `offset`, or none is below `end_offset`. Raise `CorruptSegmentError` on damage,
        `OSError` if I/O fails.
        """
        entry = self.index.lookup(offset)
        if entry is not None and entry[1] >= FIRST_MESSAGE:
            found = np.zeros(5, dtype=np.int64)
            data = self._readable(entry[1], max(max_bytes, _LEAST_READ_BYTES) + _LEAD_BYTES)
            status = int(find_message(data, 0, len(data), offset, found))
            if status == OK and found[4] == entry[0]:
                messages = scan(data, int(found[0]), len(data), plain_bytes=min(max_bytes, PLAIN_BYTES)).messages
                if len(messages):
                    return _before(messages, entry[1], end_offset)
        position = self.locate(offset)
        return None if position is None else self.read(position, max_bytes, end_offset)

    def read(self, position: int, max_bytes: int, end_offset: int, columns: int = at.ALL_COLUMNS) -> Messages | None:
        """Return whole messages from `position` on: up to `max_bytes`, at least one, none that begins at or past `end_offset`.

        `max_bytes` and `PLAIN_BYTES` also bound the decompressed size. Return None if there is no message.
        Raise `CorruptSegmentError` on damage, `OSError` if I/O fails.
        """
        length = max(max_bytes, _LEAST_READ_BYTES)
        data = self._readable(position, length)
        found = scan(data, 0, len(data), columns, plain_bytes=min(max_bytes, PLAIN_BYTES))
        if not len(found.messages):
            end = self.end()
            if position >= end:
                return None
            if found.status == TORN and len(data) == length:
                data = self._readable(position, self.message_length(position, end))
                found = scan(data, 0, len(data), columns, plain_bytes=min(max_bytes, PLAIN_BYTES))
            if not len(found.messages):
                raise CorruptSegmentError(self.path, position, REASONS.get(found.status, REASONS[TORN]))
        return _before(found.messages, position, end_offset)

    def _readable(self, position: int, length: int) -> Bytes:
        """Return bytes from `position` to scan for messages. They may include the footer, which does not parse as one."""
        return self.read_bytes(position, length)

    def message_length(self, position: int, end: int) -> int:
        """Return the bytes of the message at `position`, after verifying its metadata. It must end at or before `end`.

        Raise `CorruptSegmentError` on damage, `OSError` if I/O fails.
        """
        found = np.zeros(5, dtype=np.int64)
        length = _LOOK_BYTES
        while True:
            data = self.read_bytes(position, min(length, end - position))
            status = int(find_message(data, 0, len(data), -1, found))
            if status == OK and position + int(found[1]) <= end:
                return int(found[1])
            if status != TORN or len(data) < length:
                raise CorruptSegmentError(self.path, position, REASONS[TORN if status == OK else status])
            length *= 4

    def has_aborted(self) -> bool:
        """Return whether the segment has an index of aborted transactions. Raise `OSError` if I/O fails."""
        try:
            self._open_files.get(self.path_of(TXN_INDEX_SUFFIX))
        except FileNotFoundError:
            return False
        return True

    def aborted_transactions(self, *, sealed: bool = True) -> list[AbortedTransaction]:
        """Return the transactions with an abort marker here. Raise `CorruptSegmentError` on damage, `OSError` if I/O fails."""
        path = self.path_of(TXN_INDEX_SUFFIX)
        try:
            data = read_file(self._open_files.files, path)
        except FileNotFoundError:
            return []
        return decode_aborted(data, path, sealed=sealed)

    def aborted_from(self, offset: int, *, sealed: bool = True) -> Iterator[AbortedTransaction]:
        """Yield those of `aborted_transactions` that end at or above `offset`, in order. Raise as it does, of what is read."""
        path = self.path_of(TXN_INDEX_SUFFIX)
        files = self._open_files.files
        try:
            file = self._open_files.get(path)
        except FileNotFoundError:
            return
        size = files.size(file.descriptor)
        yield from read_aborted(
            lambda position, length: read_all(files, file.descriptor, length, position),
            size,
            offset,
            path,
            sealed=sealed,
        )

    def txn_index_bytes(self) -> int:
        """Return the bytes of the index of aborted transactions, 0 without one. Raise `OSError` if I/O fails."""
        try:
            file = self._open_files.get(self.path_of(TXN_INDEX_SUFFIX))
            return self._open_files.files.size(file.descriptor)
        except FileNotFoundError:
            return 0

    def read_txn_index(self, position: int, length: int) -> bytes:
        """Return bytes of the index of aborted transactions, fewer at its end. Raise `OSError` if I/O fails."""
        file = self._open_files.get(self.path_of(TXN_INDEX_SUFFIX))
        return read_all(self._open_files.files, file.descriptor, length, position)

    def forget(self) -> None:
        """Release the segment's open files."""
        for suffix in SUFFIXES:
            self._open_files.forget(self.path_of(suffix))


def _before(messages: MessageSet, origin: int, end_offset: int) -> Messages | None:
    """Return those of `messages`, with data[0] at position `origin`, that begin below `end_offset`."""
    bases = messages.headers[messages.first_batch[:-1], at.BASE_OFFSET]
    if bases[-1] >= end_offset:
        messages = messages.slice(0, int(np.searchsorted(bases, end_offset)))
        if not len(messages):
            return None
    return Messages(messages, origin + int(messages.positions[-1]))


def footer_position(size: int, tail: bytes) -> int | None:
    """Return the expected position of the end-of-stream marker before the footer of a file of `size` bytes, from its last 10
    bytes. None without a footer."""
    if len(tail) == _TAIL_BYTES and tail[4:] == MAGIC:
        end = size - _TAIL_BYTES - int.from_bytes(tail[:4], "little", signed=True) - len(END_OF_STREAM)
        if FIRST_MESSAGE <= end < size:
            return end
    return None
