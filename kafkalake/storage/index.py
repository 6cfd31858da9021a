"""Index files: sorted 16-byte entries with the position to start reading from.

    key int64, value uint32, CRC32C of those 12 bytes (uint32), little-endian

`.index` maps an offset to the position of the message that begins with it, `.timeindex` a timestamp to an offset relative to
the segment's base. Both are sparse and both are **hints**: callers check an entry against the message it points to and fall
back to the start of the segment. So entries are buffered, a crash may lose some, and a damaged one costs time, never a wrong
result. Lookup is a binary search by pread: O(log n), without caching or mapping.

`.txnindex` is not a hint: a lost entry would expose an aborted record. See `txn_index.py`.
"""

from __future__ import annotations

import contextlib
import logging
import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from kafkalake.storage.files import Files, overwrite, read_all, read_file, write_all
from kafkalake.storage.open_files import OpenFiles

logger = logging.getLogger(__name__)
_PAIR = struct.Struct("<qI")
_ENTRY = struct.Struct("<qII")
ENTRY_BYTES = 16
_ENTRIES = np.dtype([("key", "<i8"), ("value", "<u4"), ("checksum", "<u4")])
_BUFFERED_BYTES = 64 * ENTRY_BYTES
_BLOCK_BYTES = 256 * ENTRY_BYTES


def encode_entry(key: int, value: int) -> bytes:
    """Return the 16 bytes of an entry."""
    return _ENTRY.pack(key, value, crc32c(_PAIR.pack(key, value)))


def decode_position(entry: bytes) -> int:
    """Return the value of an entry that was just encoded: in an offset index the position of the message."""
    return int(_ENTRY.unpack(entry)[1])


def decode_entry(data: bytes | bytearray, position: int) -> tuple[int, int] | None:
    """Return (key, value) of the entry at `position`, None if its checksum fails."""
    key, value, checksum = _ENTRY.unpack_from(data, position)
    return (key, value) if crc32c(data[position : position + 12]) == checksum else None


def decode_entries(data: bytes) -> Iterator[tuple[int, int] | None]:
    """Yield all complete entries of an index file's bytes, None for a damaged one."""
    for position in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
        yield decode_entry(data, position)


