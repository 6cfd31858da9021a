"""EndTxn: checks and the records of a transaction's end, as pure steps from one record to the next.

Results of an end, committed or aborted, by state (`again`: a retry of a completed request):

    state              commit                     abort
    Ongoing            prepare                    prepare
    PrepareCommit      ConcurrentTransactions     InvalidTxnState
    PrepareAbort       InvalidTxnState            ConcurrentTransactions
    CompleteCommit     again: done; else invalid  version 2, not again: prepare; else InvalidTxnState
    CompleteAbort      InvalidTxnState            again: done; version 2: prepare
    Empty              InvalidTxnState            version 2: prepare; else InvalidTxnState

An older client retries with the same epoch, so every matching end counts as `again`. In version 2 the epoch decides: the previous
epoch means again, the current one means the next transaction, which may be aborted while empty (the client cannot know whether its
first record arrived). The producer has that epoch before the markers of the one before are written: ConcurrentTransactions until
then. Source: KIP-98, KIP-890, Apache Kafka 4.1.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.transactions.records import NO_PRODUCER_ID, TransactionRecord
from kafkalake.broker.transactions.states import State
from kafkalake.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
)

EPOCH_MAX = (1 << 15) - 1
"""Epoch that fences a producer with the last epoch. It is never given out."""

EPOCH_LAST = EPOCH_MAX - 1
"""The last epoch that is given out."""

CLIENT_VERSION_2 = 2

_ENDS = {
    State.PREPARE_COMMIT: True,
    State.COMPLETE_COMMIT: True,
    State.PREPARE_ABORT: False,
    State.COMPLETE_ABORT: False,
}


@dataclass(frozen=True, slots=True)
class EndRequest:
    """EndTxn. `version_2`: the client takes a new epoch from the response (EndTxn version 5 on)."""

    producer: ProducerIdAndEpoch
    committed: bool
    version_2: bool


def check_end(current: TransactionRecord, request: EndRequest, *, step_under_way: bool) -> bool:
    """Return True if the transaction is to be ended now, False if this request is a retry of a completed one.

    Raise `InvalidProducerIdMappingError`, `ProducerFencedError`, `ConcurrentTransactionsError` or `InvalidTxnStateError`.
    """
    if request.version_2:
        return _check_version_2(current, request, step_under_way)
    if request.producer.producer_id != current.producer_id:
        raise InvalidProducerIdMappingError
    if request.producer.epoch != current.epoch:
        raise ProducerFencedError
    if step_under_way:
        raise ConcurrentTransactionsError
    if current.state is State.ONGOING:
        return True
    return _check_ended(current, request)


def _check_version_2(current: TransactionRecord, request: EndRequest, step_under_way: bool) -> bool:
    if step_under_way:
        # Checked first: the producer may already have the producer id of the record being written.
        raise ConcurrentTransactionsError
    producer = request.producer
    if begins_next(current, producer):
        raise ConcurrentTransactionsError
    overflowed = (
        current.previous_producer_id == producer.producer_id
        and producer.epoch == EPOCH_LAST
        and current.epoch == 0
        and current.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
    )
    if producer.producer_id != current.producer_id and not overflowed:
        raise InvalidProducerIdMappingError
    again = overflowed or (
        producer.epoch + 1 == current.epoch and current.state not in (State.ONGOING, State.EMPTY, State.DEAD)
    )
    is_next = producer.epoch == current.epoch and not current.state.is_prepared and producer.epoch < EPOCH_MAX
    if not again and not is_next:
        raise ProducerFencedError
    if again:
        return _check_ended(current, request)
    if current.state is not State.ONGOING and request.committed:
        raise InvalidTxnStateError
    return True


def begins_next(current: TransactionRecord, producer: ProducerIdAndEpoch) -> bool:
    """Return whether it is the producer of the next transaction, and markers of the one before may be missing.

    It has its epoch, and after the last one its producer id, as soon as the outcome is decided.
    """
    if not current.state.is_prepared:
        return False
    after = complete(current, current.updated_at_ms)
    return (producer.producer_id, producer.epoch) == (after.producer_id, after.epoch)


def _check_ended(current: TransactionRecord, request: EndRequest) -> bool:
    """Check a retry against the outcome. Return False if the transaction is complete."""
    if _ENDS.get(current.state) is not request.committed:
        raise InvalidTxnStateError
    if current.state.is_prepared:
        raise ConcurrentTransactionsError
    return False


def prepare(
    current: TransactionRecord, request: EndRequest, now_ms: int, new_producer_id: Callable[[], int]
) -> TransactionRecord:
    """Return the Prepare record that decides the outcome. In version 2 the marker already has the next epoch."""
    record = replace(
        current,
        state=State.PREPARE_COMMIT if request.committed else State.PREPARE_ABORT,
        updated_at_ms=now_ms,
        # A transaction without partitions begins when it is aborted.
        started_at_ms=current.started_at_ms if current.state is State.ONGOING else now_ms,
        client_version=CLIENT_VERSION_2 if request.version_2 else 0,
    )
    if not request.version_2:
        return record
    exhausted = current.epoch >= EPOCH_LAST
    return replace(
        record,
        epoch=current.epoch + 1,
        last_epoch=current.epoch,
        next_producer_id=new_producer_id() if exhausted else NO_PRODUCER_ID,
    )


def fence(current: TransactionRecord, now_ms: int) -> TransactionRecord:
    """Return the record that aborts a producer's transaction on its behalf, with the next epoch. That epoch is given out only to
    the same producer, if it returns with its old epoch before any other one (KIP-360).
    """
    assert current.state is State.ONGOING and current.epoch < EPOCH_MAX
    return replace(
        current,
        state=State.PREPARE_ABORT,
        epoch=current.epoch + 1,
        last_epoch=current.epoch,
        updated_at_ms=now_ms,
        client_version=CLIENT_VERSION_2,
    )


def complete(prepared: TransactionRecord, now_ms: int) -> TransactionRecord:
    """Return the Complete record after all markers are written. A producer id without epochs left is replaced now."""
    record = replace(
        prepared,
        state=State.COMPLETE_COMMIT if prepared.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT,
        partitions=frozenset(),
        updated_at_ms=now_ms,
    )
    if prepared.next_producer_id == NO_PRODUCER_ID:
        return record
    return replace(
        record,
        producer_id=prepared.next_producer_id,
        previous_producer_id=prepared.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        epoch=0,
    )
