"""Requests that meet a step under way wait for its end, in order, and not for ever."""

from __future__ import annotations

from typing import Any

import pytest
from broker.transactions.our_world import ID, Cluster
from no_transaction_peers import NoTransactionPeers

from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.partitions.topics import Topics
from kafkalake.broker.transactions.admission import Admission
from kafkalake.broker.transactions.remote_admission import MarkerWatch, RemoteAdmission
from kafkalake.cluster.image import ClusterImage
from kafkalake.errors import (
    ConcurrentTransactionsError,
    KafkaError,
    NotCoordinatorError,
    ProducerFencedError,
    TransactionAbortableError,
)

A, B, C = ("clicks", 0), ("clicks", 1), ("clicks", 2)


class World:
    """A coordinator whose journal answers when it is told to, and what was answered, in order."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        (made,) = self.cluster.init()
        self.producer = ProducerIdAndEpoch(made.producer_id, made.epoch)
        timers, watch = self.cluster.timers, MarkerWatch()
        remote = RemoteAdmission(Topics(ClusterImage("")), NoTransactionPeers(), timers, watch, 1_000)
        self.admission = Admission(self.cluster.coordinator, timers, remote, lambda transactional_id: None)
        self.answers: list[Any] = []

    def admit(self, *partitions: tuple[str, int], add: bool = True, producer: ProducerIdAndEpoch | None = None) -> None:
        self.admission.admit(
            ID,
            producer or self.producer,
            partitions,
            lambda results: self.answers.append(tuple(results.values())),
            add=add,
        )


@pytest.fixture
def w() -> World:
    return World()


def journal_batches(w: World) -> int:
    return sum(len(batches) for batches in w.cluster.journal.batches.values())


def test_partitions_are_added_once_and_then_known(w: World) -> None:
    w.admit(A)
    batches = journal_batches(w)
    w.admit(A)
    assert w.answers == [(None,), (None,)]
    assert journal_batches(w) == batches


def test_requests_wait_for_the_step_before_them_and_keep_their_order(w: World) -> None:
    w.cluster.journal.hold = True
    w.admit(A)
    w.admit(B)
    w.admit(B, C)
    assert w.answers == []
    for _ in range(3):
        w.cluster.journal.release()
    assert w.answers == [(None,), (None,), (None, None)]
    assert w.cluster.coordinator.describe(ID).partitions == (A, B, C)


def test_the_next_transaction_begins_when_the_last_marker_is_written(w: World) -> None:
    w.admit(A)
    w.cluster.logs.hold = True
    (ended,) = w.cluster.end(w.producer, committed=True, v2=True)
    w.admit(B, producer=ProducerIdAndEpoch(ended.producer_id, ended.epoch))
    assert w.answers == [(None,)]
    w.cluster.logs.release()
    assert w.answers == [(None,), (None,)]
    assert w.cluster.coordinator.describe(ID).partitions == (B,)


def test_nobody_waits_for_ever(w: World) -> None:
    w.admit(A)
    w.cluster.logs.hold = True
    (ended,) = w.cluster.end(w.producer, committed=True, v2=True)
    w.admit(B, producer=ProducerIdAndEpoch(ended.producer_id, ended.epoch))
    w.cluster.advance(200)
    assert w.answers == [(None,), (ConcurrentTransactionsError,)]
    w.cluster.logs.release()
    assert len(w.answers) == 2
    assert w.cluster.coordinator.describe(ID).partitions == ()


def test_who_has_waited_in_vain_is_forgotten_however_long_the_step_takes(w: World) -> None:
    w.admit(A)
    w.cluster.logs.hold = True
    (ended,) = w.cluster.end(w.producer, committed=True, v2=True)
    for _ in range(3):
        w.admit(B, producer=ProducerIdAndEpoch(ended.producer_id, ended.epoch))
        w.cluster.advance(200)
    assert w.answers[1:] == 3 * [(ConcurrentTransactionsError,)]
    entry = w.cluster.coordinator.table.find(ID)
    assert entry is not None and not entry.waiting


def test_an_ending_transaction_takes_no_more(w: World) -> None:
    w.admit(A)
    w.cluster.journal.hold = True
    w.cluster.end(w.producer, committed=True)
    w.admit(A)
    assert len(w.answers) == 1
    w.cluster.journal.hold = False
    w.cluster.journal.release()
    w.cluster.advance(200)
    assert w.answers[1:] in ([(ProducerFencedError,)], [(None,)])


def test_older_clients_add_their_partitions_themselves(w: World) -> None:
    w.admit(A, add=False)
    assert w.answers == [(TransactionAbortableError,)]
    w.cluster.add(w.producer, A)
    w.admit(A, add=False)
    w.admit(A, B, add=False)
    assert w.answers[1:] == [(None,), (None, TransactionAbortableError)]


def test_a_later_request_does_not_overtake_one_that_adds_another_partition(w: World) -> None:
    """Both have batches for partition A, numbered in the order in which they came."""
    w.admit(A)
    w.cluster.journal.hold = True
    w.admit(A, B)
    w.admit(A)
    assert w.answers == [(None,)]
    w.cluster.journal.release()
    assert w.answers == [(None,), (None, None), (None,)]
    w.admit(A)
    assert len(w.answers) == 4, "nobody waits any more"


@pytest.mark.exhaustive
def test_many_requests_wait_for_one_step(w: World) -> None:
    w.cluster.journal.hold = True
    for _ in range(5_000):
        w.admit(A)
    w.admit(B)
    assert w.answers == []
    w.cluster.journal.release()
    w.cluster.journal.release()
    assert w.answers == [(None,)] * 5_001


def fails(*arguments: object, **options: object) -> None:
    raise RuntimeError("on purpose")


def test_an_unexpected_error_is_answered_and_the_next_request_goes_on(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    w.cluster.journal.hold = True
    w.admit(A)
    w.admit(B)
    monkeypatch.setattr(w.cluster.coordinator, "add_partitions", fails)
    w.admit(C)
    w.cluster.journal.release()
    assert w.answers == [(None,), (KafkaError,), (KafkaError,)]
    monkeypatch.undo()
    w.cluster.journal.hold = False
    w.admit(C)
    assert w.answers[3:] == [(None,)]


def test_an_unexpected_error_after_a_step_is_answered(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    w.admit(A)
    w.cluster.logs.hold = True
    (ended,) = w.cluster.end(w.producer, committed=True, v2=True)
    producer = ProducerIdAndEpoch(ended.producer_id, ended.epoch)
    w.admit(B, producer=producer)
    added: list[Any] = []
    w.admission.add(ID, producer, [C], added.append)
    monkeypatch.setattr(w.cluster.coordinator, "add_partitions", fails)
    w.cluster.logs.release()
    assert (w.answers[1:], added) == ([(KafkaError,)], [KafkaError])
    monkeypatch.undo()
    w.admit(B, producer=producer)
    assert w.answers[2:] == [(None,)]
    w.cluster.advance(300)
    assert (len(w.answers), len(added)) == (3, 1), "each is answered once"


def test_who_waits_for_a_step_hears_of_the_end_of_the_coordinator(w: World) -> None:
    w.admit(A)
    w.cluster.logs.hold = True
    (ended,) = w.cluster.end(w.producer, committed=True, v2=True)
    w.admit(B, producer=ProducerIdAndEpoch(ended.producer_id, ended.epoch))
    called: list[None] = []
    w.cluster.coordinator.when_between_steps(ID, called.append)
    for partition in w.cluster.coordinator.table.partitions:
        w.cluster.coordinator.journaled.unload(partition)
    assert called == [None]
    assert w.answers[1:] == [(NotCoordinatorError,)]
