"""The state of a consumer protocol group (KIP-848) as records of `__consumer_offsets`, in Kafka's own formats.

A key begins with an int16 type: 3 the group's epoch, 5 a member and its subscription, 6 the epoch of the target assignment, 7 a
member's target assignment, 8 a member's current assignment. Type 4 (topic metadata) is skipped: Kafka 4.1 and this broker write a
hash beside the epoch instead. Type 16 (topics matched by a regular expression) is skipped too, because they are matched again.
Every value is version 0, flexible. `value` None in these records is a tombstone.
Source: ConsumerGroup*Key/Value.json of Kafka 4.1.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from kafkalake.broker.coordination.fields import (
    FieldReader,
    JournalFormatError,
    compact_bytes,
    compact_nullable_string,
    compact_string,
    string,
    tagged,
    unsigned_varint,
)
from kafkalake.broker.coordination.journal import JournalRecord
from kafkalake.broker.groups.assignors import NOTHING, Assignment
from kafkalake.topic_partition import PartitionId, by_topic

EPOCH_KEY, MEMBER_KEY, TARGET_EPOCH_KEY, TARGET_KEY, CURRENT_KEY = 3, 5, 6, 7, 8

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_VERSION = _INT16.pack(0)
_NO_TAGS = tagged({})
_HASH_TAG = 0
_CLASSIC_TAG = 0
_NO_CLASSIC_MEMBER = tagged({0: b"\x00"})  # Kafka writes this null explicitly


class MemberState(Enum):
    """A member's progress towards its target. Values as in the journal."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """The group's epoch, which grows with every change of members, subscriptions or topics, and a hash of the subscribed topics."""

    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """The classic protocol's part of a member: its session timeout, and (name, metadata) of each assignor it supports."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member and its subscription. `topics` are sorted. `assignor` None means the group's default.

    `classic` is set for a member that uses the classic protocol.
    """

    group_instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicMember | None = None


@dataclass(frozen=True, slots=True)
class Current:
    """A member's epoch, its partitions (`assigned`) and those that it must revoke before it gets more (`revoking`)."""

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Assignment = NOTHING
    revoking: Assignment = NOTHING


@dataclass(frozen=True, slots=True)
class EpochRecord:
    group_id: str
    value: GroupEpoch | None


@dataclass(frozen=True, slots=True)
class SubscriptionRecord:
    group_id: str
    member_id: str
    value: Subscription | None


@dataclass(frozen=True, slots=True)
class TargetEpochRecord:
    group_id: str
    value: int | None


@dataclass(frozen=True, slots=True)
class TargetRecord:
    group_id: str
    member_id: str
    value: Assignment | None


@dataclass(frozen=True, slots=True)
class CurrentRecord:
    group_id: str
    member_id: str
    value: Current | None


ConsumerRecord: TypeAlias = EpochRecord | SubscriptionRecord | TargetEpochRecord | TargetRecord | CurrentRecord


def encode(record: ConsumerRecord) -> JournalRecord:
    """Return the record's key and value."""
    value: bytes | None = None
    match record:
        case EpochRecord(_, epoch):
            kind = EPOCH_KEY
            if epoch is not None:
                tags = {_HASH_TAG: _INT64.pack(epoch.metadata_hash)} if epoch.metadata_hash else {}
                value = _VERSION + _INT32.pack(epoch.epoch) + tagged(tags)
        case SubscriptionRecord(_, _, subscription):
            kind = MEMBER_KEY
            value = None if subscription is None else _subscription(subscription)
        case TargetEpochRecord(_, target_epoch):
            kind = TARGET_EPOCH_KEY
            value = None if target_epoch is None else _VERSION + _INT32.pack(target_epoch) + _NO_TAGS
        case TargetRecord(_, _, target):
            kind = TARGET_KEY
            value = None if target is None else _VERSION + _partitions(target) + _NO_TAGS
        case CurrentRecord(_, _, current):
            kind = CURRENT_KEY
            value = None if current is None else _current(current)
    key = _INT16.pack(kind) + string(record.group_id)
    if isinstance(record, SubscriptionRecord | TargetRecord | CurrentRecord):
        key += string(record.member_id)
    return JournalRecord(key, value)


