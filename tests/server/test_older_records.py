"""Records from the files are encoded once for consumers side by side, and before a consumer that reads on asks for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from contract.wire_client import WireClient, batch, create_topic, fetch, produce, values_of
from node_in_thread import NodeInThread
from waiting import wait_until

from kafkalake.broker.partitions.partition import Partition

pytestmark = pytest.mark.process

BATCHES = 12
BATCH_BYTES = 70_000
LIMIT = 100_000
VALUES = [bytes([number]) * BATCH_BYTES for number in range(BATCHES)]


def read(client: WireClient, offset: int) -> list[bytes | None]:
    answer = fetch(client, "t", offset, max_bytes=LIMIT)
    return [value for _, value in values_of(answer.records)]


def test_consumers_side_by_side_and_one_that_reads_on(tmp_path: Path) -> None:
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

        def kept(offset: int) -> Callable[[], bool]:
            return lambda: node.on_loop(lambda: partition.read_encoded(offset, BATCHES, LIMIT)) is not None

        assert read(client, 0) == VALUES[:1]
        assert kept(0)() and not kept(1)()
        assert read(client, 1) == VALUES[1:2]
        wait_until(kept(2), timeout_s=20)  # read ahead
        assert not kept(3)()
        for offset in range(2, BATCHES):
            assert read(client, offset) == VALUES[offset : offset + 1]
        with WireClient(node.servers) as other:
            assert [read(other, offset) for offset in range(BATCHES)] == [[value] for value in VALUES]
        produce(client, "t", batch([(None, b"later")]))
        assert read(client, BATCHES - 1) == [VALUES[-1], b"later"]  # not what was kept when there was less to read
        node.on_loop(partition.forget_tail)
        assert not any(kept(offset)() for offset in range(BATCHES))
