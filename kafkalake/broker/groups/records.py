"""Offsets and classic groups as records of `__consumer_offsets`, in Kafka's own formats.

Kafka's tools that read the topic (`kafka-dump-log --offsets-decoder`, the offsets formatter of the console consumer) work here.
A key begins with an int16 type: 0 and 1 a committed offset, 2 a classic group. A value begins with its format version. Offsets
are written in version 4, groups in version 3, as by Kafka 4.1. All versions are read. Types of other features (and of later
Kafka versions) are skipped. Source: OffsetCommitKey/Value.json and GroupMetadataKey/Value.json of Kafka 4.1.1.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from typing import TypeAlias

from kafkalake.broker.coordination.fields import (
    FieldReader,
    JournalFormatError,
    compact_string,
    nullable_string,
    sized_bytes,
    string,
    tagged,
)
from kafkalake.broker.coordination.journal import JournalRecord

LEGACY_OFFSET_KEY, OFFSET_KEY, GROUP_KEY = 0, 1, 2

NO_TIMESTAMP = -1
NO_EPOCH = -1

_OFFSET_VALUE = 4
_EXPIRING_OFFSET_VALUE = 1
_GROUP_VALUE = 3
_TOPIC_ID_TAG = 0
_NO_TAGS = tagged({})
_TOPIC_ID_TAGS = tagged({_TOPIC_ID_TAG: bytes(16)})[:-16]

_KEY_TYPE = struct.Struct(">h")
_OFFSET_HEAD = struct.Struct(">hqi")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_METADATA_AT = _OFFSET_HEAD.size
_OFFSET_KEY_BYTES_MIN = 2 + 2 + 2 + 4
_OFFSET_VALUE_BYTES_MIN = _METADATA_AT + 1 + 8 + 1
_TWO_INT16 = struct.Struct(">hh")
_TWO_INT32 = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset. `expires_at_ms` is an old client's own expiry (-1: the broker's retention applies)."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    committed_at_ms: int = NO_TIMESTAMP
    expires_at_ms: int = NO_TIMESTAMP
    topic_id: uuid.UUID | None = None


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """A group's offset of a partition, or None if it was deleted."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset | None


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A member of a stable generation: its metadata for the chosen protocol and its assignment."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A classic group as of its last generation. It is empty if it has no members."""

    group_id: str
    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    state_since_ms: int
    members: tuple[MemberRecord, ...]


@dataclass(frozen=True, slots=True)
class GroupTombstone:
    """The deletion of a classic group."""

    group_id: str


Record: TypeAlias = OffsetRecord | GroupRecord | GroupTombstone


def encode(record: Record) -> JournalRecord:
    """Return the record's key and value."""
    if isinstance(record, OffsetRecord):
        return JournalRecord(
            offset_key(record.group_id, record.topic, record.partition), _offset_value(record.committed)
        )
    key = _KEY_TYPE.pack(GROUP_KEY) + string(record.group_id)
    return JournalRecord(key, None if isinstance(record, GroupTombstone) else _group_value(record))


def decode(key: bytes, value: bytes | None) -> Record | None:
    """Return the decoded record, or None for an unused type. Raise `JournalFormatError` if it is malformed."""
    if value is not None and (record := _decode_plain_offset(key, value)) is not None:
        return record
    reader = FieldReader(key)
    kind = reader.int16()
    if kind in (LEGACY_OFFSET_KEY, OFFSET_KEY):
        group_id, topic, partition = reader.string(), reader.string(), reader.int32()
        reader.end()
        return OffsetRecord(group_id, topic, partition, None if value is None else _read_offset(FieldReader(value)))
    if kind == GROUP_KEY:
        group_id = reader.string()
        reader.end()
        return GroupTombstone(group_id) if value is None else _read_group(group_id, FieldReader(value))
    return None


