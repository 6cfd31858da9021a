"""The schemas of kafkalake's own messages and of Kafka's messages with own fields, in the form of kio's.

Own APIs have keys, and own fields of Kafka's messages have tags, from `OWN_FROM` on, so that no version of Kafka's will have them.
An own tagged field is written only if it is set, and skipped by whoever does not know it (KIP-482). Annotations are types here, not
texts: readers and writers are made from them.

More than 400 lines: nearly all of them are fields, as data.
"""

import uuid
from dataclasses import dataclass, field
from typing import ClassVar

from kio.schema.broker_heartbeat.v1.request import BrokerHeartbeatRequest as KafkasBrokerHeartbeatRequest
from kio.schema.broker_registration.v4.request import BrokerRegistrationRequest as KafkasBrokerRegistrationRequest
from kio.schema.envelope.v0.request import EnvelopeRequest as KafkasEnvelopeRequest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v18.response import FetchableTopicResponse as KafkasFetchableTopicResponse
from kio.schema.fetch.v18.response import FetchResponse as KafkasFetchResponse
from kio.schema.fetch.v18.response import PartitionData as KafkasPartitionData
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.write_txn_markers.v1.response import (
    WritableTxnMarkerPartitionResult as KafkasMarkerPartitionResult,
)
from kio.schema.write_txn_markers.v1.response import WritableTxnMarkerResult as KafkasMarkerResult
from kio.schema.write_txn_markers.v1.response import WritableTxnMarkerTopicResult as KafkasMarkerTopicResult
from kio.schema.write_txn_markers.v1.response import WriteTxnMarkersResponse as KafkasWriteTxnMarkersResponse
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i64

