"""The states of the replication model: a partition on three brokers, and the cluster's image of it, as keys.

Replicas have no order here, so that brokers are interchangeable: production's decisions are asked for every order of preference.
A broker's epoch is the number of its registrations.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from functools import cache
from itertools import pairwise, permutations
from typing import NamedTuple
from uuid import UUID

from kafkalake.cluster.election import ElectionRules, RulesOf
from kafkalake.cluster.image import NO_LEADER, BrokerRegistration, ClusterImage, PartitionRegistration
from kafkalake.cluster.partition_changes import IsrChange, Replica
from kafkalake.cluster.replication import Leadership

BROKERS = (0, 1, 2)
TOPIC = UUID(int=1)
PARTITION = (TOPIC, 0)
VERSION = 100
"""The version of every image that a decision is made on: only whether it is the newest counts."""


class Record(NamedTuple):
    epoch: int
    value: int


class Following(NamedTuple):
    leader: int
    leader_epoch: int


class Process(IntEnum):
    """DOWN: it ended and lost nothing. LOST: the machine lost its power."""

    DOWN = 0
    LOST = 1
    UP = 2


class Broker(NamedTuple):
    """A registration, as the image has it."""

    epoch: int = 0
    is_fenced: bool = False


class Image(NamedTuple):
    partition: PartitionRegistration
    brokers: tuple[Broker, ...]


class Log(NamedTuple):
    """epochs: pairs of epoch and start offset. takeover: the log end at which this broker took over, 0 once that is committed."""

    records: tuple[Record, ...] = ()
    epochs: tuple[tuple[int, int], ...] = ()
    high_watermark: int = 0
    takeover: int = 0

    @property
    def end(self) -> int:
        return len(self.records)

    def values(self, end: int) -> tuple[int, ...]:
        return tuple(each.value for each in self.records[:end])


class Node(NamedTuple):
    """A broker. epoch: of its process. role: None until it has learned the image. seen: the brokers, as a leader knows them."""

    log: Log
    epoch: int = 0
    process: Process = Process.UP
    role: Leadership | Following | None = None
    seen: tuple[Broker, ...] = ()
    asked: IsrChange | None = None
    """The leader's request that the controller has not answered."""


class Fetch(NamedTuple):
    """A request of a follower that is under way for long. last_epoch: of the record before the offset."""

    broker_id: int
    broker_epoch: int
    leader: int
    leader_epoch: int
    offset: int
    last_epoch: int


class Bounds(NamedTuple):
    """How often each may happen still. values: appends. fences: of a broker that lives. elections: of a preferred leader."""

    values: int = 2
    lossy: int = 0
    clean: int = 0
    fences: int = 0
    shrinks: int = 0
    reassignments: int = 0
    ambiguous: int = 0
    delayed: int = 0
    elections: int = 0


class Pending(NamedTuple):
    """A commit that may be written later. is_newest: nothing was committed since it was decided."""

    image: Image
    is_newest: bool = True


class State(NamedTuple):
    """committed: the values below the highest watermark of any leader, by offset. shown: the watermark that readers have seen."""

    image: Image
    nodes: tuple[Node, ...]
    bounds: Bounds
    committed: tuple[int, ...] = ()
    shown: int = 0
    pending: Pending | None = None
    delayed: Fetch | None = None


def with_node(state: State, broker_id: int, node: Node) -> State:
    nodes = list(state.nodes)
    nodes[broker_id] = node
    return state._replace(nodes=tuple(nodes))


# Between keys and images


@cache
def images_of(image: Image) -> tuple[ClusterImage, ...]:
    """Return the cluster's image, once for each order of the replicas."""
    brokers = {
        broker_id: BrokerRegistration(
            broker_id, each.epoch, _incarnation(broker_id, each.epoch), (), boot_id="a", is_fenced=each.is_fenced
        )
        for broker_id, each in enumerate(image.brokers)
    }
    return tuple(
        ClusterImage(
            "lake", 0, 1, VERSION, brokers=brokers, partitions={TOPIC: (replace(image.partition, replicas=order),)}
        )
        for order in permutations(image.partition.replicas)
    )


def _incarnation(broker_id: int, epoch: int) -> UUID:
    return UUID(int=10 * epoch + broker_id + 1)


def key_of(before: Image, image: ClusterImage) -> Image:
    assert all(each.epoch <= VERSION + 1 for each in image.brokers.values()), (
        "an epoch that a later version will have again"
    )
    brokers = tuple(
        Broker(known.epoch + (image.brokers[broker_id].epoch > VERSION), image.brokers[broker_id].is_fenced)
        for broker_id, known in enumerate(before.brokers)
    )
    return Image(in_order(image.partitions[TOPIC][0]), brokers)


