"""Commits of many groups that arrive together are one append of the journal."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest
from contract.wire_client import WireClient, code, create_topic
from node_in_thread import NodeInThread
from waiting import wait_until

from kafkalake.internal_topics import GROUP_JOURNAL

pytestmark = pytest.mark.process

GROUPS = 8


def test_commits_that_arrive_together_are_one_append(tmp_path: Path) -> None:
    with (
        NodeInThread(tmp_path / "lake", {"offsets.topic.num.partitions": "1"}) as node,
        contextlib.ExitStack() as stack,
    ):
        clients = [stack.enter_context(WireClient(node.servers)) for _ in range(GROUPS)]
        create_topic(clients[0], "t")
        clients[0].call("FindCoordinator", 4, key_type=0, coordinator_keys=["group-0"])

        def commit(number: int) -> int:
            offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
            topics = [{"name": "t", "partitions": [offset]}]
            group = f"group-{number}"
            return clients[number].send(
                "OffsetCommit", 8, group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics
            )

        def error_of(number: int, sent: int) -> int:
            (topic,) = clients[number].receive("OffsetCommit", 8, sent).topics
            return code(topic.partitions[0].error_code)

        wait_until(lambda: error_of(0, commit(0)) == 0, timeout_s=30)  # the journal is there
        topic = node.broker.topics.find(GROUP_JOURNAL)
        assert topic is not None
        log = topic.leader(0).log
        end = log.log_end_offset
        held, all_sent = threading.Event(), threading.Event()

        def hold() -> None:
            held.set()
            all_sent.wait(20)

        node.loop.call_soon_threadsafe(hold)
        assert held.wait(20)
        sent = [commit(number) for number in range(GROUPS)]
        all_sent.set()
        assert [error_of(number, each) for number, each in enumerate(sent)] == [0] * GROUPS
        assert log.log_end_offset == end + GROUPS
        assert len(log.read(end, 1 << 20)) == 1
