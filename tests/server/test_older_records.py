"""Records from the files are encoded once for consumers side by side, and ahead for one that reads on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.wire_client import WireClient, batch, code, create_topic, fetch, produce, values_of
from node_in_thread import NodeInThread

from kafkalake.broker.partitions.partition import Partition
from kafkalake.errors import CorruptMessageError, OffsetOutOfRangeError

pytestmark = pytest.mark.process

BATCHES = 12
BATCH_BYTES = 70_000
LIMIT = 100_000
VALUES = [bytes([number]) * BATCH_BYTES for number in range(BATCHES)]


def read(client: WireClient, offset: int) -> list[bytes | None]:
    answer = fetch(client, "t", offset, max_bytes=LIMIT)
    return [value for _, value in values_of(answer.records)]


@pytest.fixture
def older(tmp_path: Path) -> Iterator[tuple[NodeInThread, WireClient, Partition]]:
    """A broker whose topic `t` has its records in files alone."""
    with (
        NodeInThread(tmp_path / "lake", {"fetch.wire.cache.bytes": "1200000"}) as node,
        WireClient(node.servers) as client,
    ):
        create_topic(client, "t")
        for value in VALUES:
            produce(client, "t", batch([(None, value)]))
        topic = node.broker.topics.find("t")
        assert topic is not None
        partition: Partition = topic.leader(0)
        node.on_loop(partition.forget_tail)  # as after a restart
        yield node, client, partition


def kept(node: NodeInThread, partition: Partition) -> list[int]:
    """The offsets of the reads that are kept, on the event loop, which has then done what was to be done before."""
    return node.on_loop(lambda: [offset for offset in range(BATCHES) if (offset, LIMIT) in partition._tail._encoded])


def test_consumers_side_by_side_share_what_is_encoded(older: tuple[NodeInThread, WireClient, Partition]) -> None:
    node, client, partition = older
    for offset in range(BATCHES):
        assert read(client, offset) == [VALUES[offset]]
    assert kept(node, partition) == []
    with WireClient(node.servers) as other:
        for offset in range(BATCHES):
            assert read(client, offset) == read(other, offset) == [VALUES[offset]]
    assert kept(node, partition) == list(range(BATCHES))[-4:]  # as many as a quarter of the cache has room for
    produce(client, "t", batch([(None, b"later")]))
    assert read(client, BATCHES - 1) == [VALUES[-1], b"later"]  # not what was kept when there was less to read
    node.on_loop(partition.forget_tail)
    assert kept(node, partition) == []


def test_a_consumer_that_reads_on_is_read_ahead_of(older: tuple[NodeInThread, WireClient, Partition]) -> None:
    node, client, partition = older
    assert read(client, 0) == [VALUES[0]]
    assert kept(node, partition) == []  # it may have wanted these alone
    for offset in range(1, BATCHES - 1):
        assert read(client, offset) == [VALUES[offset]]
        assert kept(node, partition) == [offset + 1]  # and nothing of what it has used
    assert read(client, BATCHES - 1) == [VALUES[-1]]
    assert kept(node, partition) == []
    assert read(client, 4) == [VALUES[4]]  # another offset, so it is not known to go on
    assert 5 not in kept(node, partition)


def test_another_limit_is_another_read(older: tuple[NodeInThread, WireClient, Partition]) -> None:
    node, client, partition = older
    for offset in range(3):
        assert read(client, offset) == [VALUES[offset]]
    assert kept(node, partition) == [3]
    answer = fetch(client, "t", 3, max_bytes=3 * BATCH_BYTES)
    assert [value for _, value in values_of(answer.records)] == VALUES[3:5]  # their headers leave no room for a third
    assert kept(node, partition) == [3]


def test_what_was_read_ahead_is_not_returned_after_a_deletion(
    older: tuple[NodeInThread, WireClient, Partition],
) -> None:
    node, client, partition = older
    for offset in range(3):
        assert read(client, offset) == [VALUES[offset]]
    assert kept(node, partition) == [3]
    asked = [{"partition_index": 0, "offset": 5}]
    client.call("DeleteRecords", 2, topics=[{"name": "t", "partitions": asked}], timeout=10_000)
    assert code(fetch(client, "t", 3, max_bytes=LIMIT).error_code) == OffsetOutOfRangeError.code
    for offset in range(5, 8):
        assert read(client, offset) == [VALUES[offset]]


def test_a_read_ahead_that_fails_is_told_to_who_asks_for_it(
    older: tuple[NodeInThread, WireClient, Partition],
) -> None:
    """Twice, and life goes on behind the damage."""
    node, client, partition = older
    path = Path(partition.log.directory) / "00000000000000000000.arrow"
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[damaged.index(VALUES[3]) + 5] ^= 1
    for _ in range(2):
        path.write_bytes(damaged)
        node.on_loop(partition.forget_tail)
        for offset in range(3):
            assert read(client, offset) == [VALUES[offset]]
        assert 3 not in kept(node, partition)
        assert code(fetch(client, "t", 3, max_bytes=LIMIT).error_code) == CorruptMessageError.code
        path.write_bytes(whole)
        for offset in range(BATCHES):
            assert read(client, offset) == [VALUES[offset]]


def test_a_topic_deleted_before_its_read_ahead_is_left(older: tuple[NodeInThread, WireClient, Partition]) -> None:
    _, client, _ = older
    for offset in range(3):
        assert read(client, offset) == [VALUES[offset]]
    client.call("DeleteTopics", 6, topics=[{"name": "t", "topic_id": None}], timeout=5_000)
    create_topic(client, "t")
    produce(client, "t", batch([(None, b"new")]))
    assert read(client, 0) == [b"new"]
