"""Requests and responses of every API and version that the broker serves, against kio's own encoding, and broken on purpose."""

from __future__ import annotations

import contextlib
import io
import struct
import subprocess
import sys
from dataclasses import Field, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin
from uuid import UUID

import pytest
from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from wire.message_codec import client_reads, read_header, server_reads, server_writes

from kafkalake.errors import InvalidRequestError
from kafkalake.unsigned_varint import append_unsigned_varint
from kafkalake.wire.messages.codec import read_fixed_header
from kafkalake.wire.messages.message import Message
from kafkalake.wire.messages.reading import ELEMENTS_MAX

VERSIONS = {
    "Produce": (0, 3, 13),
    "Fetch": (1, 4, 18),
    "ListOffsets": (2, 1, 10),
    "Metadata": (3, 0, 13),
    "FindCoordinator": (10, 0, 6),
    "ApiVersions": (18, 0, 4),
    "CreateTopics": (19, 2, 7),
    "DeleteTopics": (20, 1, 6),
    "DeleteRecords": (21, 0, 2),
    "InitProducerId": (22, 0, 5),
    "OffsetForLeaderEpoch": (23, 2, 4),
    "DescribeConfigs": (32, 1, 4),
    "AlterConfigs": (33, 0, 2),
    "DescribeLogDirs": (35, 1, 4),
    "CreatePartitions": (37, 0, 3),
    "IncrementalAlterConfigs": (44, 0, 1),
    "DescribeCluster": (60, 0, 2),
    "DescribeTopicPartitions": (75, 0, 0),
}
APIS = [
    pytest.param(
        key,
        version,
        id=f"{name} {version}",
        marks=[pytest.mark.exhaustive] if lowest < version < highest else [],
    )
    for name, (key, lowest, highest) in VERSIONS.items()
    for version in range(lowest, highest + 1)
]
EXAMPLES = examples(15, suppress_health_check=list(HealthCheck))


TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": st.integers(-(2**31), 2**31 - 1).map(lambda ms: timedelta(milliseconds=ms)),
    "timedelta_i64": st.integers(-(2**40), 2**40).map(lambda ms: timedelta(milliseconds=ms)),
    "datetime_i64": st.none()
    | st.integers(0, 2**40).map(lambda ms: datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)),
    "uuid": st.none() | st.uuids(),
    "string": TEXT,
    "bytes": st.binary(max_size=50),
    "records": st.binary(max_size=50),
}


@cache
def entities(schema: Any) -> st.SearchStrategy[Any]:
    """Any message of one of kio's dataclasses."""
    return st.builds(schema, **{field.name: values_of(field) for field in fields(schema)})


def values_of(field: Field[Any]) -> st.SearchStrategy[Any]:
    kind, optional = without_none(field.type)
    if get_origin(kind) is tuple:
        inner, _ = without_none(get_args(kind)[0])
        values = st.lists(value_of(inner, field), max_size=3).map(tuple)
    else:
        values = value_of(kind, field)
    return values | st.none() if optional else values


def value_of(kind: Any, field: Field[Any]) -> st.SearchStrategy[Any]:
    return entities(kind) if hasattr(kind, "__dataclass_fields__") else VALUES[field.metadata["kafka_type"]]


def without_none(kind: Any) -> tuple[Any, bool]:
    """X and whether it may be None, of X or `X | None`."""
    if get_origin(kind) in (Union, UnionType):
        return next(each for each in get_args(kind) if each is not NoneType), True
    return kind, False


def encoded(schema: type, entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(schema)(buffer, entity)
    return buffer.getvalue()


def with_header(schema: Any, body: bytes, client_id: str | None = "tester", correlation_id: int = 5) -> bytes:
    name = b"" if client_id is None else client_id.encode()
    head = struct.pack(
        ">hhih", schema.__api_key__, schema.__version__, correlation_id, -1 if client_id is None else len(name)
    )
    return head + name + (b"\0" if schema.__flexible__ else b"") + body


def as_plain(value: Any) -> Any:
    """kio's value as `Message` has it: numbers for times and errors, lists for tuples."""
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, ErrorCode):
        return value.value
    if isinstance(value, tuple):
        return [as_plain(each) for each in value]
    if hasattr(value, "__dataclass_fields__"):
        told = [
            field
            for field in fields(value)
            if "tag" not in field.metadata or getattr(value, field.name) != field.default
        ]
        return {field.name: plain_field(value, field) for field in told}
    return value


