"""The server-side assignors of KIP-848 as pure functions from subscriptions and previous assignments to new ones.

`range`: contiguous ranges per topic in the order of the members, so that a member gets the same partition numbers of equally sized
topics with the same subscribers. Static members come first, by instance id, so that a restart changes nothing.

`uniform`: all members get the same number of partitions, give or take one, and keep theirs as far as possible. With different
subscriptions it is as even as they allow: no partition could move to a subscriber of its topic that has two fewer.

Sources: KIP-848, "Server Side Assignors". Both are deterministic, whatever the order of the input.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kafkalake.topic_partition import PartitionId

Assignment: TypeAlias = frozenset[PartitionId[uuid.UUID]]
NOTHING: Assignment = frozenset()


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as an assignor sees it. `owned` is its previous assignment."""

    topics: frozenset[uuid.UUID]
    owned: Assignment = NOTHING
    group_instance_id: str | None = None


Assignor: TypeAlias = Callable[[Mapping[str, Subscriber], Mapping[uuid.UUID, int]], dict[str, Assignment]]
"""(member id -> subscriber, topic id -> number of partitions) -> member id -> partitions. Unknown topics have none."""


def assign_range(members: Mapping[str, Subscriber], partitions: Mapping[uuid.UUID, int]) -> dict[str, Assignment]:
    """Assign contiguous ranges per topic. The first members get one more if the division leaves a remainder."""
    order = sorted(members, key=lambda member: _place(member, members[member]))
    assigned: dict[str, set[PartitionId[uuid.UUID]]] = {member: set() for member in members}
    for topic, count in partitions.items():
        readers = [member for member in order if topic in members[member].topics]
        start = 0
        for index, member in enumerate(readers):
            size = count // len(readers) + (index < count % len(readers))
            assigned[member].update((topic, partition) for partition in range(start, start + size))
            start += size
    return {member: frozenset(found) for member, found in assigned.items()}


def _place(member: str, subscriber: Subscriber) -> tuple[bool, str, str]:
    return subscriber.group_instance_id is None, subscriber.group_instance_id or "", member


def assign_uniform(members: Mapping[str, Subscriber], partitions: Mapping[uuid.UUID, int]) -> dict[str, Assignment]:
    """Assign as evenly as the subscriptions allow, keeping previous assignments."""
    if not members:
        return {}
    taken: set[PartitionId[uuid.UUID]] = set()
    kept: dict[str, list[PartitionId[uuid.UUID]]] = {}
    for member in sorted(members):
        subscriber = members[member]
        kept[member] = sorted(
            one
            for one in subscriber.owned
            if one[0] in subscriber.topics and one[1] < partitions.get(one[0], 0) and one not in taken
        )
        taken.update(kept[member])
    topics = {subscriber.topics for subscriber in members.values()}
    everything = sorted(
        (topic, partition)
        for topic, count in partitions.items()
        if any(topic in known for known in topics)
        for partition in range(count)
    )
    if len(topics) == 1:
        return _even(kept, everything)
    return _as_even_as_possible(members, kept, [one for one in everything if one not in taken])


def _even(
    kept: dict[str, list[PartitionId[uuid.UUID]]], everything: list[PartitionId[uuid.UUID]]
) -> dict[str, Assignment]:
    """Assign with equal subscriptions: each member gets the quota, and those that had most keep the remainder."""
    quota, left_over = divmod(len(everything), len(kept))
    assigned: dict[str, list[PartitionId[uuid.UUID]]] = {}
    for member in sorted(kept, key=lambda one: (-len(kept[one]), one)):
        size = quota + (left_over > 0 and len(kept[member]) > quota)
        left_over -= size > quota
        assigned[member] = kept[member][:size]
    taken = {one for found in assigned.values() for one in found}
    free = iter([one for one in everything if one not in taken])
    for member in sorted(assigned):
        found = assigned[member]
        if len(found) > quota:
            continue
        size = quota + (left_over > 0)
        left_over -= size > quota
        found += [one for _, one in zip(range(size - len(found)), free, strict=False)]
    return {member: frozenset(found) for member, found in assigned.items()}


def _as_even_as_possible(
    members: Mapping[str, Subscriber], kept: dict[str, list[PartitionId[uuid.UUID]]], free: list[PartitionId[uuid.UUID]]
) -> dict[str, Assignment]:
    """Give free partitions to the least loaded subscriber, then move while two subscribers of a topic differ by two or more.

    Terminates because each move reduces the sum of the squares of all sizes.
    """
    readers: dict[uuid.UUID, list[str]] = {}
    for member in sorted(members):
        for topic in members[member].topics:
            readers.setdefault(topic, []).append(member)
    assigned = {member: set(found) for member, found in kept.items()}

    def least(topic: uuid.UUID) -> str:
        return min(readers[topic], key=lambda member: (len(assigned[member]), member))

    for one in sorted(free, key=lambda one: (len(readers[one[0]]), one)):
        assigned[least(one[0])].add(one)
    moved = True
    while moved:
        moved = False
        for member in sorted(assigned, key=lambda one: (-len(assigned[one]), one)):
            for topic in sorted({topic for topic, _ in assigned[member]}):
                other = least(topic)
                if len(assigned[member]) >= len(assigned[other]) + 2:
                    one = max(one for one in assigned[member] if one[0] == topic)
                    assigned[member].remove(one)
                    assigned[other].add(one)
                    moved = True
    return {member: frozenset(found) for member, found in assigned.items()}


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
