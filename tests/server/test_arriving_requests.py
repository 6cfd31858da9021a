"""Requests that are arriving: memory follows what has come, not what was announced; and what does not come is not waited for."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from contract import test_groups_contract as groups
from contract.wire_client import WireClient, batch, code, create_topic, encode, produce, produce_values
from kafka_reference import Kafkalake
from node_in_thread import NodeInThread
from worst_case import MIB, worst_case

from kafkalake.broker.admin.scram_credentials import credential_text, user_resource
from kafkalake.server.turns import Steps, Turns

pytestmark = pytest.mark.process

StartBroker = Callable[..., Kafkalake]
LARGEST = struct.pack(">i", 104_857_600)


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafkalake]:
    with Kafkalake(
        settings={"queued.max.request.bytes": str(24 * MIB), "connection.max.unfinished.ms": "2500"}
    ) as broker:
        yield broker


def test_a_size_alone_takes_no_memory(broker: Kafkalake) -> None:
    clients = [WireClient(broker.bootstrap_servers) for _ in range(40)]
    try:
        with worst_case(broker) as cost, WireClient(broker.bootstrap_servers) as other:
            for number, each in enumerate(clients):
                each.socket.sendall(LARGEST + bytes(100 * number))
            assert other.call("ApiVersions", 0).api_keys
        assert cost.peak_bytes < 32 * MIB
    finally:
        for each in clients:
            each.socket.close()


def test_a_request_that_does_not_arrive_ends_its_connection(broker: Kafkalake) -> None:
    with WireClient(broker.bootstrap_servers) as idle:
        starts = [b"\0\0", LARGEST, LARGEST + b"\0\3\0\1", LARGEST + bytes(300_000)]
        clients = [WireClient(broker.bootstrap_servers) for _ in starts]
        for each, start in zip(clients, starts, strict=True):
            each.socket.sendall(start)
        for each in clients:
            assert each.is_closed()
            each.socket.close()
        assert idle.call("ApiVersions", 0).api_keys
    assert "a request of which 2 bytes came" in broker.stderr_path.read_text()


def test_a_slow_request_that_goes_on_arriving_is_taken(broker: Kafkalake, topic: str) -> None:
    """For longer than a request may stand still."""
    with WireClient(broker.bootstrap_servers) as client:
        create_topic(client, topic)
        request = encode("Produce", 9, 7, produce_values(topic, batch([(None, b"x" * 1_000_000)])))
        for start in range(0, len(request), 100_000):
            client.socket.sendall(request[start : start + 100_000])
            time.sleep(0.3)
        assert code(client.receive("Produce", 9, 7).responses[0].partition_responses[0].error_code) == 0


def test_a_pause_of_the_broker_ends_no_request(broker: Kafkalake, topic: str) -> None:
    """What came while it stood still counts as arrived."""
    with WireClient(broker.bootstrap_servers) as client:
        create_topic(client, topic)
        request = encode("Produce", 9, 7, produce_values(topic, batch([(None, b"x" * 300_000)])))
        client.socket.sendall(request[:200_000])
        time.sleep(0.1)
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            client.socket.sendall(request[200_000:])
            time.sleep(4)
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        assert code(client.receive("Produce", 9, 7).responses[0].partition_responses[0].error_code) == 0


def test_many_large_requests_at_once_take_turns(kafkalake_broker: StartBroker, topic: str) -> None:
    """Together they are ten times what the broker holds; each has begun before the first one goes on."""
    broker = kafkalake_broker(settings={"queued.max.request.bytes": str(24 * MIB)})
    large = batch([(None, b"x" * 20 * MIB)])
    request = memoryview(encode("Produce", 9, 1, produce_values("no-such-topic-" + topic, large)))
    clients = [WireClient(broker.bootstrap_servers, timeout_s=60) for _ in range(12)]
    began, all_began = threading.Semaphore(0), threading.Event()
    errors: list[int] = []

    def send(client: WireClient) -> None:
        client.socket.sendall(request[: MIB // 2])
        began.release()
        assert all_began.wait(60)
        client.socket.sendall(request[MIB // 2 :])
        answer = client.receive("Produce", 9, 1).responses[0].partition_responses[0]
        errors.append(code(answer.error_code))

    threads = [threading.Thread(target=send, args=(client,)) for client in clients]
    with worst_case(broker) as cost, WireClient(broker.bootstrap_servers) as other:
        for each in threads:
            each.start()
        for _ in threads:
            assert began.acquire(timeout=60)
        all_began.set()
        for each in threads:
            each.join(60)
        create_topic(other, topic)
        assert code(produce(other, topic, batch([(None, b"y")])).error_code) == 0
    for client in clients:
        client.socket.close()
    assert errors == [3] * 12
    assert cost.peak_bytes < 144 * MIB  # 12 x 20 MiB were sent


class Arriving:
    """Connections of which the broker finds a request each, all at once: they arrive in the same memory, one after the other."""

    def __init__(self, node: NodeInThread, stack: ExitStack) -> None:
        self._node = node
        clients = [stack.enter_context(WireClient(node.servers)) for _ in range(9)]
        for each in clients:
            assert each.call("ApiVersions", 0).api_keys
        self.client = clients.pop(4)
        self._others = clients

    def call(self, api: str, version: int, **values: Any) -> Any:
        """Return the response to a request that arrives in the middle of others."""
        go_on = threading.Event()
        self._node.loop.call_soon_threadsafe(go_on.wait, 20)
        sent = self.client.send(api, version, **values)
        numbers = [each.send("Metadata", 4, topics=[{"name": "x" * 200}]) for each in self._others]
        go_on.set()
        answer = self.client.receive(api, version, sent)
        for each, number in zip(self._others, numbers, strict=True):
            each.receive("Metadata", 4, number)
        return answer


def test_what_is_asked_of_the_controller_is_what_was_sent_whatever_arrives_meanwhile(tmp_path: Path) -> None:
    salt, password = b"salt" * 8, b"password" * 8
    with NodeInThread(tmp_path / "lake") as node, ExitStack() as stack:
        arriving = Arriving(node, stack)
        for _ in range(2):
            upsertion = {"mechanism": 1, "iterations": 4096, "salt": salt, "salted_password": password}
            upsertions = [{"name": "alice", **upsertion}]
            answer = arriving.call("AlterUserScramCredentials", 0, deletions=[], upsertions=upsertions)
            assert answer.results[0].error_code == 0
            kept = node.on_loop(lambda: node.broker.cluster.config[user_resource("alice")])
            assert kept == {"SCRAM-SHA-256": credential_text("SCRAM-SHA-256", 4096, salt, password)}
            salt, password = password, salt


def test_assignments_are_those_that_were_sent_whatever_arrives_between_two_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine is slow: each step takes a turn."""

    def run(
        turns: Turns,
        steps: Steps,
        is_wanted: Callable[[], bool],
        finished: Callable[[Any], None],
        failed: Callable[[Exception], None],
    ) -> None:
        try:
            next(steps)
        except StopIteration as stop:
            finished(stop.value)
        else:
            turns.later(lambda: run(turns, steps, is_wanted, finished, failed))

    with NodeInThread(tmp_path / "lake") as node, ExitStack() as stack:
        arriving = Arriving(node, stack)
        groups.await_coordinator(arriving.client, "group")
        joined = groups.join(arriving.client, "group", version=3)
        asked = {"group_id": "group", "generation_id": joined.generation_id, "member_id": joined.member_id}
        others = [{"member_id": f"no-member-{number}", "assignment": b"theirs"} for number in range(3)]
        monkeypatch.setattr(Turns, "run", run)
        for assignment in (b"mine" * 9, b"mine too" * 9):
            assignments = [*others, {"member_id": joined.member_id, "assignment": assignment}]
            answer = arriving.call("SyncGroup", 3, **asked, assignments=assignments)
            assert (answer.error_code, bytes(answer.assignment)) == (0, b"mine" * 9), "a second one changes nothing"


def test_memory_of_lost_connections_is_given_back(broker: Kafkalake, topic: str) -> None:
    for _ in range(10):
        with socket.create_connection(("127.0.0.1", broker.port)) as lost:
            lost.sendall(LARGEST + bytes(10 * MIB))
    with WireClient(broker.bootstrap_servers) as client:
        create_topic(client, topic)
        assert code(produce(client, topic, batch([(None, b"x" * 20 * MIB)])).error_code) == 10
