"""Topics as a group of the consumer protocol sees them, and a hash that detects their changes."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias


class TopicOfGroup(NamedTuple):
    """A topic that exists."""

    topic_id: uuid.UUID
    partitions: int
    created_at_ms: int = 0


Topics: TypeAlias = Mapping[str, TopicOfGroup]
"""Topic name -> topic."""

TopicsNow: TypeAlias = Callable[[], Topics]


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """Return a number (int64) that changes with the ids and partition counts of the existing topics, or 0 if none exist."""
    known = sorted((name, topics[name]) for name in set(names) if name in topics)
    if not known:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for name, topic in known:
        digest.update(name.encode() + b"\0" + topic.topic_id.bytes + topic.partitions.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)
