"""`kafkalake transactions` against both brokers, with a librdkafka producer whose transactions hang."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from command_line import Run
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka_reference import BrokerProcess, create_topic
from transactional_clients import ConfluentTransactions, Fenced
from waiting import wait_until

TIMEOUT_S = 30


@pytest.fixture
def transactional_id() -> str:
    return f"id-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def hanging(any_broker: BrokerProcess, topic: str, transactional_id: str) -> Iterator[ConfluentTransactions]:
    """A producer with an open transaction: a record at offset 1 of partition 0 and at offset 0 of partition 1."""
    create_topic(any_broker, topic, partitions=2)
    producer = ConfluentTransactions(any_broker.bootstrap_servers, transactional_id, timeout_ms=50_000)
    other = ConfluentTransactions(any_broker.bootstrap_servers, transactional_id + "-other")
    other.begin()
    other.send(topic, 0, b"x")
    producer.begin()
    producer.send(topic, 0, b"a")
    producer.send(topic, 1, b"b")
    other.commit()
    admin, first = AdminClient({"bootstrap.servers": any_broker.bootstrap_servers}), TopicPartition(topic, 0)

    def stable_end() -> int:
        """Of partition 0; Apache Kafka answers a commit before its marker is written."""
        asked = {first: OffsetSpec.latest()}
        found = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)[first]
        return int(found.result(TIMEOUT_S).offset)

    wait_until(lambda: stable_end() == 1, stable_end)
    yield producer


def producers(on: Run, topic: str, partition: int) -> list[Any]:
    ended = on("transactions", "describe-producers", topic, str(partition), "--json")
    assert (ended.code, ended.stderr) == (0, "")
    return sorted((json.loads(ended.stdout)), key=lambda each: each["currentTransactionStartOffset"] is None)


def state(on: Run, transactional_id: str) -> str:
    return str(json.loads(on("transactions", "describe", transactional_id, "--json").stdout)["transactionState"])


def test_transactions_are_listed_and_described(
    on: Run, hanging: ConfluentTransactions, topic: str, transactional_id: str
) -> None:
    listed = on("transactions", "list")
    header, *rows = (line.split() for line in listed.stdout.splitlines())
    assert header == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    (row,) = [row for row in rows if row[0] == transactional_id]
    assert (row[1], row[3]) == ("0", "Ongoing")

    ongoing = json.loads(on("transactions", "list", "--state", "Ongoing", "--producer-id", row[2], "--json").stdout)
    expected = {"transactionalId": transactional_id, "coordinator": 0, "producerId": int(row[2])}
    assert ongoing == [expected | {"transactionState": "Ongoing"}]
    assert json.loads(on("transactions", "list", "--state", "Empty", "--producer-id", row[2], "--json").stdout) == []
    long = on("transactions", "list", "--duration-filter", "600000", "--json")
    assert transactional_id not in long.stdout

    described = on("transactions", "describe", transactional_id)
    assert (described.code, described.stderr) == (0, "")
    header, values = (line.split() for line in described.stdout.splitlines())
    assert header == [
        "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
    ]  # fmt: skip
    assert values[:6] == ["0", transactional_id, row[2], "0", "Ongoing", "50000"]
    assert abs(int(values[6]) + int(values[7]) - time.time() * 1000) < 60_000
    assert values[8] == f"{topic}-0,{topic}-1"

    hanging.commit()
    deadline = time.monotonic() + TIMEOUT_S
    while state(on, transactional_id) == "PrepareCommit":  # acknowledged, markers are being written
        assert time.monotonic() < deadline
    shown = json.loads(on("transactions", "describe", transactional_id, "--json").stdout)
    assert (shown["transactionState"], shown["topicPartitions"]) == ("CompleteCommit", [])


def test_a_transaction_is_aborted_by_its_transactional_id(
    on: Run, hanging: ConfluentTransactions, topic: str, transactional_id: str
) -> None:
    aborted = on("transactions", "abort", transactional_id, "--json")
    assert aborted.code == 0, aborted
    assert json.loads(aborted.stdout)["aborted"]["transactionalId"] == transactional_id
    for partition in range(2):
        assert not any(each["currentTransactionStartOffset"] is not None for each in producers(on, topic, partition))
    with pytest.raises(Fenced):
        hanging.commit()
    again = on("transactions", "abort", transactional_id)
    assert (again.code, again.stdout) == (1, "")
    assert "no open transaction" in again.stderr


def test_a_transaction_is_aborted_in_a_partition_by_the_offset_that_it_starts_at(
    on: Run, hanging: ConfluentTransactions, topic: str
) -> None:
    missed = on("transactions", "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert (missed.code, missed.stdout) == (1, "")
    assert "open ones begin at 1" in missed.stderr
    aborted = on("transactions", "abort", "--topic", topic, "--partition", "0", "--start-offset", "1")
    assert aborted.code == 0, aborted
    assert aborted.stdout.startswith(f"Aborted topic {topic}, partition 0, producerId ")
    assert [each["currentTransactionStartOffset"] for each in producers(on, topic, 0)] == [None, None]
    assert [each["currentTransactionStartOffset"] for each in producers(on, topic, 1)] == [0]


def test_a_transaction_is_aborted_in_a_partition_by_its_producer(
    on: Run, hanging: ConfluentTransactions, topic: str
) -> None:
    (found,) = producers(on, topic, 1)
    assert (found["producerEpoch"], found["lastSequence"], found["currentTransactionStartOffset"]) == (0, 0, 0)
    who = ["--producer-id", str(found["producerId"]), "--producer-epoch", "0", "--coordinator-epoch", "0"]
    aborted = on("transactions", "abort", "--topic", topic, "--partition", "1", *who)
    assert aborted.code == 0, aborted
    assert [each["currentTransactionStartOffset"] for each in producers(on, topic, 1)] == [None]
    header, row = on("transactions", "describe-producers", topic, "1").stdout.splitlines()
    assert header.split() == [
        "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
        "CurrentTransactionStartOffset",
    ]  # fmt: skip
    assert row.split()[-1] == "None"


def test_what_is_not_there_is_said(on: Run, any_broker: BrokerProcess, topic: str, transactional_id: str) -> None:
    for command in ("describe", "abort"):
        ended = on("transactions", command, transactional_id)
        assert (ended.code, ended.stdout) == (1, "")
        assert transactional_id in ended.stderr
    missing = on("transactions", "describe-producers", topic, "0")
    assert (missing.code, missing.stdout) == (1, "")
    assert "does not exist" in missing.stderr


def test_wrong_use_is_said(kafkalake: Run, topic: str) -> None:
    for arguments in (
        [],
        ["some-id", "--start-offset", "3"],
        ["some-id", "--topic", topic],
        ["--start-offset", "3"],
        ["--topic", topic, "--partition", "0", "--producer-id", "7"],
    ):
        assert kafkalake("transactions", "abort", *arguments).code == 2, arguments
