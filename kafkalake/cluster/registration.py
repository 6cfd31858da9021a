"""Brokers come and go: registered, unfenced, shutting down, fenced, unregistered. Each decision elects the leaders that it must.

A broker's epoch is the version that registered its incarnation, so a request of an earlier incarnation is recognized.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from kafkalake.cluster.election import ElectionRules, RulesOf, changed_topics, settle, without_replica
from kafkalake.cluster.image import (
    BrokerRegistration,
    ClusterImage,
    ControllerRegistration,
    PartitionRegistration,
    TopicIdPartition,
    decide_together,
)
from kafkalake.errors import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerRegistrationError,
    InvalidRequestError,
    StaleBrokerEpochError,
)

NO_EPOCH = -1

Node = TypeVar("Node")


def check_broker_epoch(image: ClusterImage, broker_id: int, broker_epoch: int) -> BrokerRegistration:
    """Return a broker's registration. Raise `StaleBrokerEpochError` if it has none, or one with another epoch."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise StaleBrokerEpochError(f"No broker registration found for broker id {broker_id}")
    if broker.epoch != broker_epoch:
        raise StaleBrokerEpochError(f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}")
    return broker


def register_broker(image: ClusterImage, broker: BrokerRegistration, rules: RulesOf, *, is_clean: bool) -> ClusterImage:
    """Return the next version, with an incarnation of a broker registered: fenced, with the version as its epoch.

    is_clean: its logs lost nothing when the incarnation before it ended; otherwise it is no longer eligible to lead partitions
    where another replica is (see `was_clean`). The same incarnation registered again keeps its epoch and its state.

    Raise `DuplicateBrokerRegistrationError` if another incarnation has the id, and is neither fenced nor shutting down.
    """
    known = image.brokers.get(broker.broker_id)
    if known is not None and known.incarnation_id == broker.incarnation_id:
        again = replace(broker, epoch=known.epoch, is_fenced=known.is_fenced, is_shutting_down=known.is_shutting_down)
        return image if again == known else image.with_broker(again)
    if known is not None and known.is_active:
        raise DuplicateBrokerRegistrationError(
            "Another broker is registered with that broker id. If the broker was recently restarted this should self-resolve "
            "once the heartbeat manager expires the broker's session."
        )
    registered = replace(broker, epoch=image.version + 1, is_fenced=True, is_shutting_down=False)
    lossy = None if is_clean else broker.broker_id
    brokers = {**image.brokers, broker.broker_id: registered}
    joined = _without_broker(image, brokers, broker.broker_id, rules, lossy, keeps_offline=False)
    return replace(joined, controllers=_without(image.controllers, broker.broker_id))


def register_controller(image: ClusterImage, node: ControllerRegistration) -> ClusterImage:
    """Return the next version, with a node that is a controller only; the same image if it is registered as it is.

    An incarnation of the node before it has ended, which may have been a broker. Raise `InvalidRequestError` if partitions have
    replicas on it.
    """
    node_id = node.controller_id
    if image.controllers.get(node_id) == node and node_id not in image.brokers:
        return image
    if any(node_id in each.replicas for partitions in image.partitions.values() for each in partitions):
        raise InvalidRequestError(f"Node {node_id} has replicas: it is a broker until they are on others.")
    brokers, controllers = _without(image.brokers, node_id), {**image.controllers, node_id: node}
    return replace(image, version=image.version + 1, brokers=brokers, controllers=controllers)


def replace_incarnation(
    image: ClusterImage, broker: BrokerRegistration, rules: RulesOf, *, previous_epoch: int, is_cut: bool
) -> ClusterImage:
    """Return the next version, with an incarnation registered as by `register_broker`; the one before it has ended, fenced or not.

    previous_epoch, is_cut: as for `was_clean`.
    """
    known = image.brokers.get(broker.broker_id)
    is_clean = was_clean(known, broker, previous_epoch, is_cut=is_cut)

    def fence(now: ClusterImage) -> ClusterImage:
        if known is None or known.incarnation_id == broker.incarnation_id:
            return now
        return fence_broker(now, known.broker_id, known.epoch, rules)

    return decide_together(image, fence, lambda now: register_broker(now, broker, rules, is_clean=is_clean))


