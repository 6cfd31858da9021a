"""InitProducerId: a producer's id and epoch, as pure steps from one record to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.transactions.ending import EPOCH_LAST, EPOCH_MAX, begins_next, fence
from kafkalake.broker.transactions.records import NO_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TransactionRecord
from kafkalake.broker.transactions.states import State
from kafkalake.errors import ConcurrentTransactionsError, ProducerFencedError


def first(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> TransactionRecord:
    """Return the first record of a transactional id. Without an earlier record the expected producer cannot be checked."""
    return TransactionRecord(transactional_id, producer_id, 0, timeout_ms, State.EMPTY, updated_at_ms=now_ms)


def restarted(
    current: TransactionRecord,
    timeout_ms: int,
    expected: ProducerIdAndEpoch | None,
    now_ms: int,
    new_producer_id: Callable[[], int],
) -> TransactionRecord:
    """Return the record of a starting producer: PrepareAbort if a transaction is open, else its new epoch.

    Raise `ConcurrentTransactionsError` while markers are missing, `ProducerFencedError` if `expected` does not match.
    """
    if expected is not None and not _is_known(current, expected) and not begins_next(current, expected):
        raise ProducerFencedError
    if current.state.is_prepared:
        raise ConcurrentTransactionsError
    if current.state is State.ONGOING:
        return fence(current, now_ms)
    fresh = replace(
        current,
        state=State.EMPTY,
        partitions=frozenset(),
        timeout_ms=timeout_ms,
        updated_at_ms=now_ms,
        started_at_ms=NO_TIMESTAMP,
    )
    if expected is not None and expected.epoch != current.epoch:
        if expected.epoch != current.last_epoch:
            raise ProducerFencedError
        if current.epoch <= EPOCH_LAST:
            return fresh  # a retry after a lost response
    last_epoch = NO_EPOCH if expected is None else expected.epoch
    if current.epoch >= EPOCH_LAST:
        return replace(
            fresh,
            producer_id=new_producer_id(),
            previous_producer_id=current.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            epoch=0,
            last_epoch=last_epoch,
        )
    return replace(fresh, epoch=current.epoch + 1, last_epoch=last_epoch)


def pass_over(
    current: TransactionRecord, epochs: int, now_ms: int, new_producer_id: Callable[[], int]
) -> TransactionRecord:
    """Return the next record if the next `epochs` epochs may have been given out.

    An open transaction is aborted. Otherwise the producer id gets a later epoch, which no producer has.
    """
    if current.state is State.ONGOING:
        fenced = fence(current, now_ms)
        return replace(fenced, epoch=min(current.epoch + epochs, EPOCH_MAX))
    passed = replace(current, state=State.EMPTY, last_epoch=NO_EPOCH, updated_at_ms=now_ms)
    if current.epoch + epochs <= EPOCH_LAST:
        return replace(passed, epoch=current.epoch + epochs)
    return replace(
        passed,
        producer_id=new_producer_id(),
        previous_producer_id=NO_PRODUCER_ID,
        next_producer_id=NO_PRODUCER_ID,
        epoch=0,
    )


def _is_known(current: TransactionRecord, expected: ProducerIdAndEpoch) -> bool:
    """Return whether it is the current producer id, or the previous one if its epochs were used up."""
    return expected.producer_id == current.producer_id or (
        expected.producer_id == current.previous_producer_id and expected.epoch >= EPOCH_LAST
    )
