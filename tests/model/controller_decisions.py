"""What the controller makes of an image of the replication model: production's decisions, for every order of the replicas."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from uuid import UUID

from memory_control_store import MemoryControlStore
from reassignments import begin_reassignment
from replication_state import PARTITION, TOPIC, VERSION, Broker, Image, images_of, key_of

from kafkalake.cluster.election import Election, RulesOf, elect_leaders
from kafkalake.cluster.image import BrokerRegistration, ClusterImage
from kafkalake.cluster.partition_changes import IsrChange, IsrState, alter_partitions
from kafkalake.cluster.registration import NO_EPOCH, fence_broker, replace_incarnation, unfence_broker
from kafkalake.errors import KafkaError, StaleBrokerEpochError, StaleImageError

Decide = Callable[[ClusterImage, RulesOf], ClusterImage]


def decided(image: Image, decide: Decide, rules: RulesOf) -> tuple[Image, ...]:
    """Return what the controller makes of an image, if it changes anything."""
    found = {key_of(image, decide(each, rules)) for each in images_of(image)}
    return tuple(each for each in sorted(found, key=repr) if each != image)


def altered(
    image: Image, broker_id: int, broker_epoch: int, asked: IsrChange, rules: RulesOf
) -> tuple[tuple[Image, IsrState | KafkaError], ...]:
    """Return the image after a leader's request for an ISR, and its answer."""
    found: dict[str, tuple[Image, IsrState | KafkaError]] = {}
    for each in images_of(image):
        try:
            after, errors = alter_partitions(each, broker_id, broker_epoch, [asked], rules)
        except StaleBrokerEpochError:
            continue  # the process has ended
        key = key_of(image, after)
        partition = key.partition
        state = IsrState(partition.leader, partition.leader_epoch, partition.partition_epoch, partition.isr)
        answer = errors.get(PARTITION) or state
        found[f"{key} {answer}"] = (key, answer)
    return tuple(found[each] for each in sorted(found))


@cache
def registers(broker_id: int, *, is_cut: bool) -> Decide:
    """A broker that was killed registers; if it `is_cut` its machine was started anew."""

    def decide(image: ClusterImage, rules: RulesOf) -> ClusterImage:
        known = image.brokers[broker_id]
        incarnation = UUID(int=known.incarnation_id.int + 10)
        joining = BrokerRegistration(broker_id, -1, incarnation, (), boot_id="b" if is_cut else known.boot_id)
        return replace_incarnation(image, joining, rules, previous_epoch=NO_EPOCH, is_cut=is_cut)

    return decide


@cache
def fences(broker_id: int) -> Decide:
    return lambda image, rules: fence_broker(image, broker_id, image.brokers[broker_id].epoch, rules)


@cache
def unfences(broker_id: int) -> Decide:
    return lambda image, rules: unfence_broker(image, broker_id, image.brokers[broker_id].epoch, rules)


@cache
def reassigns(replicas: tuple[int, ...]) -> Decide:
    return lambda image, rules: begin_reassignment(image, PARTITION, replicas, rules)


def elects_preferred(image: ClusterImage, rules: RulesOf) -> ClusterImage:
    return elect_leaders(image, [PARTITION], Election.PREFERRED, rules)[0]


def registration_of(broker_id: int, broker: Broker) -> BrokerRegistration:
    return BrokerRegistration(broker_id, broker.epoch, TOPIC, (), is_fenced=broker.is_fenced)


def accepts(make_store: Callable[[ClusterImage], MemoryControlStore], *, is_newest: bool) -> bool:
    """Return whether a store takes a commit that was decided on the newest version, or on the one before it."""
    store = make_store(ClusterImage("lake", version=VERSION))
    try:
        store.commit(ClusterImage("lake", version=VERSION + is_newest))
    except StaleImageError:
        return False
    return True
