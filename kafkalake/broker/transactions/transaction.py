"""One transactional id: events in, decisions out.

    Empty ──partition added──> Ongoing ──end──> PrepareCommit ──all markers written──> CompleteCommit ─┐
      ^                          │  ^                                                                  │
      │                          │  └──partition added─────────────────────────────────────────────────┤
      │                          └──end, timeout, another producer─────> PrepareAbort ──> CompleteAbort┤
      └──────────────────────────────producer (re)starts: next epoch────────────────────────────────────┘
    Dead: the id was not used for `transactional.id.expiration.ms`.

A step takes effect when the journal has it. Until then `current` is the state before it, and every other request fails with
ConcurrentTransactions. A durable Prepare state decides the transaction: the client is answered, every partition gets its marker,
and a coordinator that finds the state while loading writes the markers again (partitions accept duplicate markers).

Epochs. Older clients keep theirs until InitProducerId. Clients of transactions version 2 get the next one with each end of a
transaction, so that a late request never touches the next transaction. Ending a producer's transaction on its behalf (a second
producer, a timeout) takes the next epoch too, so the producer is fenced. The last usable epoch is 2^15 - 2 (the one after it is
for fencing). Then the id gets another producer id.

Source: KIP-98, KIP-360 (expected epoch), KIP-890 (version 2), and answers of Apache Kafka 4.1.1.

A little more than 400 lines: all that may happen to one id, since each event depends on what the others have left.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace

from kafkalake.broker.coordination.decisions import Append, CancelTimer, ErrorClass, Reply, SetTimer
from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.transactions.config import TransactionConfig
from kafkalake.broker.transactions.decisions import FaultPoint, Marker, Reach, TransactionDecision, WriteMarker
from kafkalake.broker.transactions.ending import (
    EPOCH_MAX,
    EndRequest,
    begins_next,
    check_end,
    complete,
    fence,
    prepare,
)
from kafkalake.broker.transactions.records import (
    TransactionRecord,
    TransactionTombstone,
)
from kafkalake.broker.transactions.requests import PartitionResults, ProducerResult
from kafkalake.broker.transactions.starting import first, pass_over, restarted
from kafkalake.broker.transactions.states import NEXT, State
from kafkalake.clock import Clock
from kafkalake.errors import (
    ConcurrentTransactionsError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    KafkaError,
    MessageTooLargeError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionCoordinatorFencedError,
    UnknownTopicOrPartitionError,
)
from kafkalake.topic_partition import TopicPartition

TIMEOUT_TIMER = "timeout"
MARKERS_TIMER = "markers"
COMPLETE_TIMER = "complete"
PASS_TIMER = "pass over epochs"


@dataclass(frozen=True, slots=True, eq=False)
class PendingState:
    """Ticket: the state that is being written (None: the id is removed), the waiter and its result."""

    record: TransactionRecord | None
    waiter: object = None
    result: object = None


class Transaction:
    """One transactional id. Each event adds its decisions to `decisions`, for the coordinator to take and carry out in order.

    `current` is the journaled state, None before the first record. `new_producer_id` returns a never used id.
    `fenced`: a partition refused the marker because another coordinator has taken over. No further decisions are made.
    """

    def __init__(
        self, transactional_id: str, config: TransactionConfig, clock: Clock, new_producer_id: Callable[[], int]
    ) -> None:
        self.transactional_id = transactional_id
        self.current: TransactionRecord | None = None
        self.decisions: list[TransactionDecision] = []
        self.fenced = False
        self._config = config
        self._clock = clock
        self._new_producer_id = new_producer_id
        self._step: PendingState | None = None
        self._unmarked: set[TopicPartition] = set()
        self._epochs_lost = 0
        self._closed = False

    @property
    def is_vacant(self) -> bool:
        """Return whether the id has no state, journaled or being written."""
        return self.current is None and self._step is None

    @property
    def unfinished_partitions(self) -> frozenset[TopicPartition]:
        """The partitions of the open transaction, or after its Prepare state those that lack the marker."""
        if self.current is None:
            return frozenset()
        return frozenset(self._unmarked) if self.current.state.is_prepared else self.current.partitions

    @property
    def has_step(self) -> bool:
        """Return whether a state is being written, so that its outcome is not known yet."""
        return self._step is not None

    @property
    def is_between_steps(self) -> bool:
        """Return whether nothing is being written and no marker is missing: requests after ConcurrentTransactions may be retried.

        So it is after `close`: a retry gets the error of an id that is not coordinated here.
        """
        return self._closed or (self._step is None and (self.current is None or not self.current.state.is_prepared))

    @property
    def may_begin(self) -> bool:
        """Return whether no transaction is open or being ended."""
        return self._step is None and self.current is not None and self.current.state.is_settled

    def accepts(self, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]) -> bool:
        """Return whether the producer may write to the partitions: they are added, and the transaction is not being ended."""
        current, step = self.current, self._step
        return (
            current is not None
            and current.state is State.ONGOING
            and (current.producer_id, current.epoch) == (producer.producer_id, producer.epoch)
            and (step is None or (step.record is not None and step.record.state is State.ONGOING))
            and current.partitions.issuperset(partitions)
        )

    # Starting a producer

    def init(self, timeout_ms: int, expected: ProducerIdAndEpoch | None, waiter: object) -> None:
        """Handle InitProducerId. `expected`: the client's producer id and epoch (KIP-360). Reply with a `ProducerResult`."""
        try:
            if self._step is not None:
                raise ConcurrentTransactionsError
            now_ms = self._clock.now_ms()
            if self.current is None:
                record = first(self.transactional_id, self._new_producer_id(), timeout_ms, now_ms)
            else:
                record = restarted(self.current, timeout_ms, expected, now_ms, self._new_producer_id)
        except KafkaError as error:
            self._reply(waiter, ProducerResult(type(error)))
            return
        if record.state is State.PREPARE_ABORT:
            # The open transaction is aborted first. On retry the producer gets the epoch after the fencing one.
            self._prepare(record, waiter, ProducerResult(ConcurrentTransactionsError))
        else:
            self._write(PendingState(record, waiter, ProducerResult(None, record.producer_id, record.epoch)))

    # Adding partitions

    def add_partitions(
        self, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition], client_version: int, waiter: object
    ) -> None:
        """Handle AddPartitionsToTxn or AddOffsetsToTxn. Reply with an error class or None for all partitions."""
        try:
            current = self._open_for(producer)
            if producer.epoch == EPOCH_MAX:
                raise ProducerFencedError  # this epoch is never given out
        except KafkaError as error:
            self._reply(waiter, type(error))
            return
        ongoing = current.state is State.ONGOING
        added = frozenset(partitions)
        if ongoing and added <= current.partitions:
            self._reply(waiter, None)
            return
        now_ms = self._clock.now_ms()
        record = replace(
            current,
            state=State.ONGOING,
            partitions=current.partitions | added,
            updated_at_ms=now_ms,
            started_at_ms=current.started_at_ms if ongoing else now_ms,
            client_version=client_version,
        )
        self._write(PendingState(record, waiter))

    def verify_partitions(self, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]) -> PartitionResults:
        """Return None for each partition in the transaction, else `TransactionAbortableError`.

        A broker verifies before it appends a batch of an older client. Raise the errors that `add_partitions` replies with.
        """
        known = self._open_for(producer).partitions
        return {one: None if one in known else TransactionAbortableError for one in partitions}

    def _open_for(self, producer: ProducerIdAndEpoch) -> TransactionRecord:
        """Return the state if this producer may use its transaction."""
        if self._step is not None:
            raise ConcurrentTransactionsError
        current = self._known()
        if begins_next(current, producer):
            raise ConcurrentTransactionsError
        if current.producer_id != producer.producer_id:
            raise InvalidProducerIdMappingError
        if current.epoch != producer.epoch:
            raise ProducerFencedError
        if current.state.is_prepared:
            raise ConcurrentTransactionsError
        return current

    def _known(self) -> TransactionRecord:
        if self.current is None:
            raise InvalidProducerIdMappingError
        return self.current

    # Ending

    def end(self, request: EndRequest, waiter: object) -> None:
        """Handle EndTxn. Reply with a `ProducerResult` as soon as the outcome is durable."""
        try:
            current = self._known()
            step_under_way = self._step is not None
            if not check_end(current, request, step_under_way=step_under_way):
                self._reply(waiter, ProducerResult(None, current.producer_id, current.epoch))  # a retry
                return
            record = prepare(current, request, self._clock.now_ms(), self._new_producer_id)
        except KafkaError as error:
            self._reply(waiter, ProducerResult(type(error)))
            return
        after = complete(record, record.updated_at_ms)
        self._prepare(record, waiter, ProducerResult(None, after.producer_id, after.epoch))

    def _prepare(self, record: TransactionRecord, waiter: object, result: object) -> None:
        self.decisions.append(Reach(FaultPoint.BEFORE_PREPARE))
        self._write(PendingState(record, waiter, result))

    def _time_is_up(self) -> None:
        current = self.current
        if current is None or current.state is not State.ONGOING:
            return
        remaining_ms = current.started_at_ms + current.timeout_ms - self._clock.now_ms()
        if self._step is not None or remaining_ms > 0:
            # A step is being written, or the wall clock went back: wait at most the timeout again, and not many times a second.
            delay_ms = max(min(remaining_ms, current.timeout_ms), self._config.retry_ms)
            self.decisions.append(SetTimer(TIMEOUT_TIMER, delay_ms))
            return
        self._prepare(fence(current, self._clock.now_ms()), None, None)

    # Markers

    def _write_markers(self) -> None:
        """Write markers to the partitions that lack them, and complete if there are none."""
        current = self.current
        if current is None or not current.state.is_prepared or self.fenced:
            return
        marker = _marker(current)
        for partition in sorted(self._unmarked):
            self.decisions += [Reach(FaultPoint.BEFORE_MARKER), WriteMarker(partition, marker)]
        if not self._unmarked:
            self._complete()

    def marker_written(self, partition: TopicPartition, marker: Marker, error: ErrorClass | None) -> None:
        """Handle a durable or refused `WriteMarker`. `UnknownTopicOrPartitionError`: the topic was deleted, no marker is needed.

        Every other error is retried, unless another coordinator has taken over.
        """
        current = self.current
        if current is None or self._closed or not current.state.is_prepared or marker != _marker(current):
            return
        if partition not in self._unmarked or self.fenced:
            return
        if error in (InvalidProducerEpochError, TransactionCoordinatorFencedError):
            self.fenced = True
            self.decisions.append(CancelTimer(MARKERS_TIMER))
        elif error is None or error is UnknownTopicOrPartitionError:
            self._unmarked.discard(partition)
            self.decisions.append(Reach(FaultPoint.MARKER_WRITTEN))
            if not self._unmarked:
                self.decisions.append(CancelTimer(MARKERS_TIMER))
                self._complete()
        else:
            self.decisions.append(SetTimer(MARKERS_TIMER, self._config.retry_ms))

    def _complete(self) -> None:
        if self._step is None and self.current is not None and self.current.state.is_prepared:
            self.decisions.append(Reach(FaultPoint.ALL_MARKERS_WRITTEN))
            now_ms = self._clock.now_ms()
            record = complete(self.current, now_ms)
            if self._epochs_lost:
                try:
                    passed = pass_over(record, self._epochs_lost, now_ms, self._new_producer_id)
                except KafkaError:
                    self.decisions.append(SetTimer(COMPLETE_TIMER, self._config.retry_ms))
                    return
                record = replace(passed, state=record.state)
            self._write(PendingState(record))

    def _pass_over(self) -> None:
        """Give out none of the epochs that lost records may have given out. Until the journal says so, requests are refused."""
        assert self.current is not None
        try:
            record = pass_over(self.current, self._epochs_lost, self._clock.now_ms(), self._new_producer_id)
        except KafkaError:
            self._step = PendingState(None)
            self.decisions.append(SetTimer(PASS_TIMER, self._config.retry_ms))
        else:
            self._step = None
            self._write(PendingState(record))

    # Expiry

    def expire(self) -> bool:
        """Write the tombstone if the id has expired. Return whether it does."""
        current = self.current
        if current is None or self._step is not None or not current.state.is_settled:
            return False
        if current.updated_at_ms > self._clock.now_ms() - self._config.transactional_id_expiration_ms:
            return False
        self._write(PendingState(None))
        return True

    # Callbacks from the coordinator

    def timer_fired(self, name: Hashable) -> None:
        """Handle the expiry of the timer `name`."""
        if name == TIMEOUT_TIMER:
            self._time_is_up()
        elif name == MARKERS_TIMER:
            self._write_markers()
        elif name == COMPLETE_TIMER:
            self._complete()
        elif name == PASS_TIMER:
            self._pass_over()

    def appended(self, ticket: object, error: ErrorClass | None) -> None:
        """Continue after an `Append`: enter the state if it is durable, else keep the current one and fail the request."""
        if self._closed or ticket is not self._step:
            return
        assert isinstance(ticket, PendingState)
        self._step = None
        if error is None:
            self._become(ticket)
            return
        if ticket.waiter is not None:
            error = KafkaError if error is MessageTooLargeError else error
            is_producer = isinstance(ticket.result, ProducerResult)
            self._reply(ticket.waiter, ProducerResult(error) if is_producer else error)
        if self.current is not None and self.current.state.is_prepared:
            self.decisions.append(SetTimer(COMPLETE_TIMER, self._config.retry_ms))
        elif self._epochs_lost:
            self._step = ticket
            self.decisions.append(SetTimer(PASS_TIMER, self._config.retry_ms))
        elif ticket.record is not None and ticket.record.state is State.PREPARE_ABORT and ticket.waiter is None:
            self.decisions.append(SetTimer(TIMEOUT_TIMER, self._config.retry_ms))

    def _become(self, step: PendingState) -> None:
        before, record = self.current, step.record
        if before is not None:
            assert (State.DEAD if record is None else record.state) in NEXT[before.state]
        self.current = record
        self._epochs_lost = 0
        prepared = record is not None and record.state.is_prepared
        if prepared:
            self.decisions += [CancelTimer(TIMEOUT_TIMER), Reach(FaultPoint.PREPARED)]
        elif before is not None and before.state.is_prepared:
            self.decisions.append(Reach(FaultPoint.COMPLETED))
        if step.waiter is not None:
            self._reply(step.waiter, step.result)
        if prepared:
            assert record is not None
            self._unmarked = set(record.partitions)
            self._write_markers()
        elif (
            record is not None
            and record.state is State.ONGOING
            and (before is None or before.state is not record.state)
        ):
            self.decisions.append(SetTimer(TIMEOUT_TIMER, record.timeout_ms))

    def restore(self, record: TransactionRecord | None) -> None:
        """Apply a journal record while loading. None is a tombstone."""
        assert self._step is None
        self.current = record

    def restored(self, epochs_lost: int = 0) -> None:
        """Continue after the journal has been read. A prepared transaction gets all its markers (again).

        epochs_lost: how many epochs lost records may have given out. They are not given out again: producers with an older one are
        fenced, and an open transaction, which may have ended, is aborted.
        """
        current = self.current
        if current is None:
            return
        self._epochs_lost = epochs_lost
        if epochs_lost and not current.state.is_prepared:
            self._pass_over()
        elif current.state.is_prepared:
            self._unmarked = set(current.partitions)
            self._write_markers()
        elif current.state is State.ONGOING:
            remaining_ms = current.started_at_ms + current.timeout_ms - self._clock.now_ms()
            self.decisions.append(SetTimer(TIMEOUT_TIMER, min(max(remaining_ms, 0), current.timeout_ms)))

    def close(self, error: ErrorClass) -> None:
        """Stop coordinating the id. A pending request fails with `error`, and nothing further happens."""
        step, self._step = self._step, None
        self._closed = True
        if step is not None and step.waiter is not None:
            self._reply(step.waiter, ProducerResult(error) if isinstance(step.result, ProducerResult) else error)
        self.decisions += [CancelTimer(name) for name in (TIMEOUT_TIMER, MARKERS_TIMER, COMPLETE_TIMER, PASS_TIMER)]

    def _write(self, step: PendingState) -> None:
        assert self._step is None
        self._step = step
        record = TransactionTombstone(self.transactional_id) if step.record is None else step.record
        self.decisions.append(Append((record,), step))

    def _reply(self, waiter: object, result: object) -> None:
        self.decisions.append(Reply(waiter, result))


def _marker(record: TransactionRecord) -> Marker:
    return Marker(record.producer_id, record.epoch, record.state is State.PREPARE_COMMIT)
