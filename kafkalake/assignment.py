"""Assignments of a group's partitions to its members as pure functions, for the broker (KIP-848) and for the client's assignors.

`assign_range`: contiguous ranges per topic in the order of the members, so that a member gets the same partition numbers of equally
sized topics with the same subscribers. Static members come first, by instance id, so that a restart changes nothing.

`assign_uniform`: all members get the same number of partitions, give or take one, and keep theirs as far as possible. With
different subscriptions it is as even as they allow: no partition could move to a subscriber of its topic that has two fewer.

A group may have ten thousands of members and partitions. `range_in_steps` and `uniform_in_steps` yield in between, so that an event
loop goes on meanwhile.

Topics are named by id or by name. Sources: KIP-848, "Server Side Assignors". Both are deterministic, whatever the
order of the input.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import Generic

from kafkalake.run_blocking import Steps, take_all
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
    return take_all(range_in_steps(members, partitions))


def assign_uniform(
    members: Mapping[str, Subscriber[TopicId]], partitions: Mapping[TopicId, int]
) -> dict[str, frozenset[PartitionId[TopicId]]]:
    """Assign as evenly as the subscriptions allow, keeping previous assignments."""
    return take_all(uniform_in_steps(members, partitions))


def range_in_steps(
    members: Mapping[str, Subscriber[TopicId]], partitions: Mapping[TopicId, int]
) -> Steps[dict[str, frozenset[PartitionId[TopicId]]]]:
    """Return what `assign_range` does, and yield in between."""
    order = member_order(members)
    assigned: dict[str, list[PartitionId[TopicId]]] = {member: [] for member in members}
    subscriptions = {subscriber.topics for subscriber in members.values()}
    read_by_all = next(iter(subscriptions)) if len(subscriptions) == 1 else frozenset[TopicId]()
    for topic, count in partitions.items():
        readers = order if topic in read_by_all else [one for one in order if topic in members[one].topics]
        start = 0
        for index, member in enumerate(readers[:count]):
            size = count // len(readers) + (index < count % len(readers))
            assigned[member] += [(topic, partition) for partition in range(start, start + size)]
            start += size
        yield
    return (yield from _frozen(assigned))


def uniform_in_steps(
    members: Mapping[str, Subscriber[TopicId]], partitions: Mapping[TopicId, int]
) -> Steps[dict[str, frozenset[PartitionId[TopicId]]]]:
    """Return what `assign_uniform` does, and yield in between."""
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
        yield
    subscriptions = {subscriber.topics for subscriber in members.values()}
    read: set[TopicId] = set()
    for topics in subscriptions:
        read.update(topics)
        yield
    counts = {topic: partitions[topic] for topic in sorted(partitions) if topic in read}
    if len(subscriptions) == 1:
        return (yield from _even(kept, counts))
    return (yield from _as_even_as_possible(members, kept, (yield from _free(counts, taken))))


def _frozen(
    assigned: Mapping[str, Iterable[PartitionId[TopicId]]],
) -> Steps[dict[str, frozenset[PartitionId[TopicId]]]]:
    frozen = {}
    for member, found in assigned.items():
        frozen[member] = frozenset(found)
        yield
    return frozen


def _free(counts: Mapping[TopicId, int], taken: set[PartitionId[TopicId]]) -> Steps[dict[TopicId, list[int]]]:
    """Return the partitions of each topic that are not taken."""
    free = {}
    for topic, count in counts.items():
        free[topic] = [partition for partition in range(count) if (topic, partition) not in taken]
        yield
    return free


def _even(
    kept: dict[str, list[PartitionId[TopicId]]], counts: Mapping[TopicId, int]
) -> Steps[dict[str, frozenset[PartitionId[TopicId]]]]:
    """Assign with equal subscriptions: each member gets the quota, and those that had most keep the remainder."""
    quota, left_over = divmod(sum(counts.values()), len(kept))
    assigned: dict[str, list[PartitionId[TopicId]]] = {}
    taken: set[PartitionId[TopicId]] = set()
    for member in sorted(kept, key=lambda one: (-len(kept[one]), one)):
        size = quota + (left_over > 0 and len(kept[member]) > quota)
        left_over -= size > quota
        assigned[member] = kept[member][:size]
        taken.update(assigned[member])
        yield
    by_topic = yield from _free(counts, taken)
    free = ((topic, partition) for topic, found in by_topic.items() for partition in found)
    for member in sorted(assigned):
        found = assigned[member]
        if len(found) > quota:
            continue
        size = quota + (left_over > 0)
        left_over -= size > quota
        found += [one for _, one in zip(range(size - len(found)), free, strict=False)]
        yield
    return (yield from _frozen(assigned))


class _Shares(Generic[TopicId]):
    """The partitions of members with different subscriptions, `assigned` by member and topic, and their number, `sizes`.

    Topics that the same members read share a heap of (size, member). A size may have grown since it was put there: the entry is
    renewed when it is the first one. `sort_readers` makes the heaps anew, for sizes that have become smaller.
    """

    def __init__(self, members: Iterable[str]) -> None:
        self.assigned: dict[str, dict[TopicId, list[int]]] = {member: {} for member in members}
        self.sizes = dict.fromkeys(self.assigned, 0)
        self._alike: list[list[str]] = []
        """Members with equal subscriptions."""
        self._read_by: defaultdict[TopicId, list[int]] = defaultdict(list)
        """Topic -> the indexes in `_alike` of those that read it."""
        self._heaps: dict[tuple[int, ...], list[tuple[int, str]]] = {}

    def find_readers(self, members: Mapping[str, Subscriber[TopicId]]) -> Steps[None]:
        """Find the readers of the topics."""
        alike: dict[frozenset[TopicId], list[str]] = {}
        for member, subscriber in members.items():
            alike.setdefault(subscriber.topics, []).append(member)
        for index, (topics, found) in enumerate(alike.items()):
            self._alike.append(found)
            for topic in topics:
                self._read_by[topic].append(index)
            yield

    def count_readers(self, topic: TopicId) -> int:
        return sum(len(self._alike[index]) for index in self._read_by[topic])

    def sort_readers(self) -> None:
        self._heaps.clear()

    def find_least(self, topic: TopicId) -> str:
        """Return the reader of the topic with the fewest partitions, of several the first by name."""
        key = tuple(self._read_by[topic])
        heap = self._heaps.get(key)
        if heap is None:
            heap = self._heaps[key] = [(self.sizes[one], one) for index in key for one in self._alike[index]]
            heapify(heap)
        while (size := self.sizes[member := heap[0][1]]) != heap[0][0]:
            heapreplace(heap, (size, member))
        return member

    def give(self, member: str, topic: TopicId, partition: int) -> None:
        insort(self.assigned[member].setdefault(topic, []), partition)
        self.sizes[member] += 1

    def take_last(self, member: str, topic: TopicId) -> int:
        """Take a member's last partition of a topic from it, and return it."""
        found = self.assigned[member][topic]
        partition = found.pop()
        if not found:
            del self.assigned[member][topic]
        self.sizes[member] -= 1
        return partition


