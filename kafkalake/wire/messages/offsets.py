"""Messages about committed offsets of groups."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalake.wire.messages.message import Message, Response


class OffsetCommitRequestPartition(Message):
    partition_index: int = 0
    committed_offset: int = 0
    committed_metadata: str | None = None
    committed_leader_epoch: int = -1


class OffsetCommitRequestTopic(Message):
    name: str = ""
    partitions: Sequence[OffsetCommitRequestPartition] = ()


class OffsetCommitRequest(Message):
    group_id: str = ""
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    retention_time: int = -1
    topics: Sequence[OffsetCommitRequestTopic] = ()
    group_instance_id: str | None = None


class PartitionResult(Message):
    partition_index: int = 0
    error_code: int = 0


class TopicResult(Message):
    name: str = ""
    partitions: Sequence[PartitionResult] = ()


class OffsetCommitResponse(Response):
    topics: Sequence[TopicResult] = ()


class OffsetFetchRequestGroup(Message):
    group_id: str = ""
    topics: Sequence[TopicIndexes] | None = ()
    member_id: str | None = None
    member_epoch: int = -1


class TopicIndexes(Message):
    name: str = ""
    partition_indexes: Sequence[int] = ()


class OffsetFetchRequest(Message):
    group_id: str = ""
    topics: Sequence[TopicIndexes] | None = ()
    require_stable: bool = False
    groups: Sequence[OffsetFetchRequestGroup] = ()


class OffsetFetchResponseGroup(Message):
    group_id: str = ""
    topics: Sequence[OffsetFetchResponseTopic] = ()
    error_code: int = 0


class OffsetFetchResponsePartition(Message):
    partition_index: int = 0
    committed_offset: int = 0
    metadata: str | None = None
    error_code: int = 0
    committed_leader_epoch: int = -1


class OffsetFetchResponseTopic(Message):
    name: str = ""
    partitions: Sequence[OffsetFetchResponsePartition] = ()


class OffsetFetchResponse(Response):
    topics: Sequence[OffsetFetchResponseTopic] = ()
    error_code: int = 0
    groups: Sequence[OffsetFetchResponseGroup] = ()


class TxnOffsetCommitRequest(Message):
    transactional_id: str = ""
    group_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    topics: Sequence[OffsetCommitRequestTopic] = ()
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class TxnOffsetCommitResponse(Response):
    topics: Sequence[TopicResult] = ()


class OffsetDeleteRequestPartition(Message):
    partition_index: int = 0


class OffsetDeleteRequestTopic(Message):
    name: str = ""
    partitions: Sequence[OffsetDeleteRequestPartition] = ()


class OffsetDeleteRequest(Message):
    group_id: str = ""
    topics: Sequence[OffsetDeleteRequestTopic] = ()


class OffsetDeleteResponse(Response):
    error_code: int = 0
    topics: Sequence[TopicResult] = ()


class LowestOffsetsRequest(Message):
    topics: Sequence[str] = ()


class LowestOffsetsPartition(Message):
    partition_index: int = 0
    committed_offset: int = -1
    group_id: str = ""


class LowestOffsetsTopic(Message):
    name: str = ""
    partitions: Sequence[LowestOffsetsPartition] = ()


class LowestOffsetsResponse(Response):
    """See `broker.groups.lowest_offsets.LowestOffsets`."""

    error_code: int = 0
    coordinated: Sequence[int] = ()
    topics: Sequence[LowestOffsetsTopic] = ()
