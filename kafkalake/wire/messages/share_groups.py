"""Messages about share groups (KIP-932): of their members, of their offsets, and of the state that their coordinator keeps.

More than 400 lines: one class for each structure of eleven APIs, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from kafkalake.buffers import Buffer
from kafkalake.wire.messages.message import Message, Response


class ShareGroupHeartbeatRequest(Message):
    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    rack_id: str | None = None
    subscribed_topic_names: Sequence[str] | None = None


class HeartbeatPartitions(Message):
    topic_id: UUID | None = None
    partitions: Sequence[int] = ()


class HeartbeatAssignment(Message):
    topic_partitions: Sequence[HeartbeatPartitions] = ()


class ShareGroupHeartbeatResponse(Response):
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval: int = 0
    assignment: HeartbeatAssignment | None = None


class ShareGroupDescribeRequest(Message):
    group_ids: Sequence[str] = ()
    include_authorized_operations: bool = False


class TopicPartitions(Message):
    topic_id: UUID | None = None
    topic_name: str = ""
    partitions: Sequence[int] = ()


class Assignment(Message):
    topic_partitions: Sequence[TopicPartitions] = ()


class Member(Message):
    member_id: str = ""
    rack_id: str | None = None
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: Sequence[str] = ()
    assignment: Assignment = Assignment()


class DescribedShareGroup(Message):
    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: Sequence[Member] = ()
    authorized_operations: int = -(2**31)


class ShareGroupDescribeResponse(Response):
    groups: Sequence[DescribedShareGroup] = ()


class AcknowledgementBatch(Message):
    first_offset: int = 0
    last_offset: int = 0
    acknowledge_types: Sequence[int] = ()


class AcknowledgedPartition(Message):
    """A partition of ShareFetch and of ShareAcknowledge."""

    partition_index: int = 0
    acknowledgement_batches: Sequence[AcknowledgementBatch] = ()


class AcknowledgedTopic(Message):
    """A topic of ShareFetch and of ShareAcknowledge."""

    topic_id: UUID | None = None
    partitions: Sequence[AcknowledgedPartition] = ()


class ForgottenShareTopic(Message):
    topic_id: UUID | None = None
    partitions: Sequence[int] = ()


class ShareFetchRequest(Message):
    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int = 0
    max_wait: int = 0
    min_bytes: int = 0
    max_bytes: int = 2**31 - 1
    max_records: int = 0
    batch_size: int = 0
    topics: Sequence[AcknowledgedTopic] = ()
    forgotten_topics_data: Sequence[ForgottenShareTopic] = ()


class LeaderIdAndEpoch(Message):
    leader_id: int = 0
    leader_epoch: int = 0


class AcquiredRecords(Message):
    first_offset: int = 0
    last_offset: int = 0
    delivery_count: int = 0


class FetchedSharePartition(Message):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()
    records: Buffer = b""
    acquired_records: Sequence[AcquiredRecords] = ()


class FetchedShareTopic(Message):
    topic_id: UUID | None = None
    partitions: Sequence[FetchedSharePartition] = ()


class NodeEndpoint(Message):
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


class ShareFetchResponse(Response):
    error_code: int = 0
    error_message: str | None = None
    acquisition_lock_timeout: int = 0
    responses: Sequence[FetchedShareTopic] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()


class ShareAcknowledgeRequest(Message):
    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int = 0
    topics: Sequence[AcknowledgedTopic] = ()


class AcknowledgeResult(Message):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()


class AcknowledgeTopicResult(Message):
    topic_id: UUID | None = None
    partitions: Sequence[AcknowledgeResult] = ()


class ShareAcknowledgeResponse(Response):
    error_code: int = 0
    error_message: str | None = None
    responses: Sequence[AcknowledgeTopicResult] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()


class PartitionResult(Message):
    """The error of a partition whose state was to be initialized, written or deleted."""

    partition: int = 0
    error_code: int = 0
    error_message: str | None = None


class TopicResult(Message):
    topic_id: UUID | None = None
    partitions: Sequence[PartitionResult] = ()


class InitializedPartition(Message):
    partition: int = 0
    state_epoch: int = 0
    start_offset: int = 0


class InitializedTopic(Message):
    topic_id: UUID | None = None
    partitions: Sequence[InitializedPartition] = ()


class InitializeShareGroupStateRequest(Message):
    group_id: str = ""
    topics: Sequence[InitializedTopic] = ()


class InitializeShareGroupStateResponse(Response):
    results: Sequence[TopicResult] = ()


class StateBatch(Message):
    first_offset: int = 0
    last_offset: int = 0
    delivery_state: int = 0
    delivery_count: int = 0


class ReadPartition(Message):
    partition: int = 0
    leader_epoch: int = 0


class ReadTopic(Message):
    topic_id: UUID | None = None
    partitions: Sequence[ReadPartition] = ()


class ReadShareGroupStateRequest(Message):
    group_id: str = ""
    topics: Sequence[ReadTopic] = ()


class ReadPartitionResult(Message):
    partition: int = 0
    error_code: int = 0
    error_message: str | None = None
    state_epoch: int = 0
    start_offset: int = 0
    state_batches: Sequence[StateBatch] = ()


class ReadTopicResult(Message):
    topic_id: UUID | None = None
    partitions: Sequence[ReadPartitionResult] = ()


class ReadShareGroupStateResponse(Response):
    results: Sequence[ReadTopicResult] = ()


class WrittenPartition(Message):
    partition: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    state_batches: Sequence[StateBatch] = ()


class WrittenTopic(Message):
    topic_id: UUID | None = None
    partitions: Sequence[WrittenPartition] = ()


class WriteShareGroupStateRequest(Message):
    group_id: str = ""
    topics: Sequence[WrittenTopic] = ()


class WriteShareGroupStateResponse(Response):
    results: Sequence[TopicResult] = ()


class DeletedPartition(Message):
    partition: int = 0


class DeletedTopic(Message):
    topic_id: UUID | None = None
    partitions: Sequence[DeletedPartition] = ()


class DeleteShareGroupStateRequest(Message):
    group_id: str = ""
    topics: Sequence[DeletedTopic] = ()


class DeleteShareGroupStateResponse(Response):
    results: Sequence[TopicResult] = ()


class ReadShareGroupStateSummaryRequest(Message):
    group_id: str = ""
    topics: Sequence[ReadTopic] = ()


class SummarizedPartition(Message):
    partition: int = 0
    error_code: int = 0
    error_message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0


class SummarizedTopic(Message):
    topic_id: UUID | None = None
    partitions: Sequence[SummarizedPartition] = ()


class ReadShareGroupStateSummaryResponse(Response):
    results: Sequence[SummarizedTopic] = ()


class DescribedOffsetsTopic(Message):
    topic_name: str = ""
    partitions: Sequence[int] = ()


class DescribedOffsetsGroup(Message):
    group_id: str = ""
    topics: Sequence[DescribedOffsetsTopic] | None = ()


class DescribeShareGroupOffsetsRequest(Message):
    groups: Sequence[DescribedOffsetsGroup] = ()


class ShareGroupOffset(Message):
    partition_index: int = 0
    start_offset: int = 0
    leader_epoch: int = 0
    error_code: int = 0
    error_message: str | None = None


class ShareGroupTopicOffsets(Message):
    topic_name: str = ""
    topic_id: UUID | None = None
    partitions: Sequence[ShareGroupOffset] = ()


class ShareGroupOffsets(Message):
    group_id: str = ""
    topics: Sequence[ShareGroupTopicOffsets] = ()
    error_code: int = 0
    error_message: str | None = None


class DescribeShareGroupOffsetsResponse(Response):
    groups: Sequence[ShareGroupOffsets] = ()


class AlteredOffset(Message):
    partition_index: int = 0
    start_offset: int = 0


class AlteredOffsetsTopic(Message):
    topic_name: str = ""
    partitions: Sequence[AlteredOffset] = ()


class AlterShareGroupOffsetsRequest(Message):
    group_id: str = ""
    topics: Sequence[AlteredOffsetsTopic] = ()


class AlteredOffsetResult(Message):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None


class AlteredOffsetsTopicResult(Message):
    topic_name: str = ""
    topic_id: UUID | None = None
    partitions: Sequence[AlteredOffsetResult] = ()


class AlterShareGroupOffsetsResponse(Response):
    error_code: int = 0
    error_message: str | None = None
    responses: Sequence[AlteredOffsetsTopicResult] = ()


class DeletedOffsetsTopic(Message):
    topic_name: str = ""


class DeleteShareGroupOffsetsRequest(Message):
    group_id: str = ""
    topics: Sequence[DeletedOffsetsTopic] = ()


class DeletedOffsetsTopicResult(Message):
    topic_name: str = ""
    topic_id: UUID | None = None
    error_code: int = 0
    error_message: str | None = None


class DeleteShareGroupOffsetsResponse(Response):
    error_code: int = 0
    error_message: str | None = None
    responses: Sequence[DeletedOffsetsTopicResult] = ()
