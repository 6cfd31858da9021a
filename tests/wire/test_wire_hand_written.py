"""The hand-written encoders of Produce's and Fetch's responses, against the one made from kio's schemas."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kafkalake.errors import CorruptMessageError, KafkaError, KafkaStorageError, NotLeaderOrFollowerError
from kafkalake.server.registry import APIS
from kafkalake.wire.current_leader import CurrentLeader, Node
from kafkalake.wire.fetch_response import FetchResponseEncoder, encode_segment_part
from kafkalake.wire.messages.cluster import NodeEndpoint
from kafkalake.wire.messages.codec import encode_request, encode_response
from kafkalake.wire.messages.own_keys import FETCH_SEGMENT_KEY
from kafkalake.wire.messages.records import (
    AbortedTransaction,
    BatchIndexAndErrorMessage,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
    WholeSegment,
)
from kafkalake.wire.messages.replication import FetchSegmentResponse
from kafkalake.wire.produce_encoding import encode_produce
from kafkalake.wire.produce_request import ProducedTopic
from kafkalake.wire.produce_response import encode_produced
from kafkalake.wire.throttle_time import write_fetch_throttle_time, write_produce_throttle_time

TOPIC_ID = UUID(int=77)
NAMES = ["a", "täg" * 70]
PRODUCE, FETCH = (range(APIS[key].lowest, APIS[key].highest + 1) for key in (0, 1))


def _error() -> KafkaError:
    return CorruptMessageError("the sum is wrong", record_errors=((3, None), (5, "no key" * 30)))


@pytest.mark.parametrize("version", [each for each in PRODUCE if each < 13])
@pytest.mark.parametrize("transactional_id", [None, "täg"])
def test_a_clients_produce_request(version: int, transactional_id: str | None) -> None:
    batches = [b"", None, bytes(300), memoryview(bytearray(b"abc"))]
    topics = [
        TopicProduceData(
            name=name,
            partition_data=[PartitionProduceData(index=n, records=data) for n, data in enumerate(batches[:many])],
        )
        for name, many in zip([*NAMES, "c"], (4, 1, 0), strict=True)
    ]
    for topic_data in (topics, topics[:1], []):
        message = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout=30_000, topic_data=topic_data)
        parts = encode_produce(version, 77, "klient", message)
        assert b"".join(parts) == encode_request(0, version, 77, "klient", message)
        if topic_data:
            assert any(part is batches[2] for part in parts), "a batch was copied"


@pytest.mark.parametrize("version", PRODUCE)
def test_produce(version: int) -> None:
    appended: Any = SimpleNamespace(base_offset=2**40, log_append_time_ms=-1, log_start_offset=7)
    results = [appended, _error(), appended]
    topics = [
        ProducedTopic(
            None if version >= 13 else name, TOPIC_ID if version >= 13 else None, [(0, None), (9, None)][:many]
        )
        for name, many in zip(NAMES, (2, 1), strict=True)
    ]

    def partition(index: int, result: Any) -> PartitionProduceResponse:
        if result is appended:
            return PartitionProduceResponse(index=index, base_offset=2**40, log_append_time=-1, log_start_offset=7)
        return PartitionProduceResponse(
            index=index,
            error_code=result.code,
            base_offset=-1,
            log_append_time=-1,
            error_message=str(result),
            record_errors=[
                BatchIndexAndErrorMessage(batch_index=record, batch_index_error_message=text)
                for record, text in result.record_errors
            ],
        )

    left = iter(results)
    expected = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name or "",
                topic_id=topic.topic_id,
                partition_responses=[partition(index, next(left)) for index, _ in topic.partitions],
            )
            for topic in topics
        ]
    )
    assert encode_produced(version, 5, topics, results, str) == encode_response(0, version, 5, expected)


@pytest.mark.parametrize("version", FETCH)
def test_fetch(version: int) -> None:
    diverging = EpochEndOffset(epoch=3, end_offset=9) if version >= 12 else None
    partitions = [
        PartitionData(partition_index=4, error_code=1, high_watermark=2**40, last_stable_offset=8, log_start_offset=2,
                      aborted_transactions=None, records=b"a" * 300),
        PartitionData(high_watermark=1, aborted_transactions=[AbortedTransaction(producer_id=2, first_offset=5)],
                      records=b"", diverging_epoch=diverging),
    ]  # fmt: skip
    out = FetchResponseEncoder(version, 5, 71 if version >= 7 else 0, 12, len(NAMES))
    for name in NAMES:
        out.begin_topic(TOPIC_ID if version >= 13 else name, len(partitions))
        for each in partitions:
            out.add_partition(
                each.partition_index,
                each.error_code,
                (each.high_watermark, each.last_stable_offset, each.log_start_offset),
                None
                if each.aborted_transactions is None
                else [(one.producer_id, one.first_offset) for one in each.aborted_transactions],
                [each.records[:100], each.records[100:]] if each.records else [],
                None if each.diverging_epoch is None else (each.diverging_epoch.epoch, each.diverging_epoch.end_offset),
            )
        out.end_topic()
    expected = FetchResponse(
        error_code=71,
        session_id=12,
        responses=[FetchableTopicResponse(topic=name, topic_id=TOPIC_ID, partitions=partitions) for name in NAMES],
    )
    assert b"".join(out.finish()) == encode_response(1, version, 5, expected)


WHOLE = WholeSegment(base_offset=5, next_offset=9, generation=2, size_bytes=300, txn_index_bytes=24)


@pytest.mark.parametrize("whole", [None, WHOLE])
@pytest.mark.parametrize("diverging", [None, EpochEndOffset(epoch=3, end_offset=9)])
@pytest.mark.parametrize("ends_segment", [True, False])
@pytest.mark.parametrize("segment", [-1, 0, 2**40])
def test_fetch_of_a_follower(
    whole: WholeSegment | None, diverging: EpochEndOffset | None, ends_segment: bool, segment: int
) -> None:
    fields = {"segment_base_offset": segment, "ends_segment": ends_segment} | (
        {} if whole is None else {"whole_segment": whole}
    )
    data = PartitionData(
        partition_index=4,
        error_code=1,
        high_watermark=2**40,
        last_stable_offset=8,
        log_start_offset=2,
        records=b"a" * 300,
        diverging_epoch=diverging,
        **fields,  # type: ignore[arg-type]
    )
    out = FetchResponseEncoder(18, 5, 0, 0, 1)
    out.begin_topic(TOPIC_ID, 1)
    out.add_followed_partition(
        4,
        1,
        (2**40, 8, 2),
        memoryview(b"a" * 300),
        None if diverging is None else (diverging.epoch, diverging.end_offset),
        segment,
        ends_segment,
        None if whole is None else (5, 9, 2, 300, 24),
    )
    out.end_topic()
    expected = FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])])
    assert b"".join(out.finish()) == encode_response(1, 18, 5, expected)


LEADER = CurrentLeader(3, 7, Node(3, "host-3", 9093, "rack"))
NODE_ENDPOINTS = [NodeEndpoint(node_id=3, host="host-3", port=9093, rack="rack")]


@pytest.mark.parametrize("version", range(9, 14))
def test_produce_to_a_broker_that_does_not_lead_names_the_leader(version: int) -> None:
    name, topic_id = (None, TOPIC_ID) if version >= 13 else ("a", None)
    topics = [ProducedTopic(name, topic_id, [(0, None), (1, None), (2, None)])]
    results = [NotLeaderOrFollowerError(), KafkaStorageError(), NotLeaderOrFollowerError()]
    names = version >= 10
    current = LeaderIdAndEpoch(leader_id=3, leader_epoch=7) if names else None
    expected = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=name or "",
                topic_id=topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=index,
                        error_code=error.code,
                        base_offset=-1,
                        log_append_time=-1,
                        log_start_offset=-1,
                        error_message=str(error),
                        current_leader=current if index != 1 else None,
                    )
                    for index, error in enumerate(results)
                ],
            )
        ],
        node_endpoints=NODE_ENDPOINTS if names else (),
    )
    assert encode_produced(version, 5, topics, results, str, lambda topic, index: LEADER) == encode_response(
        0, version, 5, expected
    )


@pytest.mark.parametrize("version", range(12, 19))
@pytest.mark.parametrize("node", [LEADER.node, None])
def test_fetch_from_a_broker_that_does_not_lead_names_the_leader(version: int, node: Node | None) -> None:
    data = PartitionData(
        partition_index=4,
        error_code=6,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=b"",
        current_leader=LeaderIdAndEpoch(leader_id=3, leader_epoch=7),
    )
    out = FetchResponseEncoder(version, 5, 0, 0, 1)
    out.begin_topic(TOPIC_ID if version >= 13 else "a", 1)
    out.add_partition(4, 6, (-1, -1, -1), None, [], None, LEADER._replace(node=node))
    out.end_topic()
    expected = FetchResponse(
        responses=[FetchableTopicResponse(topic="a", topic_id=TOPIC_ID, partitions=[data])],
        node_endpoints=NODE_ENDPOINTS if version >= 16 and node is not None else (),
    )
    assert b"".join(out.finish()) == encode_response(1, version, 5, expected)


def test_the_time_to_pause_is_written_where_it_is() -> None:
    def produced(version: int, throttle_ms: int) -> list[bytearray]:
        return [encode_response(0, version, 5, ProduceResponse(throttle_time=throttle_ms))]

    def fetched(version: int, throttle_ms: int) -> list[bytearray]:
        return [encode_response(1, version, 5, FetchResponse(throttle_time=throttle_ms))]

    for versions, encode, write in (
        (PRODUCE, produced, write_produce_throttle_time),
        (FETCH, fetched, write_fetch_throttle_time),
    ):
        for version in versions:
            answer = encode(version, 0)
            write(version, answer, 1234)
            assert answer == encode(version, 1234)


def test_no_time_is_written_over_addresses() -> None:
    endpoint = NodeEndpoint(node_id=1, host="h", port=9092)
    answer = [encode_response(0, 10, 5, ProduceResponse(node_endpoints=[endpoint]))]
    before = bytes(answer[0])
    write_produce_throttle_time(10, answer, 1234)
    assert bytes(answer[0]) == before


@pytest.mark.parametrize("size", [0, 1, 126, 127, 200, 1 << 20])
def test_a_part_of_a_segment(size: int) -> None:
    part = FetchSegmentResponse(error_code=0, next_offset=9, size_bytes=1 << 40, txn_index_bytes=7, data=bytes(size))
    pieces = encode_segment_part(12, part)
    assert b"".join(pieces) == encode_response(FETCH_SEGMENT_KEY, 0, 12, part)
    assert pieces[1] is part.data