def decode(key: bytes, value: bytes | None) -> ConsumerRecord | None:
    """Return the decoded record, or None for a type of another protocol. Raise `JournalFormatError` if it is malformed."""
    reader = FieldReader(key)
    kind = reader.int16()
    if kind not in (EPOCH_KEY, MEMBER_KEY, TARGET_EPOCH_KEY, TARGET_KEY, CURRENT_KEY):
        return None
    group_id = reader.string()
    member_id = reader.string() if kind in (MEMBER_KEY, TARGET_KEY, CURRENT_KEY) else ""
    reader.end()
    fields = None if value is None else FieldReader(value)
    if fields is not None and (version := fields.int16()) != 0:
        raise JournalFormatError(f"value of version {version}; the newest known is 0")
    record: ConsumerRecord
    if kind == EPOCH_KEY:
        record = EpochRecord(group_id, None if fields is None else _read_epoch(fields))
    elif kind == MEMBER_KEY:
        record = SubscriptionRecord(group_id, member_id, None if fields is None else _read_subscription(fields))
    elif kind == TARGET_EPOCH_KEY:
        record = TargetEpochRecord(group_id, None if fields is None else fields.int32())
        _ = None if fields is None else fields.tagged()
    elif kind == TARGET_KEY:
        record = TargetRecord(group_id, member_id, None if fields is None else _read_partitions(fields))
        _ = None if fields is None else fields.tagged()
    else:
        record = CurrentRecord(group_id, member_id, None if fields is None else _read_current(fields))
    if fields is not None:
        fields.end()
    return record


def _subscription(one: Subscription) -> bytes:
    return b"".join(
        (
            _VERSION,
            compact_nullable_string(one.group_instance_id),
            compact_nullable_string(one.rack_id),
            compact_string(one.client_id),
            compact_string(one.client_host),
            unsigned_varint(len(one.topics) + 1),
            *(compact_string(topic) for topic in one.topics),
            compact_string(one.regex or ""),  # Kafka writes a missing regular expression as an empty one
            _INT32.pack(one.rebalance_timeout_ms),
            compact_nullable_string(one.assignor),
            _NO_CLASSIC_MEMBER if one.classic is None else tagged({_CLASSIC_TAG: _classic(one.classic)}),
        )
    )


def _read_subscription(reader: FieldReader) -> Subscription:
    instance, rack = reader.compact_nullable_string(), reader.compact_nullable_string()
    client_id, client_host = reader.compact_string(), reader.compact_string()
    topics = tuple(reader.compact_string() for _ in range(reader.compact_count()))
    regex = reader.compact_nullable_string() or None
    rebalance_timeout_ms = reader.int32()
    assignor = reader.compact_nullable_string()
    classic = _read_classic(reader.tagged().get(_CLASSIC_TAG))
    return Subscription(instance, rack, client_id, client_host, topics, regex, rebalance_timeout_ms, assignor, classic)


def _classic(one: ClassicMember) -> bytes:
    parts = [b"\x01", _INT32.pack(one.session_timeout_ms), unsigned_varint(len(one.protocols) + 1)]
    for name, metadata in one.protocols:
        parts += [compact_string(name), compact_bytes(metadata), _NO_TAGS]
    return b"".join((*parts, _NO_TAGS))


def _read_classic(data: bytes | None) -> ClassicMember | None:
    if data is None:
        return None
    reader = FieldReader(data)
    if reader.int8() != 1:
        return None
    session_timeout_ms = reader.int32()
    protocols = []
    for _ in range(reader.compact_count()):
        protocols.append((reader.compact_string(), reader.compact_bytes()))
        reader.tagged()
    reader.tagged()
    return ClassicMember(session_timeout_ms, tuple(protocols))


def _read_epoch(reader: FieldReader) -> GroupEpoch:
    epoch = reader.int32()
    data = reader.tagged().get(_HASH_TAG)
    return GroupEpoch(epoch, 0 if data is None else FieldReader(data).int64())


def _current(one: Current) -> bytes:
    head = _VERSION + struct.pack(">iib", one.epoch, one.previous_epoch, one.state.value)
    return head + _partitions(one.assigned) + _partitions(one.revoking) + _NO_TAGS


def _read_current(reader: FieldReader) -> Current:
    epoch, previous_epoch, number = reader.int32(), reader.int32(), reader.int8()
    if number not in (state.value for state in MemberState):
        raise JournalFormatError(f"member state {number}")
    assigned, revoking = _read_partitions(reader), _read_partitions(reader)
    reader.tagged()
    return Current(epoch, previous_epoch, MemberState(number), assigned, revoking)


def _partitions(partitions: Assignment) -> bytes:
    topics = by_topic(partitions)
    parts = [unsigned_varint(len(topics) + 1)]
    for topic, indexes in topics.items():
        parts += [topic.bytes, unsigned_varint(len(indexes) + 1), struct.pack(f">{len(indexes)}i", *indexes), _NO_TAGS]
    return b"".join(parts)


def _read_partitions(reader: FieldReader) -> Assignment:
    found: set[PartitionId[uuid.UUID]] = set()
    for _ in range(reader.compact_count()):
        topic = reader.uuid()
        found.update((topic, reader.int32()) for _ in range(reader.compact_count()))
        reader.tagged()
    return frozenset(found)
