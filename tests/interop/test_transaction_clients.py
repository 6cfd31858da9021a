"""Transactions of real clients: what is committed is read, what is aborted is not, and a zombie is refused."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from benchmarks import kafka_tools
from exactly_once import Copier, check_exactly_once, commit_beginning, read_committed
from group_processes import SMALL_JVM, Speaker, check_alive, said, wait_until_shared
from kafka_clients import CLIENTS, COMMITTED, UNCOMMITTED, create_topic
from transactional_clients import TIMEOUT_S, TRANSACTIONAL_CLIENTS, ConfluentTransactions, Fenced, TransactionalProducer
from waiting import wait_until
from watermarks import watermarks


@pytest.fixture(params=TRANSACTIONAL_CLIENTS, ids=lambda client: client.name)
def new_producer(request: pytest.FixtureRequest, any_broker: Any) -> Iterator[Any]:
    """A function `(transactional_id) -> TransactionalProducer`, of each client in turn."""
    producers: list[TransactionalProducer] = []

    def make(transactional_id: str) -> TransactionalProducer:
        producers.append(request.param(any_broker.bootstrap_servers, transactional_id))
        return producers[-1]

    yield make
    for producer in producers:
        producer.close()


@pytest.fixture
def transactional_id() -> str:
    return f"id-{uuid.uuid4().hex[:10]}"


def bounds(servers: str, topic: str, partition: int, isolation: str) -> tuple[int, int]:
    """First and end offset; under `read_committed` the end is the last stable offset."""
    settings = {"bootstrap.servers": servers, "group.id": "bounds", "isolation.level": isolation}
    consumer = confluent_kafka.Consumer(settings)
    found = watermarks(consumer, topic, partition)
    consumer.close()
    return found


def committed_offset(servers: str, group: str, topic: str, partition: int) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group})
    (found,) = consumer.committed([confluent_kafka.TopicPartition(topic, partition)], timeout=TIMEOUT_S)
    consumer.close()
    return int(found.offset)


def write(producer: TransactionalProducer, topic: str, number: int) -> None:
    """Begin a transaction of two values in each of two partitions: `number`, twice."""
    producer.begin()
    for _ in range(2):
        for partition in range(2):
            producer.send(topic, partition, b"%d" % number)


def test_committed_records_are_read_and_aborted_ones_are_not(
    any_broker: Any, new_producer: Any, transactional_id: str, topic: str
) -> None:
    servers = any_broker.bootstrap_servers
    create_topic(servers, topic, partitions=2)
    producer, other = new_producer(transactional_id), ConfluentTransactions(servers, transactional_id + "-other")
    for number in range(4):
        write(producer, topic, number)
        if number == 2:
            write(other, topic, 20)  # its records stand between those of the aborted transaction
        if number % 2:
            producer.commit()
        else:
            producer.abort()
    other.commit()
    write(producer, topic, 5)
    producer.commit()
    for partition in range(2):
        for reader in CLIENTS:
            read = reader.read(servers, topic, partition, 0, 8, COMMITTED)
            assert [record.value for record in read] == [b"1", b"1", b"20", b"20", b"3", b"3", b"5", b"5"], reader.name
            everything = reader.read(servers, topic, partition, 0, 12, UNCOMMITTED)
            values = [record.value for record in everything]
            assert values == [b"0", b"0", b"1", b"1", b"2", b"2", b"20", b"20", b"3", b"3", b"5", b"5"], reader.name


def test_a_committed_reader_waits_where_an_open_transaction_begins(
    any_broker: Any, new_producer: Any, transactional_id: str, topic: str
) -> None:
    servers = any_broker.bootstrap_servers
    create_topic(servers, topic, partitions=2)
    producer, other = new_producer(transactional_id), ConfluentTransactions(servers, transactional_id + "-other")
    write(other, topic, 1)
    other.commit()
    write(producer, topic, 2)
    write(other, topic, 3)
    other.commit()
    # two values, a marker, two open values, two values, a marker
    assert bounds(servers, topic, 0, UNCOMMITTED) == (0, 8)
    assert bounds(servers, topic, 0, COMMITTED) == (0, 3)
    producer.abort()
    assert bounds(servers, topic, 0, COMMITTED) == (0, 9)
    assert [record.value for record in CLIENTS[0].read(servers, topic, 1, 0, 4, COMMITTED)] == [b"1", b"1", b"3", b"3"]


def test_a_second_producer_with_the_same_id_aborts_and_fences_the_first(
    any_broker: Any, new_producer: Any, transactional_id: str, topic: str
) -> None:
    servers = any_broker.bootstrap_servers
    create_topic(servers, topic, partitions=2)
    zombie = new_producer(transactional_id)
    write(zombie, topic, 1)
    newcomer = new_producer(transactional_id)
    write(newcomer, topic, 2)
    with pytest.raises(Fenced):
        zombie.commit()
    newcomer.commit()
    for partition in range(2):
        read = CLIENTS[0].read(servers, topic, partition, 0, 2, COMMITTED)
        assert [record.value for record in read] == [b"2", b"2"]
        # a value twice, the marker of the abort, a value twice, the marker of the commit
        assert bounds(servers, topic, partition, COMMITTED) == (0, 6)


def test_a_zombie_writes_nothing(any_broker: Any, new_producer: Any, transactional_id: str, topic: str) -> None:
    servers = any_broker.bootstrap_servers
    create_topic(servers, topic)
    zombie = new_producer(transactional_id)
    zombie.begin()
    zombie.send(topic, 0, b"zombie")
    newcomer = new_producer(transactional_id)
    with pytest.raises(Fenced):
        zombie.send(topic, 0, b"zombie again")
    assert bounds(servers, topic, 0, COMMITTED) == (0, 2)
    newcomer.begin()
    newcomer.send(topic, 0, b"new")
    newcomer.commit()
    assert [record.value for record in CLIENTS[0].read(servers, topic, 0, 0, 2, UNCOMMITTED)] == [b"zombie", b"new"]


def test_offsets_are_committed_and_aborted_with_the_records(
    any_broker: Any, new_producer: Any, transactional_id: str, topic: str
) -> None:
    servers, group = any_broker.bootstrap_servers, transactional_id + "-group"
    create_topic(servers, topic, partitions=2)
    producer = new_producer(transactional_id)
    for offset, end, known in ((3, producer.commit, 3), (7, producer.abort, 3), (5, producer.commit, 5)):
        write(producer, topic, offset)
        producer.send_offset(group, topic, 1, offset)
        end()
        assert committed_offset(servers, group, topic, 1) == known
    assert [each.value for each in CLIENTS[0].read(servers, topic, 0, 0, 4, COMMITTED)] == [b"3", b"3", b"5", b"5"]


@pytest.mark.parametrize(
    ("client", "protocol"),
    [
        pytest.param("confluent-kafka", "classic", marks=pytest.mark.long),
        ("confluent-kafka", "consumer"),
        ("kafka-python", "classic"),
        pytest.param("aiokafka", "classic", marks=pytest.mark.long),
    ],
)
def test_members_of_a_group_copy_each_record_once(
    any_broker: Any, group: str, topic: str, client: str, protocol: str
) -> None:
    servers = any_broker.bootstrap_servers
    create_topic(servers, topic, partitions=4)
    create_topic(servers, topic + "-copy", partitions=4)
    output = topic + "-copy"
    commit_beginning(servers, group, topic)
    copiers = [
        Copier(
            client=client,
            protocol=protocol,
            servers=servers,
            group=group,
            input=topic,
            output=output,
            transactional_id=f"{group}-{number}",
            seed=number,
            abort_rate=0.3,
        )
        for number in range(2)
    ]

    def copied() -> bool:
        check_alive(copiers)
        return sum(each.copied for each in copiers) >= 2_000

    try:
        wait_until_shared(copiers, 4)
        producer = confluent_kafka.Producer({"bootstrap.servers": servers})
        for number in range(2_000):
            producer.produce(topic, b"%d" % (number // 4), partition=number % 4)
        assert producer.flush(TIMEOUT_S) == 0
        wait_until(copied, lambda: said(copiers))
    finally:
        for each in copiers:
            each.kill()
    assert all(each.copied and each.aborted for each in copiers)
    assert [committed_offset(servers, group, topic, partition) for partition in range(4)] == [500] * 4
    expected = [[b"copied:%d" % number for number in range(500)]] * 4
    check_exactly_once(read_committed(servers, output, 4), expected, client)


def test_javas_copier_copies_each_record_once(any_broker: Any, group: str, topic: str) -> None:
    """Kafka's TransactionalMessageCopier, which aborts at random, for one partition, and as a member of a group."""
    servers = any_broker.bootstrap_servers
    create_topic(servers, topic, partitions=2)
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for number in range(2_000):
        producer.produce(topic, b"%d" % (number // 2), partition=number % 2)
    assert producer.flush(TIMEOUT_S) == 0
    wanted = {"one": ["--input-partition", "1"], "group": ["--input-partition", "-1", "--group-mode"]}
    tools = {}
    for name, arguments in wanted.items():
        create_topic(servers, f"{topic}-{name}", partitions=2)
        arguments += ["--broker-list", servers, "--input-topic", topic, "--output-topic", f"{topic}-{name}"]
        arguments += ["--transactional-id", f"{group}-{name}", "--consumer-group", f"{group}-{name}"]
        arguments += ["--use-group-metadata", "--enable-random-aborts", "--transaction-size", "100"]
        command = kafka_tools.tool_command("org.apache.kafka.tools.TransactionalMessageCopier", arguments, *SMALL_JVM)
        tools[name] = Speaker(command)
    for name, expected in (("one", range(1_000)), ("group", sorted([*range(1_000)] * 2))):
        assert tools[name].finish() == 0, tools[name].events[-3:]
        read = [value for values in read_committed(servers, f"{topic}-{name}", 2) for value in values]
        assert sorted(map(int, read)) == list(expected), name
    assert [committed_offset(servers, f"{group}-group", topic, partition) for partition in range(2)] == [1_000, 1_000]
