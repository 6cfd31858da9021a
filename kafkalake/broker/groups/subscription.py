"""What a consumer of the classic protocol says in its join, and the assignment that it gets: the embedded consumer protocol.

The broker needs it for three things: an offset of a topic that is being read neither expires nor may be deleted; a group with
such members becomes one of the consumer protocol; and such members take part in one.
Source: ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json, all versions. An int16 version, then fields of
which a later version has more: what is not there is not said.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kafkalake.broker.coordination.fields import FieldReader, JournalFormatError, string

CONSUMER_PROTOCOL_TYPE = "consumer"

_OWNED_SINCE, _GENERATION_SINCE, _RACK_SINCE = 1, 2, 3
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_NULL_BYTES = b"\xff\xff\xff\xff"


class ClassicSubscription(NamedTuple):
    """A member's subscription; `owned`: (topic, partition) it has not given up. `version`: of its embedded protocol.

    `user_data` is what its assignor says to itself.
    """

    version: int
    topics: tuple[str, ...]
    owned: frozenset[tuple[str, int]] = frozenset()
    rack_id: str | None = None
    user_data: bytes = b""


def read_subscription(data: bytes) -> ClassicSubscription:
    """The subscription in a member's metadata. Raise `JournalFormatError`."""
    reader = FieldReader(data)
    version = reader.int16()
    if version < 0:
        raise JournalFormatError(f"version {version}")
    topics = tuple(reader.string() for _ in range(reader.count()))
    user_data = _nullable_bytes(reader)
    owned: frozenset[tuple[str, int]] = frozenset()
    rack_id = None
    if version >= _OWNED_SINCE:
        owned = _read_partitions(reader)
    if version >= _GENERATION_SINCE:
        reader.int32()
    if version >= _RACK_SINCE:
        rack_id = reader.nullable_string()
    return ClassicSubscription(version, topics, owned, rack_id, user_data)


class ClassicAssignment(NamedTuple):
    """The (topic, partition) that a member was assigned, and what its assignor says to it."""

    partitions: frozenset[tuple[str, int]] = frozenset()
    user_data: bytes = b""


def read_assignment(data: bytes) -> ClassicAssignment:
    """A member's assignment; of no bytes, nothing. Raise `JournalFormatError`."""
    if not data:
        return ClassicAssignment()
    reader = FieldReader(data)
    if reader.int16() < 0:
        raise JournalFormatError("negative version")
    return ClassicAssignment(_read_partitions(reader), _nullable_bytes(reader))


def encode_assignment(version: int, partitions: Mapping[str, Sequence[int]]) -> bytes:
    """An assignment for a member whose subscription is of that version."""
    parts = [_INT16.pack(version), _INT32.pack(len(partitions))]
    for topic, indexes in partitions.items():
        parts += [string(topic), _INT32.pack(len(indexes)), struct.pack(f">{len(indexes)}i", *indexes)]
    return b"".join((*parts, _NULL_BYTES))


def _read_partitions(reader: FieldReader) -> frozenset[tuple[str, int]]:
    found: set[tuple[str, int]] = set()
    for _ in range(reader.count()):
        topic = reader.string()
        found.update((topic, reader.int32()) for _ in range(reader.count()))
    return frozenset(found)


def _nullable_bytes(reader: FieldReader) -> bytes:
    length = reader.int32()
    return b"" if length == -1 else reader.raw(length)


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics in all `subscriptions`; None where one cannot be read."""
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            reader = FieldReader(subscription)
            if reader.int16() < 0:
                return None
            topics.update(reader.string() for _ in range(reader.count()))
    except JournalFormatError:
        return None
    return frozenset(topics)
