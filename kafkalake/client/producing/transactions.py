"""The transactions of a producer as a state machine (KIP-98, KIP-360, KIP-890). No socket, no clock, no thread.

One request to a coordinator is under way at a time, the next one is chosen by what is wanted: a producer id; with transactions of
version 1 the partitions that records wait for; offsets of groups; the end. Version 2 is used if the cluster has finalized it:
batches and offsets then add their partitions themselves, and each end of a transaction brings the next epoch.

    UNINITIALIZED -> INITIALIZING -> READY -> IN_TRANSACTION -> COMMITTING | ABORTING -> READY
                                      ABORTABLE_ERROR -> ABORTING; FATAL_ERROR from anywhere, and no way out

A little more than 400 lines: each state has its operations, and its answers and errors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kafkalake.client.errors import IllegalStateError
from kafkalake.client.network.backoff import ExponentialBackoff
from kafkalake.client.network.client import NetworkClient
from kafkalake.client.network.pending_request import PendingRequest
from kafkalake.client.producing.batch import Batch
from kafkalake.client.producing.idempotence import Identity, Sequences
from kafkalake.client.producing.transaction_errors import Verdict, as_fenced, must_abort, verdict_on, verdict_on_batch
from kafkalake.client.producing.transaction_requests import (
    Kind,
    Step,
    add_group,
    add_partitions,
    commit_offsets,
    end,
    find,
    initialize,
)
from kafkalake.client.records import ConsumerGroupMetadata, OffsetAndMetadata
from kafkalake.client.requests import PRODUCE, PRODUCE_BEFORE_TRANSACTIONS_2, ClientApi
from kafkalake.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    KafkaLakeError,
    UnknownProducerIdError,
    as_value,
)
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire.messages.records import ProduceRequest, ProduceResponse

_VERSION_FEATURE = "transaction.version"
_BUSY_MS = 20
"""The pause while the coordinator ends the transaction before."""
_NEEDS_NEW_EPOCH = (InvalidProducerIdMappingError, UnknownProducerIdError)


class State(Enum):
    """The states of `NEXT`."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "in a transaction that must be aborted"
    FATAL_ERROR = "unusable"


NEXT: Mapping[State, frozenset[State]] = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING}),
    State.INITIALIZING: frozenset({State.READY, State.ABORTABLE_ERROR}),
    State.READY: frozenset({State.IN_TRANSACTION, State.INITIALIZING}),
    State.IN_TRANSACTION: frozenset({State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR}),
    State.COMMITTING: frozenset({State.READY, State.ABORTABLE_ERROR}),
    State.ABORTING: frozenset({State.READY, State.INITIALIZING}),
    State.ABORTABLE_ERROR: frozenset({State.ABORTING, State.ABORTABLE_ERROR}),
    State.FATAL_ERROR: frozenset(),
}
"""State -> the states that may follow it, beside FATAL_ERROR."""


@dataclass
class Outcome:
    """The end of an operation, the state of which it begins: `is_done`, then `error` or None. is_heard: its caller knows it."""

    is_done: bool = False
    error: KafkaLakeError | None = None
    operation: State | None = None
    is_heard: bool = False

    def end(self, error: KafkaLakeError | None) -> None:
        """End once."""
        if not self.is_done:
            self.is_done = True
            self.error = error


@dataclass
class OffsetsOfGroup:
    """Offsets that are to be committed in the transaction."""

    offsets: dict[TopicPartition, OffsetAndMetadata]
    group: ConsumerGroupMetadata
    outcome: Outcome


