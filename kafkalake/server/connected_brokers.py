"""The other brokers of the cluster, by TCP: what a member of the cluster asks of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kafkalake.broker.controller.membership import Membership
from kafkalake.broker.partitions.new_topic import NewTopic
from kafkalake.client.address import Address
from kafkalake.client.peers import Channel, ConnectedPeers
from kafkalake.client.requests import (
    CONTROLLER_VOTE,
    CREATE_TOPICS,
    ENVELOPE,
    INCREMENTAL_ALTER_CONFIGS,
    UPDATE_IMAGE,
)
from kafkalake.cluster.controller_election import Vote
from kafkalake.cluster.image import ClusterImage, ConfigOf
from kafkalake.config.broker import BrokerConfig
from kafkalake.errors import BrokerRefusedError, BrokerUnavailableError, KafkaError, error_for_code
from kafkalake.server.authorizer import ANONYMOUS
from kafkalake.server.config_resources import RESOURCE_TYPES
from kafkalake.server.member_messages import vote_of_code
from kafkalake.server.remote_controller import RemoteController
from kafkalake.wire.messages.codec import SIZE_BYTES, decode_response, encode_request
from kafkalake.wire.messages.membership import ControllerVoteRequest, EnvelopeRequest, UpdateImageRequest
from kafkalake.wire.messages.topics import (
    AlterableConfig,
    AlterConfigsResource,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    IncrementalAlterConfigsRequest,
)

PROBE_TIMEOUT_MS = 1_000
ALTER_TIMEOUT_MS = 10_000
RESOURCES_PER_REQUEST = 1_000


def address_in(image: ClusterImage, broker_id: int) -> Address | None:
    """Return the address at which other brokers reach a broker or a controller, None if it is not registered."""
    endpoints = image.endpoints_of(broker_id)
    return Address(endpoints[0].host, endpoints[0].port) if endpoints else None


class ConnectedBrokers:
    """`OtherBrokers` at the addresses of their inter-broker listeners."""

    def __init__(
        self,
        membership: Membership,
        peers: ConnectedPeers,
        config: Callable[[], BrokerConfig],
        look_at_lock: Callable[[int], Awaitable[tuple[bool, str]]],
    ) -> None:
        """`look_at_lock`: as `metadata.lock_file.look_at_lock`: a broker that does not listen yet is seen to run by it."""
        self._membership = membership
        self._look_at_lock = look_at_lock
        self._peers = peers
        self.controller = RemoteController(
            peers, lambda: membership.newest, timeout_ms=lambda: config().broker_session_timeout_ms // 2
        )

    async def create_topic(self, new: NewTopic, timeout_ms: int) -> None:
        topic = CreatableTopic(
            name=new.name,
            num_partitions=new.partitions,
            replication_factor=new.replication_factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
                for index, brokers in new.assignments or ()
            ],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in (new.config or {}).items()],
        )
        message = CreateTopicsRequest(topics=[topic], timeout=timeout_ms)
        answer = await self._peers.ask(
            self._membership.newest.controller_id,
            CREATE_TOPICS,
            message,
            timeout_ms=timeout_ms + PROBE_TIMEOUT_MS,
            channel=Channel.FORWARDED,
        )
        for each in answer.topics:
            if each.error_code:
                raise error_for_code(each.error_code, each.error_message or "")

    async def alter_config(self, settings: ConfigOf) -> None:
        resources = [
            AlterConfigsResource(
                resource_type=RESOURCE_TYPES[resource.kind],
                resource_name=resource.name,
                configs=[AlterableConfig(name=name, value=value) for name, value in own.items()],
            )
            for resource, own in settings.items()
        ]
        for first in range(0, len(resources), RESOURCES_PER_REQUEST):
            await self._alter(
                IncrementalAlterConfigsRequest(resources=resources[first : first + RESOURCES_PER_REQUEST])
            )

    async def _alter(self, message: IncrementalAlterConfigsRequest) -> None:
        """Send a request in an Envelope: it names this broker, which its own checks allow and those of another would not."""
        api, version = INCREMENTAL_ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS.highest
        frame = encode_request(api.key, version, 0, "", message)
        envelope = EnvelopeRequest(request_data=frame[SIZE_BYTES:], request_principal=str(ANONYMOUS).encode())
        answer = await self._peers.ask(
            self._membership.newest.controller_id,
            ENVELOPE,
            envelope,
            timeout_ms=ALTER_TIMEOUT_MS,
            channel=Channel.FORWARDED,
        )
        if answer.error_code:
            raise error_for_code(answer.error_code)
        found = decode_response(api.response, api.key, version, 0, bytes(answer.response_data or b""))
        for each in found.responses:
            if each.error_code:
                raise error_for_code(each.error_code, each.error_message or "")

    async def tell(self, broker_id: int, version: int, timeout_ms: int) -> int:
        message = UpdateImageRequest(version=version, timeout=timeout_ms)
        answer = await self._peers.ask(
            broker_id, UPDATE_IMAGE, message, timeout_ms=timeout_ms + PROBE_TIMEOUT_MS, channel=Channel.CONTROL
        )
        return answer.version

    async def is_gone(self, broker_id: int) -> bool:
        return await self.is_refused(broker_id) and not (await self._look_at_lock(broker_id))[0]

    async def lease_of(self, broker_id: int) -> str:
        return (await self._look_at_lock(broker_id))[1]

    async def ask_vote(self, broker_id: int, controller_epoch: int, timeout_ms: int) -> Vote | None:
        message = ControllerVoteRequest(controller_epoch=controller_epoch)
        try:
            answer = await self._peers.ask(
                broker_id, CONTROLLER_VOTE, message, timeout_ms=timeout_ms, channel=Channel.CONTROL
            )
        except BrokerRefusedError:
            return Vote.GONE
        except (BrokerUnavailableError, KafkaError):
            return None
        return vote_of_code(answer.vote) if not answer.error_code else None

    async def is_refused(self, broker_id: int) -> bool:
        for _ in range(2):
            try:
                message = UpdateImageRequest(version=0, timeout=0)
                await self._peers.ask(
                    broker_id, UPDATE_IMAGE, message, timeout_ms=PROBE_TIMEOUT_MS, channel=Channel.CONTROL
                )
            except BrokerRefusedError:
                continue
            except (BrokerUnavailableError, KafkaError):
                return False
            return False
        return True

    def stop(self) -> None:
        self._peers.stop()
