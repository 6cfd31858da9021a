"""Who leads a partition, and who else could without losing what was acknowledged (KIP-966).

`choose_leader` decides who leads. `settle` makes of a partition what a change of brokers, replicas or ISR makes of it: the leader,
the replicas that are eligible beside the ISR (ELR), the epochs. Every other decision on partitions goes through it.

The ISR never becomes empty: the last replica stays in it without leading, and leads again when it returns. The ELR are replicas
that left an ISR which was smaller than `min.insync.replicas`: the high watermark did not move since, so they have all of it. A
replica that was the last one and may have lost records (`last_known_elr`) leads again too, but as after an unclean election.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from uuid import UUID

from kafkalake.cluster.image import (
    NO_LEADER,
    BrokerRegistration,
    ClusterImage,
    PartitionRegistration,
    TopicIdPartition,
)
from kafkalake.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    KafkaError,
    PreferredLeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)

ELECTIONS_MAX = 1_000
"""The limit on elections of preferred leaders in one version, as in Kafka."""


class Election(Enum):
    """A kind of election.

    ONLINE: the leader stays if it can. PREFERRED: the first replica leads if it is in the ISR. UNCLEAN: if none can lead, any
    active replica does, and the ISR becomes that one.
    """

    ONLINE = "online"
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


@dataclass(frozen=True, slots=True)
class ElectionRules:
    """The settings of a topic that elections follow: `min.insync.replicas`, `unclean.leader.election.enable`."""

    min_isr: int = 1
    is_unclean_allowed: bool = False

    @property
    def election(self) -> Election:
        """The election when the brokers or the ISR have changed."""
        return Election.UNCLEAN if self.is_unclean_allowed else Election.ONLINE


RulesOf = Callable[[UUID], ElectionRules]
"""Returns the rules of a topic by its id."""


def choose_leader(
    brokers: Mapping[int, BrokerRegistration], partition: PartitionRegistration, election: Election
) -> tuple[int, bool]:
    """Return the leader of a partition, or `NO_LEADER`, and whether its election is unclean.

    A leader that shuts down stays until another replica can lead, or it is fenced.
    """
    order = dict.fromkeys((partition.leader, *partition.replicas))
    if election is Election.PREFERRED:
        order = dict.fromkeys((*partition.replicas[:1], *order))
    unfenced = [
        each
        for each in order
        if each in partition.replicas and each not in partition.offline and _is_unfenced(brokers, each)
    ]
    active = [each for each in unfenced if brokers[each].is_active]
    clean = (each for eligible in (partition.isr, partition.elr) for each in active if each in eligible)
    for leader in clean:
        if leader not in partition.last_known_elr:
            return leader, False
    if partition.leader in unfenced and partition.leader in partition.isr:
        return partition.leader, False
    unclean = [each for each in active if each in partition.last_known_elr]
    if election is Election.UNCLEAN:
        unclean += active
    return (unclean[0], True) if unclean else (NO_LEADER, False)


def _is_unfenced(brokers: Mapping[int, BrokerRegistration], broker_id: int) -> bool:
    return broker_id in brokers and not brokers[broker_id].is_fenced


def without_replica(isr: tuple[int, ...], broker_id: int) -> tuple[int, ...]:
    """Return an ISR without a replica, or the same if it is the last one."""
    return tuple(each for each in isr if each != broker_id) or isr


def settle(
    brokers: Mapping[int, BrokerRegistration],
    before: PartitionRegistration,
    target: PartitionRegistration,
    rules: ElectionRules,
    election: Election | None = None,
    lossy: int | None = None,
) -> PartitionRegistration:
    """Return the registration after `before`, where `target` has the replicas, ISR and reassignment that it should have.

    A reassignment that has reached its replicas is completed. `election`: that of the rules unless given. `lossy`: a replica that
    may have lost records and is no longer eligible. The same object is returned if nothing changes.
    """
    after = _with_eligible(before, _completed(target), rules, lossy)
    leader, is_unclean = choose_leader(brokers, after, election or rules.election)
    isr, elr, last_known_elr = after.isr, after.elr, after.last_known_elr
    if is_unclean:
        isr, elr, last_known_elr = (leader,), (), ()
    elif leader in elr:
        isr, elr = (leader,), _in_order(after, {*isr, *elr} - {leader})
    is_recovering = is_unclean or after.is_recovering
    elected = (leader, isr, elr, last_known_elr, is_recovering)
    if after == before and elected == (
        before.leader,
        before.isr,
        before.elr,
        before.last_known_elr,
        before.is_recovering,
    ):
        return before
    is_new_epoch = leader != before.leader or not set(before.replicas) <= set(after.replicas)
    return replace(
        after,
        leader=leader,
        leader_epoch=before.leader_epoch + is_new_epoch,
        partition_epoch=before.partition_epoch + 1,
        isr=isr,
        elr=elr,
        last_known_elr=last_known_elr,
        is_recovering=is_recovering,
    )


def _with_eligible(
    before: PartitionRegistration, target: PartitionRegistration, rules: ElectionRules, lossy: int | None
) -> PartitionRegistration:
    isr = target.isr
    eligible = {*before.isr, *before.elr} - {lossy}
    if lossy is not None and isr == (lossy,) and len(target.replicas) > 1:
        others = _in_order(target, eligible)
        if not others:
            return replace(target, elr=(), last_known_elr=isr)
        isr = others[:1]
    is_enough = len(isr) >= min(rules.min_isr, len(target.replicas))
    elr = () if is_enough else _in_order(target, eligible - {*isr})
    return target if (isr, elr) == (target.isr, target.elr) else replace(target, isr=isr, elr=elr)


def _in_order(partition: PartitionRegistration, some: set[int]) -> tuple[int, ...]:
    return tuple(each for each in partition.replicas if each in some)


def _completed(target: PartitionRegistration) -> PartitionRegistration:
    """Return `target` without the replicas that its reassignment removes, once all others are in the ISR."""
    if not target.is_moving:
        return target
    replicas = tuple(each for each in target.replicas if each not in target.removing)
    if not replicas or not set(replicas) <= set(target.isr):
        return target
    isr = tuple(each for each in target.isr if each not in target.removing)
    offline = tuple(each for each in target.offline if each not in target.removing)
    return replace(target, replicas=replicas, isr=isr, offline=offline, adding=(), removing=())


def changed_topics(
    image: ClusterImage, change: Callable[[TopicIdPartition, PartitionRegistration], PartitionRegistration]
) -> dict[UUID, tuple[PartitionRegistration, ...]]:
    """Return the topics with a partition of which `change` makes another registration."""
    changed = {}
    for topic_id, before in image.partitions.items():
        after = tuple(change((topic_id, index), each) for index, each in enumerate(before))
        if any(new is not old for new, old in zip(after, before, strict=True)):
            changed[topic_id] = after
    return changed


def elect_leaders(
    image: ClusterImage, asked: Iterable[TopicIdPartition], election: Election, rules: RulesOf
) -> tuple[ClusterImage, dict[TopicIdPartition, KafkaError]]:
    """Return the next version, with leaders elected as an administrator asks, and the error of each partition without success.

    `election`: PREFERRED, or UNCLEAN whatever the topic's setting. The errors: `ElectionNotNeededError`,
    `PreferredLeaderNotAvailableError`, `EligibleLeadersNotAvailableError`, `UnknownTopicOrPartitionError`.
    """
    changed: dict[TopicIdPartition, PartitionRegistration] = {}
    errors: dict[TopicIdPartition, KafkaError] = {}
    for each in asked:
        partition = image.partition(each)
        if partition is None:
            errors[each] = UnknownTopicOrPartitionError()
        elif not _is_needed(partition, election):
            errors[each] = ElectionNotNeededError()
        elif (after := settle(image.brokers, partition, partition, rules(each[0]), election)) is not partition:
            changed[each] = after
        elif election is Election.PREFERRED:
            errors[each] = PreferredLeaderNotAvailableError()
        else:
            errors[each] = EligibleLeadersNotAvailableError()
    return with_partitions(image, changed), errors


def _is_needed(partition: PartitionRegistration, election: Election) -> bool:
    if election is Election.PREFERRED:
        return partition.leader not in partition.replicas[:1]
    return partition.leader == NO_LEADER


def with_partitions(image: ClusterImage, changed: Mapping[TopicIdPartition, PartitionRegistration]) -> ClusterImage:
    """Return the next version, with single partitions changed; the same image if there are none."""
    if not changed:
        return image
    topics: dict[UUID, list[PartitionRegistration]] = {}
    for (topic_id, index), after in changed.items():
        topics.setdefault(topic_id, list(image.partitions[topic_id]))[index] = after
    return image.with_topics({topic_id: tuple(each) for topic_id, each in topics.items()})


def leader_imbalance(image: ClusterImage) -> dict[int, float]:
    """Return for each broker that is preferred somewhere the part of those partitions that another one leads, 0 to 1."""
    preferred: dict[int, int] = {}
    elsewhere: dict[int, int] = {}
    for partitions in image.partitions.values():
        for each in partitions:
            if each.replicas:
                first = each.replicas[0]
                preferred[first] = preferred.get(first, 0) + 1
                elsewhere[first] = elsewhere.get(first, 0) + (each.leader != first)
    return {broker_id: elsewhere[broker_id] / count for broker_id, count in preferred.items()}


def rebalance_leaders(image: ClusterImage, percentage: int, rules: RulesOf) -> ClusterImage:
    """Return the next version, with the preferred leaders of the brokers whose imbalance exceeds `percentage`.

    At most `ELECTIONS_MAX` leaders change. A partition whose reassignment is under way, or that has no leader, is left as it is.
    """
    imbalanced = {broker_id for broker_id, part in leader_imbalance(image).items() if part * 100 > percentage}
    changed: dict[TopicIdPartition, PartitionRegistration] = {}
    for topic_id, partitions in image.partitions.items():
        for index, each in enumerate(partitions):
            if len(changed) == ELECTIONS_MAX:
                return with_partitions(image, changed)
            if _is_movable(image, each, imbalanced):
                changed[topic_id, index] = settle(image.brokers, each, each, rules(topic_id), Election.PREFERRED)
    return with_partitions(image, changed)


def _is_movable(image: ClusterImage, partition: PartitionRegistration, imbalanced: set[int]) -> bool:
    if partition.leader == NO_LEADER or partition.leader == partition.replicas[0] or partition.is_moving:
        return False
    preferred = partition.replicas[0]
    return preferred in imbalanced and choose_leader(image.brokers, partition, Election.PREFERRED)[0] == preferred
