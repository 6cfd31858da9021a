"""The embedded protocol "consumer": bytes that members of a classic group exchange in JoinGroup and SyncGroup.

The client's side. The broker passes these bytes on, and reads what it needs of them (`broker/groups/subscription.py`).
Source: ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json. An int16 version, then fields; later versions
append fields. Assignors put user data of their own into both (`encode_sticky`, `encode_generation`), which have no version: what a
member of an older client lacks is missing at the end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafkalake.topic_partition import TopicPartition, by_topic

Assignment = dict[str, list[int]]
"""Partitions by topic."""

NO_GENERATION = -1
_NEWEST_VERSION = 3
_OWNED_SINCE, _GENERATION_SINCE, _RACK_SINCE = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Subscription:
    """The metadata with which a member joins a classic group.

    owned: partitions that it has not revoked, as of the generation `generation`. user_data: of its assignor.
    """

    topics: tuple[str, ...]
    user_data: bytes = b""
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    rack_id: str | None = None


def encode_subscription(subscription: Subscription) -> bytes:
    """Encode a subscription in its newest version (KIP-429, KIP-792, KIP-881)."""
    parts = [struct.pack(">hi", _NEWEST_VERSION, len(subscription.topics)), *map(_string, subscription.topics)]
    parts += [_bytes(subscription.user_data), _partitions(by_topic(subscription.owned))]
    parts += [struct.pack(">i", subscription.generation), _string(subscription.rack_id)]
    return b"".join(parts)


def decode_subscription(data: bytes) -> Subscription:
    """Return a subscription of any version, one of no topics if the bytes are malformed."""
    try:
        (version,) = struct.unpack_from(">h", data)
        topics, position = _read_strings(data, 2)
        user_data, position = _read_bytes(data, position)
        owned: Sequence[TopicPartition] = ()
        generation, rack_id = NO_GENERATION, None
        if version >= _OWNED_SINCE:
            owned, position = _read_partitions(data, position)
        if version >= _GENERATION_SINCE:
            (generation,) = struct.unpack_from(">i", data, position)
        if version >= _RACK_SINCE:
            rack_id = _read_string(data, position + 4)[0] or None
    except (struct.error, UnicodeDecodeError):
        return Subscription(())
    return Subscription(tuple(topics), user_data, tuple(owned), generation, rack_id)


def encode_assignment(assignment: Assignment, user_data: bytes = b"") -> bytes:
    """Encode an assignment of version 0, which all clients read."""
    return struct.pack(">h", 0) + _partitions(assignment) + _bytes(user_data)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of an assignment of any version, by topic and number, none if the bytes are malformed."""
    try:
        return tuple(sorted(_read_partitions(data, 2)[0]))
    except (struct.error, UnicodeDecodeError):
        return ()


def encode_sticky(owned: Iterable[TopicPartition], generation: int) -> bytes:
    """Encode the user data of a member with the assignor "sticky": the partitions that it had, and since which generation."""
    return _partitions(by_topic(owned)) + struct.pack(">i", generation)


def decode_sticky(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    """Return what `encode_sticky` was called with, `NO_GENERATION` for an old client's, nothing if the bytes are malformed."""
    try:
        owned, position = _read_partitions(data, 0)
        generation = struct.unpack_from(">i", data, position)[0] if len(data) >= position + 4 else NO_GENERATION
    except (struct.error, UnicodeDecodeError):
        return (), NO_GENERATION
    return tuple(owned), generation


def encode_generation(generation: int) -> bytes:
    """Encode the user data of a member with the assignor "cooperative-sticky"."""
    return struct.pack(">i", generation)


def decode_generation(data: bytes) -> int:
    """Return what `encode_generation` was called with, `NO_GENERATION` if the bytes are too few."""
    return int(struct.unpack_from(">i", data)[0]) if len(data) >= 4 else NO_GENERATION


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _bytes(data: bytes) -> bytes:
    """Encode bytes, none as null."""
    return struct.pack(">i", len(data)) + data if data else b"\xff\xff\xff\xff"


def _partitions(partitions: Mapping[str, Sequence[int]]) -> bytes:
    parts = [struct.pack(">i", len(partitions))]
    for topic, numbers in partitions.items():
        parts += [_string(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)]
    return b"".join(parts)


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    """Return a string and its end position."""
    (length,) = struct.unpack_from(">h", data, position)
    (text,) = struct.unpack_from(f">{max(length, 0)}s", data, position + 2)
    return text.decode(), position + 2 + max(length, 0)


def _read_strings(data: bytes, position: int) -> tuple[list[str], int]:
    (count,) = struct.unpack_from(">i", data, position)
    position += 4
    found = []
    for _ in range(count):
        text, position = _read_string(data, position)
        found.append(text)
    return found, position


def _read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(">i", data, position)
    (found,) = struct.unpack_from(f">{max(length, 0)}s", data, position + 4)
    return found, position + 4 + max(length, 0)


def _read_partitions(data: bytes, position: int) -> tuple[list[TopicPartition], int]:
    (count,) = struct.unpack_from(">i", data, position)
    position += 4
    found: list[TopicPartition] = []
    for _ in range(count):
        topic, position = _read_string(data, position)
        (numbers,) = struct.unpack_from(">i", data, position)
        length = max(numbers, 0)
        found += [(topic, number) for number in struct.unpack_from(f">{length}i", data, position + 4)]
        position += 4 + 4 * length
    return found, position
