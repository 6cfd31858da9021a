"""Our producer and fetcher against both brokers, and against other clients on the other side."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as ConfluentProducer
from kafka_reference import BrokerProcess

from kafkalake.client import admin
from kafkalake.client.cluster import Cluster, PartitionInfo
from kafkalake.client.fetcher import FetchedRecords, Fetcher
from kafkalake.client.producer import LEADER, NONE, Producer
from kafkalake.errors import (
    BrokerUnavailableError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from kafkalake.record.schema import HEADERS_TYPE

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def cluster(any_broker: BrokerProcess) -> Iterator[Cluster]:
    with Cluster(any_broker.bootstrap_servers) as opened:
        yield opened


def create(cluster: Cluster, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
    admin.create_topic(cluster, topic, partitions=partitions, config=config)
    cluster.topic(topic, wait_ms=10_000)


def records(values: list[bytes | None], keys: list[bytes | None] | None = None) -> pa.RecordBatch:
    columns = {"key": pa.array(keys or [None] * len(values), pa.binary()), "value": pa.array(values, pa.binary())}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def fetch(fetcher: Fetcher, count: int, timeout_s: float = 20) -> list[FetchedRecords]:
    """Poll until there are `count` records."""
    deadline = time.monotonic() + timeout_s
    found: list[FetchedRecords] = []
    while sum(part.records.num_rows for part in found) < count and time.monotonic() < deadline:
        found += fetcher.poll()
    assert sum(part.records.num_rows for part in found) == count
    return found


def values_of(found: list[FetchedRecords], column: str = "value") -> list[Any]:
    return [value for part in found for value in part.records.column(column).to_pylist()]


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_sent_is_fetched(cluster: Cluster, topic: str, codec: str) -> None:
    create(cluster, topic, partitions=3)
    keys = [None if index % 3 == 0 else f"key {index % 50}".encode() for index in range(5_000)]
    values = [None if index % 7 == 0 else b"value %d" % index for index in range(5_000)]
    with Producer(cluster, topic, compression=codec, batch_bytes=8_192) as producer:
        for start in range(0, 5_000, 1_000):
            producer.send(records(values[start : start + 1_000], keys[start : start + 1_000]))
    assert producer.sent.records == 5_000
    assert sum(producer.sent.next_offsets.values()) == 5_000
    found = fetch(Fetcher(cluster, topic, {0: 0, 1: 0, 2: 0}), 5_000)
    assert sorted(zip(map(str, values_of(found, "key")), map(str, values_of(found)), strict=True)) == sorted(
        zip(map(str, keys), map(str, values), strict=True)
    )
    for partition in range(3):
        offsets = [offset for part in found if part.partition == partition for offset in values_of([part], "offset")]
        assert offsets == list(range(len(offsets)))


def test_records_of_a_key_keep_their_order(cluster: Cluster, topic: str) -> None:
    create(cluster, topic, partitions=4)
    keys = [b"key %d" % (index % 11) for index in range(3_000)]
    with Producer(cluster, topic, batch_bytes=2_000) as producer:
        for start in range(0, 3_000, 100):
            producer.send(
                records([b"%d" % index for index in range(start, start + 100)], list(keys[start : start + 100]))
            )
    found = fetch(Fetcher(cluster, topic, dict.fromkeys(range(4), 0)), 3_000)
    order: dict[bytes, list[int]] = {}
    for key, value in zip(values_of(found, "key"), values_of(found), strict=True):
        order.setdefault(key, []).append(int(value))
    assert all(numbers == sorted(numbers) for numbers in order.values())
    assert len(order) == 11


def test_another_client_reads_what_ours_wrote(cluster: Cluster, any_broker: BrokerProcess, topic: str) -> None:
    create(cluster, topic)
    sent = pa.RecordBatch.from_arrays(
        [
            pa.array([b"k", None], pa.binary()),
            pa.array([None, b"\x00\xff"], pa.binary()),
            pa.array([[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], []], HEADERS_TYPE),
            pa.array([1_000, 2_000], pa.int64()).cast(pa.timestamp("ms", tz="UTC")),
        ],
        names=["key", "value", "headers", "timestamp"],
    )
    with Producer(cluster, topic, compression="lz4") as producer:
        producer.send(sent)
    consumer = Consumer({"bootstrap.servers": any_broker.bootstrap_servers, "group.id": "not-joined"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    first, second = consumer.consume(2, timeout=20)
    consumer.close()
    assert (first.key(), first.value(), first.timestamp()[1]) == (b"k", None, 1_000)
    assert first.headers() == [("a", b"1"), ("a", None)]
    assert (second.key(), second.value(), second.timestamp()[1]) == (None, b"\x00\xff", 2_000)


def test_our_client_reads_what_another_wrote(cluster: Cluster, any_broker: BrokerProcess, topic: str) -> None:
    create(cluster, topic)
    producer = ConfluentProducer({"bootstrap.servers": any_broker.bootstrap_servers, "compression.type": "zstd"})
    producer.produce(topic, b"value", b"key", headers=[("h", b"\xff")], timestamp=5_000)
    assert producer.flush(20) == 0
    (part,) = fetch(Fetcher(cluster, topic, {0: 0}), 1)
    assert part.timestamp_type == "CreateTime"
    (row,) = part.records.to_pylist()
    assert (row["key"], row["value"], row["headers"]) == (b"key", b"value", [{"key": "h", "value": b"\xff"}])
    assert row["timestamp"].timestamp() == 5


def test_log_append_time_is_the_brokers(cluster: Cluster, topic: str) -> None:
    create(cluster, topic, config={"message.timestamp.type": "LogAppendTime"})
    before = time.time()
    with Producer(cluster, topic) as producer:
        producer.send(records([b"a", b"b"]))
    (part,) = fetch(Fetcher(cluster, topic, {0: 0}), 2)
    assert part.timestamp_type == "LogAppendTime"
    assert all(before - 1 <= moment.timestamp() <= time.time() + 1 for moment in values_of([part], "timestamp"))


def test_fetching_starts_at_the_offset_asked_for_inside_a_batch(cluster: Cluster, topic: str) -> None:
    create(cluster, topic)
    with Producer(cluster, topic) as producer:
        producer.send(records([b"%d" % index for index in range(100)]))
    fetcher = Fetcher(cluster, topic, {0: 42})
    found = fetch(fetcher, 58)
    assert values_of(found, "offset") == list(range(42, 100))
    assert fetcher.positions == {0: 100}
    assert fetcher.end_offsets == {0: 100}
    assert fetcher.poll(max_wait_ms=1) == []


class AheadCluster(Cluster):
    """Metadata with an election that the leader does not know yet, until it is asked for again."""

    is_ahead = True

    def led_partition(self, topic: str, partition: int) -> PartitionInfo:
        info = super().led_partition(topic, partition)
        return replace(info, leader_epoch=info.leader_epoch + self.is_ahead)

    def forget(self, topic: str) -> None:
        self.is_ahead = False
        super().forget(topic)


def test_a_broker_that_does_not_know_yet_that_it_leads_is_asked_again(
    cluster: Cluster, any_broker: BrokerProcess, topic: str
) -> None:
    create(cluster, topic)
    with Producer(cluster, topic) as producer:
        producer.send(records([b"a"]))
    with AheadCluster(any_broker.bootstrap_servers) as ahead:
        fetcher = Fetcher(ahead, topic, {0: 0})
        assert fetcher.poll() == [] and not ahead.is_ahead
        assert values_of(fetch(fetcher, 1)) == [b"a"]


def test_a_position_outside_the_log(cluster: Cluster, topic: str) -> None:
    create(cluster, topic)
    with Producer(cluster, topic) as producer:
        producer.send(records([b"a", b"b", b"c"]))
    admin.delete_records(cluster, topic, {0: 1})
    for outside in (0, 4):
        with pytest.raises(OffsetOutOfRangeError, match=f"has no offset {outside}: it goes from 1 to 3"):
            Fetcher(cluster, topic, {0: outside}).poll()
        assert values_of(fetch(Fetcher(cluster, topic, {0: outside}, out_of_range="earliest"), 2)) == [b"b", b"c"]
        fetcher = Fetcher(cluster, topic, {0: outside}, out_of_range="latest")
        assert fetcher.poll() == []
        assert fetcher.positions == {0: 3}


@pytest.mark.parametrize("acks", [LEADER, NONE])
def test_weaker_acknowledgements(cluster: Cluster, topic: str, acks: int) -> None:
    create(cluster, topic)
    with Producer(cluster, topic, acks=acks) as producer:
        producer.send(records([b"a"] * 100))
        producer.send(records([b"b"] * 100))
    assert producer.sent.records == 200
    assert values_of(fetch(Fetcher(cluster, topic, {0: 0}), 200)) == [b"a"] * 100 + [b"b"] * 100


def test_everything_goes_to_the_partition_that_was_named(cluster: Cluster, topic: str) -> None:
    create(cluster, topic, partitions=3)
    with Producer(cluster, topic, partition=2) as producer:
        producer.send(records([b"a"] * 10, [b"key %d" % index for index in range(10)]))
    assert producer.sent.next_offsets == {2: 10}
    with pytest.raises(UnknownTopicOrPartitionError, match="has no partition 3; it has 3"):
        Producer(cluster, topic, partition=3)


def test_a_record_that_is_too_large_is_refused(cluster: Cluster, topic: str) -> None:
    create(cluster, topic, config={"max.message.bytes": "10000"})
    with (
        pytest.raises(MessageTooLargeError, match=r"larger than the topic's max\.message\.bytes"),
        Producer(cluster, topic) as producer,
    ):
        producer.send(records([b"x" * 20_000]))


def test_a_large_record_travels_alone(cluster: Cluster, topic: str) -> None:
    create(cluster, topic)
    values = [b"s", b"x" * 900_000, b"t"]
    with Producer(cluster, topic) as producer:
        producer.send(records(list(values)))
    assert producer.sent.batches == 3
    assert values_of(fetch(Fetcher(cluster, topic, {0: 0}), 3)) == values


def test_a_topic_that_is_not_there(kafkalake_broker: Any, topic: str) -> None:
    broker = kafkalake_broker(settings={"auto.create.topics.enable": "false"})
    with (
        Cluster(broker.bootstrap_servers) as cluster,
        pytest.raises(UnknownTopicOrPartitionError, match=f"topic '{topic}' does not exist"),
    ):
        Producer(cluster, topic)


def test_a_producer_outlives_a_killed_broker_and_writes_nothing_twice(
    cluster: Cluster, any_broker: BrokerProcess, topic: str
) -> None:
    create(cluster, topic, partitions=2)
    expected = [b"%d" % index for index in range(6_000)]
    with Producer(cluster, topic, batch_bytes=4_000) as producer:
        producer.send(records(list(expected[:2_000])))
        any_broker.kill()
        restart = threading.Thread(target=any_broker.start)
        restart.start()
        producer.send(records(list(expected[2_000:4_000])))
        restart.join()
        producer.send(records(list(expected[4_000:])))
    assert producer.sent.records == 6_000
    found = values_of(fetch(Fetcher(cluster, topic, {0: 0, 1: 0}), 6_000))
    assert sorted(found, key=int) == expected


def test_a_producer_gives_up_on_a_broker_that_stays_away(
    cluster: Cluster, any_broker: BrokerProcess, topic: str
) -> None:
    create(cluster, topic)
    producer = Producer(cluster, topic, delivery_timeout_ms=1_000)
    any_broker.kill()
    started = time.monotonic()
    with pytest.raises(BrokerUnavailableError):
        producer.send(records([b"lost"]))
        producer.flush()
    assert time.monotonic() - started < 10


def test_aborted_transactions_are_left_out(kafka_reference: BrokerProcess, topic: str) -> None:
    if not kafka_reference.is_running():
        kafka_reference.restart()
    with Cluster(kafka_reference.bootstrap_servers) as cluster:
        create(cluster, topic)
        settings = {"bootstrap.servers": kafka_reference.bootstrap_servers, "transactional.id": topic}
        producer = ConfluentProducer(settings)
        producer.init_transactions(30)
        for round_ in range(4):
            producer.begin_transaction()
            for index in range(3):
                producer.produce(topic, b"%d.%d" % (round_, index), partition=0)
            assert producer.flush(20) == 0
            (producer.abort_transaction if round_ % 2 else producer.commit_transaction)(30)
        committed = [b"%d.%d" % (round_, index) for round_ in (0, 2) for index in range(3)]
        everything = [b"%d.%d" % (round_, index) for round_ in range(4) for index in range(3)]
        assert values_of(fetch(Fetcher(cluster, topic, {0: 0}, read_committed=True), 6)) == committed
        assert values_of(fetch(Fetcher(cluster, topic, {0: 0}), 12)) == everything
        fetcher = Fetcher(cluster, topic, {0: 5}, read_committed=True)  # inside the first aborted transaction
        assert values_of(fetch(fetcher, 3)) == committed[3:]
        producer.begin_transaction()
        producer.produce(topic, b"open", partition=0)
        assert producer.flush(20) == 0
        assert fetcher.poll() == []
        producer.abort_transaction(30)
