"""Batches of columns at a broker: every setting of a topic holds for them as for records, which any client reads."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa
import pytest
from contract.wire_client import WireClient, code
from kafka_clients import Confluent, create_topic
from kafka_reference import topic_name
from node_in_thread import NodeInThread
from wire.wire_batches import raw_batch

from kafkalake import Producer
from kafkalake.errors import InvalidRecordError, InvalidTimestampError
from kafkalake.wire.column_feature import FEATURE

pytestmark = pytest.mark.exhaustive  # a node in this process

TIMEOUT_S = 30
READER = Confluent()
TWO = struct.pack("<6i", 2, 0, 0, 0, 1, 3) + b"abc"
"""Columns of the values a and bc, without keys."""
VALUES = [b"%d" % n for n in range(5)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeInThread]:
    with NodeInThread(tmp_path_factory.mktemp("columns") / "lake") as node:
        yield node


@pytest.fixture(scope="module")
def producer(node: NodeInThread) -> Iterator[Producer]:
    with Producer(bootstrap_servers=node.servers) as producer:
        yield producer


def made(node: NodeInThread, settings: dict[str, str]) -> str:
    name = topic_name("columns")
    create_topic(node.servers, name, 1, settings)
    return name


def test_only_own_clients_are_told(node: NodeInThread) -> None:
    with WireClient(node.servers) as client:
        for software, is_own in (("kafkalake", True), ("librdkafka", False), ("apache-kafka-java", False)):
            about = {"client_software_name": software, "client_software_version": "1"}
            found = client.call("ApiVersions", 3, **about).supported_features
            assert (FEATURE in {each.name for each in found}) == is_own


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"compression.type": "zstd"},
        {"compression.type": "uncompressed"},
        {"message.timestamp.type": "LogAppendTime"},
        {"cleanup.policy": "compact"},
        {"delayed.delivery.enable": "true"},
        {"flush.messages": "1"},
    ],
)
def test_any_client_reads_them_as_records(node: NodeInThread, producer: Producer, settings: dict[str, str]) -> None:
    name = made(node, settings)
    table = pa.table(
        {"key": [b"k%d" % n for n in range(5)], "value": VALUES, "timestamp": pa.array(range(5), pa.int64())}
    )
    (span,) = producer.send_arrow(name, table).get(TIMEOUT_S)
    assert (span.base_offset, span.records) == (0, 5)
    found = READER.read(node.servers, name, 0, 0, 5)
    assert [(each.key, each.value) for each in found] == [(b"k%d" % n, b"%d" % n) for n in range(5)]
    is_broker_time = "message.timestamp.type" in settings
    assert ([each.timestamp_ms for each in found] == list(range(5))) != is_broker_time


@pytest.mark.exhaustive
def test_a_topic_of_a_delay_delivers_them_after_it(node: NodeInThread, producer: Producer) -> None:
    name = made(node, {"delay.levels": "50ms"})
    producer.send_arrow(f"{name}-delay-50ms", pa.table({"value": VALUES})).get(TIMEOUT_S)
    assert sorted(each.value or b"" for each in READER.read(node.servers, name, 0, 0, 5)) == VALUES


def test_what_a_topic_refuses_of_records_it_refuses_of_columns(node: NodeInThread, producer: Producer) -> None:
    compacted = made(node, {"cleanup.policy": "compact"})
    with pytest.raises(InvalidRecordError, match="without key"):
        producer.send_arrow(compacted, pa.table({"key": [b"k", None], "value": ["a", "b"]})).get(TIMEOUT_S)
    recent = made(node, {"message.timestamp.before.max.ms": "1000"})
    with pytest.raises(InvalidTimestampError):
        producer.send_arrow(recent, pa.table({"value": ["a"], "timestamp": pa.array([5])})).get(TIMEOUT_S)
    assert producer.send_arrow(recent, pa.table({"value": ["a"]})).get(TIMEOUT_S)[0].base_offset == 0


@pytest.mark.exhaustive
def test_transactions_decide_on_them(node: NodeInThread) -> None:
    name = made(node, {})
    with Producer(bootstrap_servers=node.servers, transactional_id=name) as producer:
        producer.init_transactions()
        for value in ("committed", "aborted", "last"):
            producer.begin_transaction()
            producer.send_arrow(name, pa.table({"value": [value]}))
            producer.flush(TIMEOUT_S)
            if value == "aborted":
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    found = READER.read(node.servers, name, 0, 0, 2, "read_committed")
    assert [each.value for each in found] == [b"committed", b"last"]


@pytest.mark.exhaustive
def test_sequences_and_damage(node: NodeInThread) -> None:
    name = made(node, {})

    def produced(data: bytes) -> tuple[int, int]:
        topic = {"name": name, "partition_data": [{"index": 0, "records": data}]}
        (answer,) = client.call("Produce", 9, acks=-1, timeout=30_000, topic_data=[topic]).responses
        (result,) = answer.partition_responses
        return code(result.error_code), result.base_offset

    def batch(sequence: int, body: bytes = TWO) -> bytes:
        return raw_batch(body, 2, magic=100, producer_id=900, producer_epoch=0, base_sequence=sequence)

    with WireClient(node.servers) as client:
        assert [produced(batch(0)), produced(batch(2)), produced(batch(0))] == [(0, 0), (0, 2), (0, 0)]
        assert produced(batch(9)) == (45, -1)  # OUT_OF_ORDER_SEQUENCE_NUMBER
        assert produced(batch(4, TWO + b"x")) == (87, -1)  # INVALID_RECORD
        assert produced(batch(4)[:-1] + b"!") == (2, -1)  # CORRUPT_MESSAGE
        assert produced(batch(4)) == (0, 4)
    assert [each.value for each in READER.read(node.servers, name, 0, 0, 6)] == [b"a", b"bc"] * 3
