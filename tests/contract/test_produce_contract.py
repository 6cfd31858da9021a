"""Produce: what a broker answers to right and wrong batches, the same from kafkalake and Apache Kafka."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer
from contract.wire_client import (
    WireClient,
    batch,
    batch_at_times,
    code,
    create_topic,
    fetch,
    gzipped,
    old_message,
    produce,
    produce_values,
    values_of,
)
from kafka_reference import BrokerProcess
from waiting import wait_until

HOUR_MS = 3_600_000
COORDINATOR_LOAD_IN_PROGRESS = 14


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_appends_and_says_where(client: WireClient, topic: str, version: int) -> None:
    topic_id = create_topic(client, topic)
    values = produce_values(topic, batch([(b"k", b"one"), (None, b"two")]))
    if version >= 13:
        values["topic_data"][0] = {"topic_id": topic_id, "partition_data": values["topic_data"][0]["partition_data"]}
    for base_offset in (0, 2):
        answer = client.call("Produce", version, **values).responses[0].partition_responses[0]
        assert code(answer.error_code) == 0
        assert answer.base_offset == base_offset
        assert answer.log_append_time == -1 or version < 2
    assert values_of(fetch(client, topic, 0).records) == [(0, b"one"), (1, b"two"), (2, b"one"), (3, b"two")]


WRONG = {
    "a wrong checksum": (batch([(None, b"x")], bad_checksum=True), 2),
    "an old message format": (old_message(b"x"), 87),
    "magic 3": (batch([(None, b"x")], magic=3), 2),
    "two batches": (batch([(None, b"x")]) + batch([(None, b"y")]), 87),
    "no batch": (b"", 87),
    "more records claimed than there are": (batch([(None, b"x")], count=2, last_offset_delta=1), 87),
    "offsets that do not fit the records": (batch([(None, b"x")], last_offset_delta=5), 87),
    "a control batch": (batch([(b"\0\0\0\0", b"\0\0\0\0\0\0")], attributes=0x20), 87),
    "a batch that is too large": (batch([(None, bytes(1_100_000))]), 10),
    "a record from the future": (batch([(None, b"x")], timestamp=int(time.time() * 1000) + 3 * HOUR_MS), 32),
    "an unknown codec": (batch([(None, b"x")], attributes=7), None),
    "a producer id without a sequence": (batch([(None, b"x")], producer_id=5, epoch=0), 87),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_batch_is_refused_and_nothing_is_written(client: WireClient, topic: str, wrong: str) -> None:
    records, error = WRONG[wrong]
    create_topic(client, topic)
    answer = produce(client, topic, records)
    assert code(answer.error_code) != 0
    if error is not None:
        assert code(answer.error_code) == error
    assert answer.base_offset == -1
    assert produce(client, topic, batch([(None, b"right")])).base_offset == 0


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete"])
def test_a_compacted_topic_takes_no_record_without_a_key(client: WireClient, topic: str, policy: str) -> None:
    create_topic(client, topic, cleanup_policy=policy)
    error = code(produce(client, topic, batch([(b"k", b"x"), (None, b"y")])).error_code)
    assert error == (0 if policy == "delete" else 87)
    assert code(produce(client, topic, batch([(b"", b"x"), (b"k", None)])).error_code) == 0


def test_a_partition_that_is_not_there(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    assert code(produce(client, topic, batch([(None, b"x")]), partition=7).error_code) == 3
    assert code(produce(client, topic + "-other", batch([(None, b"x")])).error_code) == 3


def test_required_acks_must_be_0_1_or_all(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    assert code(produce(client, topic, batch([(None, b"x")]), acks=2).error_code) == 21


def test_min_insync_replicas_asks_for_no_more_replicas_than_there_are(client: WireClient, topic: str) -> None:
    create_topic(client, topic, 1, min_insync_replicas="2")
    assert code(produce(client, topic, batch([(None, b"x")]), acks=-1).error_code) == 0


def test_without_acks_there_is_no_answer_and_the_records_are_there(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    client.send("Produce", 9, **produce_values(topic, batch([(None, b"a")]), acks=0))
    client.send("Produce", 9, **produce_values(topic, batch([(None, b"b")]), acks=0))
    assert values_of(fetch(client, topic, 0, min_bytes=138).records) == [(0, b"a"), (1, b"b")]


def test_without_acks_an_error_closes_the_connection(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    client.send("Produce", 9, **produce_values(topic, batch([(None, b"a")], bad_checksum=True), acks=0))
    assert client.is_closed()


def test_pipelined_requests_are_answered_in_order(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    sent = [client.send("Produce", 9, **produce_values(topic, batch([(None, b"%d" % n)]))) for n in range(50)]
    for number, correlation_id in enumerate(sent):
        answer = client.receive("Produce", 9, correlation_id)
        assert answer.responses[0].partition_responses[0].base_offset == number


def test_log_append_time_is_in_the_answer_and_in_the_records(client: WireClient, topic: str) -> None:
    create_topic(client, topic, 1, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    answer = produce(client, topic, batch([(None, b"x")], timestamp=1000))
    assert before <= answer.log_append_time <= time.time() * 1000 + 1
    records = fetch(client, topic, 0).records
    assert values_of(records) == [(0, b"x")]
    assert int.from_bytes(records[21:23], "big") & 0x08
    assert int.from_bytes(records[35:43], "big") >= before


class TestIdempotence:
    def send(
        self, client: WireClient, topic: str, producer: int, epoch: int, sequence: int, count: int = 1
    ) -> tuple[int, int]:
        records = batch([(None, b"x")] * count, producer_id=producer, epoch=epoch, sequence=sequence)
        answer = produce(client, topic, records)
        return code(answer.error_code), answer.base_offset

    def producer_id(self, client: WireClient) -> int:
        deadline = time.monotonic() + 20
        while True:
            answer = client.call(
                "InitProducerId", 4, transactional_id=None, transaction_timeout=0, producer_id=-1, producer_epoch=-1
            )
            if code(answer.error_code) != COORDINATOR_LOAD_IN_PROGRESS or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        assert code(answer.error_code) == 0
        assert answer.producer_epoch == 0
        return int(answer.producer_id)

    def test_a_batch_sent_again_gets_its_old_offset(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic)
        producer = self.producer_id(client)
        sent = [self.send(client, topic, producer, 0, 2 * number, 2) for number in range(7)]
        assert sent == [(0, 2 * number) for number in range(7)]
        for number in range(2, 7):
            assert self.send(client, topic, producer, 0, 2 * number, 2) == (0, 2 * number)

    def test_a_gap_and_an_old_duplicate_are_out_of_order(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic)
        producer = self.producer_id(client)
        for number in range(8):
            assert self.send(client, topic, producer, 0, number) == (0, number)
        assert self.send(client, topic, producer, 0, 10)[0] == 45
        assert self.send(client, topic, producer, 0, 0)[0] in (45, 46)
        assert self.send(client, topic, producer, 0, 8) == (0, 8)

    def test_an_old_epoch_is_fenced(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic)
        producer = self.producer_id(client)
        assert self.send(client, topic, producer, 1, 0) == (0, 0)
        assert self.send(client, topic, producer, 0, 1)[0] == 47
        assert self.send(client, topic, producer, 2, 0) == (0, 1)

    def test_producer_ids_are_never_given_twice(self, client: WireClient) -> None:
        ids = [self.producer_id(client) for _ in range(50)]
        assert len(set(ids)) == 50


NO_KEY = (None, b"no key", 0)
KEY = (b"k", b"a key", 0)
LATE = (b"k", b"from the future", 3 * HOUR_MS)
EARLY = (b"k", b"from the past", -3 * HOUR_MS)
RECORD_ERRORS = {
    "two without a key": ("compact", [KEY, NO_KEY, KEY, NO_KEY], 87, [1, 3]),
    "all without a key": ("compact", [NO_KEY] * 12, 87, list(range(12))),
    "one from the future": ("delete", [KEY, LATE, NO_KEY], 32, [1]),
    "one from the past": ("delete", [EARLY, KEY], 32, [0]),
    "one without a key, one from the future": ("compact", [NO_KEY, LATE, KEY], 32, [0, 1]),
    "without a key and from the future": ("compact", [KEY, (None, b"x", 3 * HOUR_MS)], 87, [1]),
    "beyond any time": ("delete", [KEY, (b"k", b"x", 2**61)], 32, [1]),
}


@pytest.mark.parametrize("version", (8, 9, 12))
@pytest.mark.parametrize("case", RECORD_ERRORS)
def test_a_refused_batch_names_the_records_at_fault(client: WireClient, topic: str, case: str, version: int) -> None:
    policy, records, error, faulty = RECORD_ERRORS[case]
    create_topic(client, topic, 1, cleanup_policy=policy, message_timestamp_before_max_ms=str(HOUR_MS))
    answer = produce(client, topic, batch_at_times(records), version=version)
    assert code(answer.error_code) == error
    assert [each.batch_index for each in answer.record_errors] == faulty
    assert answer.error_message.startswith("One or more records have been rejected due to")
    for each in answer.record_errors:
        wrong_key = policy == "compact" and records[each.batch_index][0] is None
        assert ("without key" if wrong_key else "is out of range") in each.batch_index_error_message
    assert fetch(client, topic, 0, max_wait=0).high_watermark == 0


def test_compressed_records_at_fault_are_named_too(client: WireClient, topic: str) -> None:
    create_topic(client, topic, 1, cleanup_policy="compact")
    answer = produce(client, topic, gzipped(batch_at_times([KEY, NO_KEY, KEY])))
    assert (code(answer.error_code), [each.batch_index for each in answer.record_errors]) == (87, [1])


def test_errors_of_the_whole_batch_name_no_record(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    for wrong in ("a wrong checksum", "a control batch", "a batch that is too large"):
        assert produce(client, topic, WRONG[wrong][0]).record_errors == []


def test_a_topic_of_append_times_takes_any_create_time(client: WireClient, topic: str) -> None:
    create_topic(client, topic, 1, message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms="1000")
    assert code(produce(client, topic, batch_at_times([LATE, EARLY])).error_code) == 0


def test_a_client_reports_the_record_at_fault_alone_as_invalid(any_broker: BrokerProcess, topic: str) -> None:
    with WireClient(any_broker.bootstrap_servers) as client:
        create_topic(client, topic, 1, cleanup_policy="compact")
    outcomes: dict[int, str | None] = {}
    producer = Producer({"bootstrap.servers": any_broker.bootstrap_servers, "linger.ms": 2000, "retries": 0})
    for number in range(6):
        producer.produce(
            topic,
            b"x",
            key=None if number in (2, 4) else b"k",
            on_delivery=lambda error, _, number=number: outcomes.update({number: error and error.name()}),
        )

    def is_answered() -> bool:
        producer.poll(0.1)  # not `flush`, which ends the linger and may send each record in a batch of its own
        return len(outcomes) == 6

    wait_until(is_answered, lambda: outcomes)
    assert {number for number, name in outcomes.items() if name == "INVALID_RECORD"} == {2, 4}
    assert {outcomes[number] for number in (0, 1, 3, 5)} == {"_INVALID_DIFFERENT_RECORD"}