from kafkalake.wire.messages.delayed_schemas import (
    DelayRecordsRequest,
    DelayRecordsResponse,
    DeliverRecordsRequest,
    DeliverRecordsResponse,
    DescribeDelayedRequest,
    DescribeDelayedResponse,
)
from kafkalake.wire.messages.own_keys import (
    CONTROLLER_VOTE_KEY,
    DELAY_RECORDS_KEY,
    DELIVER_RECORDS_KEY,
    DESCRIBE_DELAYED_KEY,
    FETCH_SEGMENT_KEY,
    KNOWN_TRANSACTIONS_KEY,
    LOWEST_OFFSETS_KEY,
    OWN_FROM,
    REPORT_CHANGES_KEY,
    UPDATE_IMAGE_KEY,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationRequest(KafkasBrokerRegistrationRequest):
    """Kafka's, with what tells whether the logs lost anything since the incarnation before, and with the role."""

    machine: str = field(metadata={"kafka_type": "string", "tag": OWN_FROM}, default="")
    boot_id: str = field(metadata={"kafka_type": "string", "tag": OWN_FROM + 1}, default="")
    is_cut: bool = field(metadata={"kafka_type": "bool", "tag": OWN_FROM + 2}, default=False)
    is_voter: bool = field(metadata={"kafka_type": "bool", "tag": OWN_FROM + 3}, default=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineTopic:
    """The replicas of one topic that have no log on the broker that sends this."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(63)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[i32, ...] = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatRequest(KafkasBrokerHeartbeatRequest):
    """Kafka's, with single replicas that are offline, and those that have lost records. Kafka's broker loses whole directories."""

    offline_topics: tuple[OfflineTopic, ...] = field(metadata={"tag": OWN_FROM}, default=())
    cut_topics: tuple[OfflineTopic, ...] = field(metadata={"tag": OWN_FROM + 1}, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeRequest(KafkasEnvelopeRequest):
    """Kafka's, with the name of the listener that the client is connected to, by which it reaches other brokers."""

    listener: str = field(metadata={"kafka_type": "string", "tag": OWN_FROM}, default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateImageRequest:
    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(UPDATE_IMAGE_KEY)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    version: i64 = field(metadata={"kafka_type": "int64"})
    timeout: i32 = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateImageResponse:
    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(UPDATE_IMAGE_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    version: i64 = field(metadata={"kafka_type": "int64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeSegment:
    """A sealed segment of the leader that the follower is to fetch as a file, by FetchSegment."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(18)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(1)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    base_offset: i64 = field(metadata={"kafka_type": "int64"}, default=i64(-1))
    next_offset: i64 = field(metadata={"kafka_type": "int64"}, default=i64(-1))
    generation: i32 = field(metadata={"kafka_type": "int32"}, default=i32(0))
    size_bytes: i64 = field(metadata={"kafka_type": "int64"}, default=i64(0))
    txn_index_bytes: i64 = field(metadata={"kafka_type": "int64"}, default=i64(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionData(KafkasPartitionData):
    """Kafka's, with where the records, whole Arrow messages, lie in the leader's segments. Only followers get these fields."""

    segment_base_offset: i64 = field(metadata={"kafka_type": "int64", "tag": OWN_FROM}, default=i64(-1))
    ends_segment: bool = field(metadata={"kafka_type": "bool", "tag": OWN_FROM + 1}, default=False)
    whole_segment: WholeSegment = field(metadata={"tag": OWN_FROM + 2}, default=WholeSegment())


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchableTopicResponse(KafkasFetchableTopicResponse):
    """Kafka's, with our partitions."""

    partitions: tuple[PartitionData, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse(KafkasFetchResponse):
    """Kafka's, with our topics."""

    responses: tuple[FetchableTopicResponse, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerPartitionResult(KafkasMarkerPartitionResult):
    """Kafka's, with the offsets of the first and the last record of the transaction that the marker has ended."""

    first_offset: i64 = field(metadata={"kafka_type": "int64", "tag": OWN_FROM}, default=i64(-1))
    last_offset: i64 = field(metadata={"kafka_type": "int64", "tag": OWN_FROM + 1}, default=i64(-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerTopicResult(KafkasMarkerTopicResult):
    """Kafka's, with our partitions."""

    partitions: tuple[WritableTxnMarkerPartitionResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableTxnMarkerResult(KafkasMarkerResult):
    """Kafka's, with our topics."""

    topics: tuple[WritableTxnMarkerTopicResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTxnMarkersResponse(KafkasWriteTxnMarkersResponse):
    """Kafka's, with our markers."""

    markers: tuple[WritableTxnMarkerResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSegmentRequest:
    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(FETCH_SEGMENT_KEY)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    replica_id: i32 = field(metadata={"kafka_type": "int32"})
    replica_epoch: i64 = field(metadata={"kafka_type": "int64"})
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    partition: i32 = field(metadata={"kafka_type": "int32"})
    current_leader_epoch: i32 = field(metadata={"kafka_type": "int32"})
    base_offset: i64 = field(metadata={"kafka_type": "int64"})
    generation: i32 = field(metadata={"kafka_type": "int32"})
    position: i64 = field(metadata={"kafka_type": "int64"})
    length: i32 = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSegmentResponse:
    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(FETCH_SEGMENT_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    next_offset: i64 = field(metadata={"kafka_type": "int64"})
    size_bytes: i64 = field(metadata={"kafka_type": "int64"})
    txn_index_bytes: i64 = field(metadata={"kafka_type": "int64"})
    data: bytes = field(metadata={"kafka_type": "bytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerVoteRequest:
    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(CONTROLLER_VOTE_KEY)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    controller_epoch: i32 = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerVoteResponse:
    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(CONTROLLER_VOTE_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    vote: i8 = field(metadata={"kafka_type": "int8"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedTopic:
    """Partitions of a topic."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(REPORT_CHANGES_KEY)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    name: str = field(metadata={"kafka_type": "string"})
    partitions: tuple[i32, ...] = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportChangesRequest:
    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(REPORT_CHANGES_KEY)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    controller_epoch: i32 = field(metadata={"kafka_type": "int32"})
    step: i8 = field(metadata={"kafka_type": "int8"})
    kind: i8 = field(metadata={"kafka_type": "int8"})
    part: i32 = field(metadata={"kafka_type": "int32"})
    published: tuple[i64, ...] = field(metadata={"kafka_type": "int64"})
    kept: tuple[ReportedTopic, ...]
    knows_hidden: bool = field(metadata={"kafka_type": "bool"})
    hidden_partitions: tuple[i32, ...] = field(metadata={"kafka_type": "int32"})
    hidden_positions: tuple[i64, ...] = field(metadata={"kafka_type": "int64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportChangesResponse:
    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(REPORT_CHANGES_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    changed: tuple[i8, ...] = field(metadata={"kafka_type": "int8"})
    is_marked: bool = field(metadata={"kafka_type": "bool"})
    was_held: bool = field(metadata={"kafka_type": "bool"})
    is_quiet: bool = field(metadata={"kafka_type": "bool"})
    is_swapped: bool = field(metadata={"kafka_type": "bool"})
    coordinated: tuple[i32, ...] = field(metadata={"kafka_type": "int32"})
    transaction_partitions: tuple[i32, ...] = field(metadata={"kafka_type": "int32"})
    transaction_positions: tuple[i64, ...] = field(metadata={"kafka_type": "int64"})
    range_topics: tuple[str, ...] = field(metadata={"kafka_type": "string"})
    range_numbers: tuple[i32, ...] = field(metadata={"kafka_type": "int32"})
    range_offsets: tuple[i64, ...] = field(metadata={"kafka_type": "int64"})
    marked: tuple[ReportedTopic, ...]
    sequence: i64 = field(metadata={"kafka_type": "int64"})
    image_version: i64 = field(metadata={"kafka_type": "int64"})
    parts: i32 = field(metadata={"kafka_type": "int32"})
    rows: tuple[bytes, ...] = field(metadata={"kafka_type": "bytes"})
    journal_partitions: tuple[i32, ...] = field(metadata={"kafka_type": "int32"})
    journal_positions: tuple[i64, ...] = field(metadata={"kafka_type": "int64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTransactionsRequest:
    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(KNOWN_TRANSACTIONS_KEY)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    producer_ids: tuple[i64, ...] = field(metadata={"kafka_type": "int64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTopic:
    """Partitions of a topic."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(KNOWN_TRANSACTIONS_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    name: str = field(metadata={"kafka_type": "string"})
    partition_indexes: tuple[i32, ...] = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTransaction:
    """The partitions in which a producer's transaction is open."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(KNOWN_TRANSACTIONS_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    producer_id: i64 = field(metadata={"kafka_type": "int64"})
    topics: tuple[KnownTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTransactionsResponse:
    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(KNOWN_TRANSACTIONS_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    coordinated: tuple[i32, ...] = field(metadata={"kafka_type": "int32"})
    unfinished: tuple[KnownTransaction, ...]
    committed: tuple[i64, ...] = field(metadata={"kafka_type": "int64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LowestOffsetsRequest:
    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(LOWEST_OFFSETS_KEY)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    topics: tuple[str, ...] = field(metadata={"kafka_type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LowestOffsetsPartition:
    """The lowest offset that a group has committed for a partition."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(LOWEST_OFFSETS_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    committed_offset: i64 = field(metadata={"kafka_type": "int64"})
    group_id: str = field(metadata={"kafka_type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LowestOffsetsTopic:
    """Partitions of a topic."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(LOWEST_OFFSETS_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    name: str = field(metadata={"kafka_type": "string"})
    partitions: tuple[LowestOffsetsPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LowestOffsetsResponse:
    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(LOWEST_OFFSETS_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    coordinated: tuple[i32, ...] = field(metadata={"kafka_type": "int32"})
    topics: tuple[LowestOffsetsTopic, ...]


OWN_REQUESTS: dict[tuple[int, int], type] = {
    (58, 0): EnvelopeRequest,
    (62, 4): BrokerRegistrationRequest,
    (63, 1): BrokerHeartbeatRequest,
    (UPDATE_IMAGE_KEY, 0): UpdateImageRequest,
    (REPORT_CHANGES_KEY, 0): ReportChangesRequest,
    (FETCH_SEGMENT_KEY, 0): FetchSegmentRequest,
    (CONTROLLER_VOTE_KEY, 0): ControllerVoteRequest,
    (KNOWN_TRANSACTIONS_KEY, 0): KnownTransactionsRequest,
    (LOWEST_OFFSETS_KEY, 0): LowestOffsetsRequest,
    (DELAY_RECORDS_KEY, 0): DelayRecordsRequest,
    (DELIVER_RECORDS_KEY, 0): DeliverRecordsRequest,
    (DESCRIBE_DELAYED_KEY, 0): DescribeDelayedRequest,
}
OWN_RESPONSES: dict[tuple[int, int], type] = {
    (1, 18): FetchResponse,
    (27, 1): WriteTxnMarkersResponse,
    (UPDATE_IMAGE_KEY, 0): UpdateImageResponse,
    (REPORT_CHANGES_KEY, 0): ReportChangesResponse,
    (FETCH_SEGMENT_KEY, 0): FetchSegmentResponse,
    (CONTROLLER_VOTE_KEY, 0): ControllerVoteResponse,
    (KNOWN_TRANSACTIONS_KEY, 0): KnownTransactionsResponse,
    (LOWEST_OFFSETS_KEY, 0): LowestOffsetsResponse,
    (DELAY_RECORDS_KEY, 0): DelayRecordsResponse,
    (DELIVER_RECORDS_KEY, 0): DeliverRecordsResponse,
    (DESCRIBE_DELAYED_KEY, 0): DescribeDelayedResponse,
}
