"""Assignments of a group's partitions to its members as pure functions, for the broker (KIP-848) and for the client's assignors.

`assign_range`: contiguous ranges per topic in the order of the members, so that a member gets the same partition numbers of equally
sized topics with the same subscribers. Static members come first, by instance id, so that a restart changes nothing.

`assign_uniform`: all members get the same number of partitions, give or take one, and keep theirs as far as possible. With
different subscriptions it is as even as they allow: no partition could move to a subscriber of its topic that has two fewer.

Topics are named by id or by name. Sources: KIP-848, "Server Side Assignors". Both are deterministic, whatever the
order of the input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic

from kafkalake.topic_partition import PartitionId, TopicId


@dataclass(frozen=True)
class Subscriber(Generic[TopicId]):
    """A member as an assignor sees it. `owned` is its previous assignment."""

    topics: frozenset[TopicId]
    owned: frozenset[PartitionId[TopicId]] = frozenset()
    group_instance_id: str | None = None


def member_order(members: Mapping[str, Subscriber[TopicId]]) -> list[str]:
    """Return the ids of the members in the order in which they get partitions: static ones first, by instance id."""

    def place(member: str) -> tuple[bool, str, str]:
        instance = members[member].group_instance_id
        return instance is None, instance or "", member

    return sorted(members, key=place)


def assign_range(
    members: Mapping[str, Subscriber[TopicId]], partitions: Mapping[TopicId, int]
) -> dict[str, frozenset[PartitionId[TopicId]]]:
    """Assign contiguous ranges per topic. The first members get one more if the division leaves a remainder."""
    order = member_order(members)
    assigned: dict[str, set[PartitionId[TopicId]]] = {member: set() for member in members}
    for topic, count in partitions.items():
        readers = [member for member in order if topic in members[member].topics]
        start = 0
        for index, member in enumerate(readers):
            size = count // len(readers) + (index < count % len(readers))
            assigned[member].update((topic, partition) for partition in range(start, start + size))
            start += size
    return {member: frozenset(found) for member, found in assigned.items()}


def assign_uniform(
    members: Mapping[str, Subscriber[TopicId]], partitions: Mapping[TopicId, int]
) -> dict[str, frozenset[PartitionId[TopicId]]]:
    """Assign as evenly as the subscriptions allow, keeping previous assignments."""
    if not members:
        return {}
    taken: set[PartitionId[TopicId]] = set()
    kept: dict[str, list[PartitionId[TopicId]]] = {}
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
    kept: dict[str, list[PartitionId[TopicId]]], everything: list[PartitionId[TopicId]]
) -> dict[str, frozenset[PartitionId[TopicId]]]:
    """Assign with equal subscriptions: each member gets the quota, and those that had most keep the remainder."""
    quota, left_over = divmod(len(everything), len(kept))
    assigned: dict[str, list[PartitionId[TopicId]]] = {}
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
    members: Mapping[str, Subscriber[TopicId]],
    kept: dict[str, list[PartitionId[TopicId]]],
    free: list[PartitionId[TopicId]],
) -> dict[str, frozenset[PartitionId[TopicId]]]:
    """Give free partitions to the least loaded subscriber, then move while two subscribers of a topic differ by two or more.

    Terminates because each move reduces the sum of the squares of all sizes.
    """
    readers: dict[TopicId, list[str]] = {}
    for member in sorted(members):
        for topic in members[member].topics:
            readers.setdefault(topic, []).append(member)
    assigned = {member: set(found) for member, found in kept.items()}

    def least(topic: TopicId) -> str:
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
