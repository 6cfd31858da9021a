"""Records that are delivered later, from real clients to one broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from contract.wire_client import WireClient, batch, code, produce, produce_values
from kafka_clients import AioKafka, Client, Confluent, KafkaPython, Record, create_topic
from kafka_reference import topic_name
from node_in_thread import NodeInThread
from record_batches import Row, record_batch
from server.test_fuzzed_frames import on_loop
from waiting import wait_until

from kafkalake.broker.delayed.hand_overs import hand_over_producer_id
from kafkalake.broker.delayed.leader_targets import DEAD_LETTERS
from kafkalake.delayed_headers import DELAY_ID, DELAY_MS, DELIVER_AT, ORIGINAL_TIMESTAMP
from kafkalake.errors import InvalidRecordError
from kafkalake.internal_topics import DELAYED_JOURNAL
from kafkalake.wire.record_batch import encode_batch

pytestmark = pytest.mark.exhaustive

TIMEOUT_S = 30
READER = Confluent()
NODE_SETTINGS = {"transaction.state.log.num.partitions": "5"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeInThread]:
    with NodeInThread(tmp_path_factory.mktemp("delayed") / "lake", NODE_SETTINGS) as node:
        yield node


@pytest.fixture
def orders(node: NodeInThread) -> str:
    name = topic_name("orders")
    create_topic(node.servers, name, 1, {"delayed.delivery.enable": "true"})
    return name


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def record(value: bytes | None, *headers: tuple[str, bytes], key: bytes = b"k", at_ms: int | None = None) -> Record:
    return Record(key, value, headers, now_ms() if at_ms is None else at_ms, -1)


def later(value: bytes | None, delay_ms: int, *headers: tuple[str, bytes]) -> Record:
    return record(value, (DELAY_MS, str(delay_ms).encode()), *headers)


def write(node: NodeInThread, topic: str, *records: Record) -> list[int]:
    return READER.write(node.servers, topic, 0, records, "none")


def read(node: NodeInThread, topic: str, count: int, isolation: str = "read_committed") -> list[Record]:
    return READER.read(node.servers, topic, 0, 0, count, isolation)


def values(records: Sequence[Record]) -> list[bytes | None]:
    return [each.value for each in records]


def in_time(send: Callable[[int, str], None], node: NodeInThread) -> tuple[int, str]:
    """Call `send` with a due time and a topic until the broker has the records before it. Return both."""
    for distance_ms in (700, 3_000, 12_000):
        name, due_ms = topic_name("orders"), now_ms() + distance_ms
        create_topic(node.servers, name, 1, {"delayed.delivery.enable": "true"})
        send(due_ms, name)
        if now_ms() < due_ms:
            return due_ms, name
    raise AssertionError("records took 12 s to the broker")


@pytest.mark.parametrize(
    ("client", "codec"),
    [(Confluent(), "none"), (Confluent(), "lz4"), (KafkaPython(), "none"), (AioKafka(), "gzip")],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_record_is_delivered_when_it_is_due(node: NodeInThread, client: Client, codec: str) -> None:
    began_ms = now_ms()

    def send(due_ms: int, topic: str) -> None:
        records = [
            record(b"now", ("trace", b"1"), at_ms=7_000),
            record(b"at", ("trace", b"2"), (DELIVER_AT, str(due_ms).encode()), at_ms=8_000),
            later(b"delay", 400, ("trace", b"3")),
            record(b"at once", (DELIVER_AT, b"5")),
        ]
        offsets = client.write(node.servers, topic, 0, records, codec)
        assert offsets == [0, 1, 2, 3], "the places in the log: three of them stay empty"

    due_ms, topic = in_time(send, node)
    found = read(node, topic, 4)
    assert values(found[:2]) == [b"now", b"at once"]
    assert [each.offset for each in found] == [0, 4, 5, 6]
    assert dict(found[1].headers)[DELAY_MS] == b"0"
    delivered = {each.value: each for each in found[2:]}
    for value, earliest_ms in ((b"delay", began_ms + 400), (b"at", due_ms)):
        assert earliest_ms <= delivered[value].timestamp_ms <= now_ms(), "its time is that of its delivery"
    headers = dict(delivered[b"at"].headers)
    assert (delivered[b"at"].key, headers.pop("trace")) == (b"k", b"2")
    assert headers.pop(ORIGINAL_TIMESTAMP) == b"8000" and int(headers.pop(DELAY_MS) or b"") <= due_ms - began_ms
    assert not headers
    assert dict(found[0].headers) == {"trace": b"1"}


def test_records_due_together_come_in_the_order_of_sending(node: NodeInThread) -> None:
    names = [str(number).encode() for number in range(40)]

    def send(due_ms: int, topic: str) -> None:
        due = (DELIVER_AT, str(due_ms).encode())
        for begin in range(0, 40, 20):
            write(node, topic, *(record(name, due) for name in names[begin : begin + 20]))

    _, topic = in_time(send, node)
    assert values(read(node, topic, 40)) == names


def test_topics_without_the_setting_take_the_headers_as_any_other(node: NodeInThread) -> None:
    name = topic_name("plain")
    create_topic(node.servers, name, 1)
    write(node, name, later(b"now", 60_000))
    (found,) = read(node, name, 1)
    assert dict(found.headers) == {DELAY_MS: b"60000"}


def failed(node: NodeInThread, topic: str, *records: Record) -> str:
    with pytest.raises(AssertionError) as refused:
        write(node, topic, *records)
    return str(refused.value)


WRONG: tuple[tuple[str, list[tuple[str, bytes]]], ...] = (
    ("INVALID_RECORD", [(DELAY_MS, b"5s")]),
    ("INVALID_RECORD", [(DELAY_MS, b"-5")]),
    ("INVALID_RECORD", [(DELIVER_AT, b"")]),
    ("INVALID_RECORD", [(DELIVER_AT, b"2026-11-23")]),
    ("INVALID_RECORD", [(DELAY_MS, b"5"), (DELIVER_AT, b"5")]),
    ("INVALID_RECORD", [(DELAY_MS, b"5"), (DELAY_ID, b"")]),
    ("INVALID_TIMESTAMP", [(DELAY_MS, str(41 * 86_400_000).encode())]),
)


def test_wrong_headers_refuse_the_batch_before_anything_is_written(node: NodeInThread, orders: str) -> None:
    for error, headers in WRONG:
        assert error in failed(node, orders, record(b"good"), record(b"wrong", *headers), later(b"good", 1))
    assert READER.bounds(node.servers, orders, 0) == (0, 0)
    write(node, orders, later(b"next", 1))
    assert values(read(node, orders, 1)) == [b"next"], "and life goes on"


def test_a_record_that_waits_is_cancelled_by_its_id(node: NodeInThread) -> None:
    def send(due_ms: int, topic: str) -> None:
        due = (DELIVER_AT, str(due_ms).encode())
        write(node, topic, record(b"one", due, (DELAY_ID, b"1")), record(b"two", due, (DELAY_ID, b"2")))
        write(node, topic, record(None, (DELAY_ID, b"1")), record(None, (DELAY_ID, b"unknown")))
        write(node, topic, record(b"end", (DELIVER_AT, str(due_ms + 200).encode())))

    _, topic = in_time(send, node)
    assert values(read(node, topic, 2)) == [b"two", b"end"]


def test_all_records_of_a_topic_of_a_delay_are_delivered_after_it(node: NodeInThread) -> None:
    name = topic_name("jobs")
    create_topic(node.servers, name, 1, {"delay.levels": "300ms,600ms"})
    level = f"{name}-delay-600ms"
    sent_ms = now_ms()
    for client in (Confluent(), KafkaPython()):
        client.write(node.servers, level, 0, [record(client.name.encode())], "none")
    write(node, f"{name}-delay-300ms", record(b"first", ("trace", b"1")))
    found = read(node, name, 3)
    delivered = {each.value: each for each in found}
    assert delivered.keys() == {b"first", b"confluent-kafka", b"kafka-python"}
    assert delivered[b"kafka-python"].timestamp_ms >= sent_ms + 600
    assert dict(delivered[b"first"].headers)["trace"] == b"1"
    assert "INVALID_RECORD" in failed(node, level, later(b"twice", 5))
    low, high = READER.bounds(node.servers, level, 0)
    assert (low, high) == (0, 2) and READER.read(node.servers, level, 0, 0, 0) == []


def test_a_large_record_that_came_compressed_is_delivered(node: NodeInThread, orders: str) -> None:
    large = bytes(1_500_000)  # above max.message.bytes
    READER.write(node.servers, orders, 0, [later(large, 50)], "lz4")
    assert values(read(node, orders, 1)) == [large]


def test_a_topic_of_a_delay_takes_what_its_target_does(node: NodeInThread) -> None:
    name = topic_name("keyed")
    create_topic(node.servers, name, 1, {"delay.levels": "50ms", "cleanup.policy": "compact"})
    assert "INVALID_RECORD" in failed(node, f"{name}-delay-50ms", Record(None, b"without a key"))
    write(node, f"{name}-delay-50ms", record(b"with"))
    assert values(read(node, name, 1)) == [b"with"]


class Transactions:
    """A transactional producer of delayed records."""

    def __init__(self, node: NodeInThread, topic: str) -> None:
        self.topic = topic
        self.producer = confluent_kafka.Producer(
            {"bootstrap.servers": node.servers, "transactional.id": topic_name("tx"), "linger.ms": 0}
        )
        self.producer.init_transactions(TIMEOUT_S)

    def send(self, value: bytes, delay_ms: int | None) -> None:
        headers = [] if delay_ms is None else [(DELAY_MS, str(delay_ms).encode())]
        self.producer.produce(self.topic, value, partition=0, headers=headers)
        assert self.producer.flush(TIMEOUT_S) == 0


def test_transactions_decide_on_their_records_that_wait(node: NodeInThread, orders: str) -> None:
    transactions = Transactions(node, orders)
    producer = transactions.producer
    producer.begin_transaction()
    transactions.send(b"aborted", 100)
    transactions.send(b"aborted now", None)
    producer.abort_transaction(TIMEOUT_S)
    producer.begin_transaction()
    transactions.send(b"committed", 100)
    transactions.send(b"committed now", None)
    write(node, orders, later(b"beside", 400))
    seen = values(read(node, orders, 3, "read_uncommitted"))
    assert seen == [b"aborted now", b"committed now", b"beside"], "the other one is due, and not committed"
    producer.commit_transaction(TIMEOUT_S)
    found = read(node, orders, 3)
    assert sorted(map(bytes, (each.value or b"" for each in found))) == [b"beside", b"committed", b"committed now"]
    producer.begin_transaction()
    transactions.send(b"next", 50)
    producer.commit_transaction(TIMEOUT_S)
    assert values(read(node, orders, 4))[-1] == b"next", "and life goes on"
    assert b"aborted" not in values(read(node, orders, 5, "read_uncommitted"))


def test_a_batch_that_is_sent_again_delivers_nothing_twice(node: NodeInThread, orders: str) -> None:
    rows: list[Row] = [
        (now_ms(), None, value, [(DELAY_MS, b"300")] if delayed else [])
        for value, delayed in ((b"a", True), (b"b", False), (b"c", True))
    ]
    with WireClient(node.servers) as first, WireClient(node.servers) as second:
        for sequence in (0, 3):
            batch = encode_batch(record_batch(rows, producer_id=10**12, epoch=0, sequence=sequence))
            first.send("Produce", 9, **produce_values(orders, batch))  # its answer is never read
            for _ in range(2):
                answer = produce(second, orders, batch)
                assert (code(answer.error_code), answer.base_offset) == (0, sequence)
    found = read(node, orders, 6)
    assert values(found[:2]) == [b"b", b"b"]
    assert values(found[2:]) == [b"a", b"c", b"a", b"c"]
    write(node, orders, later(b"end", 1))
    assert values(read(node, orders, 7))[-1] == b"end"


def test_a_delivery_that_is_sent_again_is_a_duplicate_whatever_its_topic_takes_now(
    node: NodeInThread, orders: str
) -> None:
    """As after a kill between the append and its note: a refused batch would be given up, and delivered as a dead letter too."""
    broker = node.node.broker
    assert broker is not None
    on_loop(node, broker.delayed.make_ready())
    topic_id = broker.topics.topic(orders).topic_id
    producer_id = hand_over_producer_id((broker.topics.topic(DELAYED_JOURNAL).topic_id, 0))
    with WireClient(node.servers) as client:

        def deliver(sequence: int) -> int:
            records = batch([(None, b"no key")], producer_id=producer_id, epoch=0, sequence=sequence)
            asked = {"topic_id": topic_id, "partition_index": 0, "records": records}
            (result,) = client.call("DeliverRecords", 0, batches=[asked]).results
            return code(result.error_code)

        assert deliver(0) == 0
        compacted = {"name": "cleanup.policy", "config_operation": 0, "value": "compact"}
        resource = {"resource_type": 2, "resource_name": orders, "configs": [compacted]}
        answer = client.call("IncrementalAlterConfigs", 1, resources=[resource], validate_only=False)
        assert answer.responses[0].error_code == 0
        assert (deliver(0), deliver(1)) == (0, InvalidRecordError.code)
    assert READER.bounds(node.servers, orders, 0) == (0, 1)


@pytest.mark.long
def test_what_waits_for_a_deleted_topic_becomes_a_dead_letter(node: NodeInThread, orders: str) -> None:
    write(node, orders, later(b"lost", 8_000, ("trace", b"1")), later(b"lost too", 8_200))
    admin = AdminClient({"bootstrap.servers": node.servers})
    admin.delete_topics([orders])[orders].result(TIMEOUT_S)
    wait_until(lambda: DEAD_LETTERS in admin.list_topics(timeout=TIMEOUT_S).topics)
    found = read(node, DEAD_LETTERS, 2)
    assert values(found) == [b"lost", b"lost too"] and dict(found[0].headers)["trace"] == b"1"


def test_the_journal_is_the_brokers_own(node: NodeInThread, orders: str) -> None:
    write(node, orders, later(b"there", 1))
    assert "TOPIC_EXCEPTION" in failed(node, DELAYED_JOURNAL, record(b"mine"))
    admin = AdminClient({"bootstrap.servers": node.servers})
    with pytest.raises(confluent_kafka.KafkaException, match="Invalid topic"):
        admin.delete_topics([DELAYED_JOURNAL])[DELAYED_JOURNAL].result(TIMEOUT_S)
    more = admin.create_partitions([NewPartitions(DELAYED_JOURNAL, 60)])[DELAYED_JOURNAL]
    with pytest.raises(confluent_kafka.KafkaException, match="it cannot be deleted or get more partitions"):
        more.result(TIMEOUT_S)  # they would part what waits from its cancels
