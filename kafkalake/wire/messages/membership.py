"""Messages between the controller and the other brokers: registration, heartbeats, ISRs, producer ids, versions of the image, and
what clients ask of the controller through another broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from kafkalake.buffers import Buffer
from kafkalake.wire.messages.message import Message, Response


class RegisteredListener(Message):
    name: str = ""
    host: str = ""
    port: int = 0
    security_protocol: int = 0


class RegisteredFeature(Message):
    name: str = ""
    min_supported_version: int = 0
    max_supported_version: int = 0


class BrokerRegistrationRequest(Message):
    broker_id: int = 0
    cluster_id: str = ""
    incarnation_id: UUID | None = None
    listeners: Sequence[RegisteredListener] = ()
    features: Sequence[RegisteredFeature] = ()
    rack: str | None = None
    is_migrating_zk_broker: bool = False
    log_dirs: Sequence[UUID] | None = ()
    previous_broker_epoch: int = -1
    machine: str = ""
    boot_id: str = ""
    is_cut: bool = False
    is_voter: bool = True


class BrokerRegistrationResponse(Response):
    error_code: int = 0
    broker_epoch: int = -1


class ControllerRegistrationRequest(Message):
    controller_id: int = 0
    incarnation_id: UUID | None = None
    zk_migration_ready: bool = False
    listeners: Sequence[RegisteredListener] = ()
    features: Sequence[RegisteredFeature] = ()


class ControllerRegistrationResponse(Response):
    error_code: int = 0
    error_message: str | None = None


class OfflineTopic(Message):
    topic_id: UUID | None = None
    partitions: Sequence[int] = ()


class BrokerHeartbeatRequest(Message):
    broker_id: int = 0
    broker_epoch: int = -1
    current_metadata_offset: int = 0
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: Sequence[UUID] | None = ()
    offline_topics: Sequence[OfflineTopic] = ()
    cut_topics: Sequence[OfflineTopic] = ()


class BrokerHeartbeatResponse(Response):
    error_code: int = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False


class AllocateProducerIdsRequest(Message):
    broker_id: int = 0
    broker_epoch: int = -1


class AllocateProducerIdsResponse(Response):
    error_code: int = 0
    producer_id_start: int = 0
    producer_id_len: int = 0


class IsrMember(Message):
    broker_id: int = 0
    broker_epoch: int = -1


class AlterPartitionData(Message):
    partition_index: int = 0
    leader_epoch: int = 0
    new_isr: Sequence[int] = ()
    new_isr_with_epochs: Sequence[IsrMember] = ()
    leader_recovery_state: int = 0
    partition_epoch: int = 0


class AlterPartitionTopic(Message):
    topic_id: UUID | None = None
    partitions: Sequence[AlterPartitionData] = ()


class AlterPartitionRequest(Message):
    broker_id: int = 0
    broker_epoch: int = -1
    topics: Sequence[AlterPartitionTopic] = ()


class AlteredPartition(Message):
    partition_index: int = 0
    error_code: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    isr: Sequence[int] = ()
    leader_recovery_state: int = 0
    partition_epoch: int = 0


class AlteredPartitionTopic(Message):
    topic_id: UUID | None = None
    partitions: Sequence[AlteredPartition] = ()


class AlterPartitionResponse(Response):
    error_code: int = 0
    topics: Sequence[AlteredPartitionTopic] = ()


class EnvelopeRequest(Message):
    request_data: Buffer = b""
    request_principal: Buffer | None = None
    client_host_address: Buffer = b""
    listener: str = ""


class EnvelopeResponse(Response):
    response_data: Buffer | None = None
    error_code: int = 0


class UpdateImageRequest(Message):
    version: int = 0
    timeout: int = 0


class UpdateImageResponse(Response):
    error_code: int = 0
    version: int = 0


class ControllerVoteRequest(Message):
    """controller_epoch: that of the controller which the sender does not reach."""

    controller_epoch: int = 0


class ControllerVoteResponse(Response):
    """vote: 0 for none, as the voter does not know that controller, 1 if it reaches it, 2 if it does not."""

    error_code: int = 0
    vote: int = 0
