"""The embedded consumer protocol: subscription and assignment of a consumer of the classic protocol.

The broker needs it for three things. Offsets of subscribed topics neither expire nor may be deleted. A group with such members
can become one of the consumer protocol. Such members can take part in one.
Source: ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json, all versions. An int16 version, then fields, of
which later versions have more. Missing fields have defaults.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kafkalake.broker.coordination.fields import FieldReader, JournalFormatError, string
from kafkalake.topic_partition import TopicPartition

CONSUMER_PROTOCOL_TYPE = "consumer"

_OWNED_SINCE, _GENERATION_SINCE, _RACK_SINCE = 1, 2, 3
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_NULL_BYTES = b"\xff\xff\xff\xff"


class ClassicSubscription(NamedTuple):
    """A member's subscription. `owned`: (topic, partition) not revoked yet. `version`: of its embedded protocol.

    `user_data` belongs to the member's assignor.
    """

    version: int
    topics: tuple[str, ...]
    owned: frozenset[TopicPartition] = frozenset()
    rack_id: str | None = None
    user_data: bytes = b""


def read_version(data: bytes) -> int:
    """Return the version of a member's metadata. Raise `JournalFormatError` if it has none."""
    return _version(FieldReader(data))


def _version(reader: FieldReader) -> int:
    version = reader.int16()
    if version < 0:
        raise JournalFormatError(f"version {version}")
    return version


def read_subscription(data: bytes) -> ClassicSubscription:
    """Return the subscription in a member's metadata. Raise `JournalFormatError` if it is malformed."""
    reader = FieldReader(data)
    version = _version(reader)
    topics = tuple(reader.string() for _ in range(reader.count()))
    user_data = _nullable_bytes(reader)
    owned: frozenset[TopicPartition] = frozenset()
    rack_id = None
    if version >= _OWNED_SINCE:
        owned = _read_partitions(reader)
    if version >= _GENERATION_SINCE:
        reader.int32()
    if version >= _RACK_SINCE:
        rack_id = reader.nullable_string()
    return ClassicSubscription(version, topics, owned, rack_id, user_data)


class ClassicAssignment(NamedTuple):
    """The (topic, partition) assigned to a member, and its assignor's user data."""

    partitions: frozenset[TopicPartition] = frozenset()
    user_data: bytes = b""


def read_assignment(data: bytes) -> ClassicAssignment:
    """Return a member's assignment, empty for no bytes. Raise `JournalFormatError` if it is malformed."""
    if not data:
        return ClassicAssignment()
    reader = FieldReader(data)
    _version(reader)
    return ClassicAssignment(_read_partitions(reader), _nullable_bytes(reader))


def encode_assignment(version: int, partitions: Mapping[str, Sequence[int]]) -> bytes:
    """Return an encoded assignment for a member whose subscription has that version."""
    parts = [_INT16.pack(version), _INT32.pack(len(partitions))]
    for topic, indexes in partitions.items():
        parts += [string(topic), _INT32.pack(len(indexes)), struct.pack(f">{len(indexes)}i", *indexes)]
    return b"".join((*parts, _NULL_BYTES))


def _read_partitions(reader: FieldReader) -> frozenset[TopicPartition]:
    found: set[TopicPartition] = set()
    for _ in range(reader.count()):
        topic = reader.string()
        found.update((topic, reader.int32()) for _ in range(reader.count()))
    return frozenset(found)


def _nullable_bytes(reader: FieldReader) -> bytes:
    length = reader.int32()
    return b"" if length == -1 else reader.raw(length)


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics in all `subscriptions`, or None if one cannot be read."""
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            reader = FieldReader(subscription)
            _version(reader)
            topics.update(reader.string() for _ in range(reader.count()))
    except JournalFormatError:
        return None
    return frozenset(topics)