def plain_field(entity: Any, field: Field[Any]) -> Any:
    value = getattr(entity, field.name)
    return -1 if value is None and field.metadata.get("kafka_type") == "datetime_i64" else as_plain(value)


def assert_same(read: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        for name, value in expected.items():
            if hasattr(read, name):
                assert_same(getattr(read, name), value)
            else:
                assert value in (None, 0, -1, "", b"", [], False, 2**63 - 1) or isinstance(value, dict), name
    elif isinstance(expected, list):
        assert len(read) == len(expected)
        for one, other in zip(read, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, bytes):
        assert bytes(read) == expected
    elif isinstance(expected, UUID) and not expected.int:
        assert read is None
    else:
        assert read == expected


@pytest.mark.parametrize(("key", "version"), APIS)
@given(data=st.data())
@EXAMPLES
@pytest.mark.exhaustive
def test_a_request_is_read_as_kio_wrote_it(key: int, version: int, data: st.DataObject) -> None:
    schema: Any = load_request_schema(key, version)
    entity = data.draw(entities(schema))
    frame = with_header(schema, encoded(schema, entity))
    header = read_header(frame)
    assert header == (key, version, 5, "tester", header.body)
    assert read_fixed_header(frame) == (key, version, 5)
    assert_same(server_reads(frame), as_plain(entity))


@pytest.mark.parametrize(("key", "version"), APIS)
@given(data=st.data())
@EXAMPLES
@pytest.mark.exhaustive
def test_a_response_is_written_and_read_as_by_kio(key: int, version: int, data: st.DataObject) -> None:
    schema: Any = load_response_schema(key, version)
    entity = data.draw(entities(schema))
    body = encoded(schema, entity)
    head = struct.pack(">i", 77) + (b"\0" if schema.__header_schema__.__flexible__ else b"")
    frame = server_writes(key, version, 77, as_plain(entity))
    assert frame == struct.pack(">i", len(head + body)) + head + body
    assert_same(client_reads(key, version, 77, head + body), as_plain(entity))


@pytest.mark.parametrize(("key", "version"), APIS)
@given(data=st.binary(max_size=200))
@EXAMPLES
@pytest.mark.exhaustive
def test_arbitrary_bytes_are_no_request(key: int, version: int, data: bytes) -> None:
    schema: Any = load_request_schema(key, version)
    try_to_read(schema, with_header(schema, data))
    try_to_read(schema, struct.pack(">hhi", key, version, 1) + data)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("key", "version"), APIS)
@given(data=st.data())
@EXAMPLES
def test_damaged_requests_give_an_error_or_a_request(key: int, version: int, data: st.DataObject) -> None:
    schema: Any = load_request_schema(key, version)
    frame = bytearray(with_header(schema, encoded(schema, data.draw(entities(schema)))))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(8, len(frame) - 1))] = data.draw(
            st.sampled_from([0, 1, 127, 128, 255]) | st.integers(0, 255)
        )
    try_to_read(schema, bytes(frame))
    for length in data.draw(st.lists(st.integers(0, len(frame)), max_size=3)):
        try_to_read(schema, bytes(frame[:length]))


def try_to_read(schema: Any, frame: bytes) -> None:
    """Readers give a message or InvalidRequestError."""
    with contextlib.suppress(InvalidRequestError):
        assert isinstance(server_reads(frame), Message)
    with contextlib.suppress(InvalidRequestError):
        body = frame[17:]  # after a header of `with_header`
        assert isinstance(client_reads(schema.__api_key__, schema.__version__, 0, bytes(5) + body), Message)


