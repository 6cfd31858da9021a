"""The byte layout of one Arrow message of a segment, fixed to the position.

A message is an encapsulated Arrow IPC message: `FF FF FF FF`, the metadata's length (int32), a flatbuffer, the body. The
flatbuffer's tables are in a fixed order, so a writer only patches numbers into a template and a reader needs no
flatbuffer library. For pyarrow, DuckDB and Polars it is an ordinary record batch. Positions count from the message's first byte:

      0  continuation marker, metadata length M (flatbuffer and padding, without these 8 bytes)
      8  flatbuffer: root offset, vtable and table of `Message` (body length, header, custom metadata, version, type)
     72  `RecordBatch`: number of rows; nodes at 112 (8 x 16 bytes), buffers at 248 (19 x 16 bytes)
    552  custom metadata: one pair, key `kafkalake`, its value at the end
    600  value: 8 hex digits, CRC32C of bytes [0, 600) and [608, 8 + M)
    608  value, base64 of a table: CRC32C of each of the 5 columns, codec, number of batches, then 60 bytes per batch
  8 + M  body: 19 buffers in schema order, each on an 8-byte boundary

So every byte is under a checksum: the metadata under its own, the body per column, including padding. A reader of some
columns reads and checks only those. Source: Arrow columnar format, "Encapsulated message format"; flatbuffers internals.
"""

from __future__ import annotations

import struct

import numpy as np

COLUMNS = 5
ALL_COLUMNS = (1 << COLUMNS) - 1
"""The bit mask of all columns: bit c is field c of `SCHEMA`."""
OFFSET_COLUMN, TIMESTAMP_COLUMN, KEY_COLUMN, VALUE_COLUMN, HEADERS_COLUMN = (1 << column for column in range(COLUMNS))
BUFFERS = 19
NODES = 8

COLUMN_FIRST_BUFFER = np.array([0, 2, 4, 7, 10, BUFFERS], dtype=np.int64)
"""Column c owns buffers `[COLUMN_FIRST_BUFFER[c], COLUMN_FIRST_BUFFER[c + 1])`: offset, timestamp, key, value, headers."""

# Buffer indexes by content. Validity buffers precede the others. Length 0 means no nulls.
OFFSET_DATA = 1
TIMESTAMP_DATA = 3
KEY_VALIDITY, KEY_OFFSETS, KEY_DATA = 4, 5, 6
VALUE_VALIDITY, VALUE_OFFSETS, VALUE_DATA = 7, 8, 9
HEADERS_OFFSETS = 11
HEADER_KEY_OFFSETS, HEADER_KEY_DATA = 14, 15
HEADER_VALUE_VALIDITY, HEADER_VALUE_OFFSETS, HEADER_VALUE_DATA = 16, 17, 18

# `layout`: int64[LAYOUT_SIZE], row and null counts of a body and the positions of its buffers.
ROWS, HEADER_ROWS, KEY_NULLS, VALUE_NULLS, HEADER_VALUE_NULLS, FIRST_BUFFER = 0, 1, 2, 3, 4, 5
LAYOUT_SIZE = FIRST_BUFFER + 2 * BUFFERS

BATCH_HEADER = np.dtype(
    [
        ("base_offset", "<i8"),
        ("last_offset_delta", "<i4"),
        ("leader_epoch", "<i4"),
        ("producer_id", "<i8"),
        ("producer_epoch", "<i2"),
        ("attributes", "<i2"),
        ("base_sequence", "<i4"),
        ("base_timestamp", "<i8"),
        ("max_timestamp", "<i8"),
        ("records", "<i4"),
        ("control_type", "<i2"),
        ("flags", "<i2"),
        ("coordinator_epoch", "<i4"),
    ]
)
"""One producer batch (60 bytes): the header of Kafka's record batch v2, without the fields already in Arrow.

`records` is the number of rows in the message (after compaction fewer than its offsets, 0 for a control batch).
`control_type` is -1, or 0 (abort) or 1 (commit) with the transaction coordinator's epoch, or LOST_RECORDS for an empty batch over
offsets that were assigned and whose records a power failure lost. `flags`: 0, or SPLIT. Timestamps are ms since 1970.
"""
BATCH_HEADER_BYTES = BATCH_HEADER.itemsize
assert BATCH_HEADER_BYTES == 60

