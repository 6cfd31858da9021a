"""The assignors of classic groups: what the leader of a group assigns to its members, by Kafka's names.

`range` and the two sticky ones are those of `kafkalake.assignment`, which the broker has too; the sticky ones first find out who
really owns what, as members may come back with partitions that others have meanwhile. `cooperative-sticky` gives a partition that
changes hands to nobody at first: its owner revokes it and joins again, and then it is assigned (KIP-429). An assignor of your own
is an object with the members of `Assignor`. Sources: Kafka's documentation of `partition.assignment.strategy`; KIP-54, KIP-341.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Literal, Protocol

from kafkalake.assignment import Subscriber, assign_range, assign_uniform, member_order
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire.consumer_protocol import (
    NO_GENERATION,
    Subscription,
    decode_generation,
    decode_sticky,
    encode_generation,
    encode_sticky,
)

RebalanceProtocol = Literal["eager", "cooperative"]
"""Return whether members revoke all partitions before they join, or only those that go to others."""

Assigned = dict[str, Sequence[TopicPartition]]
"""Partitions by member id, of every member."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group as its leader sees it: what it subscribed with, and its `group.instance.id`."""

    subscription: Subscription
    group_instance_id: str | None = None


class Assignor(Protocol):
    """Assigns partitions to the members of a group. It is called in the group's leader; all members need it by the same name.

    What it raises comes out of `poll` as `AssignorError`; the poll after that asks it again.
    """

    @property
    def name(self) -> str:
        """The name under which members of other clients have it."""
        ...

    @property
    def rebalance_protocol(self) -> RebalanceProtocol:
        """The rebalance protocol that the assignor is made for."""
        ...

    def encode_user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        """Return the bytes that go with this member's subscription. `owned`: its last assignment, of `generation`."""
        ...

    def assign(self, members: Mapping[str, GroupMember], partitions: Mapping[str, int]) -> Assigned:
        """Return the partitions of each member. `partitions`: number of partitions by topic, of those that exist."""
        ...


def _subscribers(
    members: Mapping[str, GroupMember], owned: Mapping[str, frozenset[TopicPartition]]
) -> dict[str, Subscriber[str]]:
    return {
        member_id: Subscriber(
            frozenset(member.subscription.topics), owned.get(member_id, frozenset()), member.group_instance_id
        )
        for member_id, member in members.items()
    }


class RangeAssignor:
    """A range of each topic's partitions for each member: the same numbers of topics of equal size."""

    name = "range"
    rebalance_protocol: RebalanceProtocol = "eager"

    def encode_user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        """Return none: the assignment does not depend on the one before."""
        return b""

    def assign(self, members: Mapping[str, GroupMember], partitions: Mapping[str, int]) -> Assigned:
        """Return ranges, as `assign_range`."""
        return {member: sorted(found) for member, found in assign_range(_subscribers(members, {}), partitions).items()}


class RoundRobinAssignor:
    """The partitions of all topics in turn to the members, each to the next that subscribed to its topic."""

    name = "roundrobin"
    rebalance_protocol: RebalanceProtocol = "eager"

    def encode_user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        """Return none: the assignment does not depend on the one before."""
        return b""

    def assign(self, members: Mapping[str, GroupMember], partitions: Mapping[str, int]) -> Assigned:
        """Return each member's turns. Members are in the order of `member_order`, partitions by topic and number."""
        subscribers = _subscribers(members, {})
        assigned: dict[str, list[TopicPartition]] = {member: [] for member in members}
        read = {topic for subscriber in subscribers.values() for topic in subscriber.topics}
        turns = cycle(member_order(subscribers))
        for topic in sorted(read & partitions.keys()):
            for partition in range(partitions[topic]):
                member = next(each for each in turns if topic in subscribers[each].topics)
                assigned[member].append((topic, partition))
        return dict(assigned)


class StickyAssignor:
    """As even as subscriptions allow, with as few moves as that takes."""

    name = "sticky"
    rebalance_protocol: RebalanceProtocol = "eager"

    def encode_user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        """Return the last assignment: with the eager protocol members have revoked it when they join."""
        return encode_sticky(owned, generation)

    def assign(self, members: Mapping[str, GroupMember], partitions: Mapping[str, int]) -> Assigned:
        """Return what `assign_uniform` does."""
        claims = {member: decode_sticky(each.subscription.user_data) for member, each in members.items()}
        subscribers = _subscribers(members, settle_claims(claims))
        return {member: sorted(found) for member, found in assign_uniform(subscribers, partitions).items()}


class CooperativeStickyAssignor:
    """The same as `StickyAssignor`, for members that keep what they do not have to give away."""

    name = "cooperative-sticky"
    rebalance_protocol: RebalanceProtocol = "cooperative"

    def encode_user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        """Return the generation. What the member owns is in the subscription itself."""
        return encode_generation(generation)

    def assign(self, members: Mapping[str, GroupMember], partitions: Mapping[str, int]) -> Assigned:
        """Return what `assign_uniform` does, without the partitions that another member owns still."""
        claims = {member: (each.subscription.owned, _generation(each)) for member, each in members.items()}
        subscribers = _subscribers(members, settle_claims(claims))
        wanted = assign_uniform(subscribers, partitions)
        owners: dict[TopicPartition, set[str]] = {}
        for member, (owned, _) in claims.items():
            for partition in owned:
                owners.setdefault(partition, set()).add(member)
        return {
            member: sorted(one for one in found if member in owners.get(one, {member}))
            for member, found in wanted.items()
        }


def _generation(member: GroupMember) -> int:
    """Return the generation of a member's claim: in the user data before KIP-792, later in the subscription itself."""
    of_subscription = member.subscription.generation
    return of_subscription if of_subscription != NO_GENERATION else decode_generation(member.subscription.user_data)


def settle_claims(
    claims: Mapping[str, tuple[Sequence[TopicPartition], int]],
) -> dict[str, frozenset[TopicPartition]]:
    """Return who owns what of `claims`, partitions and generation by member.

    Of two members that claim a partition the one of the later generation owns it, and neither if they are of the same: one of
    them missed a rebalance, and it is not known which.
    """
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in sorted(claims):
        owned, generation = claims[member]
        for partition in owned:
            found = best.get(partition)
            if found is None or generation > found[0]:
                best[partition] = (generation, member)
            elif generation == found[0] and member != found[1]:
                best[partition] = (generation, None)
    settled: dict[str, set[TopicPartition]] = {member: set() for member in claims}
    for partition, (_, owner) in best.items():
        if owner is not None:
            settled[owner].add(partition)
    return {member: frozenset(owned) for member, owned in settled.items()}


ASSIGNORS: dict[str, Assignor] = {
    assignor.name: assignor
    for assignor in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
}
"""Kafka's assignors by name."""

JAVA_CLASSES = {
    f"org.apache.kafka.clients.consumer.{java}Assignor": name
    for java, name in (
        ("Range", "range"),
        ("RoundRobin", "roundrobin"),
        ("Sticky", "sticky"),
        ("CooperativeSticky", "cooperative-sticky"),
    )
}
"""Their names in Java's `partition.assignment.strategy`."""
