"""Lets a producer's writes into its transaction, each in its turn.

Kafka answers ConcurrentTransactions while a step of the transaction is being written, and clients come again after a pause of
20 to 100 ms. Here such a request waits for the end of the step, which takes much less: so a transaction that begins just after
the one before, or with several partitions at once, loses no time. Requests go on in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.coordination.journal import Producer, Timers
from kafkalake.broker.transactions.coordinator import TransactionCoordinator
from kafkalake.broker.transactions.ending import CLIENT_VERSION_2
from kafkalake.broker.transactions.records import PartitionKey
from kafkalake.broker.transactions.requests import PartitionResults
from kafkalake.errors import ConcurrentTransactionsError, KafkaError

T = TypeVar("T")


class Admission:
    """In front of the coordinator. On the event loop's thread."""

    def __init__(self, coordinator: TransactionCoordinator, timers: Timers) -> None:
        self._coordinator = coordinator
        self._timers = timers

    def admit(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[PartitionKey],
        reply: Callable[[PartitionResults], None],
        *,
        add: bool,
    ) -> None:
        """Whether the producer may write to `partitions` in its transaction, as a leader asks before it takes a batch.

        `add`: partitions that are not in it yet are added (transactions version 2); else `TransactionAbortableError` for them.
        Where a step is under way, it is waited for, at most `wait_ms`.
        """
        entry = self._coordinator.table.find(transactional_id)
        if entry is not None and entry.transaction.accepts(producer, partitions):
            reply(dict.fromkeys(partitions))
            return

        def ask(answer: Callable[[PartitionResults], None]) -> None:
            if add:
                self._coordinator.add_partitions(
                    transactional_id,
                    producer,
                    partitions,
                    lambda error: answer(dict.fromkeys(partitions, error)),
                    client_version=CLIENT_VERSION_2,
                )
                return
            try:
                results = self._coordinator.verify_partitions(transactional_id, producer, partitions)
            except KafkaError as error:
                results = dict.fromkeys(partitions, type(error))
            answer(results)

        def ask_in_turn(answer: Callable[[PartitionResults], None]) -> None:
            # What waited may have been added meanwhile by what waited before it.
            entry = self._coordinator.table.find(transactional_id)
            if entry is not None and entry.transaction.accepts(producer, partitions):
                answer(dict.fromkeys(partitions))
            else:
                ask(answer)

        self._in_turn(
            transactional_id, ask_in_turn, lambda results: ConcurrentTransactionsError in results.values(), reply
        )

    def add(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[PartitionKey],
        reply: Callable[[ErrorClass | None], None],
    ) -> None:
        """As the coordinator's `add_partitions`; a step that is under way is waited for, at most `wait_ms`."""
        self._in_turn(
            transactional_id,
            lambda answer: self._coordinator.add_partitions(transactional_id, producer, partitions, answer),
            lambda error: error is ConcurrentTransactionsError,
            reply,
        )

    def _in_turn(
        self,
        transactional_id: str,
        ask: Callable[[Callable[[T], None]], None],
        is_too_early: Callable[[T], bool],
        reply: Callable[[T], None],
    ) -> None:
        """Have `ask` answer, again each time a step has ended, while the answer is that it is too early."""
        deadline: list[Any] = []
        expired: list[T] = []

        def give_up(result: T) -> None:
            expired.append(result)
            reply(result)

        def answered(result: T) -> None:
            entry = self._coordinator.table.find(transactional_id)
            if expired:
                return
            if entry is None or not is_too_early(result) or entry.transaction.is_between_steps:
                for timeout in deadline:
                    self._timers.cancel(timeout)
                reply(result)
                return
            if not deadline:
                deadline.append(self._timers.schedule(self._coordinator.config.wait_ms, lambda: give_up(result)))
            entry.waiting.append(again)

        def again() -> None:
            if not expired:
                ask(answered)

        ask(answered)
