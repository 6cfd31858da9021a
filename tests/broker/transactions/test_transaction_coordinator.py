"""The transaction coordinator by tables of events: crashes between the phases, times that run out, refusals, the last epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from broker.transactions.our_world import ID, Cluster, Crashed
from steps import count_steps, run_steps

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.transactions.coordinator import LISTED_MAX
from kafkalake.broker.transactions.decisions import FaultPoint, Marker
from kafkalake.broker.transactions.ending import EPOCH_LAST, EPOCH_MAX, EndRequest
from kafkalake.broker.transactions.expiry import RETRY_MS, TOMBSTONES_MAX
from kafkalake.broker.transactions.records import TransactionRecord, encode
from kafkalake.broker.transactions.requests import ProducerResult, TransactionFilter, TransactionList
from kafkalake.broker.transactions.starting import pass_over
from kafkalake.broker.transactions.states import State
from kafkalake.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    KafkaError,
    KafkaStorageError,
    MessageTooLargeError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    ProducerFencedError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
)

P0, P1 = ("clicks", 0), ("views", 1)

# Fault point -> whether the transaction's end survives a crash there.
CRASHES = {
    FaultPoint.BEFORE_PREPARE: False,
    FaultPoint.PREPARED: True,
    FaultPoint.BEFORE_MARKER: True,
    FaultPoint.MARKER_WRITTEN: True,
    FaultPoint.ALL_MARKERS_WRITTEN: True,
    FaultPoint.COMPLETED: True,
}


@pytest.mark.parametrize("v2", [False, True], ids=["older client", "version 2"])
@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("point", CRASHES, ids=lambda point: point.value)
def test_after_a_crash_at_each_point_every_partition_has_the_marker(
    point: FaultPoint, committed: bool, v2: bool
) -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add(producer, P0, P1, v2=v2)
    cluster.crash_at = point
    with pytest.raises(Crashed):
        cluster.end(producer, committed=committed, v2=v2)
    cluster.start()
    assert (cluster.state != "Ongoing") == CRASHES[point]
    again = cluster.end(producer, committed=committed, v2=v2)  # the client did not hear, or does not mind
    epoch = producer.epoch + v2
    assert again == [ProducerResult(None, producer.producer_id, epoch)]
    assert cluster.state == ("CompleteCommit" if committed else "CompleteAbort")
    for partition in (P0, P1):
        assert set(cluster.logs.markers[partition]) == {Marker(producer.producer_id, epoch, committed)}
    cluster.start()
    assert cluster.add(ProducerIdAndEpoch(producer.producer_id, epoch), P0, v2=v2) == [None]


def test_nothing_is_true_before_the_journal_has_it() -> None:
    cluster = Cluster()
    cluster.journal.hold = True
    first = cluster.init()
    assert first == []
    assert cluster.init() == [ProducerResult(ConcurrentTransactionsError)]
    with pytest.raises(TransactionalIdNotFoundError):
        cluster.coordinator.describe(ID)
    cluster.journal.release()
    producer = ProducerIdAndEpoch(first[0].producer_id, first[0].epoch)
    added = cluster.add(producer, P0)
    assert added == []
    assert cluster.add(producer, P1) == [ConcurrentTransactionsError]
    cluster.journal.release()
    assert added == [None]
    ended = cluster.end(producer, committed=True)
    assert ended == [] and cluster.state == "Ongoing" and not cluster.logs.markers
    assert cluster.end(producer, committed=True) == [ProducerResult(ConcurrentTransactionsError)]
    cluster.journal.release()
    assert ended[0].error is None and cluster.state == "PrepareCommit"
    assert cluster.end(producer, committed=True) == [ProducerResult(ConcurrentTransactionsError)]
    cluster.journal.release()
    assert cluster.state == "CompleteCommit"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KafkaStorageError(), NotCoordinatorError),
        (NotLeaderOrFollowerError(), NotCoordinatorError),
        (MessageTooLargeError(), KafkaError),
    ],
)
def test_what_the_journal_does_not_take_has_not_happened(error: KafkaError, told: ErrorClass) -> None:
    cluster = Cluster()
    cluster.journal.fail_next = error
    assert cluster.init() == [ProducerResult(told)]
    assert len(cluster.coordinator.table) == 0
    producer = cluster.producer()
    cluster.journal.fail_next = error
    assert cluster.add(producer, P0) == [told]
    assert cluster.state == "Empty"
    cluster.add(producer, P0)
    cluster.journal.fail_next = error
    assert cluster.end(producer, committed=True) == [ProducerResult(told)]
    assert cluster.state == "Ongoing" and not cluster.logs.markers
    assert cluster.end(producer, committed=True)[0].error is None


def test_a_completion_that_cannot_be_written_is_tried_again() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add(producer, P0)
    cluster.logs.hold = True
    cluster.end(producer, committed=True)
    cluster.journal.fail_next = KafkaStorageError()
    cluster.logs.release()
    assert cluster.state == "PrepareCommit"
    cluster.advance(200)
    assert cluster.state == "CompleteCommit"
    assert len(cluster.logs.markers[P0]) == 1


def test_a_marker_is_written_again_until_its_partition_takes_it() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add(producer, P0, P1)
    cluster.logs.refuse[P1] = [NotLeaderOrFollowerError, KafkaStorageError]
    cluster.end(producer, committed=True)
    assert cluster.coordinator.describe(ID).partitions == (P1,)
    assert cluster.init() == [ProducerResult(ConcurrentTransactionsError)]
    cluster.advance(500)
    assert cluster.state == "CompleteCommit"
    assert [len(cluster.logs.markers[one]) for one in (P0, P1)] == [1, 1]


def test_a_partition_that_is_gone_needs_no_marker() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add(producer, P0, P1)
    cluster.logs.refuse[P1] = [UnknownTopicOrPartitionError]
    cluster.end(producer, committed=True)
    assert cluster.state == "CompleteCommit"


def test_a_coordinator_that_was_replaced_stops() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add(producer, P0)
    cluster.logs.refuse[P0] = [InvalidProducerEpochError]
    cluster.end(producer, committed=True)
    cluster.advance(1_000)
    assert cluster.state == "PrepareCommit" and not cluster.logs.markers


@pytest.mark.parametrize("v2", [False, True])
def test_a_transaction_that_hangs_is_aborted_and_its_producer_fenced(v2: bool) -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.advance(100_000)
    cluster.add(producer, P0, v2=v2)
    cluster.advance(30_000)
    cluster.add(producer, P1, v2=v2)
    cluster.advance(29_000)
    assert cluster.state == "Ongoing"
    cluster.advance(1_100)
    assert cluster.state == "CompleteAbort"
    assert cluster.logs.markers[P1] == [Marker(producer.producer_id, producer.epoch + 1, False)]
    assert cluster.end(producer, committed=True)[0].error is ProducerFencedError
    assert cluster.add(producer, P0, v2=v2) == [ProducerFencedError]
    assert cluster.init(producer)[0].error is None  # the same producer may go on (KIP-360)


def test_a_transaction_that_hung_while_no_coordinator_ran_is_aborted() -> None:
    cluster = Cluster()
    cluster.add(cluster.producer(), P0)
    cluster.clock.advance(3_600_000)
    cluster.start()
    cluster.advance(100)
    assert cluster.state == "CompleteAbort"


def test_a_timeout_while_the_journal_is_slow_or_failing_comes_later() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add(producer, P0)
    cluster.advance(59_900)
    cluster.journal.hold = True
    added = cluster.add(producer, P1)
    cluster.advance(1_000)
    cluster.journal.hold = False
    cluster.journal.release()
    assert added == [None] and cluster.state == "Ongoing"
    cluster.journal.fail_next = KafkaStorageError()
    cluster.advance(500)
    assert cluster.state == "CompleteAbort"


@pytest.mark.parametrize("hindrance", ["the journal is slow", "the wall clock went back"])
def test_a_short_timeout_is_not_looked_at_a_thousand_times_a_second(
    hindrance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster()
    started = cluster.init(timeout_ms=1)[0]
    producer = ProducerIdAndEpoch(started.producer_id, started.epoch)
    cluster.add(producer, P0)
    if hindrance == "the journal is slow":
        cluster.journal.hold = True
        cluster.add(producer, P1)
    else:
        cluster.clock.jump(-3_600_000)
    looks: list[int] = []
    schedule = cluster.timers.schedule

    def counted(delay_ms: int, action: Callable[[], None]) -> object:
        looks.append(delay_ms)
        return schedule(delay_ms, action)

    monkeypatch.setattr(cluster.timers, "schedule", counted)
    cluster.advance(1_000, step_ms=1)
    assert 5 <= len(looks) <= 11
    assert cluster.state == "Ongoing"
    if hindrance == "the journal is slow":
        cluster.journal.hold = False
        cluster.journal.release()
    else:
        cluster.clock.jump(3_600_000)
    cluster.advance(200)
    assert cluster.state == "CompleteAbort"


def with_epoch(epoch: int) -> tuple[Cluster, ProducerIdAndEpoch]:
    """A producer that has come to `epoch`, as the journal says."""
    cluster = Cluster()
    producer = cluster.producer()
    partition = cluster.coordinator.table.check(ID)
    entry = cluster.coordinator.table.find(ID)
    assert entry is not None and entry.transaction.current is not None
    record = replace(entry.transaction.current, epoch=epoch)
    cluster.journal.append(partition, [encode(record)], 0, None, lambda position, error: None)
    cluster.start()
    return cluster, ProducerIdAndEpoch(producer.producer_id, epoch)


def test_after_the_last_epoch_comes_another_producer_id() -> None:
    cluster, producer = with_epoch(EPOCH_LAST)
    fresh = cluster.init(producer)[0]
    assert fresh.error is None and fresh.producer_id != producer.producer_id and fresh.epoch == 0
    assert cluster.init(producer) == [fresh], "the answer was lost"
    assert cluster.add(producer, P0) == [InvalidProducerIdMappingError]


def test_a_producer_with_the_last_epoch_can_be_fenced() -> None:
    cluster, producer = with_epoch(EPOCH_LAST)
    cluster.add(producer, P0)
    assert cluster.init()[0].error is ConcurrentTransactionsError
    assert cluster.logs.markers[P0] == [Marker(producer.producer_id, EPOCH_MAX, False)]
    stolen = ProducerIdAndEpoch(producer.producer_id, EPOCH_MAX)
    assert cluster.add(stolen, P0) == [ProducerFencedError]
    assert cluster.end(stolen, committed=False, v2=True)[0].error is ProducerFencedError
    fresh = cluster.init()[0]
    assert fresh.producer_id != producer.producer_id and fresh.epoch == 0


def test_a_producer_whose_transaction_in_the_last_epoch_timed_out_goes_on_with_another_producer_id() -> None:
    """The epoch that fenced it is given to nobody: there is none after it."""
    cluster, producer = with_epoch(EPOCH_LAST)
    cluster.add(producer, P0)
    cluster.advance(120_000)
    assert cluster.logs.markers[P0] == [Marker(producer.producer_id, EPOCH_MAX, False)]
    fresh = cluster.init(producer)[0]
    assert fresh.error is None and fresh.producer_id != producer.producer_id and fresh.epoch == 0
    assert cluster.init(producer) == [fresh], "the answer was lost"
    assert cluster.add(ProducerIdAndEpoch(fresh.producer_id, 0), P0) == [None]


@pytest.mark.parametrize("point", [None, FaultPoint.PREPARED, FaultPoint.MARKER_WRITTEN, FaultPoint.COMPLETED])
def test_a_version_2_transaction_in_the_last_epoch_ends_with_another_producer_id(point: FaultPoint | None) -> None:
    cluster, producer = with_epoch(EPOCH_LAST)
    cluster.add(producer, P0, v2=True)
    if point is None:
        fresh = cluster.end(producer, committed=True, v2=True)[0]
    else:
        cluster.crash_at = point
        with pytest.raises(Crashed):
            cluster.end(producer, committed=True, v2=True)
        cluster.start()
        fresh = cluster.end(producer, committed=True, v2=True)[0]
    assert fresh.error is None and fresh.producer_id != producer.producer_id and fresh.epoch == 0
    assert cluster.end(producer, committed=True, v2=True) == [fresh]
    assert cluster.logs.markers[P0][0] == Marker(producer.producer_id, EPOCH_MAX, True)
    assert cluster.add(ProducerIdAndEpoch(fresh.producer_id, 0), P0, v2=True) == [None]


def test_a_producer_with_its_next_producer_id_waits_for_the_markers_of_the_last_epoch() -> None:
    """A client of version 2 begins its next transaction as soon as the outcome of the one before is decided."""
    cluster, producer = with_epoch(EPOCH_LAST)
    cluster.add(producer, P0, v2=True)
    cluster.logs.hold = True
    (ended,) = cluster.end(producer, committed=True, v2=True)
    fresh = ProducerIdAndEpoch(ended.producer_id, ended.epoch)
    assert fresh.producer_id != producer.producer_id and cluster.state == "PrepareCommit"
    assert cluster.add(fresh, P0, v2=True) == [ConcurrentTransactionsError]
    assert cluster.init(fresh) == [ProducerResult(ConcurrentTransactionsError)]
    cluster.logs.release()
    assert cluster.add(fresh, P0, v2=True) == [None]


def test_an_id_that_nobody_uses_expires() -> None:
    cluster = Cluster(transactional_id_expiration_ms=10_000, transaction_max_timeout_ms=900_000)
    producer = cluster.producer()
    cluster.advance(9_000)
    cluster.add(producer, P0)
    cluster.advance(11_000)
    cluster.expiry.expire()
    assert cluster.state == "Ongoing"
    cluster.end(producer, committed=True)
    cluster.advance(9_000)
    cluster.expiry.expire()
    assert cluster.state == "CompleteCommit"
    cluster.advance(2_000)
    cluster.expiry.expire()
    assert len(cluster.coordinator.table) == 0
    assert cluster.add(producer, P0) == [InvalidProducerIdMappingError]
    cluster.start()
    assert len(cluster.coordinator.table) == 0


def test_ids_that_expire_together_are_removed_a_bounded_number_at_a_time() -> None:
    """A job may take another id for each of its runs. The event loop has to go on meanwhile."""
    cluster = Cluster(transactional_id_expiration_ms=1_000)
    ids = 3 * TOMBSTONES_MAX
    for number in range(ids):
        cluster.init(name=f"run-{number}")
    cluster.clock.advance(2_000)
    cluster.journal.hold = True
    cluster.expiry.expire()
    while len(cluster.coordinator.table):
        before = len(cluster.coordinator.table)
        cluster.advance(RETRY_MS)
        cluster.expiry.expire()  # the next look comes, and waits for the end of this one
        cluster.journal.release()
        assert 0 < before - len(cluster.coordinator.table) <= TOMBSTONES_MAX


def test_what_is_coordinated_elsewhere_does_not_expire_here() -> None:
    cluster = Cluster(transactional_id_expiration_ms=1_000)
    for number in range(2 * TOMBSTONES_MAX):
        cluster.init(name=f"run-{number}")
    cluster.clock.advance(2_000)
    cluster.journal.hold = True
    cluster.expiry.expire()
    for partition in range(cluster.journal.partitions):
        cluster.coordinator.journaled.unload(partition)
    cluster.journal.fail_next = NotLeaderOrFollowerError()
    cluster.journal.release()
    written = sum(cluster.journal.ends.values())
    cluster.advance(10 * RETRY_MS)
    cluster.journal.release()
    assert sum(cluster.journal.ends.values()) == written


@pytest.mark.parametrize("attempts", [1, 3])
def test_an_expiry_that_cannot_be_written_is_left_to_the_next_look(attempts: int) -> None:
    cluster = Cluster(transactional_id_expiration_ms=1_000)
    cluster.init()
    cluster.clock.advance(2_000)
    for _ in range(attempts):
        cluster.journal.fail_next = KafkaStorageError()
        cluster.expiry.expire()
        assert cluster.state == "Empty"
    cluster.expiry.expire()
    assert len(cluster.coordinator.table) == 0


def test_listing() -> None:
    cluster = Cluster()
    open_producer = cluster.producer()
    cluster.add(open_producer, P0)
    cluster.init(name="app-2")
    cluster.advance(5_000)

    def listed(wanted: TransactionFilter) -> TransactionList:
        return run_steps(cluster.coordinator.list_transactions(wanted))

    def names(**wanted: object) -> list[str]:
        return sorted(one.transactional_id for one in listed(TransactionFilter(**wanted)).transactions)  # type: ignore[arg-type]

    assert names() == [ID, "app-2"]
    assert names(states=frozenset({"Ongoing", "Odd"})) == [ID]
    assert listed(TransactionFilter(states=frozenset({"Odd"}))).unknown_states == ("Odd",)
    assert names(producer_ids=frozenset({open_producer.producer_id})) == [ID]
    assert names(duration_ms=6_000, states=frozenset({"Ongoing"})) == []
    assert names(duration_ms=4_000, states=frozenset({"Ongoing"})) == [ID]
    assert names(pattern="app-[2-9]") == ["app-2"]
    with pytest.raises(InvalidRegularExpressionError):
        listed(TransactionFilter(pattern="("))


@pytest.mark.parametrize(("ids", "length", "in_a_step"), [(1_000, 10, LISTED_MAX), (30, 10_000, 4)])
def test_a_list_of_many_or_long_ids_is_made_in_steps(ids: int, length: int, in_a_step: int) -> None:
    cluster = Cluster()
    for number in range(ids):
        cluster.init(name=f"{number}".rjust(length, "i"))
    for wanted in (TransactionFilter(), TransactionFilter(pattern="i+[0-9]+"), TransactionFilter(pattern="no")):
        steps, found = count_steps(cluster.coordinator.list_transactions(wanted))
        assert len(found.transactions) == (0 if wanted.pattern == "no" else ids)
        assert steps >= ids / in_a_step


def test_requests_that_are_not_for_us() -> None:
    cluster = Cluster()
    cluster.coordinator.journaled.unload(cluster.coordinator.table.check(ID))
    producer = ProducerIdAndEpoch(1, 0)
    assert cluster.init() == [ProducerResult(NotCoordinatorError)]
    assert cluster.add(producer, P0) == [NotCoordinatorError]
    with pytest.raises(NotCoordinatorError):
        cluster.coordinator.describe(ID)
    with pytest.raises(InvalidRequestError):
        cluster.coordinator.describe("")
    assert cluster.init(name="") == [ProducerResult(InvalidRequestError)]
    cluster.coordinator.journaled.begin_load(next(p for p in range(3) if p not in cluster.coordinator.table.partitions))
    assert cluster.init() == [ProducerResult(CoordinatorLoadInProgressError)]
    with pytest.raises(CoordinatorLoadInProgressError):
        run_steps(cluster.coordinator.list_transactions(TransactionFilter()))


def test_who_waits_when_the_partition_goes_is_sent_away() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add(producer, P0)
    cluster.journal.hold = True
    answers: list[ProducerResult] = []
    cluster.coordinator.end(ID, EndRequest(producer, True, False), answers.append)
    cluster.coordinator.journaled.unload(cluster.coordinator.table.check(ID))
    assert answers == [ProducerResult(NotCoordinatorError)]
    cluster.journal.release()
    assert len(answers) == 1 and not cluster.logs.markers


def test_what_was_published_and_the_journal_behind_it_are_the_whole_truth() -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add(producer, P0)
    changes = cluster.coordinator.table.take_changes()
    assert [row.transactional_id for row in changes.rows] == [ID]
    assert cluster.coordinator.table.take_changes().rows == []
    cluster.coordinator.table.put_back(changes)
    changes = cluster.coordinator.table.take_changes()
    cluster.start(changes)
    assert cluster.state == "Ongoing"
    assert cluster.end(producer, committed=True)[0].error is None
    cluster.start(changes)
    assert cluster.state == "CompleteCommit"


@pytest.mark.parametrize(
    ("state", "epoch", "lost", "then"),
    [
        (State.EMPTY, 3, 2, (State.EMPTY, 7, 5)),
        (State.COMPLETE_COMMIT, 3, 1, (State.EMPTY, 7, 4)),
        (State.COMPLETE_ABORT, EPOCH_LAST - 1, 2, (State.EMPTY, 8, 0)),
        (State.ONGOING, 3, 2, (State.PREPARE_ABORT, 7, 5)),
        (State.ONGOING, EPOCH_LAST, 9, (State.PREPARE_ABORT, 7, EPOCH_MAX)),
    ],
)
def test_epochs_that_lost_records_may_have_given_are_given_to_nobody(
    state: State, epoch: int, lost: int, then: tuple[State, int, int]
) -> None:
    record = pass_over(TransactionRecord(ID, 7, epoch, 60_000, state), lost, 1_000, lambda: 8)
    assert (record.state, record.producer_id, record.epoch) == then


@pytest.mark.parametrize("is_open", [False, True], ids=["settled", "open"])
def test_epochs_are_passed_over_once_the_journal_takes_that(is_open: bool) -> None:
    cluster = Cluster()
    producer = cluster.producer()
    if is_open:
        cluster.add(producer, P0)
    cluster.journal.fail_next = KafkaStorageError()
    cluster.start(lost=[range(50, 53)])
    assert cluster.init() == [ProducerResult(ConcurrentTransactionsError)]
    cluster.journal.fail_next = KafkaStorageError()
    cluster.advance(3 * cluster.config.retry_ms)
    assert cluster.journal.fail_next is None
    (restarted,) = cluster.init()
    assert (restarted.error, restarted.producer_id, restarted.epoch) == (None, producer.producer_id, producer.epoch + 4)


@pytest.mark.parametrize("v2", [False, True], ids=["older client", "version 2"])
def test_epochs_are_passed_over_once_and_not_with_each_later_transaction(v2: bool) -> None:
    cluster = Cluster()
    producer = cluster.producer()
    cluster.add(producer, P0, v2=v2)
    cluster.crash_at = FaultPoint.PREPARED
    with pytest.raises(Crashed):
        cluster.end(producer, committed=True, v2=v2)
    cluster.start(lost=[range(50, 53)])
    for _ in range(2):
        (started,) = cluster.init()
        for _ in range(2):
            producer = ProducerIdAndEpoch(started.producer_id, started.epoch)
            assert cluster.add(producer, P0, v2=v2) == [None]
            (started,) = cluster.end(producer, committed=True, v2=v2)
            assert started.error is None


def test_epochs_are_passed_over_once_there_are_producer_ids_again() -> None:
    cluster = Cluster()
    epoch = EPOCH_LAST - 1
    cluster.journal.append(0, [encode(TransactionRecord(ID, 7, epoch, 60_000, State.EMPTY))], 0, None, lambda *_: None)
    cluster.producer_id_errors = [CoordinatorNotAvailableError()] * 2
    cluster.start(lost=[range(50, 53)])
    assert cluster.init() == [ProducerResult(ConcurrentTransactionsError)]
    cluster.advance(3 * cluster.config.retry_ms)
    assert cluster.init() == [ProducerResult(None, 1000, 1)]


def test_transactional_ids_have_a_limit() -> None:
    cluster = Cluster(transactional_ids_max=2)
    for name in ("a", "b"):
        assert cluster.init(name=name)[0].error is None
    assert cluster.init(name="c")[0].error is CoordinatorNotAvailableError
    assert cluster.init(name="a")[0].error is None


@pytest.mark.exhaustive
def test_long_transactional_ids_have_a_limit_in_sum() -> None:
    cluster = Cluster(transactional_ids_max_bytes=1_000_000)
    names = [f"{number}".rjust(30_000, "x") for number in range(1_000)]
    errors = [cluster.init(name=name)[0].error for name in names]
    assert set(errors[:33]) == {None}
    assert set(errors[33:]) == {CoordinatorNotAvailableError}
    assert cluster.init(name=names[0])[0].error is None
