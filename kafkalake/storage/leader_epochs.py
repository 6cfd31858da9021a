"""`leader-epochs`: the start offset of each leader epoch, so that replicas and clients can find where two logs diverge.

A small file, replaced as a whole when an epoch begins, at most once per leader change: magic "KLLE", CRC32C of the rest
(uint32), then pairs of epoch int32 and start offset int64. Every batch header carries its epoch, so recovery adds epochs
missing in the file. Source: KIP-101.
"""

from __future__ import annotations

import struct
from bisect import bisect_right

from crc32c import crc32c

LEADER_EPOCHS_FILE = "leader-epochs"
UNDEFINED = -1
_PREFIX = struct.Struct("<4sI")
_PAIR = struct.Struct("<iq")
_MAGIC = b"KLLE"


class LeaderEpochs:
    """Leader epochs and their start offsets, both ascending."""

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LeaderEpochs) and self.entries() == other.entries()

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> LeaderEpochs:
        """Return a copy."""
        copied = LeaderEpochs()
        copied._epochs, copied._starts = list(self._epochs), list(self._starts)
        return copied

    def entries(self) -> list[tuple[int, int]]:
        """Return (epoch, start offset) pairs, oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        """The newest epoch, -1 for none."""
        return self._epochs[-1] if self._epochs else UNDEFINED

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Add `epoch` with its start offset. Return False if it is not newer than the latest one (or undefined)."""
        if epoch <= self.latest:
            return False
        while self._starts and self._starts[-1] >= start_offset:
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        return True

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset`, -1 if unknown."""
        following = bisect_right(self._starts, offset)
        return self._epochs[following - 1] if following else UNDEFINED

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest known epoch <= `epoch` and its end offset, where the next one begins.

        Return (-1, -1) if `epoch` is above all known ones. An epoch below all known ones ends where the first one begins.
        """
        if epoch == UNDEFINED or not self._epochs:
            return UNDEFINED, UNDEFINED
        if epoch == self.latest:
            return epoch, log_end_offset
        above = bisect_right(self._epochs, epoch)
        if above == len(self._epochs):
            return UNDEFINED, UNDEFINED
        return (self._epochs[above - 1] if above else epoch), self._starts[above]

    def truncate_start(self, offset: int) -> bool:
        """Remove epochs that ended at or before the log start `offset`. Return whether anything changed."""
        keep = max(0, bisect_right(self._starts, offset) - 1)
        changed = keep > 0
        del self._epochs[:keep], self._starts[:keep]
        if self._starts and self._starts[0] < offset:
            self._starts[0] = offset
            changed = True
        return changed

    def truncate_end(self, offset: int) -> bool:
        """Remove epochs that began at or above `offset`. Return whether anything changed."""
        changed = False
        while self._starts and self._starts[-1] >= offset:
            self._epochs.pop()
            self._starts.pop()
            changed = True
        return changed


def encode_leader_epochs(epochs: LeaderEpochs) -> bytes:
    """Return the file's bytes."""
    body = b"".join(_PAIR.pack(epoch, start) for epoch, start in epochs.entries())
    return _PREFIX.pack(_MAGIC, crc32c(body)) + body


def decode_leader_epochs(data: bytes) -> LeaderEpochs | None:
    """Return the epochs, None if the bytes are incomplete or damaged."""
    if len(data) < _PREFIX.size or (len(data) - _PREFIX.size) % _PAIR.size:
        return None
    magic, checksum = _PREFIX.unpack_from(data)
    if magic != _MAGIC or checksum != crc32c(data[_PREFIX.size :]):
        return None
    epochs = LeaderEpochs()
    for epoch, start in _PAIR.iter_unpack(data[_PREFIX.size :]):
        epochs.assign(epoch, start)
    return epochs