# In memory a batch header is int64[HEADER_FIELDS], with the fields of BATCH_HEADER in order.
HEADER_FIELDS = len(BATCH_HEADER.names or ())
(
    BASE_OFFSET,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    PRODUCER_ID,
    PRODUCER_EPOCH,
    ATTRIBUTES,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    RECORDS,
    CONTROL_TYPE,
    FLAGS,
    COORDINATOR_EPOCH,
) = range(HEADER_FIELDS)

LOST_RECORDS = -2
"""The control type of a batch that marks lost records. It has no control bit: for Kafka's clients it is an empty batch."""

SPLIT = 1
"""The flag of a batch some of whose records were to be delivered later when it was appended: it has the others only."""

# Attributes of a batch, as in record batch v2.
ATTRIBUTE_COMPRESSION_MASK = 0x07
ATTRIBUTE_LOG_APPEND_TIME = 0x08
ATTRIBUTE_TRANSACTIONAL = 0x10
ATTRIBUTE_CONTROL = 0x20

# Positions in a message.
METADATA_LENGTH = 4
BODY_LENGTH = 8 + 24
MESSAGE_ROWS = 8 + 64
COMPRESSION_SLOT = 8 + 54
CODEC = 8 + 96
NODE_START = 8 + 104
BUFFER_START = 8 + 240
VALUE_LENGTH = 8 + 588
VALUE = 8 + 592
METADATA_CRC_END = VALUE + 8
TABLE_FIXED_BYTES = 30
"""The table before its batches: 5 column checksums (uint32), codec (int16: -1 none, 0 lz4, 1 zstd), batches (int32), 4 spare."""
TABLE = VALUE + 8
FIRST_HEADER = TABLE + 40
HEADER_CHARACTERS = 80
MAXIMUM_BATCHES = 65_536
"""The maximum number of batches in one message. Bounds the metadata, and a reader's allocation for it, at 5.3 MB."""
NO_CODEC, LZ4, ZSTD = -1, 0, 1


def _template() -> bytes:
    """Return the 8-byte prefix and the flatbuffer up to the value (592 bytes), with zeros for the patched numbers."""
    flat = bytearray(592)
    put = struct.pack_into
    put("<I", flat, 0, 20)  # root -> Message table
    put("<7H", flat, 4, 14, 24, 20, 22, 12, 4, 16)  # vtable: version, type, header, body length, custom metadata
    put("<i", flat, 20, 20 - 4)  # Message table -> its vtable
    put("<I", flat, 32, 60 - 32)  # header -> RecordBatch
    put("<I", flat, 36, 544 - 36)  # custom metadata -> vector
    put("<hB", flat, 40, 4, 3)  # MetadataVersion.V5, MessageHeader.RecordBatch
    put("<6H", flat, 44, 12, 24, 4, 12, 16, 0)  # vtable: length, nodes, buffers, compression (0: absent)
    put("<i", flat, 60, 60 - 44)
    put("<I", flat, 72, 100 - 72)  # nodes -> vector
    put("<I", flat, 76, 236 - 76)  # buffers -> vector
    put("<I", flat, 80, 92 - 80)  # compression -> BodyCompression, seen only if the vtable names it
    put("<4H", flat, 84, 8, 8, 4, 5)  # vtable: codec, method
    put("<i", flat, 92, 92 - 84)
    put("<I", flat, 100, NODES)
    put("<I", flat, 236, BUFFERS)
    put("<I", flat, 544, 1)  # one pair
    put("<I", flat, 548, 560 - 548)
    put("<4H", flat, 552, 8, 12, 4, 8)  # KeyValue vtable: key, value
    put("<i", flat, 560, 560 - 552)
    put("<I", flat, 564, 572 - 564)
    put("<I", flat, 568, 588 - 568)
    put("<I9s", flat, 572, 9, b"kafkalake")
    return b"\xff\xff\xff\xff\x00\x00\x00\x00" + bytes(flat)


TEMPLATE = np.frombuffer(_template(), dtype=np.uint8)
COMPRESSION_SLOT_VALUE = 20
"""The vtable's entry for `RecordBatch.compression` if the body is compressed (otherwise 0)."""
