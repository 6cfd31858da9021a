"""The transaction coordinator: routes each request to its transactional id and carries out its decisions.

The rules are in `transaction`, `starting` and `ending`. `coordination.journaled_coordinator` loads the ids from the journal and
writes their records. A `WriteMarker` goes to the partitions' logs. `coordination.automata` carries out all other decisions.
Needs no event loop: a request that may wait takes `reply`, a function called exactly once, at once or later, on the same thread.
All other requests return or raise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.coordination.automata import EffectRunner
from kafkalake.broker.coordination.decisions import Append, ErrorClass
from kafkalake.broker.coordination.journal import Journal, ProducerIdAndEpoch, Timers
from kafkalake.broker.coordination.journaled_coordinator import JournaledCoordinator
from kafkalake.broker.coordination.patterns import check_regex, matching
from kafkalake.broker.transactions.config import TransactionConfig
from kafkalake.broker.transactions.decisions import FaultPoint, Marker, Reach, TransactionDecision, WriteMarker
from kafkalake.broker.transactions.ending import EndRequest
from kafkalake.broker.transactions.records import TRANSACTION_FORMAT, TransactionRecord
from kafkalake.broker.transactions.requests import (
    PartitionResults,
    ProducerResult,
    TransactionDescription,
    TransactionFilter,
    TransactionList,
    TransactionSummary,
)
from kafkalake.broker.transactions.states import BY_LABEL
from kafkalake.broker.transactions.table import TransactionEntry, TransactionTable
from kafkalake.broker.transactions.transaction import Transaction
from kafkalake.broker.transactions.waves import Waves
from kafkalake.clock import Clock
from kafkalake.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidProducerIdMappingError,
    InvalidTransactionTimeoutError,
    KafkaError,
    TransactionalIdNotFoundError,
)
from kafkalake.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

LISTED_MAX = 200
LISTED_BYTES = 32_000
"""The most ids, and about the most of their bytes, that are looked at in one step of a list."""

Markers = Callable[[TopicPartition, Marker, int, Callable[[ErrorClass | None], None]], None]
"""Function (partition, marker, coordinator epoch, done) that appends a control batch to a log.

