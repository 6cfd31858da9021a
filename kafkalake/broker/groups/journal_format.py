"""All record types of `__consumer_offsets`, whichever protocol a group has: what is written and what is read again."""

from __future__ import annotations

from typing import TypeAlias

from kafkalake.broker.coordination.journal import JournalRecord
from kafkalake.broker.groups import consumer_records, records
from kafkalake.broker.groups.consumer_records import ConsumerRecord
from kafkalake.broker.groups.records import GroupRecord, GroupTombstone, OffsetRecord

Record: TypeAlias = OffsetRecord | GroupRecord | GroupTombstone | ConsumerRecord

OFFSET_KEYS = (records.LEGACY_OFFSET_KEY, records.OFFSET_KEY)


def encode(record: Record) -> JournalRecord:
    """The record's key and value."""
    if isinstance(record, OffsetRecord | GroupRecord | GroupTombstone):
        return records.encode(record)
    return consumer_records.encode(record)


def decode(key: bytes, value: bytes | None) -> Record | None:
    """The record that a key and value say; None for a type we do not keep. Raises `JournalFormatError`."""
    return records.decode(key, value) or consumer_records.decode(key, value)


def is_offset(key: bytes) -> bool:
    """Whether this is the key of a committed offset; all other records are of groups."""
    return int.from_bytes(key[:2], "big") in OFFSET_KEYS
