"""Replicas join and leave the ISR, and partitions move to other brokers.

The leader asks for its ISR (AlterPartition, KIP-497, 841, 903). A reassignment (KIP-455) adds the new replicas to the old ones;
once all replicas that it aims at are in the ISR, `election.settle` removes the others. Its order of replicas counts at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kafkalake.cluster.election import ElectionRules, RulesOf, settle, with_partitions
from kafkalake.cluster.image import ClusterImage, PartitionRegistration, TopicIdPartition
from kafkalake.cluster.registration import check_broker_epoch
from kafkalake.errors import (
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    KafkaError,
    NewLeaderElectedError,
    NoReassignmentInProgressError,
    NotControllerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    as_value,
)

ANY_EPOCH = -1


class Replica(NamedTuple):
    """A replica that is to be in an ISR, with the epoch of its broker under which the leader saw it fetch, or `ANY_EPOCH`."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class IsrChange:
    """The ISR that the leader of a partition asks for.

    leader_epoch, partition_epoch: those of the registration that the leader goes by. is_recovering: it has not recovered from the
    unclean election that made it the leader.
    """

    partition: TopicIdPartition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[Replica, ...]
    is_recovering: bool = False

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The replicas without the epochs."""
        return tuple(each.broker_id for each in self.isr)


class IsrState(NamedTuple):
    """Leader and ISR of a partition, after a change."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    is_recovering: bool = False


def alter_partitions(
    image: ClusterImage,
    broker_id: int,
    broker_epoch: int,
    changes: Iterable[IsrChange],
    rules: RulesOf,
) -> tuple[ClusterImage, dict[TopicIdPartition, KafkaError]]:
    """Return the next version, with the ISRs that the leader `broker_id` asks for, and the error of each partition without success.

    A leader that outdated the image gets `NotControllerError`: it has it from another controller. `NewLeaderElectedError` is both
    an error and a change: the ISR completed a reassignment or let the leader shut down, and another replica leads.
    Raise `StaleBrokerEpochError` if another incarnation of the broker is registered.
    """
    check_broker_epoch(image, broker_id, broker_epoch)
    changed: dict[TopicIdPartition, PartitionRegistration] = {}
    errors: dict[TopicIdPartition, KafkaError] = {}
    for asked in changes:
        of = asked.partition
        before = image.partition(of)
        if before is None:
            errors[of] = UnknownTopicOrPartitionError() if of[0] in image.partitions else UnknownTopicIdError()
        elif (error := _refusal(image, before, broker_id, asked)) is not None:
            errors[of] = error
        else:
            target = replace(before, isr=_kept(image, before, asked), is_recovering=asked.is_recovering)
            after = settle(image.brokers, before, target, rules(of[0]))
            if after is not before:
                changed[of] = after
            if after.leader != broker_id:
                errors[of] = NewLeaderElectedError()
    return with_partitions(image, changed), errors


def _kept(image: ClusterImage, before: PartitionRegistration, asked: IsrChange) -> tuple[int, ...]:
    """Return the ISR: a leader that shuts down leaves it as soon as another replica is in it."""
    isr = asked.broker_ids
    if image.brokers[before.leader].is_active:
        return isr
    return tuple(each for each in isr if each != before.leader) or isr


def _refusal(
    image: ClusterImage, partition: PartitionRegistration, broker_id: int, asked: IsrChange
) -> KafkaError | None:
    """Return why a change of the ISR is refused, in Kafka's order."""
    isr = asked.broker_ids
    if asked.leader_epoch > partition.leader_epoch or asked.partition_epoch > partition.partition_epoch:
        return NotControllerError()
    if asked.leader_epoch < partition.leader_epoch:
        return FencedLeaderEpochError()
    if broker_id != partition.leader:
        return InvalidRequestError(f"The leader is {partition.leader}.")
    if asked.partition_epoch < partition.partition_epoch:
        return InvalidUpdateVersionError()
    if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas) or broker_id not in isr:
        return InvalidRequestError("An ISR consists of different replicas, and the leader is one of them.")
    if asked.is_recovering and (len(isr) > 1 or not partition.is_recovering):
        return InvalidRequestError("A recovering leader is alone in the ISR, and only an election makes it recover.")
    if not all(_is_eligible(image, each, broker_id) for each in asked.isr):
        return IneligibleReplicaError()
    return None


