"""The controller of the cluster as the other brokers call it: each call is a request to the broker that is the controller now.

Signs of life and changes of ISRs have a connection of their own, so that nothing slow is before them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafkalake.broker.controller.protocol import Heartbeat, HeartbeatAnswer
from kafkalake.client.peers import Channel, Peers
from kafkalake.client.requests import (
    ALLOCATE_PRODUCER_IDS,
    ALTER_PARTITION,
    BROKER_HEARTBEAT,
    BROKER_REGISTRATION,
    CONTROLLER_REGISTRATION,
    A,
    ClientApi,
    Q,
)
from kafkalake.cluster.image import NO_CONTROLLER, BrokerRegistration, ClusterImage, ControllerRegistration
from kafkalake.cluster.partition_changes import IsrChange, IsrState
from kafkalake.errors import BrokerUnavailableError, KafkaError, NotControllerError, error_for_code
from kafkalake.server.member_messages import (
    controller_request,
    heartbeat_request,
    isr_outcomes,
    isr_request,
    registration_request,
)
from kafkalake.wire.messages.membership import AllocateProducerIdsRequest


class RemoteController:
    """A `ClusterController` on another broker. `image` returns the newest image that is known here."""

    is_active = False

    def __init__(self, peers: Peers, image: Callable[[], ClusterImage], *, timeout_ms: Callable[[], int]) -> None:
        """`timeout_ms`: returns how long a call may take, less than a broker's session."""
        self._peers = peers
        self._image = image
        self._timeout_ms = timeout_ms

    async def register(self, broker: BrokerRegistration, *, previous_epoch: int, is_cut: bool) -> int:
        cluster_id = self._image().cluster_id
        message = registration_request(broker, cluster_id, previous_epoch=previous_epoch, is_cut=is_cut)
        answer = await self._ask(BROKER_REGISTRATION, message)
        _check(answer.error_code)
        return answer.broker_epoch

    async def register_controller(self, node: ControllerRegistration) -> None:
        answer = await self._ask(CONTROLLER_REGISTRATION, controller_request(node))
        _check(answer.error_code)

    async def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatAnswer:
        answer = await self._ask(BROKER_HEARTBEAT, heartbeat_request(heartbeat))
        _check(answer.error_code)
        return HeartbeatAnswer(answer.is_caught_up, answer.is_fenced, answer.should_shut_down)

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> range:
        message = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        answer = await self._ask(ALLOCATE_PRODUCER_IDS, message)
        _check(answer.error_code)
        return range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)

    async def alter_partition(
        self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChange]
    ) -> list[IsrState | KafkaError]:
        answer = await self._ask(ALTER_PARTITION, isr_request(broker_id, broker_epoch, changes))
        _check(answer.error_code)
        outcomes = isr_outcomes(answer)
        try:
            return [outcomes[each.partition] for each in changes]
        except KeyError as error:
            raise BrokerUnavailableError(f"the controller has not answered for partition {error}") from error

    async def _ask(self, api: ClientApi[Q, A], message: Q) -> A:
        controller_id = self._image().controller_id
        if controller_id == NO_CONTROLLER:
            raise NotControllerError()
        return await self._peers.ask(
            controller_id, api, message, timeout_ms=self._timeout_ms(), channel=Channel.CONTROL
        )


def _check(error_code: int) -> None:
    if error_code:
        raise error_for_code(error_code)
