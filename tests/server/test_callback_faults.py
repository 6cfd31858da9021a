"""A callback that fails, at each place that calls callbacks in a loop: every partition, timer, group and connection goes on."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from contract.test_fetch_contract import ask, partition, told
from contract.test_groups_contract import enter
from contract.wire_client import WireClient, batch, code, create_topic, encode, fetch, produce
from contract.wire_transactions import TransactionalClient, find_coordinator
from node_in_thread import NodeInThread

import kafkalake
from kafkalake.broker import callbacks
from kafkalake.broker.callbacks import CallbackLoop
from kafkalake.process import upkeep

pytestmark = pytest.mark.exhaustive

PARTITIONS = 3
SOON_S = 5.0
AT_STOP = {CallbackLoop.CONNECTION}
"""What is called when the broker stops."""


class Fault:
    """Fails one call at a place, before it or after it, however it is reached."""

    def __init__(self, place: CallbackLoop, *, after: bool) -> None:
        self._place = place
        self._after = after
        self._armed = threading.Event()
        self.struck = threading.Event()

    def arm(self) -> None:
        self._armed.set()

    def disarm(self) -> None:
        self._armed.clear()

    def call_isolated(self, place: CallbackLoop, action: Callable[..., object], *arguments: Any) -> bool:
        def faulty(*arguments: Any) -> None:
            if not self._armed.is_set() or self.struck.is_set() or place is not self._place:
                action(*arguments)
                return
            self.struck.set()
            if self._after:
                action(*arguments)
            raise RuntimeError(f"a fault at {place}")

        return REAL(place, faulty, *arguments)


REAL = callbacks.call_isolated


def users_of_call_isolated() -> list[Any]:
    """The modules that call it."""
    for module in pkgutil.walk_packages(kafkalake.__path__, "kafkalake."):
        if module.name.startswith(
            (
                "kafkalake.broker",
                "kafkalake.server",
                "kafkalake.broker.publishing.partitions",
                "kafkalake.process.upkeep",
            )
        ):
            importlib.import_module(module.name)
    return [
        module
        for name, module in list(importlib.sys.modules.items())  # type: ignore[attr-defined]
        if name.startswith("kafkalake.") and getattr(module, "call_isolated", None) is REAL and module is not callbacks
    ]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults") / "lake"


@pytest.fixture(scope="module")
def running(lake: Path) -> Iterator[NodeInThread]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upkeep, "UPKEEP_INTERVAL_MS", 50)
        with NodeInThread(lake, SETTINGS) as node:
            with WireClient(node.servers) as client:
                find_coordinator(client, "a", 0)
                find_coordinator(client, "a", 1)
                create_topic(client, "t", PARTITIONS)
            yield node


SIZES = itertools.count(500_000_000)
"""Of segments: a setting that is what it was has no observers."""
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "shutdown.timeout.ms": "4000",
    "fetch.wire.cache.bytes": "1200000",  # so that `older` finds its records in files
}


def use_everything(servers: str, struck: threading.Event) -> None:
    """What reaches each place, until the fault has struck; its own requests may fail or stay without an answer."""
    quiet = (ConnectionError, TimeoutError, AssertionError)

    def attempt(work: Callable[[WireClient], object]) -> None:
        if struck.is_set():
            return
        try:
            with WireClient(servers, timeout_s=0.5) as client:
                work(client)
        except quiet:
            pass

    def two_produces(client: WireClient) -> None:
        client.socket.sendall(b"".join(encode("Produce", 9, number, _to_all(b"x")) for number in (1, 2)))
        client.receive_frame()
        client.receive_frame()

    def abandoned_fetch(client: WireClient) -> None:
        client.send("Fetch", 12, **_long_poll("t"))
        client.send("ApiVersions", 0)  # never answered: the fetch before it waits

    def woken_fetch(client: WireClient) -> None:
        client.send("Fetch", 12, **_long_poll("t"))
        with WireClient(servers, timeout_s=0.5) as other:
            time.sleep(0.05)
            produce(other, "t", batch([(None, b"y")]), partition=1)
        client.receive_frame()

    def transaction(client: WireClient) -> None:
        one = TransactionalClient(client, f"x{uuid.uuid4().hex[:8]}", version_2=True)
        one.init()
        many = [encode("Produce", 12, number, _transactional(one, number)) for number in range(PARTITIONS)]
        client.socket.sendall(b"".join(many))
        for _ in many:
            client.receive_frame()
        one.end(committed=True)
        one.produce("t", [b"again"])
        one.end(committed=False)

    def topics(client: WireClient) -> None:
        name = f"u{uuid.uuid4().hex[:8]}"
        create_topic(client, name)
        client.call("DeleteTopics", 6, topics=[{"name": name, "topic_id": None}], timeout=5_000)

    def settings(client: WireClient) -> None:
        change = {"name": "log.segment.bytes", "config_operation": 0, "value": str(next(SIZES))}
        resource = {"resource_type": 4, "resource_name": "", "configs": [change]}
        client.call("IncrementalAlterConfigs", 1, resources=[resource], validate_only=False)

    def long_request(client: WireClient) -> None:
        client.call("FindCoordinator", 4, key_type=0, coordinator_keys=[f"g{number}" for number in range(20_000)])

    def older(client: WireClient) -> None:
        name = f"o{uuid.uuid4().hex[:8]}"
        create_topic(client, name)
        for _ in range(20):
            produce(client, name, batch([(None, bytes(70_000))]))
        for offset in range(3):
            fetch(client, name, offset, max_bytes=100_000)

    for work in (two_produces, abandoned_fetch, woken_fetch, transaction, topics, settings, long_request, older):
        attempt(work)
    attempt(lambda client: enter(client, f"g{uuid.uuid4().hex[:8]}"))
    attempt(lambda client: fetch(client, "t", 0, partition=2, max_wait=30, min_bytes=1 << 30))


def _long_poll(topic: str) -> dict[str, Any]:
    asked = [partition(index, 1 << 40) for index in range(PARTITIONS)]
    asked = [{**each, "fetch_offset": 0} for each in asked]
    values = {"max_wait": 60_000, "min_bytes": 1 << 30, "max_bytes": 1 << 30}
    if topic == "t":
        values["min_bytes"] = 1_000_000
    return {
        **values,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": asked}],
        "forgotten_topics_data": [],
    }


def _to_all(value: bytes) -> dict[str, Any]:
    data = [{"index": index, "records": batch([(None, value)])} for index in range(PARTITIONS)]
    return {"acks": -1, "timeout": 10_000, "topic_data": [{"name": "t", "partition_data": data}]}


def _transactional(one: TransactionalClient, index: int) -> dict[str, Any]:
    records = batch([(None, b"z")], attributes=0x10, producer_id=one.producer_id, epoch=one.epoch, sequence=0)
    one.sequences["t", index] = 1
    return {
        "transactional_id": one.transactional_id,
        "acks": -1,
        "timeout": 10_000,
        "topic_data": [{"name": "t", "partition_data": [{"index": index, "records": records}]}],
    }


def everything_works(servers: str) -> None:
    """Produce to and fetch from every partition, a long poll that is woken, one whose time is up, a group, a transaction."""
    with WireClient(servers, timeout_s=SOON_S) as client, WireClient(servers, timeout_s=SOON_S) as other:
        for index in range(PARTITIONS):
            written = produce(client, "t", batch([(None, b"alive")]), partition=index)
            assert code(written.error_code) == 0
            assert fetch(client, "t", written.base_offset, partition=index).records
            end = written.base_offset + 1
            waiting = {**_long_poll("t"), "min_bytes": 1, "max_wait": int(SOON_S * 1000)}
            waiting["topics"] = [{"topic": "t", "partitions": [partition(index, end)]}]
            number = client.send("Fetch", 12, **waiting)
            time.sleep(0.02)
            assert code(produce(other, "t", batch([(None, b"woken")]), partition=index).error_code) == 0
            assert told(client.receive("Fetch", 12, number)) == {("t", index): [b"woken"]}
        began = time.monotonic()
        ask(client, [{"topic": "t", "partitions": [partition(0, 0)]}], min_bytes=1 << 30, max_wait=50)
        assert time.monotonic() - began < SOON_S / 2
        enter(client, f"g{uuid.uuid4().hex[:8]}")
        one = TransactionalClient(client, f"x{uuid.uuid4().hex[:8]}", version_2=True)
        assert one.init() == 0
        one.write("t", {index: [b"transactional"] for index in range(PARTITIONS)})
        assert one.end(committed=True) == 0


@pytest.mark.parametrize(
    "place", [place for place in CallbackLoop if place not in AT_STOP], ids=lambda place: place.name
)
def test_a_fault_costs_only_its_own(
    running: NodeInThread, monkeypatch: pytest.MonkeyPatch, place: CallbackLoop
) -> None:
    modules = users_of_call_isolated()
    for after in (False, True):
        fault = Fault(place, after=after)
        for module in modules:
            monkeypatch.setattr(module, "call_isolated", fault.call_isolated)
        fault.arm()
        deadline = time.monotonic() + 20
        while not fault.struck.is_set():
            assert time.monotonic() < deadline, "nothing calls it"
            use_everything(running.servers, fault.struck)
        fault.disarm()
    everything_works(running.servers)


@pytest.mark.parametrize(
    "place",
    [CallbackLoop.CONNECTION, CallbackLoop.COORDINATED, CallbackLoop.WAITING_REQUEST],
    ids=lambda place: place.name,
)
def test_a_fault_in_a_stop_does_not_keep_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: CallbackLoop
) -> None:
    fault = Fault(place, after=False)
    for module in users_of_call_isolated():
        monkeypatch.setattr(module, "call_isolated", fault.call_isolated)
    with (
        NodeInThread(tmp_path / "lake", SETTINGS) as node,
        WireClient(node.servers) as client,
        WireClient(node.servers) as waiting,
        WireClient(node.servers) as more,
    ):
        find_coordinator(client, "a", 0)
        create_topic(client, "t", PARTITIONS)
        enter(client, "g")
        for each in (waiting, more):
            each.send("Fetch", 12, **_long_poll("t"))
        time.sleep(0.1)
        fault.arm()
        node.stop()
    assert fault.struck.is_set()
    with NodeInThread(tmp_path / "lake", SETTINGS) as node:
        everything_works(node.servers)


def test_a_partition_that_is_named_twice_is_watched_once(running: NodeInThread) -> None:
    """The fetch waits; an append to its partition wakes it, and other partitions of the same flush are served."""
    others = running.on_loop(lambda: len(running.broker.purgatory))
    with (
        WireClient(running.servers, timeout_s=SOON_S) as hostile,
        WireClient(running.servers, timeout_s=SOON_S) as client,
    ):
        twice = {**_long_poll("t"), "topics": [{"topic": "t", "partitions": [partition(0, 0), partition(0, 0)]}] * 2}
        hostile.send("Fetch", 12, **twice)
        time.sleep(0.1)
        assert running.on_loop(lambda: len(running.broker.purgatory)) == others + 1
        answer = client.call("Produce", 9, **_to_all(b"x"))
        assert [code(each.error_code) for each in answer.responses[0].partition_responses] == [0] * PARTITIONS
        everything_works(running.servers)
    deadline = time.monotonic() + SOON_S
    while running.on_loop(lambda: len(running.broker.purgatory)) > others:
        assert time.monotonic() < deadline, "the fetch of a closed connection still waits"
        time.sleep(0.01)


def test_an_answer_that_cannot_be_written_closes_its_connection(
    running: NodeInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafkalake.server.handlers import fetch as fetch_handler

    def fail(*_: Any) -> None:
        raise struct.error("a fault")

    with WireClient(running.servers, timeout_s=SOON_S) as waiting, WireClient(running.servers) as client:
        end = produce(client, "t", batch([(None, b"x")])).base_offset + 1
        asked = {**_long_poll("t"), "min_bytes": 1, "topics": [{"topic": "t", "partitions": [partition(0, end)]}]}
        waiting.send("Fetch", 12, **asked)
        time.sleep(0.1)
        with monkeypatch.context() as patch:
            patch.setattr(fetch_handler, "_encode_partition", fail)
            assert code(produce(client, "t", batch([(None, b"x")])).error_code) == 0
            assert waiting.is_closed()
    everything_works(running.servers)
