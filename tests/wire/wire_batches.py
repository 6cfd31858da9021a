"""What the tests of `wire` share: rows drawn by hypothesis, batches with a chosen header, batches as the log stores them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from crc32c import crc32c
from hypothesis import strategies as st
from record_batches import Row

from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.message_set import OK, MessageSet, scan
from kafkalake.storage.message_writer import write_message

TIMESTAMPS_MS = st.integers(-1, 2**52)
OPTIONAL_BYTES = st.none() | st.binary(max_size=200)
HEADER_KEYS = st.text(max_size=20).filter(lambda key: not any(ord(each) >= 0x10FF80 for each in key))
HEADERS = st.lists(st.tuples(HEADER_KEYS, OPTIONAL_BYTES), max_size=4)
ROWS: st.SearchStrategy[list[Row]] = st.lists(
    st.tuples(TIMESTAMPS_MS, OPTIONAL_BYTES, OPTIONAL_BYTES, HEADERS), min_size=1, max_size=30
)

HEADER = struct.Struct(">qiibIhiqqqhii")
"""base offset, batch length, leader epoch, magic, CRC, attributes, last offset delta, base and max timestamp, producer id, producer
epoch, base sequence, number of records."""


def varint(value: int) -> bytes:
    """Zigzag varint, written down from the specification."""
    raw = 2 * value if value >= 0 else -2 * value - 1
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def record(
    delta: int = 0, key: bytes | None = None, value: bytes | None = b"v", headers: bytes = b"\0", timestamp: int = 0
) -> bytes:
    """One record; `headers` are raw bytes, their count included."""
    content = b"\0" + varint(timestamp) + varint(delta)
    for part in (key, value):
        content += varint(-1) if part is None else varint(len(part)) + part
    content += headers
    return varint(len(content)) + content


def raw_batch(
    records: bytes,
    count: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    magic: int = 2,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int = 1_000,
    max_timestamp: int = 1_000,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    claimed: int | None = None,
) -> bytes:
    """A batch with a right length and checksum around `records`."""
    after_crc = struct.pack(
        ">hiqqqhii",
        attributes,
        count - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count if claimed is None else claimed,
    )
    crc = crc32c(after_crc + records)
    length = 9 + len(after_crc) + len(records)
    return struct.pack(">qiibI", base_offset, length, leader_epoch, magic, crc) + after_crc + records


def with_right_checksum(batch: bytes) -> bytes:
    """The batch with its checksum and length made to fit."""
    return (
        batch[:8]
        + struct.pack(">i", len(batch) - 12)
        + batch[12:17]
        + struct.pack(">I", crc32c(batch[21:]))
        + batch[21:]
    )


def stored(*messages: Sequence[ProducerBatch], first_offset: int = 0, leader_epoch: int = 0) -> MessageSet:
    """Batches as a log holds them: each sequence one Arrow message, offsets assigned from `first_offset`, written and scanned."""
    data = b""
    offset = first_offset
    for batches in messages:
        for batch in batches:
            batch.header[at.BASE_OFFSET], batch.header[at.LEADER_EPOCH] = offset, leader_epoch
            offset += batch.offsets
        data += b"".join(write_message(batches, at.NO_CODEC).parts)
    found = scan(np.frombuffer(data, dtype=np.uint8), 0, len(data))
    assert found.status == OK
    return found.messages
