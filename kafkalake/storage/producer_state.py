"""Idempotence and transactions of one partition. Pure: no clock, no files.

Per producer id the log keeps the epoch, the last five batches and the open transaction's first offset. Checks of a batch, in
this order:

    epoch below the current one                      InvalidProducerEpoch
    same epoch, sequences of one of the last five    duplicate: answered with the original offset
    new epoch                                        must start at sequence 0, else OutOfOrderSequence
    same epoch                                       must follow the last sequence, 0 after 2^31 - 1, else OutOfOrderSequence
    unknown producer                                 any sequence: its state may have expired or been deleted
    inside a transaction                             must be transactional, else InvalidTxnState

A coordinator's own transactional batches have no sequence (-1): only their epoch is checked, and the batches are not kept.
Sequences wrap from 2^31 - 1 to 0, also inside a batch. Batches of one append are checked against `PendingProducers`, an overlay
that is committed only after the bytes are written. A failed write changes nothing. Sources: KIP-98, Kafka's `ProducerStateManager`,
`ProducerAppendInfo`.

Last stable offset: the smallest of the high watermark, the first offset of every open transaction, and the first offset of
every ended transaction whose marker is not yet below the high watermark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kafkalake.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from kafkalake.offset_range import OffsetRange
from kafkalake.record.sequences import advance_sequence

NO_PRODUCER_ID = -1
NO_OFFSET = -1
NO_SEQUENCE = -1
BATCHES_REMEMBERED = 5
PRODUCERS_MAX = 20_000
"""The maximum number of producer ids without an open transaction per partition. Beyond it the longest idle are removed."""
HAND_OVER_PRODUCER_ID_MIN = 1 << 62
"""From here on, producer ids are those of the journal of delayed delivery, one for each of its partitions. They are never removed:
however long a broker was away, it repeats its last batch."""

ABORT, COMMIT = 0, 1


class SequencedBatch(NamedTuple):
    """A remembered batch. Offsets and sequences are inclusive. Timestamp in ms. `is_split`: see `record.layout.SPLIT`."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int
    is_split: bool = False


class ProducerStateEntry(NamedTuple):
    """The state of one producer id. `transaction_offset`: first offset of its open transaction, -1 for none."""

    epoch: int
    coordinator_epoch: int
    batches: tuple[SequencedBatch, ...]
    transaction_offset: int
    last_append_ms: int


class AbortedTransaction(NamedTuple):
    """An aborted transaction, hidden from `read_committed`. Offsets inclusive. Last stable offset when its marker was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Attempt(NamedTuple):
    """A producer's batch to be appended."""

    producer_id: int
    epoch: int
    base_sequence: int
    offsets: int
    transactional: bool
    is_split: bool = False


class EndMarker(NamedTuple):
    """A control batch that ends a transaction. `control_type` is ABORT or COMMIT."""

    producer_id: int
    epoch: int
    control_type: int
    coordinator_epoch: int


def find_repeated(known: ProducerStateEntry | None, attempt: Attempt) -> SequencedBatch | None:
    """Return the remembered batch that has the epoch and the sequences of `attempt`, None if there is none."""
    if known is None or attempt.epoch != known.epoch or attempt.base_sequence == NO_SEQUENCE:
        return None
    last = advance_sequence(attempt.base_sequence, attempt.offsets - 1)
    for batch in known.batches:
        if batch.first_sequence == attempt.base_sequence and batch.last_sequence == last:
            return batch
    return None


def decide(known: ProducerStateEntry | None, attempt: Attempt) -> SequencedBatch | None:
    """Return the batch duplicated by `attempt`, or None if it may be appended.

    Raise InvalidProducerEpochError, OutOfOrderSequenceError or InvalidTxnStateError as in the module's table.
    """
    if known is None:
        return None
    producer_id, epoch, first = attempt[:3]
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
        expected = advance_sequence(known.batches[-1].last_sequence, 1)
        if first != expected:  # five batches never use up all sequences, so that the next one is none of theirs
            repeated = find_repeated(known, attempt)
            if repeated is not None:
                return repeated
            raise OutOfOrderSequenceError(
                f"producer {producer_id} at epoch {epoch} sent sequence {first}, expected {expected}"
            )
    elif first != 0 and known.epoch >= 0:
        raise OutOfOrderSequenceError(f"producer {producer_id} starts epoch {epoch} with sequence {first}, not 0")
    if known.transaction_offset != NO_OFFSET and not attempt.transactional:
        raise InvalidTxnStateError(f"producer {producer_id} has an open transaction, this batch is not in it")
    return None