def _as_even_as_possible(
    members: Mapping[str, Subscriber[TopicId]],
    kept: Mapping[str, Sequence[PartitionId[TopicId]]],
    free: Mapping[TopicId, Sequence[int]],
) -> Steps[dict[str, frozenset[PartitionId[TopicId]]]]:
    """Give free partitions to the least loaded subscriber, then move while two subscribers of a topic differ by two or more.

    Terminates because each move reduces the sum of the squares of all sizes.
    """
    shares = _Shares[TopicId](members)
    yield from shares.find_readers(members)
    for member, found in kept.items():
        for topic, partition in found:
            shares.give(member, topic, partition)
        yield
    for topic in sorted(free, key=lambda topic: (shares.count_readers(topic), topic)):
        for partition in free[topic]:
            shares.give(shares.find_least(topic), topic, partition)
            yield
    while (yield from _move(shares)):
        pass
    assigned = {}
    for member, topics in shares.assigned.items():
        assigned[member] = frozenset((topic, partition) for topic, found in topics.items() for partition in found)
        yield
    return assigned


def _move(shares: _Shares[TopicId]) -> Steps[bool]:
    """Move partitions from each member to those with fewer. Return whether there were any: then there may be more."""
    shares.sort_readers()
    sizes, has_moved = shares.sizes, False
    for member in sorted(sizes, key=lambda one: (-sizes[one], one)):
        for topic in sorted(shares.assigned[member]):
            while topic in shares.assigned[member]:
                other = shares.find_least(topic)
                if sizes[member] < sizes[other] + 2:
                    break
                shares.give(other, topic, shares.take_last(member, topic))
                has_moved = True
                yield
            yield
    return has_moved
