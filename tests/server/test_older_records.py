"""Records from the files are encoded once for consumers side by side."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract.wire_client import WireClient, batch, create_topic, fetch, produce, values_of
from node_in_thread import NodeInThread

from kafkalake.broker.partitions.partition import Partition

pytestmark = pytest.mark.process

BATCHES = 12
BATCH_BYTES = 70_000
LIMIT = 100_000
VALUES = [bytes([number]) * BATCH_BYTES for number in range(BATCHES)]


def read(client: WireClient, offset: int) -> list[bytes | None]:
    answer = fetch(client, "t", offset, max_bytes=LIMIT)
    return [value for _, value in values_of(answer.records)]


def test_consumers_side_by_side_share_what_is_encoded(tmp_path: Path) -> None:
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

        def kept() -> list[int]:
            return [offset for offset in range(BATCHES) if (offset, LIMIT) in partition._tail._encoded]

        for offset in range(BATCHES):
            assert read(client, offset) == [VALUES[offset]]
        assert node.on_loop(kept) == []
        with WireClient(node.servers) as other:
            for offset in range(BATCHES):
                assert read(client, offset) == read(other, offset) == [VALUES[offset]]
        assert node.on_loop(kept) == list(range(BATCHES))[-4:]  # as many as a quarter of the cache has room for
        produce(client, "t", batch([(None, b"later")]))
        assert read(client, BATCHES - 1) == [VALUES[-1], b"later"]  # not what was kept when there was less to read
        node.on_loop(partition.forget_tail)
        assert node.on_loop(kept) == []
