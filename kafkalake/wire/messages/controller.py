"""Messages about what a cluster's controller decides: elections, reassignments, features, quotas, and the quorum itself."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from kafkalake.wire.messages.message import Message, Response


class AlterReplicaLogDirTopic(Message):
    name: str = ""
    partitions: Sequence[int] = ()


class AlterReplicaLogDir(Message):
    path: str = ""
    topics: Sequence[AlterReplicaLogDirTopic] = ()


class AlterReplicaLogDirsRequest(Message):
    dirs: Sequence[AlterReplicaLogDir] = ()


class AlterReplicaLogDirPartitionResult(Message):
    partition_index: int = 0
    error_code: int = 0


class AlterReplicaLogDirTopicResult(Message):
    topic_name: str = ""
    partitions: Sequence[AlterReplicaLogDirPartitionResult] = ()


class AlterReplicaLogDirsResponse(Response):
    results: Sequence[AlterReplicaLogDirTopicResult] = ()


class ElectLeadersTopicPartitions(Message):
    topic: str = ""
    partitions: Sequence[int] = ()


class ElectLeadersRequest(Message):
    topic_partitions: Sequence[ElectLeadersTopicPartitions] | None = ()
    timeout: int = 0
    election_type: int = 0


class ElectLeadersPartitionResult(Message):
    partition_id: int = 0
    error_code: int = 0
    error_message: str | None = None


class ReplicaElectionResult(Message):
    topic: str = ""
    partition_result: Sequence[ElectLeadersPartitionResult] = ()


class ElectLeadersResponse(Response):
    replica_election_results: Sequence[ReplicaElectionResult] = ()
    error_code: int = 0


class ReassignablePartition(Message):
    partition_index: int = 0
    replicas: Sequence[int] | None = ()


class ReassignableTopic(Message):
    name: str = ""
    partitions: Sequence[ReassignablePartition] = ()


class AlterPartitionReassignmentsRequest(Message):
    timeout: int = 0
    topics: Sequence[ReassignableTopic] = ()
    allow_replication_factor_change: bool = True


class ReassignablePartitionResponse(Message):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None


class ReassignableTopicResponse(Message):
    name: str = ""
    partitions: Sequence[ReassignablePartitionResponse] = ()


class AlterPartitionReassignmentsResponse(Response):
    error_code: int = 0
    error_message: str | None = None
    responses: Sequence[ReassignableTopicResponse] = ()
    allow_replication_factor_change: bool = True


class ListPartitionReassignmentsTopics(Message):
    name: str = ""
    partition_indexes: Sequence[int] = ()


class ListPartitionReassignmentsRequest(Message):
    timeout: int = 0
    topics: Sequence[ListPartitionReassignmentsTopics] | None = ()


class OngoingPartitionReassignment(Message):
    partition_index: int = 0
    replicas: Sequence[int] = ()
    adding_replicas: Sequence[int] = ()
    removing_replicas: Sequence[int] = ()


class OngoingTopicReassignment(Message):
    name: str = ""
    partitions: Sequence[OngoingPartitionReassignment] = ()


class ListPartitionReassignmentsResponse(Response):
    error_code: int = 0
    error_message: str | None = None
    topics: Sequence[OngoingTopicReassignment] = ()


class ClientQuotaComponentData(Message):
    entity_type: str = ""
    match_type: int = 0
    match: str | None = None


class DescribeClientQuotasRequest(Message):
    components: Sequence[ClientQuotaComponentData] = ()
    strict: bool = False


class ClientQuotaEntityData(Message):
    entity_type: str = ""
    entity_name: str | None = None


class ClientQuotaValueData(Message):
    key: str = ""
    value: float = 0.0


class ClientQuotaEntryData(Message):
    entity: Sequence[ClientQuotaEntityData] = ()
    values: Sequence[ClientQuotaValueData] = ()


class DescribeClientQuotasResponse(Response):
    error_code: int = 0
    error_message: str | None = None
    entries: Sequence[ClientQuotaEntryData] | None = ()


class ClientQuotaOpData(Message):
    key: str = ""
    value: float = 0.0
    remove: bool = False


class AlteredClientQuota(Message):
    entity: Sequence[ClientQuotaEntityData] = ()
    ops: Sequence[ClientQuotaOpData] = ()


class AlterClientQuotasRequest(Message):
    entries: Sequence[AlteredClientQuota] = ()
    validate_only: bool = False


class AlteredClientQuotaResult(Message):
    error_code: int = 0
    error_message: str | None = None
    entity: Sequence[ClientQuotaEntityData] = ()


class AlterClientQuotasResponse(Response):
    entries: Sequence[AlteredClientQuotaResult] = ()


class RaftVoterListener(Message):
    name: str = ""
    host: str = ""
    port: int = 0


class AddRaftVoterRequest(Message):
    cluster_id: str | None = None
    timeout: int = 0
    voter_id: int = 0
    voter_directory_id: UUID | None = None
    listeners: Sequence[RaftVoterListener] = ()


class AddRaftVoterResponse(Response):
    error_code: int = 0
    error_message: str | None = None


class RemoveRaftVoterRequest(Message):
    cluster_id: str | None = None
    voter_id: int = 0
    voter_directory_id: UUID | None = None


class RemoveRaftVoterResponse(Response):
    error_code: int = 0
    error_message: str | None = None


class QuorumPartition(Message):
    partition_index: int = 0


class QuorumTopic(Message):
    topic_name: str = ""
    partitions: Sequence[QuorumPartition] = ()


class DescribeQuorumRequest(Message):
    topics: Sequence[QuorumTopic] = ()


class QuorumReplicaState(Message):
    replica_id: int = 0
    log_end_offset: int = 0
    last_fetch_timestamp: int = -1
    last_caught_up_timestamp: int = -1
    replica_directory_id: UUID | None = None


class QuorumPartitionState(Message):
    partition_index: int = 0
    error_code: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    high_watermark: int = 0
    current_voters: Sequence[QuorumReplicaState] = ()
    observers: Sequence[QuorumReplicaState] = ()
    error_message: str | None = None


class QuorumTopicState(Message):
    topic_name: str = ""
    partitions: Sequence[QuorumPartitionState] = ()


class QuorumListener(Message):
    name: str = ""
    host: str = ""
    port: int = 0


class QuorumNode(Message):
    node_id: int = 0
    listeners: Sequence[QuorumListener] = ()


class DescribeQuorumResponse(Response):
    error_code: int = 0
    topics: Sequence[QuorumTopicState] = ()
    error_message: str | None = None
    nodes: Sequence[QuorumNode] = ()


class FeatureUpdateKey(Message):
    feature: str = ""
    max_version_level: int = 0
    allow_downgrade: bool = False
    upgrade_type: int = 1


class UpdateFeaturesRequest(Message):
    timeout: int = 0
    feature_updates: Sequence[FeatureUpdateKey] = ()
    validate_only: bool = False


class UpdatableFeatureResult(Message):
    feature: str = ""
    error_code: int = 0
    error_message: str | None = None


class UpdateFeaturesResponse(Response):
    error_code: int = 0
    error_message: str | None = None
    results: Sequence[UpdatableFeatureResult] = ()


class UnregisterBrokerRequest(Message):
    broker_id: int = 0


class UnregisterBrokerResponse(Response):
    error_code: int = 0
    error_message: str | None = None


class ListConfigResourcesRequest(Message):
    resource_types: Sequence[int] = ()


class ListedConfigResource(Message):
    resource_name: str = ""
    resource_type: int = 16


class ListConfigResourcesResponse(Response):
    error_code: int = 0
    config_resources: Sequence[ListedConfigResource] = ()
