"""Idempotence and transactions of one partition, as decisions without a clock or a file.

Per producer id the log keeps the epoch, the last five batches and the open transaction's first offset. What is asked of a
batch, in this order:

    epoch below the one known                        InvalidProducerEpoch
    same epoch, sequences of one of the last five    duplicate: answered with the original offset
    new epoch                                        must start at sequence 0, else OutOfOrderSequence
    same epoch                                       must follow the last sequence, 0 after 2^31 - 1, else OutOfOrderSequence
    producer not known                               any sequence: its state may have expired or been deleted
    inside a transaction                             must be transactional, else InvalidTxnState

A coordinator's own transactional batches have no sequence (-1): only their epoch is asked for, and none is remembered.
Sequences wrap from 2^31 - 1 to 0, also inside a batch. Batches of one append are decided against `Pending`, an overlay
that becomes true only once the bytes are written: a failed write changes nothing. Sources: KIP-98, Kafka's
`ProducerStateManager`, `ProducerAppendInfo`.

Last stable offset: everything below the first open transaction's first offset, and below the first offset of a transaction whose
marker is not yet under the high watermark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkalake.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)

NO_PRODUCER_ID = -1
NO_OFFSET = -1
NO_SEQUENCE = -1
MAXIMUM_SEQUENCE = (1 << 31) - 1
BATCHES_REMEMBERED = 5
PRODUCERS_MAX = 20_000
"""So many producer ids without an open transaction are remembered of a partition; beyond it the most silent are forgotten."""

ABORT, COMMIT = 0, 1


class SequencedBatch(NamedTuple):
    """One batch as it is remembered. Offsets and sequences are inclusive; timestamp in ms."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class Producer(NamedTuple):
    """What is known of one producer id. `transaction_offset`: first offset of its open transaction, -1 for none."""

    epoch: int
    coordinator_epoch: int
    batches: tuple[SequencedBatch, ...]
    transaction_offset: int
    last_append_ms: int


class AbortedTransaction(NamedTuple):
    """A transaction whose records must not be shown. Offsets inclusive; last stable offset when its marker was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Attempt(NamedTuple):
    """A producer's batch that wants to be appended."""

    producer_id: int
    epoch: int
    base_sequence: int
    offsets: int
    transactional: bool


class EndMarker(NamedTuple):
    """A control batch that ends a transaction; `control_type` ABORT or COMMIT."""

    producer_id: int
    epoch: int
    control_type: int
    coordinator_epoch: int


def advance_sequence(sequence: int, count: int) -> int:
    """The sequence `count` after `sequence`, wrapping to 0 after 2^31 - 1."""
    return (sequence + count) & MAXIMUM_SEQUENCE


def decide(known: Producer | None, attempt: Attempt) -> SequencedBatch | None:
    """The batch that `attempt` repeats, or None where it may be appended.

    Raises InvalidProducerEpochError, OutOfOrderSequenceError, InvalidTxnStateError as the module's table says.
    """
    if known is None:
        return None
    producer_id, epoch, first, offsets, transactional = attempt
    if epoch < known.epoch:
        raise InvalidProducerEpochError(
            f"producer {producer_id} has epoch {known.epoch}, this batch was sent with epoch {epoch}"
        )
    if first == NO_SEQUENCE:
        return None
    if epoch != known.epoch:
        if first != 0:
            raise OutOfOrderSequenceError(f"producer {producer_id} starts epoch {epoch} with sequence {first}, not 0")
    elif known.batches:
        last = advance_sequence(first, offsets - 1)
        for batch in known.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        expected = advance_sequence(known.batches[-1].last_sequence, 1)
        if first != expected:
            raise OutOfOrderSequenceError(
                f"producer {producer_id} at epoch {epoch} sent sequence {first}, expected {expected}"
            )
    elif first != 0 and known.epoch >= 0:
        raise OutOfOrderSequenceError(f"producer {producer_id} starts epoch {epoch} with sequence {first}, not 0")
    if known.transaction_offset != NO_OFFSET and not transactional:
        raise InvalidTxnStateError(f"producer {producer_id} has an open transaction, this batch is not in it")
    return None


