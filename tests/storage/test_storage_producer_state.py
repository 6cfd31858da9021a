"""Producer state as tables: what was appended, what is asked, what is answered."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalake.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from kafkalake.record.sequences import SEQUENCE_MAX, advance_sequence, is_before
from kafkalake.storage import producer_state
from kafkalake.storage.producer_state import (
    ABORT,
    COMMIT,
    AbortedTransaction,
    Attempt,
    EndMarker,
    PendingProducers,
    Producers,
    aborted_among,
)

TOP = SEQUENCE_MAX


def producers_after(*attempts: Attempt) -> Producers:
    producers, offset = Producers(), 0
    for attempt in attempts:
        producers.replay(attempt, offset, 1_000, 0)
        offset += attempt.offsets
    return producers


def attempt(epoch: int, sequence: int, count: int = 10, transactional: bool = False, producer: int = 7) -> Attempt:
    return Attempt(producer, epoch, sequence, count, transactional)


SEVEN = [attempt(0, 10 * n) for n in range(7)]

ACCEPTED = [
    ("a producer that is not known", [], attempt(0, 0)),
    ("an unknown producer with a sequence that is not 0", [], attempt(3, 555)),
    ("the next sequence", SEVEN, attempt(0, 70)),
    ("a new epoch from 0", SEVEN, attempt(1, 0)),
    ("an epoch that skips some", SEVEN, attempt(9, 0)),
    ("0 after the largest sequence", [attempt(0, TOP - 9)], attempt(0, 0)),
    ("sequences that wrap inside a batch", [attempt(0, TOP - 14)], attempt(0, TOP - 4)),
    ("what follows a batch that wrapped", [attempt(0, TOP - 4)], attempt(0, 5)),
    ("another producer", SEVEN, attempt(0, 0, producer=8)),
]


@pytest.mark.parametrize(("before", "asked"), [row[1:] for row in ACCEPTED], ids=[row[0] for row in ACCEPTED])
def test_batches_that_follow_are_appended(before: list[Attempt], asked: Attempt) -> None:
    assert producers_after(*before).accept(asked, 1000, 1_000, 0, PendingProducers()) is None


REFUSED = [
    ("a gap", SEVEN, attempt(0, 71), OutOfOrderSequenceError),
    ("a sequence from before the last five", SEVEN, attempt(0, 10), OutOfOrderSequenceError),
    ("a part of a batch", SEVEN, attempt(0, 60, 5), OutOfOrderSequenceError),
    ("more than the batch had", SEVEN, attempt(0, 60, 11), OutOfOrderSequenceError),
    ("an old epoch", [attempt(5, 0)], attempt(4, 10), InvalidProducerEpochError),
    ("a repetition from an old epoch", [attempt(5, 0)], attempt(4, 0), InvalidProducerEpochError),
    ("a new epoch that does not start at 0", SEVEN, attempt(1, 70), OutOfOrderSequenceError),
    ("1 after the largest sequence", [attempt(0, TOP - 9)], attempt(0, 1), OutOfOrderSequenceError),
    ("no transaction inside of one", [attempt(0, 0, transactional=True)], attempt(0, 10), InvalidTxnStateError),
]


@pytest.mark.parametrize(("before", "asked", "error"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_batches_that_do_not_follow_are_refused(before: list[Attempt], asked: Attempt, error: type[KafkaError]) -> None:
    producers = producers_after(*before)
    with pytest.raises(error):
        producers.accept(asked, 1000, 1_000, 0, PendingProducers())


@pytest.mark.parametrize("number", range(2, 7))
def test_one_of_the_last_five_batches_is_answered_with_its_offset(number: int) -> None:
    found = producers_after(*SEVEN).accept(SEVEN[number], 1000, 1_000, 0, PendingProducers())
    assert found is not None
    assert (found.base_offset, found.last_offset) == (10 * number, 10 * number + 9)


def test_a_repeated_batch_that_wraps_is_found() -> None:
    wrapped = attempt(0, TOP - 4)
    found = producers_after(wrapped).accept(wrapped, 1000, 1_000, 0, PendingProducers())
    assert found is not None
    assert (found.first_sequence, found.last_sequence) == (TOP - 4, 4)


def test_batches_of_one_append_see_each_other_and_nothing_stays_when_the_write_fails() -> None:
    producers, pending = Producers(), PendingProducers()
    assert producers.accept(attempt(0, 0), 0, 1_000, 0, pending) is None
    assert producers.accept(attempt(0, 10), 10, 1_000, 0, pending) is None
    repeated = producers.accept(attempt(0, 0), 20, 1_000, 0, pending)
    assert repeated is not None
    assert repeated.base_offset == 0
    with pytest.raises(OutOfOrderSequenceError):
        producers.accept(attempt(0, 30), 20, 1_000, 0, pending)
    assert len(producers) == 0
    assert producers.accept(attempt(0, 0), 0, 1_000, 0, PendingProducers()) is None
    producers.commit(pending)
    assert len(producers) == 1


@pytest.mark.parametrize(
    ("sequence", "count", "expected"),
    [(0, 1, 1), (TOP, 1, 0), (TOP, 2, 1), (TOP - 1, 1, TOP), (5, 0, 5), (TOP, TOP + 1, TOP)],
)
def test_sequences_wrap_after_the_largest(sequence: int, count: int, expected: int) -> None:
    assert advance_sequence(sequence, count) == expected
    assert advance_sequence(expected, -count) == sequence


@pytest.mark.parametrize(("sequence", "other"), [(0, 1), (TOP, 0), (TOP - 5, 4), (0, TOP // 2)])
def test_the_order_of_sequences_goes_on_behind_the_largest(sequence: int, other: int) -> None:
    assert is_before(sequence, other)
    assert not is_before(other, sequence) and not is_before(sequence, sequence)


def test_silent_producers_expire_unless_they_have_a_transaction() -> None:
    producers = Producers()
    producers.replay(attempt(0, 0, producer=1), 0, 1_000, 1_000)
    producers.replay(attempt(0, 0, producer=2), 10, 1_000, 5_000)
    producers.replay(attempt(0, 0, producer=3, transactional=True), 20, 1_000, 1_000)
    assert producers.expire(6_000, 5_000) == 1
    assert sorted(producer_id for producer_id, _ in producers.items()) == [2, 3]
    assert producers.expire(10_000, 5_000) == 1


def marker(producer: int = 7, epoch: int = 0, kind: int = COMMIT, coordinator: int = 0) -> EndMarker:
    return EndMarker(producer, epoch, kind, coordinator)


def test_the_last_stable_offset_waits_for_the_marker_to_be_under_the_high_watermark() -> None:
    producers = Producers()

    def advance(high_watermark: int) -> int:
        stable = producers.stable_offset(high_watermark)
        producers.advance_high_watermark(high_watermark)
        assert producers.stable_offset(high_watermark) == stable
        return stable

    producers.replay(attempt(0, 0, producer=1), 0, 0, 0)
    assert advance(10) == 10
    producers.replay(attempt(0, 0, producer=2, transactional=True), 10, 0, 0)
    producers.replay(attempt(0, 0, producer=3, transactional=True), 20, 0, 0)
    assert advance(30) == 10
    assert producers.end(marker(2), 30, 0) is None
    assert advance(30) == 10
    assert advance(31) == 20
    producers.end(marker(3), 31, 0)
    assert advance(32) == 32


def test_transactions_that_begin_in_one_append_are_ordered_by_their_first_records() -> None:
    producers, pending = Producers(), PendingProducers()
    producers.accept(attempt(0, 0, 1, producer=7), 0, 1_000, 0, pending)  # not in a transaction
    producers.accept(attempt(0, 0, 1, transactional=True, producer=8), 1, 1_000, 0, pending)
    producers.accept(attempt(0, 1, 1, transactional=True, producer=7), 2, 1_000, 0, pending)
    producers.commit(pending)
    assert producers.stable_offset(3) == 1
    assert list(producers.open_transactions().items()) == [(8, 1), (7, 2)]


class CountedTransactions(dict[int, int]):
    """Open transactions that count how many of them are looked at."""

    looked_at = 0

    def items(self) -> Any:
        for each in super().items():
            self.looked_at += 1
            yield each


@pytest.mark.parametrize(("ended", "undecided"), [(0, 1), (1, 0), (700, 0)])
def test_an_abort_does_not_look_at_all_other_open_transactions(ended: int, undecided: int) -> None:
    transactions = CountedTransactions({each: each for each in range(1_000)})
    aborted = aborted_among(transactions, EndMarker(ended, 0, ABORT, 0), 2_000)
    assert aborted == AbortedTransaction(ended, ended, 2_000, undecided)
    assert transactions.looked_at <= 2


def test_an_aborted_transaction_is_told_with_its_range() -> None:
    producers = Producers()
    producers.replay(attempt(0, 0, producer=2, transactional=True), 10, 0, 0)
    producers.replay(attempt(0, 0, producer=3, transactional=True), 20, 0, 0)
    assert producers.end(marker(3, kind=ABORT), 30, 0) == AbortedTransaction(3, 20, 30, 10)
    assert producers.end(marker(2, kind=ABORT), 31, 0) == AbortedTransaction(2, 10, 31, 32)
    assert producers.end(marker(2, kind=ABORT), 32, 0) is None


def test_markers_of_an_old_epoch_or_coordinator_are_refused() -> None:
    producers = producers_after(attempt(4, 0, transactional=True))
    with pytest.raises(InvalidProducerEpochError):
        producers.check_end(marker(epoch=3))
    producers.end(marker(epoch=4, coordinator=6), 10, 0)
    with pytest.raises(TransactionCoordinatorFencedError):
        producers.check_end(marker(epoch=4, coordinator=5))


def test_a_marker_with_a_new_epoch_forgets_the_sequences_of_the_old_one() -> None:
    producers = producers_after(attempt(0, 0, transactional=True))
    producers.end(marker(epoch=1, kind=ABORT), 10, 0)
    with pytest.raises(InvalidProducerEpochError):
        producers.accept(attempt(0, 10), 11, 0, 0, PendingProducers())
    with pytest.raises(OutOfOrderSequenceError):
        producers.accept(attempt(1, 10), 11, 0, 0, PendingProducers())
    assert producers.accept(attempt(1, 0), 11, 0, 0, PendingProducers()) is None


def test_producers_have_a_limit_beyond_which_the_most_silent_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 100)
    producers = Producers()
    producers.replay(attempt(0, 0, producer=1, transactional=True), 0, 0, 1)
    for number in range(2, 1_000):
        producers.replay(attempt(0, 0, producer=number), number, 0, number)
        assert len(producers) <= 101
    assert producers.get(1) is not None, "its transaction is open"
    assert producers.get(2) is None
    assert producers.get(999) is not None
