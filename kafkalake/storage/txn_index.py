"""`.txnindex`: the aborted transactions with their marker in a segment. The file exists only if there are any.

Unlike the other indexes this is not a hint: a missing entry would expose an aborted record to a `read_committed` reader. So every
entry has its number and a checksum, and sealing adds a last entry with their count: a sealed index that lost any byte is rejected.

    producer id, first offset, last offset, last stable offset (int64 each), number of the entry (uint32, from 0), CRC32C
    of those 36 bytes

The last one, written at sealing, has producer id -1 and as its number the number of entries. Offsets are inclusive.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from kafkalake.errors import CorruptSegmentError
from kafkalake.record import layout as at
from kafkalake.record.arrays import Int64s
from kafkalake.storage.producer_state import AbortedTransaction

_ENTRY = struct.Struct("<qqqqI")
ENTRY_BYTES = _ENTRY.size + 4
_SEAL = -1


def encode_aborted(aborted: AbortedTransaction, number: int) -> bytes:
    """Return the 40 bytes of an entry."""
    body = _ENTRY.pack(*aborted, number)
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
    entries: list[AbortedTransaction] = []
    for position in range(0, len(data) - len(data) % ENTRY_BYTES, ENTRY_BYTES):
        body = data[position : position + _ENTRY.size]
        checksum = int.from_bytes(data[position + _ENTRY.size : position + ENTRY_BYTES], "little")
        *fields, number = _ENTRY.unpack(body)
        if checksum != crc32c(body) or number != len(entries):
            raise CorruptSegmentError(path, position, "the checksum of an aborted transaction does not match")
        if fields[0] == _SEAL:
            if position + ENTRY_BYTES != len(data):
                raise CorruptSegmentError(path, position + ENTRY_BYTES, "there are bytes after the last entry")
            return entries
        entries.append(AbortedTransaction(*fields))
    if sealed:
        raise CorruptSegmentError(path, len(data), "the index of aborted transactions is cut short")
    return entries