def _decode_plain_offset(key: bytes, value: bytes) -> OffsetRecord | None:
    """Decode the common case (an offset without topic id, with short metadata) at a third of the cost, else return None.

    Loading reads very many of them. Everything unusual or malformed is left to the field reader.
    """
    if len(key) < _OFFSET_KEY_BYTES_MIN or len(value) < _OFFSET_VALUE_BYTES_MIN or value[_METADATA_AT] > 0x7F:
        return None
    kind, length = _TWO_INT16.unpack_from(key)
    topic_at = 4 + length
    partition_at = len(key) - 4
    committed_at = _METADATA_AT + value[_METADATA_AT]
    version, offset, leader_epoch = _OFFSET_HEAD.unpack_from(value)
    if (
        kind != OFFSET_KEY
        or version != _OFFSET_VALUE
        or length < 0
        or topic_at + 2 > partition_at
        or topic_at + 2 + (key[topic_at] << 8 | key[topic_at + 1]) != partition_at
        or value[_METADATA_AT] == 0
        or len(value) != committed_at + 9
        or value[-1] != 0
    ):
        return None
    try:
        group_id, topic = key[4:topic_at].decode(), key[topic_at + 2 : partition_at].decode()
        metadata = value[_METADATA_AT + 1 : committed_at].decode()
    except UnicodeDecodeError:
        return None
    (partition,) = _INT32.unpack_from(key, partition_at)
    (committed_at_ms,) = _INT64.unpack_from(value, committed_at)
    return OffsetRecord(group_id, topic, partition, CommittedOffset(offset, leader_epoch, metadata, committed_at_ms))


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Return the key of a committed offset."""
    return _KEY_TYPE.pack(OFFSET_KEY) + string(group_id) + string(topic) + _INT32.pack(partition)


def _offset_value(committed: CommittedOffset | None) -> bytes | None:
    if committed is None:
        return None
    if committed.expires_at_ms != NO_TIMESTAMP:
        # Only version 1 has a custom expiry. It has no leader epoch.
        return (
            _KEY_TYPE.pack(_EXPIRING_OFFSET_VALUE)
            + _INT64.pack(committed.offset)
            + string(committed.metadata)
            + _INT64.pack(committed.committed_at_ms)
            + _INT64.pack(committed.expires_at_ms)
        )
    tags = _NO_TAGS if committed.topic_id is None else _TOPIC_ID_TAGS + committed.topic_id.bytes
    return (
        _OFFSET_HEAD.pack(_OFFSET_VALUE, committed.offset, committed.leader_epoch)
        + compact_string(committed.metadata)
        + _INT64.pack(committed.committed_at_ms)
        + tags
    )


def _read_offset(reader: FieldReader) -> CommittedOffset:
    version = _version(reader, _OFFSET_VALUE)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else NO_EPOCH
    metadata = reader.compact_string() if version >= 4 else reader.string()
    committed_at_ms = reader.int64()
    expires_at_ms = reader.int64() if version == 1 else NO_TIMESTAMP
    topic_id = None
    if version >= 4:
        data = reader.tagged().get(_TOPIC_ID_TAG)
        topic_id = None if data is None else FieldReader(data).uuid()
    reader.end()
    return CommittedOffset(offset, leader_epoch, metadata, committed_at_ms, expires_at_ms, topic_id)


def _group_value(group: GroupRecord) -> bytes:
    parts = [
        _KEY_TYPE.pack(_GROUP_VALUE),
        string(group.protocol_type),
        _INT32.pack(group.generation_id),
        nullable_string(group.protocol_name),
        nullable_string(group.leader),
        _INT64.pack(group.state_since_ms),
        _INT32.pack(len(group.members)),
    ]
    for member in group.members:
        parts += [
            string(member.member_id),
            nullable_string(member.group_instance_id),
            string(member.client_id),
            string(member.client_host),
            _TWO_INT32.pack(member.rebalance_timeout_ms, member.session_timeout_ms),
            sized_bytes(member.subscription),
            sized_bytes(member.assignment),
        ]
    return b"".join(parts)


def _read_group(group_id: str, reader: FieldReader) -> GroupRecord:
    version = _version(reader, 4)
    flexible = version >= 4
    text = reader.compact_string if flexible else reader.string
    nullable_text = reader.compact_nullable_string if flexible else reader.nullable_string
    protocol_type = text()
    generation_id = reader.int32()
    protocol_name, leader = nullable_text(), nullable_text()
    state_since_ms = reader.int64() if version >= 2 else NO_TIMESTAMP
    count = reader.compact_count() if flexible else reader.count()
    members = tuple(_read_member(reader, version) for _ in range(count))
    if flexible:
        reader.tagged()
    reader.end()
    return GroupRecord(group_id, protocol_type, generation_id, protocol_name, leader, state_since_ms, members)


def _read_member(reader: FieldReader, version: int) -> MemberRecord:
    flexible = version >= 4
    text = reader.compact_string if flexible else reader.string
    data = reader.compact_bytes if flexible else reader.sized_bytes
    member_id = text()
    group_instance_id = None
    if version >= 3:
        group_instance_id = reader.compact_nullable_string() if flexible else reader.nullable_string()
    client_id, client_host = text(), text()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription, assignment = data(), data()
    if flexible:
        reader.tagged()
    return MemberRecord(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        # Version 0 had no separate rebalance timeout.
        session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )


def _version(reader: FieldReader, newest: int) -> int:
    version = reader.int16()
    if not 0 <= version <= newest:
        raise JournalFormatError(f"value of version {version}; the newest known is {newest}")
    return version