def was_clean(
    known: BrokerRegistration | None, broker: BrokerRegistration, previous_epoch: int, *, is_cut: bool
) -> bool:
    """Return whether a broker's logs lost nothing since its last incarnation, which had the registration `known`.

    previous_epoch: the epoch that the broker noted when it had closed its logs in order, `NO_EPOCH` if it had not. is_cut: its
    recovery removed bytes. After an end without order nothing is lost if the machine's memory survived it and nothing was cut.
    The last incarnation has taken an earlier note away, so one that is still there is in a directory of before.
    """
    if known is None or previous_epoch == known.epoch:
        return True
    if previous_epoch != NO_EPOCH:
        return False
    return bool(broker.boot_id) and broker.boot_id == known.boot_id and not is_cut


def unfence_broker(image: ClusterImage, broker_id: int, broker_epoch: int, rules: RulesOf) -> ClusterImage:
    """Return the next version, with a broker that follows the image and may lead: it leads what has no other leader.

    One that was about to end, and lives on, is so no more.

    Raise `StaleBrokerEpochError` if another incarnation is registered.
    """
    broker = check_broker_epoch(image, broker_id, broker_epoch)
    if broker.is_active:
        return image
    brokers = {**image.brokers, broker_id: replace(broker, is_fenced=False, is_shutting_down=False)}

    def change(of: TopicIdPartition, partition: PartitionRegistration) -> PartitionRegistration:
        leader = brokers.get(partition.leader)
        if broker_id not in partition.replicas or (leader is not None and leader.is_active):
            return partition
        return settle(brokers, partition, partition, rules(of[0]))

    return _next(image, brokers, changed_topics(image, change))


def begin_controlled_shutdown(image: ClusterImage, broker_id: int, broker_epoch: int, rules: RulesOf) -> ClusterImage:
    """Return the next version, with a broker that is about to end: it leaves each ISR and leads only what no other replica can.

    Its other partitions are without a leader once it is fenced. Raise `StaleBrokerEpochError` as `unfence_broker`.
    """
    broker = check_broker_epoch(image, broker_id, broker_epoch)
    if not broker.is_active:
        return image
    brokers = {**image.brokers, broker_id: replace(broker, is_shutting_down=True)}
    return _without_broker(image, brokers, broker_id, rules)


def fence_broker(image: ClusterImage, broker_id: int, broker_epoch: int, rules: RulesOf) -> ClusterImage:
    """Return the next version, with a broker that leads nothing and is in no ISR, except where it was the last one.

    Raise `StaleBrokerEpochError` as `unfence_broker`.
    """
    broker = check_broker_epoch(image, broker_id, broker_epoch)
    if broker.is_fenced:
        return image
    brokers = {**image.brokers, broker_id: replace(broker, is_fenced=True)}
    return _without_broker(image, brokers, broker_id, rules)


def expired_brokers(silent_ms: Mapping[int, int], session_ms: int) -> list[int]:
    """Return the brokers to fence, by the time since the last heartbeat of each that is not fenced, without the controller's own.

    If several were silent for half a session, and most of all, the controller may be the one that is cut off. The others elect
    another one then: it fences them only after half a session more. Kafka's controller could not commit without them.
    """
    silent = [each for each in silent_ms.values() if 2 * each > session_ms]
    may_be_cut_off = len(silent) > 1 and 2 * len(silent) > len(silent_ms)
    longest_ms = session_ms + session_ms // 2 if may_be_cut_off else session_ms
    return [each for each, since_ms in silent_ms.items() if since_ms > longest_ms]


def may_be_replaced(silent_ms: Mapping[int, int], session_ms: int) -> bool:
    """Return whether others may have elected another controller, which has fenced the broker of the one before.

    silent_ms: the time since the controller has heard of each other broker. The silent ones elect none if the rest is a majority.
    """
    silent = [each for each in silent_ms.values() if each >= session_ms]
    return 2 * len(silent) > len(silent_ms)


