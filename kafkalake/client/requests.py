"""The client's side of Kafka's messages: encodes requests and decodes responses, wrapping `kio`.

Requests are plain dictionaries with Kafka's field names in snake case (times in milliseconds, as `timeout`), so that one
piece of code serves all versions of an API. Fields missing from a version are dropped if they hold no information (None, 0, -1,
empty), and refused otherwise. Responses are kio's frozen dataclasses. Callers read fields added by a later version with
`getattr` and a default.

An `Api` holds the versions this client can use, not all that exist. Source: Kafka protocol guide, "Messages".
"""

from __future__ import annotations

import io
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import timedelta
from functools import lru_cache
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from kafkalake.errors import UnsupportedVersionError
from kafkalake.wire.shape import checked_message


@dataclass(frozen=True)
class Api:
    """One Kafka API: its key, its name, the lowest and the highest version that this client supports."""

    key: int
    name: str
    lowest: int
    highest: int


PRODUCE = Api(0, "Produce", 7, 12)
FETCH = Api(1, "Fetch", 4, 12)  # later versions use topic ids
LIST_OFFSETS = Api(2, "ListOffsets", 2, 8)
METADATA = Api(3, "Metadata", 5, 12)
OFFSET_COMMIT = Api(8, "OffsetCommit", 6, 9)
OFFSET_FETCH = Api(9, "OffsetFetch", 5, 7)  # later versions name several groups
FIND_COORDINATOR = Api(10, "FindCoordinator", 1, 3)  # later versions name several groups
JOIN_GROUP = Api(11, "JoinGroup", 2, 5)
HEARTBEAT = Api(12, "Heartbeat", 0, 3)
LEAVE_GROUP = Api(13, "LeaveGroup", 0, 2)  # later versions name several members
SYNC_GROUP = Api(14, "SyncGroup", 0, 3)
DESCRIBE_GROUPS = Api(15, "DescribeGroups", 4, 6)
LIST_GROUPS = Api(16, "ListGroups", 2, 5)
API_VERSIONS = Api(18, "ApiVersions", 0, 3)
CREATE_TOPICS = Api(19, "CreateTopics", 4, 7)
DELETE_TOPICS = Api(20, "DeleteTopics", 1, 5)
DELETE_RECORDS = Api(21, "DeleteRecords", 0, 2)
INIT_PRODUCER_ID = Api(22, "InitProducerId", 0, 4)
ADD_PARTITIONS_TO_TXN = Api(24, "AddPartitionsToTxn", 0, 3)  # later versions are for brokers
END_TXN = Api(26, "EndTxn", 0, 3)  # later versions bump the epoch, useless for a producer with one transaction
WRITE_TXN_MARKERS = Api(27, "WriteTxnMarkers", 1, 1)
DESCRIBE_CONFIGS = Api(32, "DescribeConfigs", 1, 4)
CREATE_PARTITIONS = Api(37, "CreatePartitions", 0, 3)
DELETE_GROUPS = Api(42, "DeleteGroups", 1, 2)
INCREMENTAL_ALTER_CONFIGS = Api(44, "IncrementalAlterConfigs", 0, 1)
OFFSET_DELETE = Api(47, "OffsetDelete", 0, 0)
DESCRIBE_CLUSTER = Api(60, "DescribeCluster", 0, 1)
CONSUMER_GROUP_DESCRIBE = Api(69, "ConsumerGroupDescribe", 0, 1)
DESCRIBE_PRODUCERS = Api(61, "DescribeProducers", 0, 0)
DESCRIBE_TRANSACTIONS = Api(65, "DescribeTransactions", 0, 0)
LIST_TRANSACTIONS = Api(66, "ListTransactions", 0, 1)


class MalformedResponseError(Exception):
    """Bytes that are not the expected response: the peer does not speak Kafka's protocol."""