def appended(
    known: ProducerStateEntry | None, attempt: Attempt, base_offset: int, timestamp: int, now_ms: int
) -> ProducerStateEntry:
    """Return the producer after the batch is appended at `base_offset`."""
    batches: tuple[SequencedBatch, ...] = ()
    if attempt.base_sequence != NO_SEQUENCE:
        last_sequence = advance_sequence(attempt.base_sequence, attempt.offsets - 1)
        last_offset = base_offset + attempt.offsets - 1
        first = attempt.base_sequence
        batches = (SequencedBatch(first, last_sequence, base_offset, last_offset, timestamp, attempt.is_split),)
    if known is None:
        transaction = base_offset if attempt.transactional else NO_OFFSET
        return ProducerStateEntry(attempt.epoch, -1, batches, transaction, now_ms)
    transaction = known.transaction_offset
    if transaction == NO_OFFSET and attempt.transactional:
        transaction = base_offset
    earlier = known.batches[1 - BATCHES_REMEMBERED :] if attempt.epoch == known.epoch else ()
    return ProducerStateEntry(attempt.epoch, known.coordinator_epoch, (*earlier, *batches), transaction, now_ms)


def check_marker(known: ProducerStateEntry | None, marker: EndMarker) -> None:
    """Check that a marker may be appended.

    Raise InvalidProducerEpochError if its producer epoch is below the current one, TransactionCoordinatorFencedError if its
    coordinator epoch is.
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


def ended(known: ProducerStateEntry | None, marker: EndMarker, now_ms: int) -> ProducerStateEntry:
    """Return the producer after the end of its transaction."""
    batches = known.batches if known is not None and marker.epoch == known.epoch else ()
    return ProducerStateEntry(marker.epoch, marker.coordinator_epoch, batches, NO_OFFSET, now_ms)


def aborted_among(transactions: Mapping[int, int], marker: EndMarker, offset: int) -> AbortedTransaction | None:
    """Return the transaction aborted by `marker` at `offset`. None for a commit or without an open transaction.

    transactions: the first offset of each open transaction by producer id, in the order of their begin.
    """
    first = transactions.get(marker.producer_id)
    if first is None or marker.control_type != ABORT:
        return None
    undecided = next((start for other, start in transactions.items() if other != marker.producer_id), offset + 1)
    return AbortedTransaction(marker.producer_id, first, offset, undecided)


class PendingProducers(dict[int, ProducerStateEntry]):
    """Producer states, by producer id, to commit once the bytes are written. Dropped if the write fails."""


class Producers:
    """The producers of a partition, its open transactions and the ended ones above the high watermark."""

    def __init__(self) -> None:
        self._producers: dict[int, ProducerStateEntry] = {}
        self._open: dict[
            int, int
        ] = {}  # producer id -> first offset, in the order of their begin, so the first is the lowest
        self._ended: list[tuple[int, int]] = []  # (first offset, marker's offset) above the high watermark
        self.has_split = False
        """Whether batches may be remembered some of whose records are delivered later. False again at the next start only."""

    def __len__(self) -> int:
        return len(self._producers)

    def copy(self) -> Producers:
        """Return a copy."""
        copied = Producers()
        copied._producers, copied._open, copied._ended = dict(self._producers), dict(self._open), list(self._ended)
        copied.has_split = self.has_split
        return copied

    def items(self) -> Iterator[tuple[int, ProducerStateEntry]]:
        """Return the producer ids with their state."""
        return iter(list(self._producers.items()))

    def get(self, producer_id: int) -> ProducerStateEntry | None:
        """Return the state of a producer, None if unknown."""
        return self._producers.get(producer_id)

    def restore(self, producer_id: int, producer: ProducerStateEntry) -> None:
        """Restore an entry of a snapshot. Call in the order of `transaction_offset`."""
        self._producers[producer_id] = producer
        self.has_split = self.has_split or any(each.is_split for each in producer.batches)
        if producer.transaction_offset != NO_OFFSET:
            self._open[producer_id] = producer.transaction_offset

    def restore_ended(self, first_offset: int, marker_offset: int) -> None:
        """Restore a transaction that had ended above the high watermark when the snapshot was taken."""
        self._ended.append((first_offset, marker_offset))

    def ended_transactions(self) -> list[tuple[int, int]]:
        """Return (first offset, marker's offset) of the ended transactions that still hold back the last stable offset."""
        return list(self._ended)

    def accept(
        self, attempt: Attempt, base_offset: int, timestamp: int, now_ms: int, pending: PendingProducers
    ) -> SequencedBatch | None:
        """Check a batch and record it in `pending`. Return the original of a duplicate, else None. Raise as `decide`."""
        producer_id = attempt.producer_id
        known = pending.get(producer_id) or self._producers.get(producer_id)
        duplicate = decide(known, attempt)
        if duplicate is None:
            self.has_split = self.has_split or attempt.is_split
            pending[producer_id] = appended(known, attempt, base_offset, timestamp, now_ms)
        return duplicate

    def commit(self, pending: PendingProducers) -> None:
        """Commit `pending` after its batches were written."""
        begun = []
        for producer_id, producer in pending.items():
            if producer.transaction_offset == NO_OFFSET:
                self._producers[producer_id] = producer
            else:
                begun.append((producer.transaction_offset, producer_id, producer))
        for _, producer_id, producer in sorted(begun):  # whose first batch was in no transaction comes too early
            self._put(producer_id, producer)
        self._bound()

    def _put(self, producer_id: int, producer: ProducerStateEntry) -> None:
        self._producers[producer_id] = producer
        if producer.transaction_offset != NO_OFFSET:
            self._open.setdefault(producer_id, producer.transaction_offset)

    def _bound(self) -> None:
        """Forget producers if there are too many."""
        if len(self._producers) - len(self._open) > PRODUCERS_MAX:
            self._forget_most_silent()

    def _forget_most_silent(self) -> None:
        """Remove the longest idle producers. Afterwards a tenth of the room is free, so that this is rare."""
        idle = [
            (producer.last_append_ms, producer_id)
            for producer_id, producer in self._producers.items()
            if producer.transaction_offset == NO_OFFSET and producer_id < HAND_OVER_PRODUCER_ID_MIN
        ]
        for _, producer_id in sorted(idle)[: len(idle) - PRODUCERS_MAX * 9 // 10]:
            del self._producers[producer_id]

    def replay(self, attempt: Attempt, base_offset: int, timestamp: int, now_ms: int) -> None:
        """Apply a batch read from the log, for recovery. It was already checked when it was appended."""
        known = self._producers.get(attempt.producer_id)
        self.has_split = self.has_split or attempt.is_split
        self._put(attempt.producer_id, appended(known, attempt, base_offset, timestamp, now_ms))
        self._bound()

    def check_end(self, marker: EndMarker) -> None:
        """Check that `marker` may be appended. Raise as `check_marker`."""
        check_marker(self._producers.get(marker.producer_id), marker)

    def aborted_by(self, marker: EndMarker, offset: int) -> AbortedTransaction | None:
        """Return the transaction aborted by `marker` at `offset`. None for a commit or without an open transaction."""
        return aborted_among(self._open, marker, offset)

    def open_transactions(self) -> dict[int, int]:
        """Return the first offset of each open transaction by producer id, in the order of their begin."""
        return dict(self._open)

    def range_of(self, producer_id: int, end_offset: int) -> OffsetRange | None:
        """Return the range of a producer's open transaction, None if it has none. `end_offset`: a bound of the range."""
        first = self._open.get(producer_id)
        if first is None:
            return None
        known = self._producers.get(producer_id)
        is_sequenced = known is not None and known.batches and known.batches[-1].base_offset >= first
        return OffsetRange(first, known.batches[-1].last_offset if known and is_sequenced else end_offset - 1)

    def end(self, marker: EndMarker, offset: int, now_ms: int) -> AbortedTransaction | None:
        """End the producer's transaction after its marker was written at `offset`. Return the transaction if aborted."""
        aborted = self.aborted_by(marker, offset)
        self._producers[marker.producer_id] = ended(self._producers.get(marker.producer_id), marker, now_ms)
        first = self._open.pop(marker.producer_id, None)
        if first is not None:
            self._ended.append((first, offset))
        return aborted

    def stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset for a high watermark."""
        if not self._open and not self._ended:
            return high_watermark
        stable = high_watermark
        undecided = self._first_open()
        if undecided is not None and undecided < stable:
            stable = undecided
        for first, marker in self._ended:
            if marker >= high_watermark and first < stable:
                stable = first
        return stable

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Forget ended transactions whose marker is below `high_watermark`."""
        if self._ended:
            self._ended = [(first, marker) for first, marker in self._ended if marker >= high_watermark]

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers without an open transaction that were idle for `expiration_ms` and return their number."""
        silent = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.transaction_offset == NO_OFFSET
            and now_ms - producer.last_append_ms >= expiration_ms
            and producer_id < HAND_OVER_PRODUCER_ID_MIN
        ]
        for producer_id in silent:
            del self._producers[producer_id]
        return len(silent)

    def _first_open(self) -> int | None:
        return next(iter(self._open.values()), None)
