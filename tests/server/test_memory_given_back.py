"""What a request took comes back when it is answered, without waiting for a collection of cycles.

Each test does many times what would leave a request's bytes behind, so that what stays is more than a broker may keep.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from contract.test_groups_contract import await_coordinator, join
from contract.wire_client import WireClient, batch, code, create_topic, produce
from kafka_reference import Kafkalake
from node_in_thread import NodeInThread
from waiting import wait_until
from worst_case import MIB, worst_case

from kafkalake import Consumer, Producer
from kafkalake.broker.partitions.pending_append import PendingAppend
from kafkalake.client.staged_append import ask_once
from kafkalake.delayed_headers import DELAY_MS
from kafkalake.errors import KafkaLakeError
from kafkalake.wire.messages.groups import JoinGroupRequest, SyncGroupRequest
from kafkalake.wire.messages.message import Message

pytestmark = pytest.mark.process

KEPT_BYTES = 96 * MIB
"""Free heap that the broker keeps for its next buffers, 64 MiB, and a few buffers."""


def test_refused_batches(broker: Kafkalake, client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    too_large = batch([(None, b"x" * 20 * MIB)])
    with worst_case(broker) as cost:
        for _ in range(9):
            assert code(produce(client, topic, too_large).error_code) == 10
    cost.await_memory_back(KEPT_BYTES)


def test_batches_of_topics_that_are_not_there(broker: Kafkalake, client: WireClient, topic: str) -> None:
    large = batch([(None, b"x" * 20 * MIB)])
    with worst_case(broker) as cost:
        for _ in range(9):
            assert code(produce(client, topic, large).error_code) == 3
    cost.await_memory_back(KEPT_BYTES)


def test_requests_of_jobs_that_are_refused(broker: Kafkalake) -> None:
    with worst_case(broker) as cost:
        for _ in range(9):
            assert ask_refused(broker.bootstrap_servers, {"ask": "describe", "topics": ["x" * 20 * MIB]}) == 42
    cost.await_memory_back(KEPT_BYTES)


def test_no_error_lives_longer_than_its_answer(tmp_path: Path) -> None:
    """What fails in a thread or in a task: its error is in a future, and a frame that waits for that future is in its traceback."""
    asked = {"ask": "append", "application": "a", "version": 1, "directory": "none", "topics": [], "partitions": []}
    with NodeInThread(tmp_path / "lake") as broker, WireClient(broker.servers) as client:
        topic_id = str(create_topic(client, "clicks"))
        there = {"topics": [["clicks", topic_id]], "partitions": [[0, 0]], "files": [["task.arrow", 100, 1, 1]]}
        broker.on_loop(gc.collect)
        gc.disable()
        logging.disable()  # pytest keeps what was logged
        try:
            before = errors_with_frames()
            assert ask_refused(broker.servers, {"ask": "nothing"}) == 42
            assert ask_refused(broker.servers, {**asked, **there}) == -1
            assert ask_refused(broker.servers, {**asked, **there, "topics": [["gone", topic_id]]}) == 3
            new = {"name": "clicks", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            answer = client.call("CreateTopics", 7, topics=[new], timeout=20_000, validate_only=False)
            assert code(answer.topics[0].error_code) == 36
            gone = [{"name": "gone", "topic_id": None}]
            assert code(client.call("DeleteTopics", 6, topics=gone, timeout=20_000).responses[0].error_code) == 3
            grown = [{"name": "clicks", "count": 1, "assignments": None}]
            answer = client.call("CreatePartitions", 3, topics=grown, timeout=20_000, validate_only=False)
            assert code(answer.results[0].error_code) == 37
            broker.on_loop(lambda: None)  # the last task has ended
            assert [repr(error) for error in errors_with_frames() if error not in before] == []
        finally:
            logging.disable(logging.NOTSET)
            gc.enable()


def test_no_append_lives_longer_than_its_answer(tmp_path: Path) -> None:
    """Those of producers, and those of the broker: to its journals, markers, deliveries."""
    before = appends_in_memory()  # those of earlier tests in this process
    with NodeInThread(tmp_path / "lake") as broker, WireClient(broker.servers) as client:
        create_topic(client, "later", delayed_delivery_enable="true")
        with Producer(bootstrap_servers=broker.servers, transactional_id="t") as producer:
            producer.init_transactions()
            broker.on_loop(gc.collect)
            gc.disable()
            try:
                with Consumer(bootstrap_servers=broker.servers, group_id="g", auto_offset_reset="earliest") as consumer:
                    consumer.subscribe(["later"])
                    with producer.transaction():
                        producer.send("later", b"now")
                        producer.send("later", b"later", headers=[(DELAY_MS, b"10")])
                    found: list[bytes | None] = []
                    deadline = time.monotonic() + 60
                    while len(found) < 2 and time.monotonic() < deadline:
                        found += [each.value for each in consumer.poll(1.0)]
                    assert sorted(found, key=repr) == [b"later", b"now"]
                    consumer.commit()
                deadline = time.monotonic() + 60
                while appends_in_memory(before) and time.monotonic() < deadline:  # none is kept by a name here
                    broker.on_loop(lambda: None)  # the note of what was delivered, and the answer to the last commit
                assert [describe(each) for each in appends_in_memory(before)] == []
            finally:
                gc.enable()


def test_members_that_wait_for_each_other_keep_no_request(tmp_path: Path) -> None:
    """They may wait for days, as they say, and an assignment may be as large as a request."""
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with (
        NodeInThread(tmp_path / "lake", settings) as broker,
        WireClient(broker.servers) as leader,
        WireClient(broker.servers) as follower,
    ):
        await_coordinator(leader, "g")
        leads, follows = (join(each, "g").member_id for each in (leader, follower))
        assert leader.call("JoinGroup", 9, **joins(leads)).generation_id == 1
        waits = follower.send("JoinGroup", 9, **joins(follows))

        def members_waiting(what: str) -> int:
            entry = broker.node.broker.groups.coordinator.table.find("g")
            return sum(getattr(each, what) is not None for each in entry.group.roster) if entry is not None else 0

        wait_until(lambda: broker.on_loop(lambda: members_waiting("joining")) == 1, timeout_s=20)
        assert broker.on_loop(lambda: messages_in_memory(JoinGroupRequest)) == 0
        joined = leader.call("JoinGroup", 9, **joins(leads))
        assert follower.receive("JoinGroup", 9, waits).error_code == 0
        large = [{"member_id": leads, "assignment": bytes(MIB)}]
        asked = {"group_id": "g", "generation_id": joined.generation_id, "protocol_type": "consumer"}
        waits = follower.send("SyncGroup", 5, **asked, protocol_name="range", member_id=follows, assignments=large)
        wait_until(lambda: broker.on_loop(lambda: members_waiting("syncing")) == 1, timeout_s=20)
        assert broker.on_loop(lambda: messages_in_memory(SyncGroupRequest)) == 0
        own = [{"member_id": follows, "assignment": b"own"}]
        assert leader.call("SyncGroup", 5, **asked, protocol_name="range", member_id=leads, assignments=own)
        assert follower.receive("SyncGroup", 5, waits).assignment == b"own"


def joins(member_id: str) -> dict[str, Any]:
    """The values of a JoinGroup."""
    protocols = [{"name": "range", "metadata": b""}]
    asked = {"group_id": "g", "session_timeout": 10_000, "rebalance_timeout": 5_000}
    return {**asked, "member_id": member_id, "protocol_type": "consumer", "protocols": protocols}


def messages_in_memory(kind: type[Message]) -> int:
    """The number of messages of a kind that are alive in this process."""
    return sum(isinstance(each, kind) for each in gc.get_objects())


def appends_in_memory(before: Sequence[PendingAppend] = ()) -> list[PendingAppend]:
    """Those that are alive in this process and were not `before`."""
    known = {id(each) for each in before}
    return [each for each in gc.get_objects() if isinstance(each, PendingAppend) and id(each) not in known]


def describe(pending: PendingAppend) -> str:
    """What it was and what refers to it."""
    holders = sorted(f"{type(each).__name__} {str(each)[:200]}" for each in gc.get_referrers(pending))
    return f"{pending.partition} result={pending.result} marker={pending.marker} settled={pending.settled} of {holders}"


def ask_refused(servers: str, body: dict[str, Any]) -> int:
    """Ask as a job does; the error's code."""
    host, port = servers.rsplit(":", 1)
    try:
        ask_once([(host, int(port))], body, 60)
    except KafkaLakeError as error:
        return int(getattr(error, "code", -1))
    raise AssertionError("it was not refused")


def errors_with_frames() -> list[KafkaLakeError]:
    """Those that are alive in this process."""
    return [each for each in gc.get_objects() if isinstance(each, KafkaLakeError) and each.__traceback__ is not None]