def _is_eligible(image: ClusterImage, replica: Replica, leader: int) -> bool:
    broker = image.brokers.get(replica.broker_id)
    if broker is None or replica.broker_epoch not in (ANY_EPOCH, broker.epoch):
        return False
    return broker.is_active or broker.broker_id == leader


def alter_reassignments(
    image: ClusterImage,
    asked: Mapping[TopicIdPartition, Sequence[int] | None],
    rules: RulesOf,
    *,
    may_change_factor: bool = True,
) -> tuple[ClusterImage, dict[TopicIdPartition, KafkaError]]:
    """Return the next version, in which partitions move to other replicas, or None back, and the error of each that does not.

    The replicas are different and registered brokers. A replica that an earlier move added and this one does not need is both added
    and removed. The errors: `UnknownTopicOrPartitionError`; of a move `InvalidReplicationFactorError` if the replication factor may
    not change; of a move back `NoReassignmentInProgressError`, and `InvalidReplicaAssignmentError` if none of the replicas is
    eligible and unclean elections are not allowed.
    """
    changed: dict[TopicIdPartition, PartitionRegistration] = {}
    errors: dict[TopicIdPartition, KafkaError] = {}
    for of, replicas in asked.items():
        try:
            before = _partition(image, of)
            if replicas is None:
                target = _moved_back(image, of, before, rules(of[0]))
            else:
                target = _moved(before, replicas, may_change_factor=may_change_factor)
        except KafkaError as error:
            errors[of] = as_value(error)
            continue
        if (after := settle(image.brokers, before, target, rules(of[0]))) is not before:
            changed[of] = after
    return with_partitions(image, changed), errors


def _moved(before: PartitionRegistration, replicas: Sequence[int], *, may_change_factor: bool) -> PartitionRegistration:
    assert replicas and len(set(replicas)) == len(replicas)
    aimed_at = len({*before.replicas} - {*before.removing})
    if not may_change_factor and len(replicas) != aimed_at:
        raise InvalidReplicationFactorError(f"The replication factor is changed from {aimed_at} to {len(replicas)}")
    original = {*before.replicas} - {*before.adding}
    all_replicas = (*replicas, *(each for each in before.replicas if each not in replicas))
    return replace(
        before,
        replicas=all_replicas,
        adding=tuple(each for each in all_replicas if each not in original),
        removing=tuple(each for each in all_replicas if each not in replicas),
    )


def _moved_back(
    image: ClusterImage, of: TopicIdPartition, before: PartitionRegistration, rules: ElectionRules
) -> PartitionRegistration:
    if not before.is_moving:
        raise NoReassignmentInProgressError()
    replicas = tuple(each for each in before.replicas if each not in before.adding)
    isr = tuple(each for each in before.isr if each in replicas)
    isr = isr or tuple(each for each in before.elr if each in replicas)[:1]
    offline = tuple(each for each in before.offline if each in replicas)
    target = replace(before, replicas=replicas, isr=isr, offline=offline, adding=(), removing=())
    if isr:
        return target
    if not rules.is_unclean_allowed:
        raise InvalidReplicaAssignmentError(
            f"Unable to revert partition assignment for {of[0]}:{of[1]} because it would require an unclean leader election."
        )
    able = [each for each in replicas if each in image.brokers and image.brokers[each].is_active]
    last = (able or replicas)[0]
    return replace(target, isr=(last,), last_known_elr=(last,))


def _partition(image: ClusterImage, of: TopicIdPartition) -> PartitionRegistration:
    partition = image.partition(of)
    if partition is None:
        raise UnknownTopicOrPartitionError()
    return partition