@pytest.mark.parametrize(("key", "version"), APIS)
@given(data=st.data(), more=st.binary(min_size=1, max_size=5))
@examples(3, suppress_health_check=list(HealthCheck))
@pytest.mark.exhaustive
def test_bytes_after_a_request_are_passed_over(key: int, version: int, data: st.DataObject, more: bytes) -> None:
    """As Kafka does; our own client accepts no response that has them."""
    schema: Any = load_request_schema(key, version)
    entity = data.draw(entities(schema))
    frame = with_header(schema, encoded(schema, entity))
    assert_same(server_reads(frame + more), as_plain(entity))
    schema = load_response_schema(key, version)
    answer = server_writes(key, version, 5, as_plain(data.draw(entities(schema))))[4:]
    with pytest.raises(InvalidRequestError):
        client_reads(key, version, 5, answer + more)


_HOSTILE = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
from kafkalake.errors import InvalidRequestError
from kafkalake.wire.messages.codec import decode_request, decode_response
from kafkalake.wire.messages.cluster import MetadataRequest, MetadataResponse
from kafkalake.wire.messages.records import ProduceRequest, ProduceResponse
refused = 0
for line in sys.stdin:
    frame, response = map(bytes.fromhex, line.split())
    key, version = frame[1], frame[3]
    for read in (
        lambda: decode_request(MetadataRequest if key else ProduceRequest, key, version, frame),
        lambda: decode_response(MetadataResponse if key else ProduceResponse, key, version, 0, response),
    ):
        try:
            read()
        except InvalidRequestError:
            refused += 1
# Not ru_maxrss: it counts what the parent had when it forked.
print(refused, next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")))
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("key", "version", "flexible_from", "before"),
    [
        (0, 3, 9, struct.pack(">hhi", -1, 1, 1_000)),
        (0, 9, 9, b"\0" + struct.pack(">hi", 1, 1_000)),
        (3, 5, 9, b""),
        (3, 9, 9, b""),
        (3, 12, 9, b""),
    ],
    ids=["Produce 3", "Produce 9", "Metadata 5", "Metadata 9", "Metadata 12"],
)
def test_a_claimed_length_costs_no_memory(key: int, version: int, flexible_from: int, before: bytes) -> None:
    """Array lengths of up to 2**35, in a process with 4 GiB of address space: refused, not tried."""
    lengths = (
        [
            b"\xff\xff\xff\xff\x07",
            b"\xff\xff\xff\xff\x7f",
            b"\xff\xff\xff\xff\x0f",
            b"\xff\xff\x7f",
            b"\xff" * 10,
            b"\x80" * 9 + b"\1",
        ]
        if version >= flexible_from
        else [struct.pack(">i", length) for length in (2**31 - 1, 10**8, 10**6, -2, -(2**31))]
    )
    header = struct.pack(">hhih", key, version, 1, -1) + (b"\0" if version >= flexible_from else b"")
    start = bytes(4 + 4 * (key == 3)) + (b"\0" if version >= flexible_from else b"")  # Metadata's begin with a time
    frames = [
        f"{(header + before + length + bytes(50)).hex()} {(start + length + bytes(50)).hex()}" for length in lengths
    ]
    done = subprocess.run(
        [sys.executable, "-c", _HOSTILE],
        input="\n".join(frames),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-500:]
    refused, resident_kib = map(int, done.stdout.split())
    assert refused == 2 * len(frames)
    assert resident_kib < 300 * 1024


def test_too_many_elements_are_refused() -> None:
    """50,001 topics of no name: a hundred kilobytes, but objects of many."""
    frame = struct.pack(">hhih", 3, 0, 1, -1) + struct.pack(">i", 50_001) + bytes(2) * 50_001
    with pytest.raises(InvalidRequestError, match="array elements"):
        server_reads(frame)


