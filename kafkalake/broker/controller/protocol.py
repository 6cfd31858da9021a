"""The requests between the controller and the brokers, as plain values. A controller on another broker has the same protocol.

Every call may raise `NotControllerError`: another broker is the controller, or none. A remote controller's calls may also raise
`BrokerUnavailableError`, after which a change may or may not have been made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kafkalake.broker.partitions.new_topic import NewTopic
from kafkalake.cluster.controller_election import Vote
from kafkalake.cluster.image import BrokerRegistration, ConfigOf, ControllerRegistration, TopicIdPartition
from kafkalake.cluster.partition_changes import IsrChange, IsrState
from kafkalake.errors import KafkaError


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A broker's sign of life. version: of the image that it has applied. offline: all its replicas that have no log.

    cut: those of them that have lost records for which they may be counted.
    wants_fence: it does not serve yet, or no longer. wants_shutdown: it asks to be relieved of leaderships, so that it can stop.
    """

    broker_id: int
    broker_epoch: int
    version: int
    wants_fence: bool = False
    wants_shutdown: bool = False
    offline: frozenset[TopicIdPartition] = frozenset()
    cut: frozenset[TopicIdPartition] = frozenset()


class HeartbeatAnswer(NamedTuple):
    """The controller's permission for a broker.

    is_caught_up: its image is as new as it must be to serve. should_shut_down: it leads nothing now.
    """

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


class EarlierRun(NamedTuple):
    """The end of this broker's last process: the broker epoch noted when all logs were closed in order, -1 if they were not.

    is_cut: bytes of a log are gone that may have been acknowledged, or a log is missing.
    """

    epoch: int = -1
    is_cut: bool = False


class ClusterController(Protocol):
    """The controller of the cluster."""

    @property
    def is_active(self) -> bool:
        """Return whether this broker is the controller, as far as it knows. False for a remote one."""
        ...

    async def register(self, broker: BrokerRegistration, *, previous_epoch: int, is_cut: bool) -> int:
        """Register an incarnation of a broker, whose epoch is not given, and return its epoch.

        previous_epoch: noted when the logs were closed in order, -1 if they were not. is_cut: recovery removed bytes of a log.
        Raise `DuplicateBrokerRegistrationError` if another incarnation has the id.
        """
        ...

    async def register_controller(self, node: ControllerRegistration) -> None:
        """Register an incarnation of a node that is a controller only, and take it as a sign of life: nothing if it is registered.

        Raise `DuplicateBrokerRegistrationError` if a broker that is not fenced has the id, `InvalidRequestError` if the node has
        replicas.
        """
        ...

    async def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatAnswer:
        """Take a sign of life. Raise `StaleBrokerEpochError` if another incarnation, or none, is registered."""
        ...

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> range:
        """Return ids that no broker was given before. Raise as `heartbeat`."""
        ...

    async def alter_partition(
        self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChange]
    ) -> list[IsrState | KafkaError]:
        """Return the partition after each change, or why it was refused. Raise as `heartbeat`."""
        ...


class OtherBrokers(Protocol):
    """The other brokers, as a member sees them."""

    @property
    def controller(self) -> ClusterController:
        """The controller, when it is on another broker."""
        ...

    async def create_topic(self, new: NewTopic, timeout_ms: int) -> None:
        """Have the controller create a topic. Raise its error, or `BrokerUnavailableError`."""
        ...

    async def alter_config(self, settings: ConfigOf) -> None:
        """Have the controller set settings. Raise the first error of a resource, or `BrokerUnavailableError`."""
        ...

    async def tell(self, broker_id: int, version: int, timeout_ms: int) -> int:
        """Tell a broker that there is a version, and return the one that it follows then.

        Raise `BrokerUnavailableError` if it does not answer in time.
        """
        ...

    async def is_refused(self, broker_id: int) -> bool:
        """Return whether two new connections to a broker are refused: nothing listens at its address."""
        ...

    async def is_gone(self, broker_id: int) -> bool:
        """Return whether a broker's process has ended: two new connections are refused, and nobody holds its lock."""
        ...

    async def lease_of(self, broker_id: int) -> str:
        """Return the lease of a broker as the lake has it, another text after each renewal."""
        ...

    async def ask_vote(self, broker_id: int, controller_epoch: int, timeout_ms: int) -> Vote | None:
        """Return a broker's vote on the controller of an epoch, None if it has none or does not answer in time."""
        ...

    def stop(self) -> None:
        """Close all connections."""
        ...
