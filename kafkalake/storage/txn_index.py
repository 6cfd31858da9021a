"""`.txnindex`: the aborted transactions with their marker in a segment. The file exists only if there are any.

Unlike the other indexes this is not a hint: a missing entry would expose an aborted record to a `read_committed` reader. So every
entry has its number and a checksum, and sealing adds a last entry with their count: a sealed index that lost any byte is rejected.

    producer id, first offset, last offset, last stable offset (int64 each), number of the entry (uint32, from 0), CRC32C
    of those 36 bytes

The last one, written at sealing, has producer id -1 and as its number the number of entries. Offsets are inclusive.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from kafkalake.errors import CorruptSegmentError
from kafkalake.record import layout as at
from kafkalake.record.arrays import Int64s
from kafkalake.storage.producer_state import AbortedTransaction

_BODY = struct.Struct("<qqqqI")
_ENTRY = struct.Struct("<qqqqII")
ENTRY_BYTES = _ENTRY.size
_SEAL = -1
_READ_ENTRIES = 100


def encode_aborted(aborted: AbortedTransaction, number: int) -> bytes:
    """Return the 40 bytes of an entry."""
    body = _BODY.pack(*aborted, number)
    return body + crc32c(body).to_bytes(4, "little")


def encode_seal(entries: int) -> bytes:
    """Return the entry that ends a sealed index."""
    return encode_aborted(AbortedTransaction(_SEAL, 0, 0, 0), entries)


def in_aborted(headers: Int64s, aborted: Iterable[tuple[int, int, int]]) -> npt.NDArray[np.bool_]:
    """Return bool[B]: the batches in one of the transactions (producer id, first offset, last offset)."""
    base, producer = headers[:, at.BASE_OFFSET], headers[:, at.PRODUCER_ID]
    found = np.zeros(len(headers), dtype=bool)
    for producer_id, first, last in aborted:
        found |= (producer == producer_id) & (base >= first) & (base <= last)
    found &= (headers[:, at.ATTRIBUTES] & at.ATTRIBUTE_TRANSACTIONAL) != 0
    return found


def decode_aborted(data: bytes, path: str, *, sealed: bool) -> list[AbortedTransaction]:
    """Return all entries. An active index may end in a torn entry, a sealed one must end in its seal.

    Raise `CorruptSegmentError` with `path` and the position on damage.
    """
    whole = len(data) - len(data) % ENTRY_BYTES
    entries: list[AbortedTransaction] = []
    for entry in _decode(data[:whole], 0, path):
        if entry.producer_id == _SEAL:
            if (len(entries) + 1) * ENTRY_BYTES != len(data):
                raise _trailing(path, (len(entries) + 1) * ENTRY_BYTES)
            return entries
        entries.append(entry)
    if sealed:
        raise _cut_short(path, len(data))
    return entries


def read_aborted(
    read: Callable[[int, int], bytes], size: int, from_offset: int, path: str, *, sealed: bool
) -> Iterator[AbortedTransaction]:
    """Yield the entries of an index of `size` bytes whose last offset is at or above `from_offset`, as they are asked for.

    read: returns a number of bytes from a position. Markers, and so the last offsets, are in order: the first entry is found in as
    many steps as the number of entries has bits. Raise as `decode_aborted`, of what is read.
    """

    def entries(number: int, count: int) -> Iterator[AbortedTransaction]:
        data = read(number * ENTRY_BYTES, count * ENTRY_BYTES)
        if len(data) < count * ENTRY_BYTES:
            raise _cut_short(path, number * ENTRY_BYTES + len(data))
        return _decode(data, number, path)

    count, torn = divmod(size, ENTRY_BYTES)
    if count and next(entries(count - 1, 1)).producer_id == _SEAL:
        count -= 1
    elif sealed:
        raise _cut_short(path, size)
    if sealed and torn:
        raise _trailing(path, size - torn)
    begin = bisect_left(range(count), from_offset, key=lambda number: next(entries(number, 1)).last_offset)
    for number in range(begin, count, _READ_ENTRIES):
        yield from entries(number, min(_READ_ENTRIES, count - number))


def _decode(data: bytes, number: int, path: str) -> Iterator[AbortedTransaction]:
    """Yield whole entries, the first of which is to have that number. Raise `CorruptSegmentError` at one that is damaged."""
    begin = number * ENTRY_BYTES
    for position, (*fields, found, checksum) in zip(
        range(0, len(data), ENTRY_BYTES), _ENTRY.iter_unpack(data), strict=True
    ):
        if checksum != crc32c(data[position : position + _BODY.size]) or found != number:
            raise CorruptSegmentError(path, begin + position, "the checksum of an aborted transaction does not match")
        yield AbortedTransaction(*fields)
        number += 1


def _cut_short(path: str, size: int) -> CorruptSegmentError:
    return CorruptSegmentError(path, size, "the index of aborted transactions is cut short")


def _trailing(path: str, position: int) -> CorruptSegmentError:
    return CorruptSegmentError(path, position, "there are bytes after the last entry")
