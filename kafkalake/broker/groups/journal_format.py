"""All record types of `__consumer_offsets`, for groups of both protocols."""

from __future__ import annotations

from typing import TypeAlias

from kafkalake.broker.coordination.journal import JournalRecord
from kafkalake.broker.coordination.journaled_coordinator import JournalFormat
from kafkalake.broker.groups import consumer_records, records
from kafkalake.broker.groups.consumer_records import ConsumerRecord
from kafkalake.broker.groups.records import GroupRecord, GroupTombstone, OffsetRecord

Record: TypeAlias = OffsetRecord | GroupRecord | GroupTombstone | ConsumerRecord

OFFSET_KEYS = (records.LEGACY_OFFSET_KEY, records.OFFSET_KEY)


def encode(record: Record) -> JournalRecord:
    """Return the record's key and value."""
    if isinstance(record, OffsetRecord | GroupRecord | GroupTombstone):
        return records.encode(record)
    return consumer_records.encode(record)


def decode(key: bytes, value: bytes | None) -> Record | None:
    """Return the decoded record, or None for an unused type. Raise `JournalFormatError` if it is malformed."""
    return records.decode(key, value) or consumer_records.decode(key, value)


def is_offset(key: bytes) -> bool:
    """Return whether this is the key of a committed offset. All other records are of groups."""
    return int.from_bytes(key[:2], "big") in OFFSET_KEYS


GROUP_FORMAT: JournalFormat[Record] = JournalFormat(encode, decode, is_offset, GroupTombstone(""))
"""Delta has the offsets. Group records are only in the journal."""