def encode_request(api: Api, version: int, correlation_id: int, client_id: str, values: Mapping[str, Any]) -> bytes:
    """Encode a request with its size prefix. Raise `UnsupportedVersionError` for a field that `version` cannot carry."""
    schema: Any = load_request_schema(api.key, version)
    header_schema = schema.__header_schema__
    header = _build(
        header_schema,
        api,
        {
            "request_api_key": api.key,
            "request_api_version": version,
            "correlation_id": correlation_id,
            "client_id": client_id,
        },
    )
    buffer = io.BytesIO()
    buffer.write(b"\0\0\0\0")
    entity_writer(header_schema)(buffer, header)
    entity_writer(schema)(buffer, _build(schema, api, values))
    with buffer.getbuffer() as view:
        view[:4] = (len(view) - 4).to_bytes(4, "big")
    return buffer.getvalue()


def decode_response(api: Api, version: int, correlation_id: int, data: bytes) -> Any:
    """Decode the response (kio's dataclass) in `data`, a frame without its size. Raise `MalformedResponseError` if malformed."""
    try:
        schema: Any = _response_schema(api, version)
        header, size = entity_reader(schema.__header_schema__)(data, 0)
        if header.correlation_id != correlation_id:
            raise MalformedResponseError(f"response {header.correlation_id} instead of {correlation_id}")
        body, _ = entity_reader(schema)(*checked_message(schema, data, size))
    except MalformedResponseError:
        raise
    except Exception as error:  # kio raises ValueError, IndexError, struct.error, ... on invalid bytes
        raise MalformedResponseError(f"no {api.name} response (version {version}): {error}") from error
    return body


def _response_schema(api: Api, version: int) -> Any:
    """Return kio's schema, or ours where kio cannot decode brokers' responses."""
    if api.key == DESCRIBE_TRANSACTIONS.key:
        from kafkalake.client.transaction_responses import DescribeTransactionsResponse

        return DescribeTransactionsResponse
    return load_response_schema(api.key, version)


@dataclass(frozen=True)
class _Field:
    name: str
    nested: type | None
    is_array: bool
    is_time: bool
    implicit: Any


@lru_cache(maxsize=512)
def _fields(entity: type) -> tuple[_Field, ...]:
    """Return the properties of a kio dataclass's fields that `_build` needs."""
    hints = typing.get_type_hints(entity)
    found = []
    for field in fields(entity):
        kind, optional = _without_none(hints[field.name])
        is_array = typing.get_origin(kind) is tuple
        inner, _ = _without_none(typing.get_args(kind)[0]) if is_array else (kind, False)
        nested = inner if hasattr(inner, "__dataclass_fields__") else None
        is_time = isinstance(inner, type) and issubclass(inner, timedelta)
        implicit = field.default if field.default is not MISSING else _implicit(inner, is_array, optional, is_time)
        found.append(_Field(field.name, nested, is_array, is_time, implicit))
    return tuple(found)


def _without_none(kind: Any) -> tuple[Any, bool]:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        rest = [argument for argument in typing.get_args(kind) if argument is not type(None)]
        return rest[0], True
    return kind, False


def _implicit(kind: Any, is_array: bool, optional: bool, is_time: bool) -> Any:
    if optional:
        return None
    if is_array:
        return ()
    if is_time:
        return timedelta(0)
    if kind is bool:
        return False
    return "" if issubclass(kind, str) else 0


def _build(entity: type, api: Api, values: Mapping[str, Any]) -> Any:
    known = _fields(entity)
    arguments = {
        field.name: _value(field, api, values[field.name]) if field.name in values else field.implicit
        for field in known
    }
    if len(values) > len(known) or any(name not in arguments for name in values):
        for name, value in values.items():
            if name not in arguments and value not in (None, 0, -1, "", (), [], False):
                raise UnsupportedVersionError(f"the broker's version of {api.name} has no {name.replace('_', ' ')}")
    return entity(**arguments)


def _value(field: _Field, api: Api, value: Any) -> Any:
    if value is None:
        return None
    if field.is_time:
        return timedelta(milliseconds=value)
    if field.is_array:
        nested = field.nested
        return tuple(value) if nested is None else tuple(_build(nested, api, item) for item in value)
    return value if field.nested is None else _build(field.nested, api, value)
