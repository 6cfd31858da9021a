"""Batches that are small on the wire and large in the log: bounded one by one and together, and nobody else waits for them."""

from __future__ import annotations

import pytest
from compressed_batches import compressed, zeros
from contract.wire_client import WireClient, code, create_topic, encode, fetch, produce
from kafka_reference import Kafkalake
from worst_case import MIB, worst_case

pytestmark = pytest.mark.process

CODECS = ["gzip", "snappy", "lz4", "zstd"]
HELD_MS_MAX = 100
KEPT_BYTES = 96 * MIB
"""Free heap that the broker keeps for its next buffers, 64 MiB, and a few buffers."""


def request(topic: str, batches: list[bytes]) -> dict[str, object]:
    """One batch for each partition."""
    partitions = [{"index": index, "records": records} for index, records in enumerate(batches)]
    return {"acks": -1, "timeout": 60_000, "topic_data": [{"name": topic, "partition_data": partitions}]}


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_is_bounded_in_its_plain_form(broker: Kafkalake, client: WireClient, topic: str, codec: str) -> None:
    create_topic(client, topic)
    accepted, refused = compressed(codec, zeros(15 * MIB)), compressed(codec, zeros(17 * MIB))
    with worst_case(broker) as cost:
        assert code(produce(client, topic, accepted).error_code) == 0
        assert code(produce(client, topic, refused).error_code) == 10
    assert cost.held_ms < HELD_MS_MAX
    assert cost.peak_bytes < 128 * MIB
    assert fetch(client, topic, 0, max_wait=0).high_watermark == 1


def test_a_topic_with_larger_batches_takes_larger_ones(client: WireClient, topic: str) -> None:
    create_topic(client, topic, max_message_bytes="3000000")
    assert code(produce(client, topic, compressed("zstd", zeros(20 * MIB))).error_code) == 0
    assert code(produce(client, topic, compressed("zstd", zeros(30 * MIB))).error_code) == 10


@pytest.mark.parametrize("size", [15 * MIB, 95 * MIB], ids=["accepted", "refused"])
def test_one_request_of_many_bombs(broker: Kafkalake, client: WireClient, topic: str, size: int) -> None:
    """20 batches of a few kilobytes: 300 MiB that fit, or 1.9 GiB that do not."""
    create_topic(client, topic, partitions=20)
    batches = [compressed("zstd", zeros(size))] * 20
    with worst_case(broker) as cost:
        answer = client.call("Produce", 9, **request(topic, batches))
    errors = {code(each.error_code) for each in answer.responses[0].partition_responses}
    assert errors == ({0} if size == 15 * MIB else {10})
    assert cost.held_ms < HELD_MS_MAX
    assert cost.peak_bytes < 192 * MIB
    cost.await_memory_back(KEPT_BYTES)


def test_tiny_records_do_not_become_huge_columns(broker: Kafkalake, client: WireClient, topic: str) -> None:
    """Records of 7 bytes take more than 30 in the log: so many are refused for their number, before they are looked at."""
    create_topic(client, topic)
    batch = compressed("zstd", bytes(15 * MIB), 2_000_000)
    with worst_case(broker) as cost:
        assert code(produce(client, topic, batch).error_code) == 10
    assert cost.held_ms < HELD_MS_MAX
    assert cost.peak_bytes < 128 * MIB


def test_a_large_batch_is_not_overtaken(broker: Kafkalake, client: WireClient, topic: str) -> None:
    """An idempotent producer with large and small batches in flight: decoded in a thread or not, they stay in order."""
    create_topic(client, topic)
    producer_id = client.call(
        "InitProducerId", 4, transactional_id=None, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1
    ).producer_id
    sizes = [8 * MIB, 100, 100, 4 * MIB, 3 * MIB, 100, 1000]
    batches = [
        compressed("lz4", zeros(size), sequence=number, producer_id=producer_id) for number, size in enumerate(sizes)
    ]
    frames = [encode("Produce", 9, number, request(topic, [each])) for number, each in enumerate(batches)]
    client.socket.sendall(b"".join(frames))
    for number in range(len(sizes)):
        answer = client.receive("Produce", 9, number).responses[0].partition_responses[0]
        assert (code(answer.error_code), answer.base_offset) == (0, number)


def test_large_and_small_batches_of_one_request(client: WireClient, topic: str) -> None:
    """The answer is in the order of the request, whatever was decoded when and what was refused."""
    create_topic(client, topic, partitions=4)
    small, large = compressed("gzip", zeros(100)), compressed("gzip", zeros(5 * MIB))
    bad = bytearray(large)
    bad[-1] ^= 1
    for _ in range(2):
        answer = client.call("Produce", 9, **request(topic, [small, large, bytes(bad), small]))
        results = answer.responses[0].partition_responses
        assert [code(each.error_code) for each in results] == [0, 0, 2, 0]
    assert [each.base_offset for each in results] == [1, 1, -1, 1]
    assert [fetch(client, topic, 0, partition=index, max_wait=0).high_watermark for index in range(4)] == [2, 2, 0, 2]


def test_many_requests_in_flight_are_bounded_together(broker: Kafkalake, client: WireClient, topic: str) -> None:
    """Each is a few hundred bytes and 1 MiB in the log."""
    create_topic(client, topic)
    batch = compressed("zstd", zeros(1_000_000))
    frames = b"".join(encode("Produce", 9, number, request(topic, [batch])) for number in range(200))
    with worst_case(broker) as cost:
        client.socket.sendall(frames)
        for number in range(200):
            client.receive("Produce", 9, number)
    assert cost.held_ms < HELD_MS_MAX
    assert cost.peak_bytes < 128 * MIB
