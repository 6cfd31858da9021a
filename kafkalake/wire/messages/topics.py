"""Messages that create, change and delete topics, and settings."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from kafkalake.wire.messages.message import Message, Response


class CreatableTopicConfig(Message):
    name: str = ""
    value: str | None = None


class CreatableReplicaAssignment(Message):
    partition_index: int = 0
    broker_ids: Sequence[int] = ()


class CreatableTopic(Message):
    name: str = ""
    num_partitions: int = 0
    replication_factor: int = 0
    assignments: Sequence[CreatableReplicaAssignment] = ()
    configs: Sequence[CreatableTopicConfig] = ()


class CreateTopicsRequest(Message):
    topics: Sequence[CreatableTopic] = ()
    timeout: int = 60000
    validate_only: bool = False


class CreatableTopicResult(Message):
    name: str = ""
    error_code: int = 0
    error_message: str | None = None
    topic_config_error_code: int = 0
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Sequence[DescribedConfig] | None = ()
    topic_id: UUID | None = None


class CreateTopicsResponse(Response):
    topics: Sequence[CreatableTopicResult] = ()


class DeleteTopicState(Message):
    name: str | None = None
    topic_id: UUID | None = None


class DeleteTopicsRequest(Message):
    topic_names: Sequence[str] = ()
    timeout: int = 0
    topics: Sequence[DeleteTopicState] = ()


class DeletableTopicResult(Message):
    name: str | None = None
    error_code: int = 0
    error_message: str | None = None
    topic_id: UUID | None = None


class DeleteTopicsResponse(Response):
    responses: Sequence[DeletableTopicResult] = ()


class DescribeConfigsResource(Message):
    resource_type: int = 0
    resource_name: str = ""
    configuration_keys: Sequence[str] | None = ()


class DescribeConfigsRequest(Message):
    resources: Sequence[DescribeConfigsResource] = ()
    include_synonyms: bool = False
    include_documentation: bool = False


class DescribeConfigsSynonym(Message):
    name: str = ""
    value: str | None = None
    source: int = 0


class DescribedConfig(Message):
    name: str = ""
    value: str | None = None
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False
    synonyms: Sequence[DescribeConfigsSynonym] = ()
    config_type: int = 0
    documentation: str | None = None


class DescribeConfigsResult(Message):
    error_code: int = 0
    error_message: str | None = None
    resource_type: int = 0
    resource_name: str = ""
    configs: Sequence[DescribedConfig] = ()


class DescribeConfigsResponse(Response):
    results: Sequence[DescribeConfigsResult] = ()


class AlterableConfig(Message):
    name: str = ""
    config_operation: int = 0
    value: str | None = None


class AlterConfigsResource(Message):
    resource_type: int = 0
    resource_name: str = ""
    configs: Sequence[AlterableConfig] = ()


class AlterConfigsRequest(Message):
    resources: Sequence[AlterConfigsResource] = ()
    validate_only: bool = False


class AlterConfigsResourceResponse(Message):
    error_code: int = 0
    error_message: str | None = None
    resource_type: int = 0
    resource_name: str = ""


class AlterConfigsResponse(Response):
    responses: Sequence[AlterConfigsResourceResponse] = ()


class CreatePartitionsAssignment(Message):
    broker_ids: Sequence[int] = ()


class CreatePartitionsTopic(Message):
    name: str = ""
    count: int = 0
    assignments: Sequence[CreatePartitionsAssignment] | None = None


class CreatePartitionsRequest(Message):
    topics: Sequence[CreatePartitionsTopic] = ()
    timeout: int = 0
    validate_only: bool = False


class CreatePartitionsTopicResult(Message):
    name: str = ""
    error_code: int = 0
    error_message: str | None = None


class CreatePartitionsResponse(Response):
    results: Sequence[CreatePartitionsTopicResult] = ()


class IncrementalAlterConfigsRequest(AlterConfigsRequest):
    """As that of AlterConfigs, with operations."""


class IncrementalAlterConfigsResponse(AlterConfigsResponse):
    """As that of AlterConfigs."""
