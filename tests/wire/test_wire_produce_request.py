"""The Produce request read by hand gives what the general reader gives, of right bytes and of damaged ones."""

from __future__ import annotations

from typing import Any

import pytest
from contract.wire_client import encode
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema
from wire.message_codec import read_header, server_reads
from wire.test_wire_requests import encoded, entities, with_header

from kafkalake.errors import InvalidRequestError
from kafkalake.wire.produce_request import PARTITIONS_MAX, ManyPartitionsError, ProduceBody, read_produce

VERSIONS = range(3, 14)


def read_both(frame: bytes) -> tuple[ProduceBody | None, Any]:
    """What the reader by hand and the general one make of a frame; None for an error."""
    header = read_header(frame)
    try:
        by_hand: ProduceBody | None = read_produce(frame, header.body, header.version)
    except InvalidRequestError:
        by_hand = None
    try:
        general = server_reads(frame)
    except InvalidRequestError:
        general = None
    return by_hand, general


def assert_equal(by_hand: ProduceBody | None, general: Any, version: int) -> None:
    assert (by_hand is None) == (general is None)
    if by_hand is None or general is None:
        return
    assert (by_hand.transactional_id, by_hand.acks, by_hand.timeout_ms) == (
        general.transactional_id,
        general.acks,
        general.timeout,
    )
    assert [
        (topic.name, topic.topic_id, [(index, bytes(records or b"")) for index, records in topic.partitions])
        for topic in by_hand.topics
    ] == [
        (
            topic.name if version < 13 else None,
            topic.topic_id,
            [(each.index, bytes(each.records or b"")) for each in topic.partition_data],
        )
        for topic in general.topic_data
    ]


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
@examples(60)
def test_both_readers_agree(version: int, data: st.DataObject) -> None:
    schema: Any = load_request_schema(0, version)
    frame = with_header(schema, encoded(schema, data.draw(entities(schema))))
    by_hand, general = read_both(frame)
    assert general is not None
    assert_equal(by_hand, general, version)


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.exhaustive
def test_a_request_of_many_batches_is_not_read_where_few_are_wanted(version: int) -> None:
    def read(batches: int, *most: int) -> int:
        partitions = [{"index": number, "records": None} for number in range(batches)]
        values = {"acks": -1, "timeout": 1, "topic_data": [{"name": "t", "partition_data": partitions}]}
        frame = encode("Produce", version, 1, values)[4:]
        body = read_produce(frame, read_header(frame).body, version, *most)
        return sum(len(topic.partitions) for topic in body.topics)

    assert read(9, 10) == 9  # and the topic
    with pytest.raises(ManyPartitionsError):
        read(10, 10)
    assert read(PARTITIONS_MAX - 1) == PARTITIONS_MAX - 1
    with pytest.raises(InvalidRequestError):
        read(PARTITIONS_MAX)


@pytest.mark.exhaustive
@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
@examples(150)
def test_both_readers_agree_on_damage(version: int, data: st.DataObject) -> None:
    schema: Any = load_request_schema(0, version)
    frame = bytearray(with_header(schema, encoded(schema, data.draw(entities(schema)))))
    body = read_header(frame).body
    for _ in range(data.draw(st.integers(1, 3))):
        if len(frame) > body:
            position = data.draw(st.integers(body, len(frame) - 1))
            frame[position] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        frame = frame[: data.draw(st.integers(body, len(frame)))]
    assert_equal(*read_both(bytes(frame)), version)
