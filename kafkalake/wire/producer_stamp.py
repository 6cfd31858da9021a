"""Writes a producer's id, epoch and sequence number into an encoded batch: they may change until the batch is acknowledged.

The checksum is brought up to date from what changes. The records, of which most have left the processor's caches since they were
encoded, are not read again: that took four times as long as when they were there.
"""

from __future__ import annotations

import struct

import numpy as np

from kafkalake.record.crc32c import checksum_change
from kafkalake.wire import batch_header as at

_PRODUCER = struct.Struct(">qhi")
_CRC = struct.Struct(">I")
_END = at.PRODUCER_ID + _PRODUCER.size


def stamp_producer(batch: bytearray | memoryview, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Set the three fields of one record batch v2, or batch of columns, that has a checksum."""
    before = int.from_bytes(batch[at.PRODUCER_ID : _END], "big")
    stamp = _PRODUCER.pack(producer_id, producer_epoch, base_sequence)
    change = before ^ int.from_bytes(stamp, "big")
    if change:
        batch[at.PRODUCER_ID : _END] = stamp
        changed = np.frombuffer(change.to_bytes(_PRODUCER.size, "big"), dtype=np.uint8)
        (crc,) = _CRC.unpack_from(batch, at.CRC)
        _CRC.pack_into(batch, at.CRC, crc ^ int(checksum_change(changed, len(batch) - _END)))
