"""The cluster at one version: which brokers there are, who leads and replicates each partition, who is the controller.

A `ClusterImage` is never changed: each change makes the next version. The controller commits it to the control store
(`control_store`), where a version is the metadata offset; brokers apply the versions in order (`broker.partitions.topics`).
Local logs stand beside it, in `Topic.replicas`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

NO_LEADER = -1
NO_CONTROLLER = -1

TopicIdPartition = tuple[UUID, int]
"""A partition by the id of its topic and its number."""


class ResourceKind(StrEnum):
    """The kinds of resources whose settings are in the image. Those of topics are in the table `topics`."""

    BROKER = "broker"
    GROUP = "group"
    CLIENT_METRICS = "client-metrics"
    CLIENT_QUOTA = "client-quota"
    USER = "user"


class ConfigResource(NamedTuple):
    """A resource with settings of its own.

    name: of a broker its id, empty for the default of all brokers; of a quota its entity (`broker/admin/client_quotas.py`).
    """

    kind: ResourceKind
    name: str


ConfigOf = Mapping[ConfigResource, Mapping[str, str]]
"""Settings as text, by resource and name. A resource without settings is not in it."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address of a broker: that of one of its listeners, as advertised."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A broker that has registered and was not unregistered since.

    epoch: the version that registered this incarnation. incarnation_id: of its process. boot_id: of its machine's kernel.
    endpoints: the first is the one at which other brokers connect. is_fenced: it leads nothing and is in no ISR but its own.
    is_shutting_down: it asked for a controlled shutdown. is_voter: it may be elected as the controller (`process.roles`).
    """

    broker_id: int
    epoch: int
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    machine: str = ""
    boot_id: str = ""
    is_fenced: bool = True
    is_shutting_down: bool = False
    is_voter: bool = True

    @property
    def is_active(self) -> bool:
        """Return whether it may be elected and join an ISR."""
        return not (self.is_fenced or self.is_shutting_down)

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return the address of a listener by its name, None if the broker has no such listener."""
        return next((each for each in self.endpoints if each.listener == listener), None)


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """A node that is a controller only: it may be elected, has no partitions, and is no broker to clients.

    incarnation_id: of its process. endpoints: as for a `BrokerRegistration`.
    """

    controller_id: int
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """The leader of a partition (`NO_LEADER`: none), its replicas in order of preference, and those without a log (`offline`).

    leader_epoch: grows with each election. partition_epoch: grows with each change. isr, elr, last_known_elr: Kafka's (KIP-966).
    adding, removing: the replicas that a reassignment adds and removes. is_recovering: elected uncleanly, and not yet recovered.
    """

    leader: int = NO_LEADER
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    partition_epoch: int = 0
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    is_recovering: bool = False

    @property
    def is_moving(self) -> bool:
        """Return whether a reassignment is under way."""
        return bool(self.adding or self.removing)

    def counts(self, broker_id: int) -> bool:
        """Return whether the replica on a broker, one of several, is counted as one with all records that were acknowledged."""
        is_eligible = broker_id in (*self.isr, *self.elr) and broker_id not in self.last_known_elr
        return is_eligible and len(self.replicas) > 1


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """One version. `brokers` by id, `controllers`, those that are no brokers, by id, `partitions` by topic id, in order.

    topics_version: the version of the table `topics` that belongs to this one, -1 if unknown. config: the dynamic settings
    of brokers, groups and clients. next_producer_id: the first of the next block of producer ids. features: finalized
    levels by name.
    """

    cluster_id: str
    controller_id: int = NO_CONTROLLER
    controller_epoch: int = 0
    version: int = 0
    topics_version: int = -1
    next_producer_id: int = 0
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    partitions: Mapping[UUID, tuple[PartitionRegistration, ...]] = field(default_factory=dict)
    config: ConfigOf = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    controllers: Mapping[int, ControllerRegistration] = field(default_factory=dict)

    @property
    def nodes(self) -> frozenset[int]:
        """The ids of all brokers and controllers."""
        return frozenset(self.brokers.keys() | self.controllers.keys())

    def endpoints_of(self, node_id: int) -> tuple[Endpoint, ...]:
        """Return the addresses of a broker or controller, none if it is not registered. The first is for other nodes."""
        node = self.controllers.get(node_id) or self.brokers.get(node_id)
        return () if node is None else node.endpoints

    def address(self, broker_id: int, listener: str) -> Endpoint | None:
        """Return a broker's address at a listener, None if there is no such broker, or none that may lead."""
        broker = self.brokers.get(broker_id)
        return None if broker is None or broker.is_fenced else broker.endpoint(listener)

    def reachable(self, listener: str) -> Iterator[tuple[BrokerRegistration, Endpoint]]:
        """Yield the brokers that may lead and their addresses at a listener, in order of their ids."""
        for broker_id, broker in sorted(self.brokers.items()):
            if (endpoint := self.address(broker_id, listener)) is not None:
                yield broker, endpoint

    def partition(self, of: TopicIdPartition) -> PartitionRegistration | None:
        """Return a partition, None if there is no such topic or it has no such number."""
        topic_id, index = of
        registrations = self.partitions.get(topic_id, ())
        return registrations[index] if 0 <= index < len(registrations) else None

    def with_broker(self, broker: BrokerRegistration) -> ClusterImage:
        """Return the next version, with a broker that has registered or changed."""
        return replace(self, version=self.version + 1, brokers={**self.brokers, broker.broker_id: broker})

    def with_topics(self, partitions: Mapping[UUID, tuple[PartitionRegistration, ...]]) -> ClusterImage:
        """Return the next version, with the partitions of these topics, new or changed."""
        return replace(self, version=self.version + 1, partitions={**self.partitions, **partitions})

    def without_topics(self, topic_ids: Container[UUID]) -> ClusterImage:
        """Return the next version, without topics."""
        others = {known: each for known, each in self.partitions.items() if known not in topic_ids}
        return replace(self, version=self.version + 1, partitions=others)


def decide_together(image: ClusterImage, *decisions: Callable[[ClusterImage], ClusterImage]) -> ClusterImage:
    """Return what several decisions make of an image, one after the other, as one version; the same image if nothing changes."""
    now = image
    for decide in decisions:
        decided = decide(now)
        now = now if decided is now else replace(decided, version=image.version)
    return image if now is image else replace(now, version=image.version + 1)