It calls `done` once, perhaps before it returns: when the batch is durable, or with the error. `UnknownTopicOrPartitionError` means
that the partition was deleted. A marker in the offsets journal also ends the transaction at the group coordinator, before `done`.
"""


class TransactionCoordinator:
    """Coordinates the transactional ids of the journal partitions that were loaded.

    `new_producer_id` returns a never used id and may raise a `KafkaError`. `reached` is called at each fault point.
    """

    def __init__(
        self,
        config: TransactionConfig,
        clock: Clock,
        timers: Timers,
        journal: Journal,
        markers: Markers,
        new_producer_id: Callable[[], int],
        waves: Waves,
        reached: Callable[[FaultPoint], None] = lambda point: None,
    ) -> None:
        self.config = config
        self.clock = clock
        self._markers = markers
        self._waves = waves
        self._reached = reached
        self.table = TransactionTable(
            lambda: journal.partitions,
            lambda transactional_id: Transaction(transactional_id, config, clock, new_producer_id),
            waves,
        )
        self.effects: EffectRunner[TransactionEntry] = EffectRunner(timers, self._decided, self._finished)
        self.journaled = JournaledCoordinator(self.table, TRANSACTION_FORMAT, journal, clock, self.effects)

    # Requests

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        reply: Callable[[ProducerResult], None],
    ) -> None:
        """Handle InitProducerId with a transactional id."""
        try:
            self._check_name(transactional_id)
            if not 0 < timeout_ms <= self.config.transaction_max_timeout_ms:
                raise InvalidTransactionTimeoutError
            partition = self.table.check(transactional_id)
            self._check_room(transactional_id)
        except KafkaError as error:
            reply(ProducerResult(type(error)))
            return
        entry = self.table.find_or_create(transactional_id, partition)
        entry.transaction.init(timeout_ms, expected, reply)
        self.effects.run(entry)

    def _check_room(self, transactional_id: str) -> None:
        """Raise `CoordinatorNotAvailableError` if a new id would exceed the limits of ids or their bytes."""
        if self.table.find(transactional_id) is not None:
            return
        if len(self.table) >= self.config.transactional_ids_max:
            raise CoordinatorNotAvailableError("too many transactional ids (transactional.ids.max)")
        if self.table.memory.bytes + len(transactional_id) > self.config.transactional_ids_max_bytes:
            raise CoordinatorNotAvailableError("transactional ids are too long together")

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        reply: Callable[[ErrorClass | None], None],
        *,
        client_version: int = 0,
    ) -> None:
        """Handle AddPartitionsToTxn of one transaction, AddOffsetsToTxn (the group's journal partition) or implicit adding.

        `client_version`: 2 for a producer of transactions version 2, else 0. All partitions have the same result. The caller
        refuses partitions that do not exist (then none is added).
        """
        try:
            entry = self._entry(transactional_id)
        except KafkaError as error:
            reply(type(error))
            return
        if entry.transaction.may_begin and self._waves.beginnings.has_to_wait(
            partial(self.add_partitions, transactional_id, producer, partitions, reply, client_version=client_version)
        ):
            return
        entry.transaction.add_partitions(producer, partitions, client_version, reply)
        self.effects.run(entry)

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> PartitionResults:
        """Handle a verify-only AddPartitionsToTxn. Raise errors that concern all partitions."""
        return self._entry(transactional_id).transaction.verify_partitions(producer, partitions)

    def end(self, transactional_id: str, request: EndRequest, reply: Callable[[ProducerResult], None]) -> None:
        """Handle EndTxn. Reply when the outcome is durable, before the markers are written."""
        try:
            entry = self._entry(transactional_id)
        except KafkaError as error:
            reply(ProducerResult(type(error)))
            return
        entry.transaction.end(request, reply)
        self.effects.run(entry)

    def _entry(self, transactional_id: str) -> TransactionEntry:
        self.table.check(transactional_id)
        entry = self.table.find(transactional_id)
        if entry is None:
            raise InvalidProducerIdMappingError
        return entry

    def _check_name(self, transactional_id: str) -> None:
        """Raise for an empty id (a bad request at every broker) before all other checks."""
        if not transactional_id:
            self.table.check(transactional_id)

    # Describing transactions

    def describe(self, transactional_id: str) -> TransactionDescription:
        """Handle DescribeTransactions for one id. Raise `TransactionalIdNotFoundError` and the errors of the table's `check`."""
        self.table.check(transactional_id)
        entry = self.table.find(transactional_id)
        current = None if entry is None else entry.transaction.current
        if current is None:
            raise TransactionalIdNotFoundError
        return TransactionDescription(
            transactional_id,
            current.state.label,
            current.timeout_ms,
            current.started_at_ms,
            current.producer_id,
            current.epoch,
            tuple(sorted(entry.transaction.unfinished_partitions if entry is not None else ())),
        )

    def is_deciding(self, transactional_id: str) -> bool:
        """Return whether a step of the id is being written, so that `describe` may be outdated. Raise as the table's `check`."""
        self.table.check(transactional_id)
        entry = self.table.find(transactional_id)
        return entry is not None and entry.transaction.has_step

    def when_between_steps(self, transactional_id: str, action: Callable[[None], None]) -> None:
        """Call `action` once, when nothing of the id is being written and no marker is missing, at once or later."""
        entry = self.table.find(transactional_id)
        if entry is None or entry.transaction.is_between_steps:
            action(None)
        else:
            entry.waiting[lambda: action(None)] = None

    def list_transactions(self, wanted: TransactionFilter) -> Generator[None, None, TransactionList]:
        """Handle ListTransactions. Raise `CoordinatorLoadInProgressError` or `InvalidRegularExpressionError`.

        It yields after a part of the ids: there may be a million, and a regular expression takes time by their length.
        """
        if self.table.is_loading:
            raise CoordinatorLoadInProgressError
        if wanted.pattern:
            check_regex(wanted.pattern)
        found: list[TransactionSummary] = []
        for records in _parts(self.table):
            found += self._listed(wanted, records)
            yield
        return TransactionList(tuple(found), tuple(sorted(wanted.states - BY_LABEL.keys())))

    def _listed(self, wanted: TransactionFilter, records: Sequence[TransactionRecord]) -> Iterator[TransactionSummary]:
        now_ms, named = self.clock.now_ms(), None
        if wanted.pattern:
            named = matching(wanted.pattern, [one.transactional_id for one in records])
        for one in records:
            if (
                (not wanted.states or one.state.label in wanted.states)
                and (not wanted.producer_ids or one.producer_id in wanted.producer_ids)
                and (wanted.duration_ms < 0 or now_ms - one.started_at_ms > wanted.duration_ms)
                and (named is None or one.transactional_id in named)
            ):
                yield TransactionSummary(one.transactional_id, one.producer_id, one.state.label)

    # Carrying out

    def _finished(self, entry: TransactionEntry) -> None:
        transaction = entry.transaction
        if entry.waiting and transaction.is_between_steps:
            waiting, entry.waiting = entry.waiting, {}
            for again in waiting:
                call_isolated(CallbackLoop.NEXT_STEP, again)
        if transaction.is_vacant and self.table.find(transaction.transactional_id) is entry:
            self.table.forget(entry)

    def _decided(self, entry: TransactionEntry, decision: TransactionDecision) -> None:
        match decision:
            case Append(records, ticket):
                self._append(entry, records, ticket)
            case WriteMarker(partition, marker):
                self._write_marker(entry, partition, marker)
            case Reach(point):
                self._reached(point)

    def _append(self, entry: TransactionEntry, records: tuple[Any, ...], ticket: object) -> None:
        def written(error: ErrorClass | None) -> None:
            entry.transaction.appended(ticket, error)
            self.effects.run(entry)

        self.journaled.write(entry.partition, records, written)

    def _write_marker(self, entry: TransactionEntry, partition: TopicPartition, marker: Marker) -> None:
        def done(error: ErrorClass | None) -> None:
            transaction = entry.transaction
            was_fenced = transaction.fenced
            transaction.marker_written(partition, marker, error)
            if transaction.fenced and not was_fenced:
                logger.warning(
                    "marker refused, another coordinator has taken over transactional_id=%s partition=%s-%d error=%s",
                    transaction.transactional_id,
                    *partition,
                    "" if error is None else error.label,
                )
            self.effects.run(entry)

        try:
            epoch = self.table.coordinator_epoch(entry.partition)
        except KeyError:
            return  # unloaded by an earlier decision
        self._markers(partition, marker, epoch, done)


def _parts(entries: Iterable[TransactionEntry]) -> Iterator[list[TransactionRecord]]:
    """Yield the states of these ids in lists of at most `LISTED_MAX`, of which the ids are not much longer than `LISTED_BYTES`."""
    part: list[TransactionRecord] = []
    size = 0
    for entry in entries:
        current = entry.transaction.current
        if current is not None:
            part.append(current)
            size += len(current.transactional_id)
        if len(part) >= LISTED_MAX or size >= LISTED_BYTES:
            yield part
            part, size = [], 0
    yield part
