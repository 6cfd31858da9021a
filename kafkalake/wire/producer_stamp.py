"""Writes a producer's id, epoch and sequence number into an encoded batch: they may change until the batch is acknowledged."""

from __future__ import annotations

import struct

import numpy as np

from kafkalake.record.crc32c import checksum
from kafkalake.wire import batch_header as at

_PRODUCER = struct.Struct(">qhi")
_CRC = struct.Struct(">I")


def stamp_producer(batch: bytearray | memoryview, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Set the three fields of one record batch v2, and its checksum."""
    _PRODUCER.pack_into(batch, at.PRODUCER_ID, producer_id, producer_epoch, base_sequence)
    crc = int(checksum(np.frombuffer(batch, dtype=np.uint8), at.ATTRIBUTES, len(batch)))
    _CRC.pack_into(batch, at.CRC, crc)
