"""Topics as a group of the consumer protocol sees them: which ones a subscription means, and whether they have changed."""

from __future__ import annotations

import hashlib
import itertools
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.errors import InvalidRegularExpressionError


class TopicOfGroup(NamedTuple):
    """A topic that exists."""

    topic_id: uuid.UUID
    partitions: int
    created_at_ms: int = 0


Topics: TypeAlias = Mapping[str, TopicOfGroup]
"""Topic name -> topic."""

TopicsNow: TypeAlias = Callable[[], Topics]


def check_regex(pattern: str) -> None:
    """Raises `InvalidRegularExpressionError`."""
    matching(pattern, ("",))


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names that `pattern` matches as a whole. RE2, as in Kafka: no pattern of a client can take long.

    Raises `InvalidRegularExpressionError`.
    """
    known = list(names)
    try:
        # Wrapped so that alternatives stay whole; checked alone first, or ")|(" would pass.
        pc.match_substring_regex(_strings([""]), pattern)
        found = pc.match_substring_regex(_strings(known), rf"\A(?:{pattern})\z")
    except pa.ArrowInvalid as error:
        raise InvalidRegularExpressionError(f"{pattern!r} is not a regular expression: {error}") from error
    return frozenset(name for name, matches in zip(known, found.to_pylist(), strict=True) if matches)


def _strings(names: list[str]) -> pa.Array:
    """An Arrow array of `names`; made of buffers, because `pa.array` imports pandas where it is installed (0.5 s, once)."""
    encoded = [name.encode() for name in names]
    offsets = struct.pack(f"={len(encoded) + 1}i", 0, *itertools.accumulate(map(len, encoded)))
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """A number (int64) that changes with the ids and partition counts of those topics that exist; 0 for none."""
    known = sorted((name, topics[name]) for name in set(names) if name in topics)
    if not known:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for name, topic in known:
        digest.update(name.encode() + b"\0" + topic.topic_id.bytes + topic.partitions.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)
