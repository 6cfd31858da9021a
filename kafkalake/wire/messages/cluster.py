"""Messages about the cluster: brokers, topics and partitions, versions, log directories."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from kafkalake.wire.messages.message import Message, Response


class MetadataRequestTopic(Message):
    name: str | None = None
    topic_id: UUID | None = None


class MetadataRequest(Message):
    topics: Sequence[MetadataRequestTopic] | None = ()
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


class PartitionMetadata(Message):
    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: Sequence[int] = ()
    isr_nodes: Sequence[int] = ()
    eligible_leader_replicas: Sequence[int] | None = None
    last_known_elr: Sequence[int] | None = None
    offline_replicas: Sequence[int] = ()


class TopicMetadata(Message):
    error_code: int = 0
    name: str | None = None
    partitions: Sequence[PartitionMetadata] = ()
    is_internal: bool = False
    topic_authorized_operations: int = -(2**31)
    topic_id: UUID | None = None


class NodeEndpoint(Message):
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


class MetadataResponse(Response):
    brokers: Sequence[NodeEndpoint] = ()
    topics: Sequence[TopicMetadata] = ()
    controller_id: int = -1
    cluster_id: str | None = None
    cluster_authorized_operations: int = -(2**31)
    error_code: int = 0


OWN_SOFTWARE = "kafkalake"
"""The name by which kafkalake's clients and brokers are told apart from others."""


class ApiVersionsRequest(Message):
    client_software_name: str = ""
    client_software_version: str = ""


class FinalizedFeatureKey(Message):
    name: str = ""
    max_version_level: int = 0
    min_version_level: int = 0


class SupportedFeatureKey(Message):
    name: str = ""
    min_version: int = 0
    max_version: int = 0


class ApiVersion(Message):
    api_key: int = 0
    min_version: int = 0
    max_version: int = 0


class ApiVersionsResponse(Response):
    error_code: int = 0
    api_keys: Sequence[ApiVersion] = ()
    supported_features: Sequence[SupportedFeatureKey] = ()
    finalized_features_epoch: int = -1
    finalized_features: Sequence[FinalizedFeatureKey] = ()
    zk_migration_ready: bool = False


class DescribableLogDirTopic(Message):
    topic: str = ""
    partitions: Sequence[int] = ()


class DescribeLogDirsRequest(Message):
    topics: Sequence[DescribableLogDirTopic] | None = ()


class DescribeLogDirsPartition(Message):
    partition_index: int = 0
    partition_size: int = 0
    offset_lag: int = 0
    is_future_key: bool = False


class DescribeLogDirsTopic(Message):
    name: str = ""
    partitions: Sequence[DescribeLogDirsPartition] = ()


class DescribeLogDirsResult(Message):
    error_code: int = 0
    log_dir: str = ""
    topics: Sequence[DescribeLogDirsTopic] = ()
    total_bytes: int = -1
    usable_bytes: int = -1


class DescribeLogDirsResponse(Response):
    results: Sequence[DescribeLogDirsResult] = ()
    error_code: int = 0


class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1
    include_fenced_brokers: bool = False


class DescribeClusterBroker(Message):
    broker_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None
    is_fenced: bool = False


class DescribeClusterResponse(Response):
    error_code: int = 0
    error_message: str | None = None
    cluster_id: str = ""
    controller_id: int = -1
    brokers: Sequence[DescribeClusterBroker] = ()
    cluster_authorized_operations: int = -(2**31)
    endpoint_type: int = 1


class Cursor(Message):
    topic_name: str = ""
    partition_index: int = 0


class TopicRequest(Message):
    name: str = ""


class DescribeTopicPartitionsRequest(Message):
    topics: Sequence[TopicRequest] = ()
    response_partition_limit: int = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponse(Response):
    topics: Sequence[TopicMetadata] = ()
    next_cursor: Cursor | None = None
