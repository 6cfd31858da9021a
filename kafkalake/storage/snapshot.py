"""`<offset>.snapshot`: the producers as of log end `offset`, so that recovery replays only later batches.

Written when a segment is rolled and when the log is closed. The last two are kept. A damaged one is ignored: the previous
one, or a replay from the log's start, gives the same result.

    magic "KLP2", CRC32C of the rest (uint32), then offset int64, max timestamp int64 and the base offset of its batch
    int64, number of producers, of ended transactions (uint32 each); a producer: id int64, epoch int16, coordinator epoch
    int32, transaction offset int64, last append ms int64, batches uint8; a batch: 2 int32s, 3 int64s and a flag uint8 (without it
    where the magic is "KLPS"); an ended transaction: 2 int64s
"""

from __future__ import annotations

import contextlib
import struct
from dataclasses import dataclass

from crc32c import crc32c

from kafkalake.storage.files import Files, replace_file
from kafkalake.storage.producer_state import Producers, ProducerStateEntry, SequencedBatch

SNAPSHOT_SUFFIX = ".snapshot"
_KEPT = 2
_PREFIX = struct.Struct("<4sI")
_HEAD = struct.Struct("<qqqII")
_PRODUCER = struct.Struct("<qhiqqB")
_BATCH = struct.Struct("<iiqqq?")
_ENDED = struct.Struct("<qq")
_MAGIC = b"KLP2"
_BATCHES = {_MAGIC: _BATCH, b"KLPS": struct.Struct("<iiqqq")}
"""The form of a batch by the magic."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The producers at `offset`, and the largest timestamp so far (ms, -1: none) with the base offset of its batch."""

    offset: int
    producers: Producers
    max_timestamp: int = -1
    max_timestamp_offset: int = -1


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return the bytes of a snapshot file."""
    entries = sorted(snapshot.producers.items(), key=lambda item: item[1].transaction_offset)
    ended = snapshot.producers.ended_transactions()
    parts = [
        _HEAD.pack(snapshot.offset, snapshot.max_timestamp, snapshot.max_timestamp_offset, len(entries), len(ended))
    ]
    for producer_id, producer in entries:
        epoch, coordinator, batches, transaction, last = producer
        parts.append(_PRODUCER.pack(producer_id, epoch, coordinator, transaction, last, len(batches)))
        parts.extend(_BATCH.pack(*batch) for batch in batches)
    parts.extend(_ENDED.pack(*pair) for pair in ended)
    body = b"".join(parts)
    return _PREFIX.pack(_MAGIC, crc32c(body)) + body


def decode_snapshot(data: bytes) -> Snapshot | None:
    """Return the snapshot, None if the bytes are incomplete or damaged."""
    if len(data) < _PREFIX.size + _HEAD.size:
        return None
    magic, checksum = _PREFIX.unpack_from(data)
    form = _BATCHES.get(magic)
    if form is None or checksum != crc32c(data[_PREFIX.size :]):
        return None
    producers = Producers()
    position = _PREFIX.size
    offset, max_timestamp, max_timestamp_offset, count, ended = _HEAD.unpack_from(data, position)
    position += _HEAD.size
    for _ in range(count):
        producer_id, epoch, coordinator, transaction, last, size = _PRODUCER.unpack_from(data, position)
        position += _PRODUCER.size
        batches = []
        for _ in range(size):
            batches.append(SequencedBatch(*form.unpack_from(data, position)))
            position += form.size
        producers.restore(producer_id, ProducerStateEntry(epoch, coordinator, tuple(batches), transaction, last))
    for _ in range(ended):
        producers.restore_ended(*_ENDED.unpack_from(data, position))
        position += _ENDED.size
    return Snapshot(offset, producers, max_timestamp, max_timestamp_offset)


def snapshot_path(directory: str, offset: int) -> str:
    """Return the path in `directory`: 20 digits and the suffix."""
    return f"{directory}/{offset:020d}{SNAPSHOT_SUFFIX}"


class Snapshots:
    """The snapshot files of one log. `offsets`: of the existing files, ascending."""

    def __init__(self, directory: str, files: Files, offsets: list[int]) -> None:
        self.offsets = offsets
        self._directory = directory
        self._files = files

    def save(self, snapshot: Snapshot) -> None:
        """Write a snapshot and keep only one older one, the newest. Raise `OSError` if I/O fails."""
        replace_file(
            self._files, snapshot_path(self._directory, snapshot.offset), encode_snapshot(snapshot), sync=False
        )
        if snapshot.offset not in self.offsets:
            self.offsets.append(snapshot.offset)
        with contextlib.suppress(OSError):  # one that stays is removed with the next snapshot
            while len(self.offsets) > _KEPT:
                self._remove(0)

    def remove_above(self, offset: int) -> None:
        """Remove snapshots above `offset`, invalid after a truncation or a loss. Raise `OSError` if I/O fails."""
        if self.offsets and self.offsets[-1] > offset:
            while self.offsets and self.offsets[-1] > offset:
                self._remove(-1)
            self._files.sync_directory(self._directory)  # a crash must not bring one back after the log grew past it

    def _remove(self, number: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(snapshot_path(self._directory, self.offsets[number]))
        del self.offsets[number]