def appended(known: Producer | None, attempt: Attempt, base_offset: int, timestamp: int, now_ms: int) -> Producer:
    """The producer after the batch was given `base_offset`."""
    batches: tuple[SequencedBatch, ...] = ()
    if attempt.base_sequence != NO_SEQUENCE:
        last_sequence = advance_sequence(attempt.base_sequence, attempt.offsets - 1)
        last_offset = base_offset + attempt.offsets - 1
        batches = (SequencedBatch(attempt.base_sequence, last_sequence, base_offset, last_offset, timestamp),)
    if known is None:
        transaction = base_offset if attempt.transactional else NO_OFFSET
        return Producer(attempt.epoch, -1, batches, transaction, now_ms)
    transaction = known.transaction_offset
    if transaction == NO_OFFSET and attempt.transactional:
        transaction = base_offset
    earlier = known.batches[1 - BATCHES_REMEMBERED :] if attempt.epoch == known.epoch else ()
    return Producer(attempt.epoch, known.coordinator_epoch, (*earlier, *batches), transaction, now_ms)


def check_marker(known: Producer | None, marker: EndMarker) -> None:
    """Whether a marker may be appended.

    Raises InvalidProducerEpochError for an epoch below the known one, TransactionCoordinatorFencedError for a coordinator
    that was replaced.
    """
    if known is None:
        return
    if marker.epoch < known.epoch:
        raise InvalidProducerEpochError(
            f"producer {marker.producer_id} has epoch {known.epoch}, this marker was sent for epoch {marker.epoch}"
        )
    if marker.coordinator_epoch < known.coordinator_epoch:
        raise TransactionCoordinatorFencedError(
            f"coordinator epoch {marker.coordinator_epoch} is below {known.coordinator_epoch}, "
            f"seen for producer {marker.producer_id}"
        )


def ended(known: Producer | None, marker: EndMarker, now_ms: int) -> Producer:
    """The producer after its transaction was ended."""
    batches = known.batches if known is not None and marker.epoch == known.epoch else ()
    return Producer(marker.epoch, marker.coordinator_epoch, batches, NO_OFFSET, now_ms)


@dataclass(slots=True)
class Pending:
    """Producers as they will be if the bytes reach the log; dropped if they do not."""

    producers: dict[int, Producer] = field(default_factory=dict)


