"""Messages about records: produce, fetch, offsets of timestamps and epochs, deletion."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from kafkalake.buffers import Buffer
from kafkalake.wire.messages.cluster import NodeEndpoint
from kafkalake.wire.messages.message import Message, Response


class PartitionProduceData(Message):
    index: int = 0
    records: Buffer | None = None


class TopicProduceData(Message):
    name: str = ""
    partition_data: Sequence[PartitionProduceData] = ()
    topic_id: UUID | None = None


class ProduceRequest(Message):
    transactional_id: str | None = None
    acks: int = 0
    timeout: int = 0
    topic_data: Sequence[TopicProduceData] = ()


class LeaderIdAndEpoch(Message):
    leader_id: int = -1
    leader_epoch: int = -1


class BatchIndexAndErrorMessage(Message):
    batch_index: int = 0
    batch_index_error_message: str | None = None


class PartitionProduceResponse(Message):
    index: int = 0
    error_code: int = 0
    base_offset: int = 0
    log_append_time: int | None = None
    log_start_offset: int = -1
    record_errors: Sequence[BatchIndexAndErrorMessage] = ()
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch | None = None


class TopicProduceResponse(Message):
    name: str = ""
    partition_responses: Sequence[PartitionProduceResponse] = ()
    topic_id: UUID | None = None


class ProduceResponse(Response):
    responses: Sequence[TopicProduceResponse] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()


class ReplicaState(Message):
    replica_id: int = -1
    replica_epoch: int = -1


class ForgottenTopic(Message):
    topic: str = ""
    partitions: Sequence[int] = ()
    topic_id: UUID | None = None


class FetchPartition(Message):
    partition: int = 0
    fetch_offset: int = 0
    partition_max_bytes: int = 0
    log_start_offset: int = -1
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    replica_directory_id: UUID | None = None
    high_watermark: int = 2**63 - 1


class FetchTopic(Message):
    topic: str = ""
    partitions: Sequence[FetchPartition] = ()
    topic_id: UUID | None = None


class FetchRequest(Message):
    replica_id: int = -1
    max_wait: int = 0
    min_bytes: int = 0
    max_bytes: int = 2**31 - 1
    isolation_level: int = 0
    topics: Sequence[FetchTopic] = ()
    session_id: int = 0
    session_epoch: int = -1
    forgotten_topics_data: Sequence[ForgottenTopic] = ()
    rack_id: str = ""
    cluster_id: str | None = None
    replica_state: ReplicaState | None = None


class SnapshotId(Message):
    end_offset: int = -1
    epoch: int = -1


class EpochEndOffset(Message):
    epoch: int = -1
    end_offset: int = -1


class AbortedTransaction(Message):
    producer_id: int = 0
    first_offset: int = 0


class WholeSegment(Message):
    base_offset: int = -1
    next_offset: int = -1
    generation: int = 0
    size_bytes: int = 0
    txn_index_bytes: int = 0


class PartitionData(Message):
    partition_index: int = 0
    error_code: int = 0
    high_watermark: int = 0
    last_stable_offset: int = -1
    aborted_transactions: Sequence[AbortedTransaction] | None = ()
    records: Buffer | None = None
    log_start_offset: int = -1
    preferred_read_replica: int = -1
    diverging_epoch: EpochEndOffset | None = None
    current_leader: LeaderIdAndEpoch | None = None
    snapshot_id: SnapshotId | None = None
    segment_base_offset: int = -1
    ends_segment: bool = False
    whole_segment: WholeSegment | None = None


class FetchableTopicResponse(Message):
    topic: str = ""
    partitions: Sequence[PartitionData] = ()
    topic_id: UUID | None = None


class FetchResponse(Response):
    responses: Sequence[FetchableTopicResponse] = ()
    error_code: int = 0
    session_id: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


class ListOffsetsPartition(Message):
    partition_index: int = 0
    timestamp: int = 0
    current_leader_epoch: int = -1


class ListOffsetsTopic(Message):
    name: str = ""
    partitions: Sequence[ListOffsetsPartition] = ()


class ListOffsetsRequest(Message):
    replica_id: int = 0
    topics: Sequence[ListOffsetsTopic] = ()
    isolation_level: int = 0
    timeout: int = 0


class ListOffsetsPartitionResponse(Message):
    partition_index: int = 0
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


class ListOffsetsTopicResponse(Message):
    name: str = ""
    partitions: Sequence[ListOffsetsPartitionResponse] = ()


class ListOffsetsResponse(Response):
    topics: Sequence[ListOffsetsTopicResponse] = ()


class DeleteRecordsPartition(Message):
    partition_index: int = 0
    offset: int = 0


class DeleteRecordsTopic(Message):
    name: str = ""
    partitions: Sequence[DeleteRecordsPartition] = ()


class DeleteRecordsRequest(Message):
    topics: Sequence[DeleteRecordsTopic] = ()
    timeout: int = 0


class DeleteRecordsPartitionResult(Message):
    partition_index: int = 0
    low_watermark: int = 0
    error_code: int = 0


class DeleteRecordsTopicResult(Message):
    name: str = ""
    partitions: Sequence[DeleteRecordsPartitionResult] = ()


class DeleteRecordsResponse(Response):
    topics: Sequence[DeleteRecordsTopicResult] = ()


class OffsetForLeaderPartition(Message):
    partition: int = 0
    current_leader_epoch: int = -1
    leader_epoch: int = 0


class OffsetForLeaderTopic(Message):
    topic: str = ""
    partitions: Sequence[OffsetForLeaderPartition] = ()


class OffsetForLeaderEpochRequest(Message):
    topics: Sequence[OffsetForLeaderTopic] = ()
    replica_id: int = -2


class OffsetForLeaderEpochEndOffset(Message):
    error_code: int = 0
    partition: int = 0
    leader_epoch: int = -1
    end_offset: int = -1


class OffsetForLeaderTopicResult(Message):
    topic: str = ""
    partitions: Sequence[OffsetForLeaderEpochEndOffset] = ()


class OffsetForLeaderEpochResponse(Response):
    topics: Sequence[OffsetForLeaderTopicResult] = ()