def unregister_broker(image: ClusterImage, broker_id: int, rules: RulesOf) -> ClusterImage:
    """Return the next version, without a broker, whose partitions keep it as a replica until they are reassigned, or a controller.

    Raise `BrokerIdNotRegisteredError` if it is not registered.
    """
    if broker_id in image.controllers and broker_id != image.controller_id:
        return replace(image, version=image.version + 1, controllers=_without(image.controllers, broker_id))
    if broker_id not in image.brokers:
        raise BrokerIdNotRegisteredError(f"Broker ID {broker_id} is not currently registered")
    return _without_broker(image, _without(image.brokers, broker_id), broker_id, rules, lossy=broker_id)


def report_offline_logs(
    image: ClusterImage,
    broker_id: int,
    broker_epoch: int,
    offline: Collection[TopicIdPartition],
    rules: RulesOf,
    cut: Collection[TopicIdPartition] = (),
) -> ClusterImage:
    """Return the next version, where exactly the replicas `offline` of a broker have no log: they do not lead.

    cut: those of them that have lost records, which are no longer eligible. Raise `StaleBrokerEpochError` as `unfence_broker`.
    """
    check_broker_epoch(image, broker_id, broker_epoch)

    def change(of: TopicIdPartition, partition: PartitionRegistration) -> PartitionRegistration:
        is_offline = of in offline and broker_id in partition.replicas
        lossy = broker_id if is_offline and of in cut and partition.counts(broker_id) else None
        if is_offline == (broker_id in partition.offline) and lossy is None:
            return partition
        others = tuple(each for each in partition.offline if each != broker_id)
        if is_offline:
            isr, replicas = without_replica(partition.isr, broker_id), (*others, broker_id)
            target = replace(partition, isr=isr, offline=replicas)
        else:
            target = replace(partition, offline=others)
        return settle(image.brokers, partition, target, rules(of[0]), lossy=lossy)

    changed = changed_topics(image, change)
    return image.with_topics(changed) if changed else image


def _without(nodes: Mapping[int, Node], node_id: int) -> dict[int, Node]:
    return {known: each for known, each in nodes.items() if known != node_id}


def _without_broker(
    image: ClusterImage,
    brokers: Mapping[int, BrokerRegistration],
    broker_id: int,
    rules: RulesOf,
    lossy: int | None = None,
    *,
    keeps_offline: bool = True,
) -> ClusterImage:
    """Return the next version, with these brokers, and `broker_id` in no ISR where another replica is."""

    def decide(partition: PartitionRegistration, of_topic: ElectionRules) -> PartitionRegistration:
        if broker_id not in partition.replicas and broker_id != partition.leader:
            return partition
        offline = tuple(each for each in partition.offline if keeps_offline or each != broker_id)
        isr = without_replica(partition.isr, broker_id)
        if (isr, offline) != (partition.isr, partition.offline):
            target = replace(partition, isr=isr, offline=offline)
        elif broker_id in (partition.leader, *partition.isr, *partition.elr):
            target = partition
        else:
            return partition
        return settle(brokers, partition, target, of_topic, lossy=lossy)

    decided: dict[tuple[PartitionRegistration, ElectionRules], PartitionRegistration | None] = {}
    """The decisions, None for no change. Most of thousands of partitions are alike."""

    def change(of: TopicIdPartition, partition: PartitionRegistration) -> PartitionRegistration:
        key = partition, rules(of[0])
        if key not in decided:
            after = decide(*key)
            decided[key] = None if after is partition else after
        return decided[key] or partition

    return _next(image, brokers, changed_topics(image, change))


def _next(
    image: ClusterImage,
    brokers: Mapping[int, BrokerRegistration],
    changed: Mapping[UUID, tuple[PartitionRegistration, ...]],
) -> ClusterImage:
    return replace(image, version=image.version + 1, brokers=brokers, partitions={**image.partitions, **changed})