@cache
def in_order(partition: PartitionRegistration) -> PartitionRegistration:
    fields = ("replicas", "isr", "offline", "elr", "last_known_elr", "adding", "removing")
    return replace(partition, **{each: tuple(sorted(getattr(partition, each))) for each in fields})


def start(bounds: Bounds, replicas: tuple[int, ...], isr: tuple[int, ...]) -> State:
    """Return the state in which broker 0 is elected, all logs are empty, and nothing was learned."""
    partition = PartitionRegistration(0, 0, replicas, isr)
    return State(Image(partition, (Broker(),) * len(BROKERS)), (Node(Log()),) * len(BROKERS), bounds)


def rules_with(min_isr: int) -> RulesOf:
    rules = ElectionRules(min_isr)
    return lambda topic_id: rules


@cache
def ordered(role: Leadership) -> Leadership:
    """Return a leadership without the order of replicas and times, which decide nothing here."""
    followers = tuple(
        sorted(each._replace(caught_up_ms=0, fetched_ms=0, leader_end_then=0, log_start=0) for each in role.followers)
    )
    return replace(
        role,
        replicas=tuple(sorted(role.replicas)),
        isr=tuple(sorted(role.isr)),
        proposed=None if role.proposed is None else tuple(sorted(role.proposed)),
        followers=followers,
    )


# Interchangeable brokers


def representative(state: State) -> State:
    """Return the one state that is looked at of those that differ in the brokers' names only."""
    ranks = [_rank(state, each) for each in BROKERS]
    order = sorted(BROKERS, key=ranks.__getitem__)
    orders = (
        [order] if len(set(ranks)) == len(ranks) else [each for each in permutations(order) if _is_sorted(each, ranks)]
    )
    found = [renamed(state, each) for each in orders]
    return found[0] if len(found) == 1 else min(found, key=repr)


def _is_sorted(order: tuple[int, ...], ranks: list[tuple[object, ...]]) -> bool:
    return all(ranks[one] <= ranks[other] for one, other in pairwise(order))  # type: ignore[operator]


def _rank(state: State, broker_id: int) -> tuple[object, ...]:
    node, partition = state.nodes[broker_id], state.image.partition
    role = node.role
    kind = -1 if role is None else (role.leader_epoch + 10 if isinstance(role, Leadership) else role.leader_epoch)
    return (
        node.log,
        node.epoch,
        node.process,
        kind,
        state.image.brokers[broker_id],
        broker_id == partition.leader,
        broker_id in partition.isr,
        broker_id in partition.replicas,
        broker_id in partition.elr,
    )


def renamed(state: State, order: tuple[int, ...] | list[int]) -> State:
    """Return the state in which the broker `order[n]` has the name n."""
    if tuple(order) == BROKERS:
        return state
    names = [0] * len(order)
    for name, broker_id in enumerate(order):
        names[broker_id] = name
    new = tuple(names)
    delayed, pending = state.delayed, state.pending
    return state._replace(
        image=_image(state.image, new),
        nodes=tuple(_node(state.nodes[broker_id], new) for broker_id in order),
        pending=None if pending is None else pending._replace(image=_image(pending.image, new)),
        delayed=None
        if delayed is None
        else delayed._replace(broker_id=new[delayed.broker_id], leader=new[delayed.leader]),
    )


def _some(broker_ids: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(new[each] for each in broker_ids))


@cache
def _image(image: Image, new: tuple[int, ...]) -> Image:
    partition = image.partition
    fields = ("replicas", "isr", "offline", "elr", "last_known_elr", "adding", "removing")
    leader = partition.leader if partition.leader == NO_LEADER else new[partition.leader]
    after = replace(partition, leader=leader, **{each: _some(getattr(partition, each), new) for each in fields})
    return Image(after, _permuted(image.brokers, new))


def _permuted(brokers: tuple[Broker, ...], new: tuple[int, ...]) -> tuple[Broker, ...]:
    return tuple(each for _, each in sorted(zip(new, brokers, strict=True))) if brokers else ()


@cache
def _node(node: Node, new: tuple[int, ...]) -> Node:
    role, asked = node.role, node.asked
    if isinstance(role, Following) and role.leader != NO_LEADER:
        role = role._replace(leader=new[role.leader])
    elif isinstance(role, Leadership):
        role = replace(
            role,
            broker_id=new[role.broker_id],
            replicas=_some(role.replicas, new),
            isr=_some(role.isr, new),
            followers=tuple(sorted(each._replace(broker_id=new[each.broker_id]) for each in role.followers)),
            proposed=None if role.proposed is None else _some(role.proposed, new),
        )
    if asked is not None:
        asked = replace(asked, isr=tuple(sorted(Replica(new[each.broker_id], each.broker_epoch) for each in asked.isr)))
    return node._replace(role=role, asked=asked, seen=_permuted(node.seen, new))
