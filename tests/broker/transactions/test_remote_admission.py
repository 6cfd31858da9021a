"""The leader of a partition admits a transaction whose coordinator is another broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from broker.transactions.two_brokers import ID_OF, P0, P1, TwoBrokers, run

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.transactions.decisions import Marker
from kafkalake.broker.transactions.requests import ProducerResult
from kafkalake.broker.transactions.transaction_peers import AdmissionRequest
from kafkalake.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    InvalidProducerIdMappingError,
    ProducerFencedError,
    TransactionAbortableError,
)

ID = ID_OF[0]
"""The transactional id: broker 0 coordinates it, broker 1 leads the partition."""


@pytest.fixture
def c(tmp_path: Path) -> TwoBrokers:
    return TwoBrokers(tmp_path)


def answered(*answers: list[object]) -> Callable[[], bool]:
    return lambda: all(answers)


def test_older_clients_add_their_partitions_and_the_coordinator_is_asked_once(c: TwoBrokers) -> None:
    async def scenario() -> None:
        node, other = c.nodes
        producer = node.producer()
        refused = other.admit(ID, producer, add=False)
        await c.go(answered(refused))
        assert refused == [TransactionAbortableError]
        node.add(producer, P1)
        admitted = other.admit(ID, producer, add=False)
        await c.go(answered(admitted))
        assert admitted == [None]
        other.write(producer)
        other.turn()
        sent = len(c.network.sent)
        assert other.admit(ID, producer, add=False) == [None], "the log has its transaction"
        assert len(c.network.sent) == sent

    run(scenario())


def test_partitions_of_newer_clients_are_added_at_the_coordinator(c: TwoBrokers) -> None:
    async def scenario() -> None:
        node, other = c.nodes
        producer = node.producer()
        admitted = other.admit(ID, producer)
        await c.go(answered(admitted))
        assert admitted == [None]
        assert node.coordinator.describe(ID).partitions == (P1,)
        other.write(producer)
        (answer,) = node.end(producer, v2=True)
        await c.go(lambda: node.state == "CompleteCommit")
        assert (other.stable, answer.epoch) == (2, producer.epoch + 1)

    run(scenario())


def test_each_transaction_is_asked_for_again_also_with_the_epoch_of_the_one_before(c: TwoBrokers) -> None:
    async def scenario() -> None:
        node, other = c.nodes
        producer = node.producer()
        for sequence in (0, 1):
            asked = other.admit(ID, producer, add=False)
            await c.go(answered(asked))
            assert asked == [TransactionAbortableError]
            node.add(producer, P1)
            admitted = other.admit(ID, producer, add=False)
            await c.go(answered(admitted))
            assert admitted == [None]
            other.write(producer, sequence)
            node.end(producer)
            await c.go(lambda: node.state == "CompleteCommit")

    run(scenario())


def test_the_next_producer_of_the_same_id_fences_the_one_before(c: TwoBrokers) -> None:
    async def scenario() -> None:
        node, other = c.nodes
        first = node.producer()
        second = node.producer()
        answers = [other.admit(ID, producer) for producer in (first, second, ProducerIdAndEpoch(99, 0))]
        await c.go(answered(*answers))
        assert answers == [[ProducerFencedError], [None], [InvalidProducerIdMappingError]]

    run(scenario())


@pytest.mark.parametrize("script", ["lost", "unanswered"])
def test_without_an_answer_the_client_is_to_try_again(c: TwoBrokers, script: str) -> None:
    async def scenario() -> None:
        node, other = c.nodes
        producer = node.producer()
        c.network.script = [script]
        answers = other.admit(ID, producer)
        await c.go(answered(answers))
        assert answers == [CoordinatorNotAvailableError]
        again = other.admit(ID, producer)
        await c.go(answered(again))
        assert again == [None]

    run(scenario())


@pytest.mark.exhaustive
def test_nobody_waits_for_ever_and_a_late_answer_is_none(c: TwoBrokers) -> None:
    async def scenario() -> None:
        node, other = c.nodes
        producer = node.producer()
        c.network.script = ["late"]
        first, second = other.admit(ID, producer), other.admit(ID, producer)
        await c.settle()
        assert (first, second) == ([], [])
        await c.go(answered(first))
        c.network.release()
        await c.go(answered(second))
        await c.settle()
        assert (first, second) == ([CoordinatorNotAvailableError], [None])

    run(scenario())


def test_a_marker_that_comes_before_the_answer_makes_it_void(c: TwoBrokers) -> None:
    """A batch appended behind it would open a transaction that nothing ends."""

    async def scenario() -> None:
        node, other = c.nodes
        producer = node.producer()
        node.add(producer, P1)
        c.network.script = ["late"]
        answers = other.admit(ID, producer, add=False)
        await c.settle()
        node.end(producer, committed=False)
        await c.go(lambda: node.state == "CompleteAbort")
        c.network.release()
        await c.go(answered(answers))
        assert answers == [ConcurrentTransactionsError]
        again = other.admit(ID, producer, add=False)
        await c.go(answered(again))
        assert again == [TransactionAbortableError]

    run(scenario())


def test_a_queued_marker_ends_what_the_log_still_has_open(c: TwoBrokers) -> None:
    async def scenario() -> None:
        node, other = c.nodes
        producer = node.producer()
        node.add(producer, P1)
        other.write(producer)
        other.turn()
        assert other.admit(ID, producer, add=False) == [None]
        marker = Marker(producer.producer_id, producer.epoch, committed=False)
        other.markers.write(other.partition, marker, 1, lambda error: None)
        answers = other.admit(ID, producer, add=False)
        assert answers == [], "the coordinator is asked"
        other.turn()
        await c.go(answered(answers))

    run(scenario())


def test_the_coordinator_waits_for_the_end_of_the_transaction_before(c: TwoBrokers) -> None:
    async def scenario() -> None:
        node, other = c.nodes
        producer = node.producer()
        node.add(producer, P0)
        node.write(producer)
        node.turn()
        (answer,) = node.end(producer, v2=True)
        next_producer = ProducerIdAndEpoch(answer.producer_id, answer.epoch)
        admitted = other.admit(ID, next_producer)
        await c.go(answered(admitted))
        assert admitted == [None] and node.coordinator.describe(ID).partitions == (P1,)

    run(scenario())


def test_writes_of_one_id_stay_in_order_and_those_of_several_go_together(c: TwoBrokers) -> None:
    async def scenario() -> None:
        node, other = c.nodes
        producer = node.producer()
        others: list[ProducerResult] = []
        names = [name for n in range(40) if node.coordinator.table.partition_of(name := f"app-{n}") == 0 and name != ID]
        for name in names:
            node.coordinator.init_producer_id(name, 60_000, None, others.append)
        c.network.script = ["late"]
        order: list[str] = []
        other.admission.admit(ID, producer, (P1,), lambda results: order.append("first"), add=True)
        await c.settle(5)
        other.admission.admit(ID, producer, (P1,), lambda results: order.append("second"), add=True)
        for name, each in zip(names, others, strict=True):
            made = ProducerIdAndEpoch(each.producer_id, each.epoch)
            other.admission.admit(name, made, (P1,), lambda results: order.append("another"), add=True)
        await c.settle(20)
        assert order == []
        c.network.release()
        await c.go(lambda: len(order) == len(names) + 2)
        assert order[0] == "first" and len(names) > 3
        requests = [
            [one.transactional_id for one in each if isinstance(one, AdmissionRequest)] for each in c.network.sent
        ]
        assert requests == [[ID], [*names, ID]]

    run(scenario())


def test_ids_of_this_broker_are_not_asked_for_elsewhere(c: TwoBrokers) -> None:
    async def scenario() -> None:
        node, other = c.nodes
        producer = other.producer()
        assert other.admit(ID_OF[1], producer) == [None]
        assert other.admit(ID_OF[1], ProducerIdAndEpoch(5, 5)) == [InvalidProducerIdMappingError]
        await asyncio.sleep(0)
        assert not c.network.sent
        remote: list[ErrorClass | None] = []
        node.admission.add(ID_OF[1], producer, (P0,), remote.append)
        assert remote[0] is not None and remote[0].label == "NOT_COORDINATOR", "clients ask the coordinator"

    run(scenario())
