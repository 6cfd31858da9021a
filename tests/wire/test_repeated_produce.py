"""Requests that repeat a pattern are read, and answered, as if each were the first."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from contract.wire_client import encode
from wire.message_codec import read_header

from kafkalake.errors import InvalidRequestError
from kafkalake.wire.produce_request import FEW_PARTITIONS_MAX, ProduceBody, read_produce
from kafkalake.wire.produce_response import encode_produced
from kafkalake.wire.repeated_produce import ProducePatterns

VERSIONS = range(9, 14)
TOPIC_ID = UUID(int=0x0102030405060708_090A0B0C0D0E0F10)
FIRST = b"first batch"


def request(
    version: int, *batches: bytes | None, transactional_id: str | None = None, name: str = "orders"
) -> memoryview:
    topic: dict[str, Any] = {"name": name} if version < 13 else {"topic_id": TOPIC_ID}
    partitions = [{"index": 7 + number, "records": records} for number, records in enumerate(batches)]
    values: dict[str, Any] = {"acks": -1, "timeout": 9, "topic_data": [{**topic, "partition_data": partitions}]}
    if transactional_id is not None:
        values["transactional_id"] = transactional_id
    return memoryview(encode("Produce", version, 5, values)[4:])


def learned(*frames: memoryview) -> ProducePatterns:
    patterns = ProducePatterns()
    for frame in frames:
        read(patterns, frame)
    return patterns


def read(patterns: ProducePatterns, frame: memoryview) -> tuple[str | None, ProduceBody]:
    return patterns.read(frame, read_header(frame).version, FEW_PARTITIONS_MAX)


def contents(client_id: str | None, body: ProduceBody) -> Sequence[object]:
    topics = [(name, topic_id, [(n, bytes(data or b"")) for n, data in found]) for name, topic_id, found in body.topics]
    return client_id, body[:3], topics


def read_anew(frame: memoryview) -> Sequence[object] | None:
    try:
        header = read_header(frame)
        return contents(header.client_id, read_produce(frame, header.body, header.version))
    except InvalidRequestError:
        return None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("length", [1, 126, 127, 128, 16_383, 16_384])
def test_another_batch_is_read_as_in_a_first_request(version: int, length: int) -> None:
    patterns = learned(request(version, FIRST))
    frame = request(version, b"\x07" * length)
    client_id, body = read(patterns, frame)
    assert body.pattern is not None
    assert contents(client_id, body) == read_anew(frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_requests_are_read_or_refused_as_in_a_first_request(version: int) -> None:
    frame = bytes(request(version, b"second"))
    damaged = [frame[:-1], frame + b"\0", frame[: -len("second") - 3], frame[:12]]
    for position in range(8, len(frame)):
        damaged += [frame[:position] + bytes([frame[position] ^ flip]) + frame[position + 1 :] for flip in (1, 2, 0x80)]
    for each in map(memoryview, damaged):
        patterns = learned(request(version, FIRST))
        try:
            found: object = contents(*patterns.read(each, version, FEW_PARTITIONS_MAX))
        except InvalidRequestError:
            found = None
        assert found == read_anew(each), bytes(each)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_response_is_that_to_any_request(version: int) -> None:
    _, body = read(learned(request(version, FIRST)), request(version, b"second"))
    assert body.pattern is not None
    appended: Any = SimpleNamespace(base_offset=2**40, log_append_time_ms=-1, log_start_offset=7)
    for correlation_id in (1, 2**31 - 1):
        expected = encode_produced(version, correlation_id, body.topics, [appended], str)
        assert body.pattern.encode(correlation_id, appended) == expected


@pytest.mark.parametrize(
    "frame",
    [
        request(8, FIRST),
        request(13, FIRST, FIRST),
        request(13, b""),
        request(13, None),
        request(13, FIRST, transactional_id="t"),
        request(12, FIRST, name="o" * 600),
    ],
    ids=["version 8", "two batches", "an empty batch", "no batch", "a transaction", "a long name"],
)
def test_other_requests_are_no_pattern(frame: memoryview) -> None:
    client_id, body = read(learned(frame), frame)
    assert body.pattern is None
    assert contents(client_id, body) == read_anew(frame)


def test_patterns_are_few_and_later_ones_take_their_place() -> None:
    names = [f"topic-{number:02}" for number in range(20)]
    patterns = learned(*[request(12, FIRST, name=name) for name in names])
    known = [name for name in names if read(patterns, request(12, FIRST, name=name))[1].pattern is not None]
    assert known == names[:8]
    other = request(12, FIRST, name="of another length")
    assert read(patterns, other)[1].pattern is None
    assert any(read(patterns, other)[1].pattern is not None for _ in range(2_000))
