"""Answers that are large: what has to be compressed again holds nobody up, and clients that do not read cost bounded memory."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from compressed_batches import compressed
from contract.wire_client import WireClient, batch, code, create_topic, encode, fetch, produce_values, varint
from kafka_reference import Kafkalake
from longest_turn import longest_turn
from node_in_thread import NodeInThread
from waiting import wait_until
from worst_case import MIB, worst_case

from kafkalake.server.connection import WRITE_BUFFER_HIGH_BYTES
from kafkalake.server.unread_answers import ANSWER_BYTES_MIN, UnreadAnswers
from kafkalake.wire.record_batch import decode_fetched

pytestmark = pytest.mark.process

BATCHES = 24
UNREAD_BYTES_MAX = 24 * MIB


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafkalake]:
    """Without a cache, so that every answer comes from the files."""
    settings = {"fetch.wire.cache.bytes": "0", "queued.max.response.bytes": str(UNREAD_BYTES_MAX)}
    with Kafkalake(settings=settings) as broker:
        yield broker


def produce_all(client: WireClient, topic: str, batches: list[bytes]) -> None:
    for number, each in enumerate(batches):
        client.socket.sendall(encode("Produce", 9, number, produce_values(topic, each)))
        answer = client.receive("Produce", 9, number).responses[0].partition_responses[0]
        assert code(answer.error_code) == 0


def test_a_consumer_that_catches_up_on_gzip_holds_nobody_up(broker: Kafkalake, client: WireClient, topic: str) -> None:
    """Compressing these megabytes again takes several tenths of a second."""
    words = [bytes([random.Random(1).randrange(256) for _ in range(50)]) for _ in range(200)]
    value = b"".join(random.Random(2).choices(words, k=18_000))
    body = b"\0" + varint(0) + varint(0) + varint(-1) + varint(len(value)) + value + varint(0)
    create_topic(client, topic)
    produce_all(client, topic, [compressed("gzip", varint(len(body)) + body)] * BATCHES)
    with worst_case(broker) as cost:
        answer = fetch(client, topic, 0, max_wait=0, partition_max_bytes=50 * MIB)
    records = list(decode_fetched(answer.records))
    assert records[0].to_arrow().column("value").to_pylist() == [value]
    assert cost.held_ms < 100


def test_answers_that_nobody_reads_are_bounded(broker: Kafkalake, client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    produce_all(client, topic, [batch([(None, b"x" * 900_000)])] * BATCHES)
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 50 * MIB}
    values = {"max_wait": 0, "min_bytes": 1, "max_bytes": 50 * MIB, "topics": [{"topic": topic, "partitions": [asked]}]}
    # What the kernel takes of the last answer, and so what counts of each, differs from one kernel to another.
    silent = [WireClient(broker.bootstrap_servers) for _ in range(90)]
    try:
        with worst_case(broker) as cost:
            for each in silent:
                for _ in range(12):  # the kernel's buffers take the first ones
                    each.send("Fetch", 4, **values)
            deadline = time.monotonic() + 60
            while "answers that it does not read" not in broker.stderr_path.read_text():
                assert fetch(client, topic, 0, max_wait=0, partition_max_bytes=MIB).records
                assert time.monotonic() < deadline
        assert cost.peak_bytes < UNREAD_BYTES_MAX + 96 * MIB
    finally:
        for each in silent:
            each.socket.close()
    cost.await_memory_back(96 * MIB)


WIDE = 20_000
"""Partitions of a topic of which only the first has a log: so many logs would take half a minute."""


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeInThread]:
    """A broker with a topic of which clients see very many partitions."""
    lake = tmp_path_factory.mktemp("wide") / "lake"
    with NodeInThread(lake) as broker, WireClient(broker.servers) as client:
        create_topic(client, "wide")
        topic = broker.broker.topics.topic("wide")

        def show(partitions: int) -> None:
            topic.registrations = topic.registrations[:1] * partitions
            topic.replicas = dict.fromkeys(range(partitions), topic.replicas[0])

        broker.on_loop(lambda: show(WIDE))
        yield broker
        broker.on_loop(lambda: show(1))


ASKED_OF_WIDE: dict[str, tuple[int, dict[str, Any], Callable[[Any], Sequence[Any]]]] = {
    "Metadata": (
        12,
        {"topics": [{"topic_id": UUID(int=0), "name": "wide"}]},
        lambda answer: answer.topics[0].partitions,
    ),
    "DescribeLogDirs": (4, {"topics": None}, lambda answer: answer.results[0].topics[0].partitions),
    "ListPartitionReassignments": (0, {"topics": None, "timeout": 10_000}, lambda answer: range(WIDE)),
    "ElectLeaders": (
        2,
        {"election_type": 0, "topic_partitions": None, "timeout": 10_000},
        lambda answer: range(WIDE),
    ),
}


@pytest.mark.parametrize("api", ASKED_OF_WIDE)
def test_the_description_of_a_wide_topic_holds_nobody_up(wide: NodeInThread, api: str) -> None:
    """Neither finding, making nor encoding its partitions."""
    version, values, partitions_of = ASKED_OF_WIDE[api]
    with WireClient(wide.servers) as client:

        def describe() -> None:
            assert len(partitions_of(client.call(api, version, **values))) == WIDE

        assert longest_turn(wide, describe).is_short


def test_the_descriptions_of_all_clients_hold_nobody_up(wide: NodeInThread) -> None:
    """Of 5,000 with quotas, and as many users with credentials."""
    names = [f"n{number}" for number in range(5_000)]
    quota = {"ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}]}
    credential = {"mechanism": 1, "iterations": 4096, "salt": b"x" * 20, "salted_password": b"y" * 32}
    with WireClient(wide.servers) as client:
        for first in range(0, len(names), 1_000):
            some = names[first : first + 1_000]
            entries = [{"entity": [{"entity_type": "client-id", "entity_name": name}], **quota} for name in some]
            client.call("AlterClientQuotas", 1, entries=entries, validate_only=False)
            upsertions = [{"name": name, **credential} for name in some]
            client.call("AlterUserScramCredentials", 0, deletions=[], upsertions=upsertions)

        def describe_quotas() -> None:
            assert len(client.call("DescribeClientQuotas", 1, components=[], strict=False).entries) == len(names)

        def describe_users() -> None:
            assert len(client.call("DescribeUserScramCredentials", 0, users=None).results) == len(names)

        assert longest_turn(wide, describe_quotas).is_short
        assert longest_turn(wide, describe_users).is_short


def test_what_waits_counts_however_little_it_is(tmp_path: Path) -> None:
    """So many connections that each leave a little unread are bounded as well."""
    with NodeInThread(tmp_path / "lake") as broker, WireClient(broker.servers) as client:
        create_topic(client, "small")
        produce_all(client, "small", [batch([(None, b"x" * 50_000)])])
        listener: Any = broker.node.acceptor
        unread = listener._context.unread_answers

        def look() -> tuple[int, int]:
            """Return what the connection has to send, and what of that counts."""
            (connection,) = listener._connections
            return connection._transport.get_write_buffer_size(), unread.bytes

        asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": MIB}
        topics = [{"topic": "small", "partitions": [asked]}]
        for _ in range(2_000):  # the kernel's buffers take the first ones, 4 MB of them
            client.send("Fetch", 4, max_wait=0, min_bytes=1, max_bytes=MIB, topics=topics)
            waits, counted = broker.on_loop(look)
            assert waits - counted <= WRITE_BUFFER_HIGH_BYTES
            if counted:
                break
        wait_until(lambda: broker.on_loop(look)[1] > 0)
        assert broker.on_loop(look)[1] < 64 * 1024


def test_the_connection_that_waited_longest_goes_first() -> None:
    closed: list[str] = []
    unread = UnreadAnswers(100)
    for name in ("a", "b", "c"):
        unread.add(name, 40, lambda name=name: closed.append(name))  # type: ignore[misc]
    assert (closed, unread.bytes) == (["a"], 80)
    unread.add("b", 10, lambda: closed.append("b"))
    unread.add("d", 60, lambda: closed.append("d"))
    assert (closed, unread.bytes) == (["a", "c"], 70)
    for name in ("a", "b", "c", "d", "b"):
        unread.remove(name)
    assert unread.bytes == 0
    unread.add("alone", 1000, lambda: closed.append("alone"))
    assert closed == ["a", "c"]


def test_answers_become_smaller_as_room_runs_out() -> None:
    unread = UnreadAnswers(1024 * MIB)
    assert unread.answer_bytes_max(16 * MIB) == 16 * MIB
    unread.add("a", 64 * MIB, lambda: None)
    assert unread.answer_bytes_max(16 * MIB) == 8 * MIB
    unread.preparing += 64 * MIB
    assert unread.answer_bytes_max(16 * MIB) == ANSWER_BYTES_MIN
    assert unread.answer_bytes_max(1000) == 1000
    little = UnreadAnswers(192 * MIB)
    assert little.answer_bytes_max(16 * MIB) == 3 * MIB
    little.add("a", 64 * MIB, lambda: None)
    assert little.answer_bytes_max(16 * MIB) == 2 * MIB


def test_many_that_do_not_read_have_small_answers() -> None:
    unread = UnreadAnswers(3072 * MIB)
    for number in range(60):
        unread.add(number, unread.answer_bytes_max(16 * MIB), lambda: None)
    assert unread.bytes < 200 * MIB
