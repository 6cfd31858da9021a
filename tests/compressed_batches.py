"""Record batches that are small on the wire and hold much: values of zeros, compressed with any of the codecs."""

from __future__ import annotations

import struct
import time

from contract.wire_client import varint
from crc32c import crc32c

from kafkalake.codecs import NUMBERS
from kafkalake.wire import compression


def zeros(count: int) -> bytes:
    """One encoded record with a value of `count` zero bytes."""
    body = b"\0" + varint(0) + varint(0) + varint(-1) + varint(count) + bytes(count) + varint(0)
    return varint(len(body)) + body


def compressed(codec: str, records: bytes, count: int = 1, *, sequence: int = -1, producer_id: int = -1) -> bytes:
    """A batch of `count` encoded records."""
    now = int(time.time() * 1000)
    number = NUMBERS[codec]
    epoch = 0 if producer_id >= 0 else -1
    body = struct.pack(">hiqqqhii", number, count - 1, now, now, producer_id, epoch, sequence, count)
    body += compression.compress(number, records)
    return struct.pack(">qiibI", 0, len(body) + 9, 0, 2, crc32c(body)) + body
