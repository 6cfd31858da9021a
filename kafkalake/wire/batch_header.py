"""The header of a record batch v2: field positions and limits.

      0  base offset int64           21  attributes int16             43  producer id int64
      8  batch length int32          23  last offset delta int32      51  producer epoch int16
     12  leader epoch int32          27  base timestamp int64         53  base sequence int32
     16  magic int8 (2)              35  max timestamp int64          57  number of records int32
     17  CRC32C of [21, end) uint32                                   61  records

Batch length counts from byte 12. Base offset and leader epoch are outside of the checksum, so that a broker can set
them without reading the records. Source: Kafka's message format, "Record Batch"; KIP-98.
"""

from __future__ import annotations

BATCH_LENGTH = 8
PARTITION_LEADER_EPOCH = 12
MAGIC = 16
CRC = 17
ATTRIBUTES = 21
LAST_OFFSET_DELTA = 23
BASE_TIMESTAMP = 27
MAX_TIMESTAMP = 35
PRODUCER_ID = 43
PRODUCER_EPOCH = 51
BASE_SEQUENCE = 53
RECORD_COUNT = 57
RECORDS = 61
"""Position of the first record, which is also the size of the header."""

BEFORE_BATCH_LENGTH = 12
"""Bytes not counted by the field `batch length`."""

MAGIC_2 = 2
MAGIC_COLUMNS = 100
"""Columns follow instead of records: `column_batch`. A broker that does not know a magic refuses the batch."""
NO_PRODUCER_ID = -1

SMALLEST_RECORD = 7
"""Bytes of a record with null key, null value and no headers: length, attributes, two deltas, two lengths, header count."""
CONTROL_KEY_BYTES = 4
CONTROL_VALUE_BYTES = 6
ABORT, COMMIT = 0, 1
