"""The committed offsets of one group and those pending in open transactions.

Applies the journal record by record, at run time and while loading, so both end in the same state. Each offset has the journal
position of its record. So the end of a transaction does not replace an offset of a later record, and a record read again
changes nothing. Source: KIP-98 (transactional offsets), KIP-211 (expiry), KIP-447 (`require_stable`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from kafkalake.broker.coordination.table import MetadataMemory
from kafkalake.broker.groups.records import NO_TIMESTAMP, CommittedOffset
from kafkalake.errors import UnstableOffsetCommitError
from kafkalake.topic_partition import TopicPartition

_OFFSET_BYTES = 512
"""Approximate memory of a committed offset without its topic's name and its metadata."""


class Positioned(NamedTuple):
    """A committed offset and its position in the journal."""

    committed: CommittedOffset
    position: int


class ExpiryRule(NamedTuple):
    """Rule by which a group's offsets expire (KIP-211).

    `empty_since_ms`: time since which the group has no members, where its offsets' age begins (None: at their own commit).
    `subscribed`: subscribed topics, which do not expire (None: unknown, nothing expires).
    """

    empty_since_ms: int | None
    subscribed: frozenset[str] | None


class GroupOffsets:
    """Offsets by topic and partition. Their memory, see `offset_bytes`, counts in `memory`, with that of other groups."""

    def __init__(self, memory: MetadataMemory | None = None) -> None:
        self._memory = memory or MetadataMemory()
        self._bytes = 0
        self._committed: dict[TopicPartition, Positioned] = {}
        self._pending: dict[int, dict[TopicPartition, Positioned]] = {}
        self._pending_of: Counter[TopicPartition] = Counter()
        self._commits = 0

    @property
    def commits(self) -> int:
        """The number of commits that were applied: if it has not changed, no offset has."""
        return self._commits

    def __len__(self) -> int:
        return len(self._committed)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._committed)

    @property
    def has_pending(self) -> bool:
        """Return whether an open transaction has committed offsets of this group."""
        return bool(self._pending)

    def get(self, key: TopicPartition) -> Positioned | None:
        return self._committed.get(key)

    def replaced_by(self, key: TopicPartition, producer_id: int | None) -> Positioned | None:
        """Return the offset in whose place a commit comes, of a producer's transaction or of none, now or when that ends.

        None if it takes memory beside the others: there is none, or another transaction has one.
        """
        if producer_id is None or not self._pending_of[key]:
            return self._committed.get(key)
        return self._pending.get(producer_id, {}).get(key)

    def fetch(self, key: TopicPartition, *, require_stable: bool) -> CommittedOffset | None:
        """Return the committed offset. Raise `UnstableOffsetCommitError` if `require_stable` and a transaction may change it."""
        if require_stable and self._pending_of[key]:
            raise UnstableOffsetCommitError
        positioned = self._committed.get(key)
        return None if positioned is None else positioned.committed

    def committed_keys(self) -> list[TopicPartition]:
        """Return the partitions with a committed offset."""
        return list(self._committed)

    def known_keys(self) -> list[TopicPartition]:
        """Return the partitions with a committed or pending offset."""
        return list(dict.fromkeys(chain(self._committed, self._pending_of)))

    def all_of(self, key: TopicPartition) -> list[CommittedOffset]:
        """Return the committed offset of a partition and those pending in open transactions."""
        found = [of_producer[key] for of_producer in self._pending.values() if key in of_producer]
        if key in self._committed:
            found.append(self._committed[key])
        return [positioned.committed for positioned in found]

    # Following the journal

    def commit(self, key: TopicPartition, committed: CommittedOffset, position: int) -> bool:
        """Apply a commit in the journal and return whether it is new."""
        known = self._committed.get(key)
        if known is not None and known.position >= position:
            return False
        self._commits += 1
        self._committed[key] = Positioned(committed, position)
        self._count(offset_bytes(key[0], committed.metadata) - _bytes_of(key, known))
        return True

    def remove(self, key: TopicPartition) -> bool:
        """Apply a tombstone, which also drops pending offsets. Return whether there was a committed offset."""
        if self._pending_of.pop(key, 0):
            for producer_id, of_producer in list(self._pending.items()):
                self._count(-_bytes_of(key, of_producer.pop(key, None)))
                if not of_producer:
                    del self._pending[producer_id]
        known = self._committed.pop(key, None)
        self._count(-_bytes_of(key, known))
        return known is not None

    def commit_pending(self, producer_id: int, key: TopicPartition, committed: CommittedOffset, position: int) -> None:
        """Apply a commit inside a transaction. It is pending until the transaction ends."""
        of_producer = self._pending.setdefault(producer_id, {})
        if key not in of_producer:
            self._pending_of[key] += 1
        self._count(offset_bytes(key[0], committed.metadata) - _bytes_of(key, of_producer.get(key)))
        of_producer[key] = Positioned(committed, position)

    def complete(self, producer_id: int, *, committed: bool) -> list[TopicPartition]:
        """Apply the end of a transaction and return the partitions whose offset changed."""
        ended = self._pending.pop(producer_id, {})
        self._pending_of.subtract(ended.keys())
        self._pending_of += Counter()
        self._count(-sum(_bytes_of(key, each) for key, each in ended.items()))
        if not committed:
            return []
        return [key for key, (value, position) in ended.items() if self.commit(key, value, position)]

    def release(self) -> None:
        """Release the memory of a group that this broker no longer has."""
        self._count(-self._bytes)

    def _count(self, bytes_: int) -> None:
        self._bytes += bytes_
        self._memory.add(bytes_)

    def expired(
        self, rule: ExpiryRule, now_ms: int, retention_ms: int, among: Iterable[TopicPartition] | None = None
    ) -> list[TopicPartition]:
        """Return the partitions whose offset has expired, except those that an open transaction may change.

        among: the partitions to be looked at, None: all.
        """
        if rule.subscribed is None:
            return []
        known = self._committed
        return [
            key
            for key in (known if among is None else among)
            if key in known
            and key[0] not in rule.subscribed
            and not self._pending_of[key]
            and _is_expired(known[key].committed, rule.empty_since_ms, now_ms, retention_ms)
        ]


def offset_bytes(topic: str, metadata: str) -> int:
    """Return the approximate memory of a committed offset in bytes."""
    return _OFFSET_BYTES + len(topic) + len(metadata)


def _bytes_of(key: TopicPartition, kept: Positioned | None) -> int:
    return 0 if kept is None else offset_bytes(key[0], kept.committed.metadata)


def _is_expired(committed: CommittedOffset, empty_since_ms: int | None, now_ms: int, retention_ms: int) -> bool:
    if committed.expires_at_ms != NO_TIMESTAMP:
        return now_ms >= committed.expires_at_ms
    since_ms = committed.committed_at_ms if empty_since_ms is None else empty_since_ms
    return now_ms - since_ms >= retention_ms
