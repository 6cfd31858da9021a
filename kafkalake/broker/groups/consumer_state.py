"""The journaled state of a consumer protocol group, with the same steps at run time and while loading.

`follow` applies one record. Only journaled state is here. Sessions are in `groups.consumer`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from kafkalake.broker.coordination.table import MetadataMemory
from kafkalake.broker.groups.assignors import NOTHING, Assignment
from kafkalake.broker.groups.consumer_records import (
    ConsumerRecord,
    Current,
    CurrentRecord,
    EpochRecord,
    MemberState,
    Subscription,
    SubscriptionRecord,
    TargetEpochRecord,
    TargetRecord,
)
from kafkalake.broker.groups.consumer_requests import LEAVE_STATIC_EPOCH
from kafkalake.broker.groups.requests import GroupProtocol
from kafkalake.broker.groups.roster import kept_bytes
from kafkalake.topic_partition import PartitionId

EMPTY, ASSIGNING, RECONCILING, STABLE, DEAD = "Empty", "Assigning", "Reconciling", "Stable", "Dead"
"""Kafka's names of the states."""

ASSIGNED_BYTES = 256
"""Approximate memory of a partition in a target, and then in an assignment and among the owners."""


class ConsumerState:
    """Members, epochs, targets and partition owners.

    `bytes`: memory of the members. It counts in `memory` too, with that of other groups, and so do the partitions in targets,
    `assigned`, of which a group has no more than there are.
    """

    def __init__(self, group_id: str, memory: MetadataMemory | None = None) -> None:
        self.group_id = group_id
        self.memory = memory or MetadataMemory()
        self.bytes = 0
        self.assigned = 0
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.subscriptions: dict[str, Subscription] = {}
        self.targets: dict[str, Assignment] = {}
        self.currents: dict[str, Current] = {}
        self._static: dict[str, str] = {}
        self._owners: dict[PartitionId[uuid.UUID], str] = {}

    def __len__(self) -> int:
        return len(self.subscriptions)

    @property
    def state(self) -> str:
        if not self.subscriptions:
            return EMPTY
        if self.epoch > self.target_epoch:
            return ASSIGNING
        reconciled = all(self.is_reconciled(self.current(member_id)) for member_id in self.subscriptions)
        return STABLE if reconciled else RECONCILING

    def is_reconciled(self, current: Current) -> bool:
        """Return whether a member has reached its target."""
        return current.state is MemberState.STABLE and current.epoch == self.target_epoch

    def current(self, member_id: str) -> Current:
        """Return the member's current state, which is empty for one that has just joined."""
        return self.currents.get(member_id) or Current()

    def static_member_id(self, group_instance_id: str) -> str | None:
        """Return the current member id of an instance id."""
        return self._static.get(group_instance_id)

    def owner(self, partition: PartitionId[uuid.UUID]) -> str | None:
        """Return the member that has the partition or has not revoked it yet, or None."""
        return self._owners.get(partition)

    def follow(self, record: ConsumerRecord) -> None:
        """Apply the next journal record."""
        match record:
            case EpochRecord(_, epoch):
                self.epoch, self.metadata_hash = (0, 0) if epoch is None else (epoch.epoch, epoch.metadata_hash)
            case TargetEpochRecord(_, target_epoch):
                self.target_epoch = target_epoch or 0
            case TargetRecord(_, member_id, target):
                self._count_assigned(len(target or NOTHING) - len(self.targets.get(member_id, NOTHING)))
                if target is None:
                    self.targets.pop(member_id, None)
                else:
                    self.targets[member_id] = target
            case SubscriptionRecord(_, member_id, subscription):
                self._follow_subscription(member_id, subscription)
            case CurrentRecord(_, member_id, current):
                self._follow_current(member_id, current)

    def _follow_subscription(self, member_id: str, subscription: Subscription | None) -> None:
        old = self.subscriptions.pop(member_id, None)
        self._count(0 if old is None else -kept_bytes_of(old))
        if old is not None and old.group_instance_id and self._static.get(old.group_instance_id) == member_id:
            del self._static[old.group_instance_id]
        if subscription is not None:
            self.subscriptions[member_id] = subscription
            self._count(kept_bytes_of(subscription))
            if subscription.group_instance_id:
                self._static[subscription.group_instance_id] = member_id

    def _count(self, bytes_: int) -> None:
        self.bytes += bytes_
        self.memory.add(bytes_)

    def _count_assigned(self, partitions: int) -> None:
        self.assigned += partitions
        self.memory.add(partitions * ASSIGNED_BYTES)

    def release(self) -> None:
        """Release the memory of a group that has ended."""
        self._count(-self.bytes)
        self._count_assigned(-self.assigned)

    def _follow_current(self, member_id: str, current: Current | None) -> None:
        old = self.currents.pop(member_id, None)
        for partition in NOTHING if old is None else old.assigned | old.revoking:
            if self._owners.get(partition) == member_id:
                del self._owners[partition]
        if current is not None:
            self.currents[member_id] = current
            self._owners.update(dict.fromkeys(current.assigned | current.revoking, member_id))

    def tombstones(self) -> Iterator[ConsumerRecord]:
        """Return the records that end the group (deleted, or replaced by a classic one)."""
        for member_id in list(self.subscriptions):
            yield from self.tombstones_of(member_id)
        yield TargetEpochRecord(self.group_id, None)
        yield EpochRecord(self.group_id, None)

    def tombstones_of(self, member_id: str) -> Iterator[ConsumerRecord]:
        """Return the records that remove a member."""
        yield CurrentRecord(self.group_id, member_id, None)
        yield TargetRecord(self.group_id, member_id, None)
        yield SubscriptionRecord(self.group_id, member_id, None)


def kept_bytes_of(subscription: Subscription) -> int:
    """Return the approximate memory of a member in bytes, from its subscription and names."""
    classic = () if subscription.classic is None else subscription.classic.protocols
    protocols = (GroupProtocol(name, metadata) for name, metadata in classic)
    names = (subscription.regex or "", subscription.rack_id or "", *subscription.topics)
    return kept_bytes(subscription.client_id, subscription.group_instance_id, protocols) + sum(map(len, names))


def is_away(current: Current) -> bool:
    """Return whether a static member left temporarily. Its partitions stay reserved for it."""
    return current.epoch == LEAVE_STATIC_EPOCH
