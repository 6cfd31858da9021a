"""Images of small clusters, and what holds in each of them."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from kafkalake.cluster.election import ElectionRules
from kafkalake.cluster.image import NO_LEADER, BrokerRegistration, ClusterImage, PartitionRegistration

TOPIC = UUID(int=1)


def incarnation(broker_id: int, number: int = 0, **others: str) -> BrokerRegistration:
    """Return what a process of a broker registers."""
    return BrokerRegistration(broker_id, -1, UUID(int=1000 * broker_id + number), (), **others)


def cluster(
    *partitions: PartitionRegistration, unfenced: str = "012", fenced: str = "", shutting_down: str = ""
) -> ClusterImage:
    """Return an image of brokers with one digit, whose epochs are ten times their ids, and one topic."""
    brokers = {}
    for broker_id in map(int, unfenced + fenced + shutting_down):
        brokers[broker_id] = replace(
            incarnation(broker_id),
            epoch=10 * broker_id,
            is_fenced=str(broker_id) in fenced,
            is_shutting_down=str(broker_id) in shutting_down,
        )
    return ClusterImage("lake", version=100, brokers=brokers, partitions={TOPIC: partitions})


def partition(
    leader: int, replicas: str, isr: str, elr: str = "", last: str = "", offline: str = ""
) -> PartitionRegistration:
    """Return a partition whose replicas are written as digits, at leader epoch 5 and partition epoch 7."""
    lists = (tuple(map(int, each)) for each in (replicas, isr, offline, elr, last))
    replicas_, isr_, offline_, elr_, last_ = lists
    return PartitionRegistration(leader, 5, replicas_, isr_, offline_, 7, elr_, last_)


def only(image: ClusterImage) -> PartitionRegistration:
    """Return the partition of an image with one."""
    (found,) = image.partitions[TOPIC]
    return found


def text(found: PartitionRegistration) -> str:
    """Return leader, ISR, ELR and last known ELR as digits, `!` if it is recovering, and how far `partition`'s epochs are."""

    def digits(ids: tuple[int, ...]) -> str:
        return "".join(map(str, ids)) or "-"

    leader = "none" if found.leader == NO_LEADER else str(found.leader)
    lists = "/".join(digits(each) for each in (found.isr, found.elr, found.last_known_elr))
    mark = "!" if found.is_recovering else ""
    return f"{leader}{mark} {lists} +{found.leader_epoch - 5}+{found.partition_epoch - 7}"


def rules(min_isr: int = 1, *, unclean: bool = False) -> ElectionRules:
    """Return the rules of a topic."""
    return ElectionRules(min_isr, unclean)


def check_image(image: ClusterImage) -> None:
    """Raise `AssertionError` if an image contradicts itself."""
    for registrations in image.partitions.values():
        for each in registrations:
            replicas, isr, elr = set(each.replicas), set(each.isr), set(each.elr)
            assert isr and isr <= replicas and len(isr) == len(each.isr), each
            assert elr <= replicas and not elr & isr and len(elr) == len(each.elr), each
            assert not each.last_known_elr or (each.last_known_elr == each.isr and each.leader == NO_LEADER), each
            assert set(each.adding) | set(each.removing) <= replicas, each
            if each.leader != NO_LEADER:
                leader = image.brokers[each.leader]
                assert each.leader in isr and not leader.is_fenced and each.leader not in each.offline, each


def check_next(before: ClusterImage, after: ClusterImage) -> None:
    """Raise `AssertionError` if `after` is neither the same object nor the next version, or if an epoch falls or does not count."""
    if after is before:
        return
    assert after.version == before.version + 1
    check_image(after)
    for topic_id, registrations in before.partitions.items():
        for old, new in zip(registrations, after.partitions.get(topic_id, ()), strict=False):
            assert new.partition_epoch == old.partition_epoch + (new != old)
            assert new.leader_epoch - old.leader_epoch in (0, 1)
            if new.leader != old.leader:
                assert new.leader_epoch == old.leader_epoch + 1