def read_entries(files: Files, path: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return keys and values (int64[n]) of all entries of an index file, unverified. None of them if it cannot be read."""
    try:
        data = read_file(files, path)
    except OSError:
        data = b""
    entries = np.frombuffer(data, dtype=_ENTRIES, count=len(data) // ENTRY_BYTES)
    return entries["key"].astype(np.int64), entries["value"].astype(np.int64)


def _last_not_above(data: bytes | bytearray, key: int) -> tuple[int, int] | None:
    """Return the last undamaged entry of a block with a key <= `key`, by binary search. None if there is none."""
    low, high = 0, len(data) // ENTRY_BYTES
    while low < high:
        middle = (low + high) // 2
        if _ENTRY.unpack_from(data, middle * ENTRY_BYTES)[0] <= key:
            low = middle + 1
        else:
            high = middle
    for number in range(low - 1, -1, -1):
        entry = decode_entry(data, number * ENTRY_BYTES)
        if entry is not None and entry[0] <= key:
            return entry
    return None


def indexed_messages(positions: npt.NDArray[np.int64], indexed_at: int, interval_bytes: int) -> list[int]:
    """Return the numbers of the messages (at `positions`, ascending) that get an entry, after the one at position `indexed_at`."""
    numbers = []
    number = int(np.searchsorted(positions, indexed_at + interval_bytes))
    while number < len(positions):
        numbers.append(number)
        following = int(np.searchsorted(positions, int(positions[number]) + interval_bytes))
        number = max(number + 1, following)
    return numbers


class Index:
    """One index file. Only the log's one writer appends. `lookup` is safe from any thread."""

    def __init__(self, path: str, open_files: OpenFiles, size: int | None = None) -> None:
        self.path = path
        self._open_files = open_files
        self._size = size
        self._pending = bytearray()
        self._is_made = True
        """Whether the file has nothing but the first `_size` bytes: not if it could not be created or truncated."""

    def append(self, key: int, value: int) -> None:
        """Buffer an entry. Keys never decrease. Many are written to the file together; if I/O fails, they stay in memory."""
        self.extend(encode_entry(key, value))

    def extend(self, entries: bytes) -> None:
        """Buffer encoded entries as `append` does."""
        self._pending += entries
        if len(self._pending) >= _BUFFERED_BYTES:
            with contextlib.suppress(OSError):
                self.flush()

    def flush(self) -> None:
        """Write buffered entries to the file. Raise `OSError` if I/O fails."""
        if not self._pending and self._is_made:
            return
        files, size = self._open_files.files, self._file_size()
        file = self._open_files.get(self.path, write=True, create=True)
        if not self._is_made:
            files.truncate(file.descriptor, size)
            self._is_made = True
        if self._pending:
            write_all(files, file.descriptor, bytes(self._pending), size)
        self._size = size + len(self._pending)
        self._pending = bytearray()

    def rewrite(self, entries: list[tuple[int, int]]) -> None:
        """Replace the whole content. What a full disk does not take stays in memory, as with `append`.

        Raise `OSError` if the file cannot be opened or truncated, which `flush` tries again.
        """
        data = b"".join(encode_entry(key, value) for key, value in entries)
        files = self._open_files.files
        self._pending, self._size, self._is_made = bytearray(data), 0, False
        file = self._open_files.get(self.path, write=True, create=True)
        try:
            overwrite(files, file.descriptor, data)
        except OSError as error:
            logger.warning("index entries not written yet: file=%s error=%s", self.path, error)
            files.truncate(file.descriptor, 0)
        else:
            self._pending, self._size = bytearray(), len(data)
        self._is_made = True

    def lookup(self, key: int, *, skip: int = 0) -> tuple[int, int] | None:
        """Return the last undamaged entry with a key <= `key`, or one before it. None if there is none or I/O fails.

        `skip`: number of entries to skip at the start.
        """
        pending = self._pending
        try:
            if pending:
                pending = pending[max(0, skip * ENTRY_BYTES - self._file_size()) :]
                if pending and _ENTRY.unpack_from(pending, 0)[0] <= key:
                    return _last_not_above(pending, key)
            if self._size == 0:
                return None
            return self._lookup_in_file(key, skip * ENTRY_BYTES)
        except OSError:
            return None

    def first(self) -> tuple[int, int] | None:
        """Return the first entry, None if missing or damaged."""
        return self._entry_at(0)

    def last(self) -> tuple[int, int] | None:
        """Return the last entry, None if missing or damaged."""
        if self._pending:
            return decode_entry(self._pending, len(self._pending) - ENTRY_BYTES)
        try:
            return self._entry_at(self._file_size() - ENTRY_BYTES)
        except OSError:
            return None

    def size_bytes(self) -> int:
        """Return the bytes of the file and the buffered entries."""
        return self._file_size() + len(self._pending)

    def _entry_at(self, position: int) -> tuple[int, int] | None:
        if position < 0:
            return None
        pending = self._pending  # before the size: another thread may write it to the file meanwhile
        try:
            behind = position - self._file_size()
            if behind >= 0:
                data = bytes(pending[behind : behind + ENTRY_BYTES])
            else:
                file = self._open_files.get(self.path)
                data = read_all(self._open_files.files, file.descriptor, ENTRY_BYTES, position)
        except OSError:
            return None
        return decode_entry(data, 0) if len(data) == ENTRY_BYTES else None

    def _lookup_in_file(self, key: int, skip: int) -> tuple[int, int] | None:
        files = self._open_files.files
        file = self._open_files.get(self.path)
        block = read_all(files, file.descriptor, _BLOCK_BYTES, 0)
        if len(block) == _BLOCK_BYTES and _ENTRY.unpack_from(block, _BLOCK_BYTES - ENTRY_BYTES)[0] <= key:
            low, high = 0, self._file_size()
            while high - low > _BLOCK_BYTES:
                middle = (low + high) // (2 * ENTRY_BYTES) * ENTRY_BYTES
                entry = read_all(files, file.descriptor, ENTRY_BYTES, middle)
                if len(entry) < ENTRY_BYTES:
                    return None
                if _ENTRY.unpack(entry)[0] <= key:
                    low = middle
                else:
                    high = middle
            block = read_all(files, file.descriptor, high - low, low)
            skip -= low
        return _last_not_above(block[skip:] if skip > 0 else block, key)

    def _file_size(self) -> int:
        """Return the bytes of complete entries in the file."""
        if self._size is None:
            try:
                file = self._open_files.get(self.path)
                size = self._open_files.files.size(file.descriptor)
            except FileNotFoundError:
                size = 0
            self._size = size - size % ENTRY_BYTES
        return self._size
