"""Schemas of kafkalake's own messages of delayed delivery: records that wait or are due, between brokers.

Annotations are types here, as in `schemas`.
"""

import uuid
from dataclasses import dataclass, field
from typing import ClassVar

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i64

from kafkalake.wire.messages.own_keys import DELAY_RECORDS_KEY, DELIVER_RECORDS_KEY, DESCRIBE_DELAYED_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedBatch:
    """A batch for a partition of `__delayed`."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DELAY_RECORDS_KEY)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    journal_partition: i32 = field(metadata={"kafka_type": "int32"})
    transactional_id: str | None = field(metadata={"kafka_type": "string"})
    records: bytes = field(metadata={"kafka_type": "bytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayRecordsRequest:
    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DELAY_RECORDS_KEY)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    batches: tuple[DelayedBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedResult:
    """The outcome for one batch."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DELAY_RECORDS_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayRecordsResponse:
    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DELAY_RECORDS_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    results: tuple[DelayedResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredBatch:
    """A batch of records that are due, for a partition."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DELIVER_RECORDS_KEY)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    topic_id: uuid.UUID | None = field(metadata={"kafka_type": "uuid"})
    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    records: bytes = field(metadata={"kafka_type": "bytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverRecordsRequest:
    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DELIVER_RECORDS_KEY)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    batches: tuple[DeliveredBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredResult:
    """The outcome for one batch."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DELIVER_RECORDS_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverRecordsResponse:
    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DELIVER_RECORDS_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    results: tuple[DeliveredResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeDelayedRequest:
    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DESCRIBE_DELAYED_KEY)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedJournal:
    """A partition of `__delayed` that the broker coordinates."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DESCRIBE_DELAYED_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    is_loaded: bool = field(metadata={"kafka_type": "bool"})
    waiting: i64 = field(metadata={"kafka_type": "int64"})
    overdue: i64 = field(metadata={"kafka_type": "int64"})
    next_due: i64 = field(metadata={"kafka_type": "int64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeDelayedResponse:
    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(DESCRIBE_DELAYED_KEY)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    handed_over: i64 = field(metadata={"kafka_type": "int64"})
    dead_letters: i64 = field(metadata={"kafka_type": "int64"})
    recent: i64 = field(metadata={"kafka_type": "int64"})
    lateness_p50: i64 = field(metadata={"kafka_type": "int64"})
    lateness_p99: i64 = field(metadata={"kafka_type": "int64"})
    lateness_max: i64 = field(metadata={"kafka_type": "int64"})
    partitions: tuple[DescribedJournal, ...]
