"""Partitions of a fetch session take turns by what their answers had, when the records come from the files."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract.test_fetch_contract import ask, partition, told
from contract.wire_client import WireClient, batch, create_topic, produce
from node_in_thread import NodeInThread

pytestmark = pytest.mark.process

ROOM = 20_000


def test_a_batch_that_did_not_fit_comes_first_in_the_next_answer(tmp_path: Path) -> None:
    """The first partition has always more, the batch of the second fits into no answer behind it."""
    with NodeInThread(tmp_path / "lake", {"fetch.wire.cache.bytes": "0"}) as node, WireClient(node.servers) as client:
        create_topic(client, "t", 2)
        for _ in range(3):
            produce(client, "t", batch([(None, b"x" * 5_000)]), partition=0)
        produce(client, "t", batch([(None, b"y" * 18_000)]), partition=1)
        asked = [{"topic": "t", "partitions": [partition(0, 0), partition(1, 0)]}]
        first = ask(client, asked, session_epoch=0, max_bytes=ROOM)
        assert [len(values) for values in told(first).values()] == [3, 0]
        moved = [{"topic": "t", "partitions": [partition(0, 1)]}]
        second = ask(client, moved, session_id=first.session_id, session_epoch=1, max_bytes=ROOM)
        assert told(second)[("t", 1)] == [b"y" * 18_000]
