"""The hand-written fetch of a follower and its answer, against those made from kio's schemas."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any
from uuid import UUID

import pytest

from kafkalake.client.requests import FETCH_AS_FOLLOWER, MalformedResponseError, decode_response, encode_request
from kafkalake.errors import UnsupportedVersionError
from kafkalake.wire.follower_fetch import API_KEY, VERSION, decode_fetched, encode_fetch
from kafkalake.wire.messages import codec
from kafkalake.wire.messages.records import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    LeaderIdAndEpoch,
    PartitionData,
    ReplicaState,
    WholeSegment,
)

TOPIC_ID, OTHER = UUID(int=2**127 + 5), UUID(int=8)
PARTITION: dict[str, Any] = {
    "partition": 70_000,
    "current_leader_epoch": 5,
    "fetch_offset": 2**40,
    "last_fetched_epoch": -1,
    "log_start_offset": 3,
    "partition_max_bytes": 1 << 20,
    "high_watermark": -1,
}
LIMITS: dict[str, Any] = {
    "max_wait": 500,
    "min_bytes": 1,
    "max_bytes": 10 << 20,
    "session_id": 2**31 - 1,
    "session_epoch": 9,
}


def request(partitions: int = 1, topics: int = 1, of_partition: Mapping[str, Any] = {}, **fields: Any) -> FetchRequest:
    each = FetchPartition(**{**PARTITION, **of_partition})
    asked = [FetchTopic(topic_id=TOPIC_ID, partitions=[each] * partitions)] * topics
    replica = ReplicaState(replica_id=2, replica_epoch=2**33)
    return FetchRequest(**{**LIMITS, "topics": asked, "replica_state": replica, **fields})


@pytest.mark.parametrize("client_id", ["", "broker-2", "b\u00fc" * 200])
@pytest.mark.parametrize("fields", [{}, {"isolation_level": 1, "session_id": 0, "session_epoch": -1, "max_wait": 0}])
def test_a_request_for_one_partition(client_id: str, fields: dict[str, object]) -> None:
    message = request(**fields)
    frame = encode_fetch(77, client_id, message)
    assert frame == codec.encode_request(API_KEY, VERSION, 77, client_id, message)
    assert frame == encode_request(FETCH_AS_FOLLOWER, VERSION, 77, client_id, message)


@pytest.mark.parametrize(
    "message",
    [
        request(partitions=2),
        request(partitions=0),
        request(topics=2),
        request(topics=0),
        request(of_partition={"replica_directory_id": OTHER}),
        request(of_partition={"high_watermark": 2**63 - 1}),
        request(forgotten_topics_data=[ForgottenTopic(topic_id=OTHER, partitions=[1])]),
        request(rack_id="here"),
        request(cluster_id="lake"),
        request(replica_state=None),
        FetchRequest(topics=[FetchTopic(partitions=[FetchPartition(**PARTITION)])], replica_state=ReplicaState()),
    ],
)
def test_other_requests_are_left_to_the_codec(message: FetchRequest) -> None:
    assert encode_fetch(77, "broker-2", message) is None
    whole = encode_request(FETCH_AS_FOLLOWER, VERSION, 77, "broker-2", message)
    assert whole == codec.encode_request(API_KEY, VERSION, 77, "broker-2", message)


def test_what_the_version_lacks_is_refused_by_the_codec() -> None:
    named = FetchTopic(topic="t", topic_id=TOPIC_ID, partitions=[FetchPartition(**PARTITION)])
    for message in (request(replica_id=3), FetchRequest(topics=[named], replica_state=ReplicaState())):
        assert encode_fetch(77, "broker-2", message) is None
        with pytest.raises(UnsupportedVersionError):
            encode_request(FETCH_AS_FOLLOWER, VERSION, 77, "broker-2", message)


def answer(partitions: int = 1, of_partition: Mapping[str, Any] = {}, of_answer: Mapping[str, Any] = {}) -> memoryview:
    fields: dict[str, Any] = {
        "partition_index": 4,
        "high_watermark": 2**40,
        "last_stable_offset": 7,
        "log_start_offset": 3,
        "records": bytes(range(256)) * 80,
        "segment_base_offset": 2**39,
    }
    each = PartitionData(**{**fields, **of_partition})
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[each] * partitions)
    message = FetchResponse(**{"session_id": 9, "responses": [topic], **of_answer})
    return memoryview(bytes(codec.encode_response(API_KEY, VERSION, 77, message)))[4:]


def by_codec(frame: memoryview) -> FetchResponse:
    return codec.decode_response(FetchResponse, API_KEY, VERSION, 77, frame)


@pytest.mark.parametrize("size", [1, 126, 127, 128, 16_383, 16_384, 300_000])
@pytest.mark.parametrize("fields", [{}, {"error_code": 3}, {"preferred_read_replica": 2, "high_watermark": -1}])
def test_an_answer_with_messages_of_one_partition(size: int, fields: dict[str, object]) -> None:
    frame = answer(of_partition={**fields, "records": bytes(size)}, of_answer={"throttle_time": 5, "error_code": 71})
    found = decode_fetched(77, frame)
    assert found is not None and found == by_codec(frame)
    assert found == decode_response(FETCH_AS_FOLLOWER, VERSION, 77, frame)
    records = found.responses[0].partitions[0].records
    assert isinstance(records, memoryview) and records.obj is frame.obj, "the messages were copied"


@pytest.mark.parametrize(
    "frame",
    [
        answer(partitions=2),
        answer(partitions=0),
        answer(of_answer={"responses": []}),
        answer(of_partition={"records": None}),
        answer(of_partition={"segment_base_offset": -1}),
        answer(of_partition={"ends_segment": True}),
        answer(of_partition={"whole_segment": WholeSegment(base_offset=3)}),
        answer(of_partition={"diverging_epoch": EpochEndOffset(epoch=3, end_offset=4)}),
        answer(of_partition={"current_leader": LeaderIdAndEpoch(leader_id=3, leader_epoch=4)}),
        answer(of_partition={"aborted_transactions": None}),
        answer(of_partition={"aborted_transactions": [AbortedTransaction(producer_id=3, first_offset=5)]}),
    ],
)
def test_other_answers_are_left_to_the_codec(frame: memoryview) -> None:
    assert decode_fetched(77, frame) is None
    assert decode_response(FETCH_AS_FOLLOWER, VERSION, 77, frame) == by_codec(frame)


def test_an_answer_to_another_request_and_a_short_one_are_left_to_the_codec() -> None:
    frame = answer()
    assert decode_fetched(78, frame) is None
    for size in range(100):
        assert decode_fetched(77, frame[:size]) is None
        with pytest.raises(MalformedResponseError):
            decode_response(FETCH_AS_FOLLOWER, VERSION, 77, frame[:size])


def test_a_length_that_does_not_end_is_refused() -> None:
    frame = bytearray(answer(of_partition={"records": bytes(300)}))
    length = frame.index(bytes(300)) - 2
    frame[length : length + 6] = b"\xff" * 6
    assert decode_fetched(77, memoryview(frame)) is None
    with pytest.raises(MalformedResponseError):
        decode_response(FETCH_AS_FOLLOWER, VERSION, 77, memoryview(frame))


def test_changed_bytes_mean_what_they_mean_to_the_codec() -> None:
    frame, random = answer(of_partition={"records": bytes(300)}), Random(5)
    places = [*range(90), *range(len(frame) - 20, len(frame))]
    for place in places:
        for value in {0, 1, 2, 0x7F, 0x80, 0xFF, random.randrange(256)}:
            changed = bytearray(frame)
            changed[place] = value
            found = decode_fetched(77, memoryview(changed))
            assert found is None or found == by_codec(memoryview(changed))
