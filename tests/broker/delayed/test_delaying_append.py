"""A batch with records that wait is handed in when its log has it for good, answered then, and a retry is handed in again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from leaderships import LedPartition
from record_batches import Row, record_batch

from kafkalake.broker.delayed.delaying_append import DelayingAppend, Done, HandIn, Received, begin_append
from kafkalake.broker.partitions.append_queue import ProduceRequest
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.pending_append import ACKS_ALL
from kafkalake.config.topic_rules import DelayRules
from kafkalake.delayed_headers import DELAY_MS
from kafkalake.errors import KafkaError, LeaderNotAvailableError, NotEnoughReplicasAfterAppendError
from kafkalake.record import layout as at
from kafkalake.storage.append_group import AppendResult
from kafkalake.topic_partition import PartitionId

NOW: Row = (5, b"k", b"now", [])
LATER: Row = (5, b"k", b"later", [(DELAY_MS, b"100")])
RULES = DelayRules(1_000)


class FakeGate:
    """Keeps what is handed in until the test answers it."""

    def __init__(self) -> None:
        self.handed_in: list[tuple[HandIn, Done]] = []
        self.fails: Callable[[], None] = lambda: None

    def target_of(self, partition: Partition, rules: DelayRules, batch: object) -> PartitionId[UUID]:
        if rules.target == "gone":
            raise LeaderNotAvailableError()
        return partition.replica

    def hand_in(self, hand_in: HandIn, done: Done) -> None:
        self.fails()
        self.handed_in.append((hand_in, done))

    def answer(self, error: KafkaError | None = None) -> None:
        self.handed_in.pop(0)[1](error)


class Producer:
    """Sends batches to the partition of `led`, through a gate of the test."""

    def __init__(self, led: LedPartition, gate: FakeGate) -> None:
        self.led = led
        self.gate = gate
        self.sequence = 0

    def send(
        self,
        *rows: Row,
        acks: int = ACKS_ALL,
        sequence: int | None = None,
        rules: DelayRules | None = RULES,
        flush: bool = True,
    ) -> list[int | str]:
        if sequence is None:
            sequence, self.sequence = self.sequence, self.sequence + len(rows)
        answers: list[int | str] = []
        received = Received(None, 1_000, 30_000)
        pending = begin_append(self.gate, self.led.partition, rules, received, acks)
        pending.decoded(record_batch(list(rows), producer_id=7, epoch=0, sequence=sequence), None)

        def answered(produced: ProduceRequest) -> None:
            result = produced.batches[0].result
            assert isinstance(result, AppendResult | KafkaError)
            answers.append(result.base_offset if isinstance(result, AppendResult) else result.label)

        ProduceRequest([pending], answered).start(self.led.queue)
        if flush:
            self.led.turn()
        return answers


@pytest.fixture
def led(tmp_path: Path) -> LedPartition:
    return LedPartition(tmp_path)


@pytest.fixture
def gate() -> FakeGate:
    return FakeGate()


@pytest.fixture
def producer(led: LedPartition, gate: FakeGate) -> Producer:
    return Producer(led, gate)


def commit(led: LedPartition) -> None:
    for follower in (1, 2):
        led.fetch(follower, led.log.log_end_offset)


def test_a_batch_without_records_that_wait_is_as_any_other(
    led: LedPartition, gate: FakeGate, producer: Producer
) -> None:
    answers = producer.send(NOW, NOW)
    commit(led)
    assert (answers, gate.handed_in) == ([0], [])


@pytest.mark.parametrize("acks", [0, 1, ACKS_ALL])
def test_it_is_handed_in_when_the_log_has_it_for_good_and_answered_then(
    led: LedPartition, gate: FakeGate, producer: Producer, acks: int
) -> None:
    """Else a leader that does not know the batch could take its records for readable ones, when they wait already."""
    assert producer.send(NOW) == [] and producer.send(NOW) == []
    answers = producer.send(NOW, LATER, NOW, acks=acks)
    assert (answers, gate.handed_in) == ([], [])
    commit(led)
    assert answers == []
    gate.answer()
    assert answers == [2]
    assert led.log.log_end_offset == 5, "the place of a record that waits stays empty"


def test_what_is_handed_in_says_where_the_batch_is(led: LedPartition, gate: FakeGate, producer: Producer) -> None:
    producer.send(NOW)
    producer.send(LATER, NOW, LATER)
    commit(led)
    ((hand_in, _),) = gate.handed_in
    assert hand_in.base_offset == 1 and hand_in.source == hand_in.target == led.partition.replica
    assert hand_in.split.rows.column("offset").to_pylist() == [0, 2]
    assert hand_in.split.due.tolist() == [1_100, 1_100]
    header = hand_in.split.immediate.header
    assert [header[each] for each in (at.PRODUCER_ID, at.PRODUCER_EPOCH, at.BASE_SEQUENCE)] == [7, 0, 1]


@pytest.mark.parametrize("acks", [0, 1, ACKS_ALL])
def test_a_retry_is_a_duplicate_in_the_log_and_is_handed_in_again(
    led: LedPartition, gate: FakeGate, producer: Producer, acks: int
) -> None:
    first = producer.send(LATER, NOW, acks=acks)
    commit(led)
    gate.answer(NotEnoughReplicasAfterAppendError())
    assert first == ["NOT_ENOUGH_REPLICAS_AFTER_APPEND"]
    again = producer.send(LATER, NOW, acks=acks, sequence=0)
    assert led.log.log_end_offset == 2 and again == []
    assert gate.handed_in[0][0].base_offset == 0, "so their order is the same"
    gate.answer()
    assert again == [0]
    assert producer.send(NOW, acks=0) == [2], "and the producer's sequence goes on"


@pytest.mark.parametrize("rules", [(RULES, None), (None, RULES)], ids=["disabled", "enabled"])
def test_a_retry_by_other_settings_beside_its_first_try_is_to_come_again(
    led: LedPartition, gate: FakeGate, producer: Producer, rules: tuple[DelayRules | None, DelayRules | None]
) -> None:
    """Both are decoded before the log has either."""
    first = producer.send(LATER, NOW, rules=rules[0], flush=False)
    beside = producer.send(LATER, NOW, rules=rules[1], sequence=0)
    commit(led)
    assert beside == ["NOT_ENOUGH_REPLICAS_AFTER_APPEND"]
    again = producer.send(LATER, NOW, rules=rules[1], sequence=0)
    assert len(gate.handed_in) == (0 if rules[0] is None else 2)
    while gate.handed_in:
        gate.answer()
    assert first == again == [0]


def test_a_batch_that_its_log_refuses_is_not_handed_in(led: LedPartition, gate: FakeGate, producer: Producer) -> None:
    producer.send(NOW)
    assert producer.send(LATER, sequence=5) == ["OUT_OF_ORDER_SEQUENCE_NUMBER"]
    led.set_isr(0)
    assert producer.send(LATER) == ["NOT_ENOUGH_REPLICAS"]
    assert gate.handed_in == []


def test_a_log_that_is_too_late_fails_the_batch_and_the_next_try_is_handed_in(
    led: LedPartition, gate: FakeGate, producer: Producer
) -> None:
    answers = producer.send(LATER)
    led.pass_time(30_001)
    commit(led)
    assert (answers, gate.handed_in) == (["REQUEST_TIMED_OUT"], [])
    again = producer.send(LATER, sequence=0)
    gate.answer()
    assert again == [0]


def test_a_gate_that_raises_fails_its_batch_and_no_other(led: LedPartition, gate: FakeGate, producer: Producer) -> None:
    def fail() -> None:
        raise RuntimeError("of the test")

    gate.fails = fail
    waits, other = producer.send(LATER), producer.send(NOW)
    commit(led)
    assert (waits, other) == (["KAFKA_STORAGE_ERROR"], [1])
    gate.fails = lambda: None
    again = producer.send(LATER, sequence=0)
    gate.answer()
    assert again == [0]


def test_without_a_target_nothing_is_written(led: LedPartition, gate: FakeGate) -> None:
    rules = DelayRules(1_000, 50, "gone")
    pending = DelayingAppend(gate, led.partition, rules, Received(None, 1_000, 30_000), ACKS_ALL)
    with pytest.raises(LeaderNotAvailableError):
        pending.decoded(record_batch([NOW]), None)
    assert led.log.log_end_offset == 0