class Producers:
    """All producers of a partition, its open transactions and those that wait for the high watermark."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._open: dict[
            int, int
        ] = {}  # producer id -> first offset; in the order they began, so the first is the lowest
        self._ended: list[tuple[int, int]] = []  # (first offset, marker's offset) above the high watermark

    def __len__(self) -> int:
        return len(self._producers)

    def items(self) -> Iterator[tuple[int, Producer]]:
        """Producer id and what is known of it."""
        return iter(list(self._producers.items()))

    def get(self, producer_id: int, pending: Pending | None = None) -> Producer | None:
        """What is known, or will be once `pending` is true."""
        if pending is not None:
            found = pending.producers.get(producer_id)
            if found is not None:
                return found
        return self._producers.get(producer_id)

    def restore(self, producer_id: int, producer: Producer) -> None:
        """Put back an entry of a snapshot. Call in the order of `transaction_offset`."""
        self._producers[producer_id] = producer
        if producer.transaction_offset != NO_OFFSET:
            self._open[producer_id] = producer.transaction_offset

    def restore_ended(self, first_offset: int, marker_offset: int) -> None:
        """Put back a transaction that had ended above the high watermark when the snapshot was taken."""
        self._ended.append((first_offset, marker_offset))

    def ended_transactions(self) -> list[tuple[int, int]]:
        """(first offset, marker's offset) of ended transactions that still hold the last stable offset."""
        return list(self._ended)

    def accept(
        self, attempt: Attempt, base_offset: int, timestamp: int, now_ms: int, pending: Pending
    ) -> SequencedBatch | None:
        """Decide on a batch and note it in `pending`; returns the original where it is a duplicate. Raises as `decide`."""
        known = self.get(attempt.producer_id, pending)
        duplicate = decide(known, attempt)
        if duplicate is None:
            pending.producers[attempt.producer_id] = appended(known, attempt, base_offset, timestamp, now_ms)
        return duplicate

    def commit(self, pending: Pending) -> None:
        """The batches of `pending` are in the log."""
        for producer_id, producer in pending.producers.items():
            self._producers[producer_id] = producer
            if producer.transaction_offset != NO_OFFSET:
                self._open.setdefault(producer_id, producer.transaction_offset)
        if len(self._producers) - len(self._open) > PRODUCERS_MAX:
            self._forget_most_silent()

    def _forget_most_silent(self) -> None:
        """As if they had expired: a tenth of the room is free afterwards, so that this is rare."""
        idle = [
            (producer.last_append_ms, producer_id)
            for producer_id, producer in self._producers.items()
            if producer.transaction_offset == NO_OFFSET
        ]
        for _, producer_id in sorted(idle)[: len(idle) - PRODUCERS_MAX * 9 // 10]:
            del self._producers[producer_id]

    def replay(self, attempt: Attempt, base_offset: int, timestamp: int, now_ms: int) -> None:
        """Take a batch that is in the log already, as recovery does: it was decided on when it was appended."""
        known = self._producers.get(attempt.producer_id)
        pending = Pending({attempt.producer_id: appended(known, attempt, base_offset, timestamp, now_ms)})
        self.commit(pending)

    def check_end(self, marker: EndMarker) -> None:
        """Whether `marker` may be appended. Raises as `check_marker`."""
        check_marker(self._producers.get(marker.producer_id), marker)

    def aborted_by(self, marker: EndMarker, offset: int) -> AbortedTransaction | None:
        """The transaction that `marker` at `offset` aborts; None where it commits, or there is none."""
        first = self._open.get(marker.producer_id)
        if first is None or marker.control_type != ABORT:
            return None
        undecided = min(
            (start for other, start in self._open.items() if other != marker.producer_id), default=offset + 1
        )
        return AbortedTransaction(marker.producer_id, first, offset, undecided)

    def end(self, marker: EndMarker, offset: int, now_ms: int) -> AbortedTransaction | None:
        """The marker is in the log at `offset`: close the producer's transaction; returns it where it was aborted."""
        aborted = self.aborted_by(marker, offset)
        self._producers[marker.producer_id] = ended(self._producers.get(marker.producer_id), marker, now_ms)
        first = self._open.pop(marker.producer_id, None)
        if first is not None:
            self._ended.append((first, offset))
        return aborted

    def stable_offset(self, high_watermark: int) -> int:
        """The last stable offset under a high watermark."""
        stable = high_watermark
        undecided = self._first_open()
        if undecided is not None and undecided < stable:
            stable = undecided
        for first, marker in self._ended:
            if marker >= high_watermark and first < stable:
                stable = first
        return stable

    def advance_high_watermark(self, high_watermark: int) -> int:
        """Forget ended transactions whose marker is below `high_watermark`; returns the last stable offset under it."""
        if self._ended:
            self._ended = [(first, marker) for first, marker in self._ended if marker >= high_watermark]
        return self.stable_offset(high_watermark)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers without an open transaction that have been silent for `expiration_ms`; returns how many."""
        silent = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.transaction_offset == NO_OFFSET and now_ms - producer.last_append_ms >= expiration_ms
        ]
        for producer_id in silent:
            del self._producers[producer_id]
        return len(silent)

    def _first_open(self) -> int | None:
        return next(iter(self._open.values()), None)