def test_unknown_tagged_fields_are_skipped() -> None:
    """KIP-482: a newer client may send what we do not know; here in the header, in a topic and in the request."""
    topic = b"\x05name" + b"\x01" + b"\x02\x63\x03abc\x64\x00"
    frame = (
        struct.pack(">hhihb", 0, 9, 5, 1, ord("c"))
        + b"\x01\x07\x01x"
        + b"\0"
        + struct.pack(">hi", 1, 1_000)
        + b"\x02"
        + topic
        + b"\x01\x05\x02\xff\xff"
    )
    request = server_reads(frame)
    assert [each.name for each in request.topic_data] == ["name"]
    heartbeat = struct.pack(">i", 5) + b"\x01\x07\x01x" + struct.pack(">ih", 0, 27) + b"\x01\x63\x02ab"
    assert client_reads(12, 4, 5, heartbeat).error_code == 27


@pytest.mark.parametrize(
    "tags",
    [
        b"\x01\x00\x01\x04abc",
        b"\x01\x00\x05\x04abc\0",
        b"\x01\x00\x09\x04abc",
        b"\x01\x09\x7f",
        b"\xff\xff\xff\xff\x07",
    ],
)
def test_a_tagged_field_is_as_long_as_it_says(tags: bytes) -> None:
    """Tag 0 of a Fetch request is the cluster's id."""
    schema: Any = load_request_schema(1, 12)
    body = struct.pack(">iiiibii", -1, 100, 1, 100, 0, 0, 0) + b"\x01\x01\x01"
    for good in (b"\0", b"\x01\x00\x04\x04abc"):
        server_reads(with_header(schema, body + good))
    with pytest.raises(InvalidRequestError):
        server_reads(with_header(schema, body + tags))


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0" * 7,
        struct.pack(">hhi", 3, 0, 1),
        struct.pack(">hhih", 3, 0, 1, 5) + b"abc",
        struct.pack(">hhih", 3, 0, 1, 2) + b"\xff\xfe" + bytes(4),
        struct.pack(">hhih", 3, 9, 1, -1),
        struct.pack(">hhih", 3, 9, 1, -1) + b"\x01",
        struct.pack(">hhih", 3, 9, 1, -1) + b"\x01\x00\x7f",
        struct.pack(">hhih", 3, 9, 1, -1) + b"\xff" * 6,
    ],
)
def test_a_broken_header_is_refused(frame: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        read_fixed_header(frame)
        server_reads(frame)


@pytest.mark.parametrize(("marker", "there"), [(0, True), (1, True), (127, True), (128, False), (255, False)])
def test_a_negative_marker_is_no_struct(marker: int, there: bool) -> None:
    """The cursor of a DescribeTopicPartitions request, as Kafka reads it."""
    schema: Any = load_request_schema(75, 0)
    body = (
        b"\x01" + struct.pack(">i", 100) + bytes([marker]) + (b"\x02a" + struct.pack(">i", 7) + b"\0") * there + b"\0"
    )
    cursor = server_reads(with_header(schema, body)).cursor
    assert (cursor is not None) == there
    assert not there or (cursor.topic_name, cursor.partition_index) == ("a", 7)


def test_tagged_fields_are_counted() -> None:
    """They cost two bytes each; so many are in no header and no section, and all of a request's count together."""
    many = b"\x41" + b"\x09\x00" * 65
    fixed, no_fields = struct.pack(">hhih", 3, 9, 1, -1), b"\0\0\0\0"
    body = b"\x02\x02a\0" + no_fields
    with pytest.raises(InvalidRequestError, match="65 tagged fields"):
        server_reads(fixed + many + body)
    with pytest.raises(InvalidRequestError, match="65 tagged fields"):
        server_reads(fixed + b"\0" + b"\x02\x02a" + many + no_fields)
    full = b"\x40" + b"\x09\x00" * 64
    topics, count = ELEMENTS_MAX // 65 + 1, bytearray()
    append_unsigned_varint(count, topics + 1)
    with pytest.raises(InvalidRequestError, match="tagged fields"):
        server_reads(fixed + b"\0" + count + (b"\x02a" + full) * topics + no_fields)


@pytest.mark.parametrize("length", [-32_768, -2, -1, 0])
def test_a_client_id_may_be_null_or_empty(length: int) -> None:
    """As in Kafka any negative length is null."""
    frame = struct.pack(">hhih", 3, 0, 1, length) + bytes(4)
    assert read_header(frame).client_id == (None if length < 0 else "")
