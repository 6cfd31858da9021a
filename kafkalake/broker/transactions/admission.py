"""Admits a producer's writes into its transaction, in order.

Kafka answers ConcurrentTransactions while a step of the transaction is being written, and clients retry after 20 to 100 ms. Here
such a request waits for the end of the step, which takes much less. So a transaction that begins just after the previous one, or
with several partitions at once, loses no time.
Writes of one transactional id are admitted in order of arrival: a producer has several requests in flight, and a later one whose
partitions are all in the transaction must not overtake one that still adds a partition (its batches carry sequence numbers).
Apache Kafka reads a connection's next request only after the previous one is answered.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.coordination.journal import ProducerIdAndEpoch, Timers
from kafkalake.broker.transactions.coordinator import TransactionCoordinator
from kafkalake.broker.transactions.ending import CLIENT_VERSION_2
from kafkalake.broker.transactions.remote_admission import RemoteAdmission
from kafkalake.broker.transactions.requests import PartitionResults
from kafkalake.broker.transactions.table import TransactionEntry
from kafkalake.broker.transactions.transaction_peers import AdmissionRequest
from kafkalake.errors import ConcurrentTransactionsError, KafkaError
from kafkalake.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(slots=True)
class _Line:
    """Queued writes of one transactional id. `is_taken` while one of them is being processed."""

    turns: deque[Callable[[], None]] = field(default_factory=deque)
    is_taken: bool = False
    is_moving: bool = False


class Admission:
    """Queue of transactional writes in front of the coordinator. Runs on the event loop's thread."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        timers: Timers,
        remote: RemoteAdmission,
        coordinator_elsewhere: Callable[[str], int | None],
    ) -> None:
        """`coordinator_elsewhere` returns the id of the broker that coordinates a transactional id, None if no other one does."""
        self._coordinator = coordinator
        self._timers = timers
        self._remote = remote
        self._coordinator_elsewhere = coordinator_elsewhere
        self._lines: dict[str, _Line] = {}
        """Queues by transactional id, while writes are pending."""

    def admit(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        reply: Callable[[PartitionResults], None],
        *,
        add: bool,
    ) -> None:
        """Reply whether the producer may write to `partitions` in its transaction, before a leader appends a batch.

        `add`: missing partitions are added (transactions version 2), else they get `TransactionAbortableError`.
        If a step is being written, wait for it, at most `wait_ms`. A coordinator that is another broker is asked.
        """
        line = self._lines.get(transactional_id)
        if line is None:
            entry = self._coordinator.table.find(transactional_id)
            if entry is None:
                is_accepted = self._accepts(transactional_id, producer, partitions)
            else:  # the hot path
                is_accepted = entry.transaction.accepts(producer, partitions)
            if is_accepted:
                reply(dict.fromkeys(partitions))
                return
            line = self._lines[transactional_id] = _Line()

        def ask(answer: Callable[[PartitionResults], None]) -> None:
            elsewhere = self._coordinator_elsewhere(transactional_id)
            if elsewhere is not None:
                request = AdmissionRequest(transactional_id, producer, tuple(partitions), add)
                self._remote.admit(elsewhere, request, answer)
            elif add:
                self._coordinator.add_partitions(
                    transactional_id,
                    producer,
                    partitions,
                    lambda error: answer(dict.fromkeys(partitions, error)),
                    client_version=CLIENT_VERSION_2,
                )
            else:
                answer(self._verified(transactional_id, producer, partitions))

        def ask_in_turn(answer: Callable[[PartitionResults], None]) -> None:
            # An earlier queued write may have added the partitions meanwhile.
            if self._accepts(transactional_id, producer, partitions):
                answer(dict.fromkeys(partitions))
            else:
                ask(answer)

        def admitted(results: PartitionResults) -> None:
            line.is_taken = False
            call_isolated(CallbackLoop.TURN_OF_PRODUCER, reply, results)
            self._move(transactional_id, line)

        unexpected: PartitionResults = dict.fromkeys(partitions, KafkaError)

        def turn() -> None:
            _Question(
                self._coordinator,
                self._timers,
                transactional_id,
                ask_in_turn,
                lambda results: ConcurrentTransactionsError in results.values(),
                unexpected,
                admitted,
            ).ask()

        line.turns.append(turn)
        self._move(transactional_id, line)

    def _accepts(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> bool:
        """Return whether the producer may write to the partitions, as far as it is known here."""
        entry = self._coordinator.table.find(transactional_id)
        if entry is not None:
            return entry.transaction.accepts(producer, partitions)
        return self._coordinator_elsewhere(transactional_id) is not None and self._remote.accepts(producer, partitions)

    def _verified(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> PartitionResults:
        try:
            return self._coordinator.verify_partitions(transactional_id, producer, partitions)
        except KafkaError as error:
            return dict.fromkeys(partitions, type(error))

    def verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        reply: Callable[[PartitionResults], None],
    ) -> None:
        """Answer a leader that is to write to `partitions`. If a step is being written, wait for it, at most `wait_ms`."""
        unexpected: PartitionResults = dict.fromkeys(partitions, KafkaError)
        _Question(
            self._coordinator,
            self._timers,
            transactional_id,
            lambda answer: answer(self._verified(transactional_id, producer, partitions)),
            lambda results: ConcurrentTransactionsError in results.values(),
            unexpected,
            reply,
        ).ask()

    def _move(self, transactional_id: str, line: _Line) -> None:
        """Process queued writes until one has to wait."""
        if line.is_moving:
            return  # called from within: the loop below continues
        line.is_moving = True
        try:
            while line.turns and not line.is_taken:
                line.is_taken = True
                line.turns.popleft()()
        finally:
            line.is_moving = False
        if not line.turns and not line.is_taken:
            self._lines.pop(transactional_id, None)

    def add(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        reply: Callable[[ErrorClass | None], None],
        *,
        client_version: int = 0,
    ) -> None:
        """Call the coordinator's `add_partitions`. If a step is being written, wait for it, at most `wait_ms`."""
        unexpected: ErrorClass | None = KafkaError
        _Question(
            self._coordinator,
            self._timers,
            transactional_id,
            lambda answer: self._coordinator.add_partitions(
                transactional_id, producer, partitions, answer, client_version=client_version
            ),
            lambda error: error is ConcurrentTransactionsError,
            unexpected,
            reply,
        ).ask()


@dataclass(slots=True, eq=False)
class _Question(Generic[T]):
    """A call of `call`, and again after each step while its result is too early, until `wait_ms` is over. Replies once.

    failed: the reply after an unexpected exception of `call`. An object and not functions that refer to each other: these would
    keep the batch behind `reply` until a garbage collection.
    """

    coordinator: TransactionCoordinator
    timers: Timers
    transactional_id: str
    call: Callable[[Callable[[T], None]], None]
    is_too_early: Callable[[T], bool]
    failed: T
    reply: Callable[[T], None]
    _deadline: object | None = None
    _waits_at: TransactionEntry | None = None
    _is_answered: bool = False

    def ask(self) -> None:
        """Ask, unless it is answered."""
        if self._is_answered:
            return
        try:
            self.call(self._answered)
        except Exception:
            logger.exception("request of a transaction failed transactional_id=%s", self.transactional_id)
            self._answer(self.failed)

    def _answered(self, result: T) -> None:
        entry = self.coordinator.table.find(self.transactional_id)
        if entry is None or not self.is_too_early(result) or entry.transaction.is_between_steps:
            self._answer(result)
        elif not self._is_answered:
            if self._deadline is None:
                wait_ms = self.coordinator.config.wait_ms
                self._deadline = self.timers.schedule(wait_ms, lambda: self._answer(result))
            self._waits_at = entry
            entry.waiting[self.ask] = None

    def _answer(self, result: T) -> None:
        if self._is_answered:
            return
        self._is_answered = True
        if self._deadline is not None:
            self.timers.cancel(self._deadline)
        if self._waits_at is not None:
            self._waits_at.waiting.pop(self.ask, None)
        self.reply(result)