class Transactions:
    """See the module. An `Identities` for the sender, in the thread of which all methods are called."""

    def __init__(
        self,
        transactional_id: str,
        timeout_ms: int,
        client: NetworkClient,
        sequences: Sequences,
        backoff: ExponentialBackoff,
        is_drained: Callable[[], bool],
        abort_unsent: Callable[[], None],
    ) -> None:
        """`is_drained`: whether no batch is on its way. `abort_unsent`: fails the batches that were never sent."""
        self.transactional_id = transactional_id
        self.state = State.UNINITIALIZED
        self.error: KafkaLakeError | None = None
        self.abortable_error: KafkaLakeError | None = None
        self.last_failure: KafkaLakeError | None = None
        self.version = 0
        self._timeout_ms = timeout_ms
        self._client = client
        self._sequences = sequences
        self._backoff = backoff
        self._is_drained = is_drained
        self._abort_unsent = abort_unsent
        self._is_version_2 = False
        self._coordinators: dict[tuple[int, str], int] = {}
        self._pending: PendingRequest[Any] | None = None
        self._attempts = 0
        self._retry_at_ms = 0
        self._outcome = Outcome(is_done=True)
        self._partitions: set[TopicPartition] = set()
        self._new_partitions: set[TopicPartition] = set()
        self._offsets: deque[OffsetsOfGroup] = deque()
        self._groups: set[str] = set()
        self._has_begun = False
        self._must_raise_epoch = False
        self._is_forgotten = False
        self._is_ending = False

    # Operations

    def initialize(self) -> Outcome:
        """Get a producer id and epoch, which fences earlier producers with this id and ends their transaction."""
        if self._is_repeated(State.INITIALIZING):
            return self._outcome
        self._require(State.UNINITIALIZED)
        self._move(State.INITIALIZING)
        return self._begin_operation()

    def begin(self) -> Outcome:
        """Begin a transaction."""
        self._require(State.READY)
        self._move(State.IN_TRANSACTION)
        self._outcome = Outcome(is_done=True)
        return self._outcome

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> Outcome:
        """Commit offsets of a group with the transaction."""
        self._require(State.IN_TRANSACTION)
        request = OffsetsOfGroup(dict(offsets), group, Outcome())
        if offsets:
            self._offsets.append(request)
        else:
            request.outcome.end(None)
        return request.outcome

    def commit(self) -> Outcome:
        """Commit the transaction, once all its batches are written."""
        if self._is_repeated(State.COMMITTING):
            return self._outcome
        self._require(State.IN_TRANSACTION)
        self._move(State.COMMITTING)
        return self._begin_operation()

    def abort(self) -> Outcome:
        """Abort the transaction. Batches that were never sent fail."""
        if self._is_repeated(State.ABORTING):
            return self._outcome
        if self.state is not State.ABORTABLE_ERROR:
            self._require(State.IN_TRANSACTION)
        self._move(State.ABORTING)
        self.abortable_error = None
        self._new_partitions.clear()
        self._drop_offsets(IllegalStateError("the transaction is being aborted"))
        self._abort_unsent()
        return self._begin_operation()

    @property
    def ending(self) -> Callable[[Transactions], Outcome] | None:
        """The operation to be done before the producer is closed: the end under way, else an abort. None without a transaction."""
        if self.state is State.COMMITTING:
            return Transactions.commit
        is_open = self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR, State.ABORTING)
        return Transactions.abort if is_open else None

    def check_send(self) -> None:
        """Raise the error for which no record may be sent now, `IllegalStateError` outside of a transaction."""
        self._require(State.IN_TRANSACTION)

    # For the sender

    @property
    def produce_api(self) -> ClientApi[ProduceRequest, ProduceResponse]:
        """The versions of Produce: from 12 on a batch adds its partition itself."""
        return PRODUCE if self._is_version_2 else PRODUCE_BEFORE_TRANSACTIONS_2

    def poll(self, now_ms: int) -> None:
        """Send the next request, if one is due."""
        if self._sequences.resolve():
            self._must_raise_epoch = not self._is_version_2
            self._fail(IllegalStateError("batches were given up, and the broker may have them or not"), Verdict.ABORT)
        if self._is_ending or self.state in (State.ABORTING, State.ABORTABLE_ERROR):
            self._abort_unsent()  # records of threads that were about to add them
        if self._pending is not None or self._retry_at_ms > now_ms:
            return
        self._finish_if_nothing_is_left()
        step = self._next_step()
        if step is None:
            return
        if step.key is not None and step.key not in self._coordinators:
            step = find(step.key)
        node_id = self._client.any_node(now_ms) if step.key is None else self._coordinators[step.key]
        if node_id is None:
            self._retry_at_ms = self._client.chance_ms(now_ms)
        else:
            self._send(step, node_id, now_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when the next request is due."""
        return None if self._pending is not None or self._next_step() is None else self._retry_at_ms

    def may_send(self, batch: Batch) -> bool:
        """Return whether a batch may be sent now."""
        is_repeated = batch.has_sequence and self.state in (State.ABORTING, State.ABORTABLE_ERROR)
        if not self._takes_records and not is_repeated:
            return False
        if self._is_version_2 or (batch.topic, batch.partition) in self._partitions:
            return self._sequences.may_send(batch)
        if self._takes_records:
            self._new_partitions.add((batch.topic, batch.partition))
        return False

    def sent(self, batch: Batch) -> None:
        """Number the batch, which adds its partition to the transaction."""
        self._has_begun = True
        self._partitions.add((batch.topic, batch.partition))
        self._sequences.number(batch)

    def failed(self, batch: Batch, error: KafkaLakeError) -> None:
        """Take the news that a batch is lost for good: so is the transaction."""
        if self._takes_records:
            self._must_raise_epoch = self._must_raise_epoch or (batch.has_sequence and not self._is_version_2)
            self._fail(error, verdict_on_batch(error))

    # Parts

    @property
    def _takes_records(self) -> bool:
        """Return whether batches become part of the transaction: not once the coordinator is asked to end it."""
        return self.state in (State.IN_TRANSACTION, State.COMMITTING) and not self._is_ending

    def _require(self, state: State) -> None:
        if self.error is not None:
            raise as_value(self.error)
        if self.state is State.ABORTABLE_ERROR and self.abortable_error is not None:
            raise must_abort(self.abortable_error)
        if self.state is not state:
            raise IllegalStateError(f"the producer is {self.state.value}; this needs it to be {state.value}")

    def _is_repeated(self, operation: State) -> bool:
        """Return whether an operation is that under way, or the last one, whose caller had no time to hear of its success."""
        last = self._outcome
        return last.operation is operation and not last.is_heard and last.error is None

    def _move(self, state: State) -> None:
        assert state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state
        self.version += 1

    def _begin_operation(self) -> Outcome:
        self._outcome = Outcome(operation=self.state)
        self.last_failure = None
        self._retry_at_ms = 0
        self._attempts = 0
        return self._outcome

    def _next_step(self) -> Step | None:
        """Return the request that is wanted next."""
        if self.state is State.INITIALIZING:
            identity = self._sequences.identity if self._must_raise_epoch else Identity()
            return initialize(self.transactional_id, self._timeout_ms, identity)
        if self.state in (State.IN_TRANSACTION, State.COMMITTING):
            if self._new_partitions:
                return add_partitions(self.transactional_id, self._sequences.identity, self._new_partitions)
            if self._offsets:
                return self._offsets_step(self._offsets[0])
        if self.state in (State.COMMITTING, State.ABORTING) and self._is_drained():
            return end(
                self.transactional_id,
                self._sequences.identity,
                is_commit=self.state is State.COMMITTING,
                raises_epoch=self._is_version_2,
            )
        return None

    def _offsets_step(self, request: OffsetsOfGroup) -> Step:
        identity = self._sequences.identity
        if not self._is_version_2 and request.group.group_id not in self._groups:
            return add_group(self.transactional_id, identity, request.group.group_id)
        return commit_offsets(self.transactional_id, identity, request.offsets, request.group, adds=self._is_version_2)

    def _finish_if_nothing_is_left(self) -> None:
        """End a transaction that the coordinator knows nothing of, or whose producer id it has forgotten."""
        if self.state not in (State.COMMITTING, State.ABORTING) or not self._is_drained():
            return
        is_known = self._has_begun and not self._is_forgotten
        if not is_known and not self._new_partitions and not self._offsets:
            self._finish()

    def _finish(self) -> None:
        """End the transaction. After an error the epoch is raised first, so that nothing of it can still arrive."""
        self._is_ending = True
        self._abort_unsent()  # what has come meanwhile, which is not of the next one either
        self._partitions.clear()
        self._groups.clear()
        self._has_begun = self._is_ending = False
        if self._must_raise_epoch and self.state is State.ABORTING:
            self._move(State.INITIALIZING)
            return
        self._must_raise_epoch = self._is_forgotten = False
        self._move(State.READY)
        self._outcome.end(None)

    def _send(self, step: Step, node_id: int, now_ms: int) -> None:
        self._has_begun = self._has_begun or step.kind is Kind.COMMIT_OFFSETS  # which may be done and not answered
        self._is_ending = step.kind is Kind.END or (self._is_ending and step.kind is Kind.FIND)

        def done(pending: PendingRequest[Any]) -> None:
            self._pending = None
            self._answered(step, node_id, pending, now_ms)

        self._pending = self._client.send(node_id, step.api, step.message, now_ms, done=done)

    def _answered(self, step: Step, node_id: int, pending: PendingRequest[Any], now_ms: int) -> None:
        errors: Sequence[KafkaLakeError]
        errors = [pending.error] if pending.error is not None else step.errors(pending.result())
        if errors:
            self._take_errors(step, errors, now_ms)
            return
        self._attempts = 0
        self.last_failure = None
        self._take(step, node_id, pending.result())
        self.version += 1

    def _take(self, step: Step, node_id: int, response: Any) -> None:
        """Take over a response without error."""
        if step.kind is Kind.FIND:
            assert step.found is not None
            self._client.metadata.take_coordinator(response)
            self._coordinators[step.found] = response.node_id
        elif step.kind is Kind.INITIALIZE:
            self._is_version_2 = self._client.features(node_id).get(_VERSION_FEATURE, 0) >= 2
            self._sequences.begin(Identity(response.producer_id, response.producer_epoch))
            self._must_raise_epoch = self._is_forgotten = False
            self._move(State.READY)
            self._outcome.end(None)
        elif step.kind is Kind.ADD_PARTITIONS:
            self._partitions |= step.partitions
            self._new_partitions -= step.partitions
            self._has_begun = True
        elif step.kind is Kind.ADD_GROUP:
            self._groups.add(step.group_id)
            self._has_begun = True
        elif step.kind is Kind.COMMIT_OFFSETS:
            if self._offsets:
                self._offsets.popleft().outcome.end(None)
        else:
            if self._is_version_2 and response.producer_id >= 0:
                self._sequences.begin(Identity(response.producer_id, response.producer_epoch))
            self._finish()

    def _take_errors(self, step: Step, errors: Sequence[KafkaLakeError], now_ms: int) -> None:
        by_verdict = {verdict_on(error): error for error in reversed(errors)}
        for verdict in (Verdict.GIVE_UP, Verdict.ABORT):
            if verdict in by_verdict:
                if step.kind is Kind.END and self.state is State.ABORTING:
                    self._is_forgotten = self._must_raise_epoch = True  # the next epoch ends what there may be of it
                self._fail(by_verdict[verdict], verdict)
                return
        if Verdict.LOOK_UP in by_verdict and step.key is not None:
            self._coordinators.pop(step.key, None)
        self.last_failure = as_value(errors[0])
        is_busy = isinstance(errors[0], ConcurrentTransactionsError)
        self._retry_at_ms = now_ms + (_BUSY_MS if is_busy else self._backoff.delay_ms(self._attempts))
        self._attempts += 1

    def _fail(self, error: KafkaLakeError, verdict: Verdict) -> None:
        """Move to the state that an error asks for, and end what is under way with it. After a fatal one no other counts."""
        if self.state is State.FATAL_ERROR:
            return
        if verdict is Verdict.GIVE_UP:
            self.error = as_fenced(error)
            self.state = State.FATAL_ERROR
            self.version += 1
            self._outcome.end(self.error)
            self._drop_offsets(self.error)
            return
        self._is_forgotten = self._is_forgotten or isinstance(error, InvalidProducerIdMappingError)
        self._must_raise_epoch = self._must_raise_epoch or isinstance(error, _NEEDS_NEW_EPOCH)
        if self.state is State.ABORTING:
            return
        self.abortable_error = error
        self._move(State.ABORTABLE_ERROR)
        self._new_partitions.clear()
        self._outcome.end(must_abort(error))
        self._drop_offsets(must_abort(error))
        self._abort_unsent()

    def _drop_offsets(self, error: KafkaLakeError) -> None:
        while self._offsets:
            self._offsets.popleft().outcome.end(error)
