"""The embedded protocol "consumer": bytes that members of a classic group exchange in JoinGroup and SyncGroup.

The client's side. The broker passes these bytes on, and decodes more of their fields (`broker/groups/subscription.py`).
Source: ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json. An int16 version, then fields; later versions
append fields.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from kafkalake.topic_partition import TopicPartition

Assignment = dict[str, list[int]]
"""Partitions by topic."""


def encode_subscription(topics: Sequence[str]) -> bytes:
    """Encode a subscription of version 0, without user data."""
    return struct.pack(">hi", 0, len(topics)) + b"".join(map(_string, topics)) + struct.pack(">i", -1)


def decode_subscription(data: bytes) -> list[str]:
    """Return the topics of a subscription of any version, none if the bytes are malformed."""
    try:
        (count,) = struct.unpack_from(">i", data, 2)
        position, topics = 6, []
        for _ in range(count):
            topic, position = _read_string(data, position)
            topics.append(topic)
    except (struct.error, UnicodeDecodeError):
        return []
    return topics


def encode_assignment(assignment: Assignment) -> bytes:
    """Encode an assignment of version 0, without user data."""
    parts = [struct.pack(">hi", 0, len(assignment))]
    for topic, numbers in assignment.items():
        parts += [_string(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)]
    return b"".join(parts) + struct.pack(">i", -1)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of an assignment of any version, by topic and number, none if the bytes are malformed."""
    try:
        (count,) = struct.unpack_from(">i", data, 2)
        position = 6
        partitions = []
        for _ in range(count):
            topic, position = _read_string(data, position)
            (numbers,) = struct.unpack_from(">i", data, position)
            partitions += [(topic, number) for number in struct.unpack_from(f">{max(numbers, 0)}i", data, position + 4)]
            position += 4 + 4 * max(numbers, 0)
    except (struct.error, UnicodeDecodeError):
        return ()
    return tuple(sorted(partitions))


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    """Return a string and its end position."""
    (length,) = struct.unpack_from(">h", data, position)
    (text,) = struct.unpack_from(f">{max(length, 0)}s", data, position + 2)
    return text.decode(), position + 2 + max(length, 0)
