"""Transactions: list, describe, the producers of a partition, and aborting hanging transactions.

Requests for a transactional id go to its coordinator, requests for a partition to its leader. Broker errors are raised as the
classes of `kafkalake.errors`. Source: KIP-664 (tooling to detect and abort hanging transactions).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kafkalake.client.administration.answers import find_result, raise_error
from kafkalake.client.administration.brokers import ask_all_brokers
from kafkalake.client.administration.call import AdminCall
from kafkalake.client.administration.topics import find_leaders
from kafkalake.client.network.script import Script
from kafkalake.client.requests import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    TRANSACTION,
    WRITE_TXN_MARKERS,
)
from kafkalake.errors import TransactionalIdNotFoundError
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire.messages.offsets import TopicIndexes
from kafkalake.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    ProducerState,
    WritableTxnMarker,
    WriteTxnMarkersRequest,
)

OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""States with a transaction that has not ended in all its partitions."""

ANY_DURATION = -1


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transactional id and the broker that coordinates it."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id as described by its coordinator. `started_at_ms` (since 1970) is None without an open transaction."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_at_ms: int | None
    partitions: tuple[TopicPartition, ...]

    @property
    def is_open(self) -> bool:
        """Return whether a transaction is open or still ending."""
        return self.state in OPEN_STATES


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer in a partition's state. `transaction_start_offset` is None without an open transaction there."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start_offset: int | None


def list_transactions(
    call: AdminCall,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    duration_ms: int = ANY_DURATION,
) -> Script[list[ListedTransaction]]:
    """Return the transactional ids of all brokers, by name, each once, also if its coordinator moves meanwhile.

    duration_ms: only those with a transaction open for longer.
    """
    message = ListTransactionsRequest(
        state_filters=tuple(states),
        producer_id_filters=tuple(producer_ids),
        duration_filter=duration_ms,
    )
    answers = yield from ask_all_brokers(
        call,
        LIST_TRANSACTIONS,
        message,
        lambda answer: raise_error(answer.error_code, "the list of transactions"),
    )
    found = {
        each.transactional_id: ListedTransaction(
            each.transactional_id, broker_id, each.producer_id, each.transaction_state
        )
        for broker_id, answer in answers.items()
        for each in answer.transaction_states
    }
    return [found[transactional_id] for transactional_id in sorted(found)]


def describe_transaction(call: AdminCall, transactional_id: str) -> Script[TransactionDescription]:
    """Return the current state of a transactional id. Raise `TransactionalIdNotFoundError` if it does not exist."""
    message = DescribeTransactionsRequest(transactional_ids=(transactional_id,))

    def attempt() -> Script[TransactionDescription]:
        broker_id = yield from call.coordinator(TRANSACTION, transactional_id)
        answer = yield from call.request(broker_id, DESCRIBE_TRANSACTIONS, message)
        subject = f"transactional id '{transactional_id}'"
        states = answer.transaction_states
        found = find_result(states, lambda each: each.transactional_id == transactional_id, subject)
        try:
            raise_error(found.error_code, subject)
        except TransactionalIdNotFoundError:
            raise TransactionalIdNotFoundError(f"transactional id '{transactional_id}' does not exist") from None
        started = found.transaction_start_time
        return TransactionDescription(
            transactional_id,
            broker_id,
            found.producer_id,
            found.producer_epoch,
            found.transaction_state,
            found.transaction_timeout,
            None if started < 0 else started,
            tuple(sorted((str(topic.topic), int(index)) for topic in found.topics for index in topic.partitions)),
        )

    return (yield from call.retrying(attempt))


def describe_producers(call: AdminCall, topic: str, partition: int) -> Script[list[ActiveProducer]]:
    """Return the active producers of a partition, from its leader, by id. Raise `UnknownTopicOrPartitionError`."""
    message = DescribeProducersRequest(topics=[TopicIndexes(name=topic, partition_indexes=(partition,))])

    def attempt() -> Script[list[ActiveProducer]]:
        (leader,) = yield from find_leaders(call, [(topic, partition)])
        answer = yield from call.request(leader, DESCRIBE_PRODUCERS, message)
        subject = f"partition {topic}-{partition}"
        partitions = [each for of in answer.topics if of.name == topic for each in of.partitions]
        found = find_result(partitions, lambda each: each.partition_index == partition, subject)
        raise_error(found.error_code, subject)
        return sorted(map(_active_producer, found.active_producers), key=lambda each: each.producer_id)

    return (yield from call.retrying(attempt))


def write_abort_marker(
    call: AdminCall, topic: str, partition: int, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> Script[None]:
    """Abort a producer's open transaction in one partition, regardless of its coordinator (`WriteTxnMarkers`).

    For hanging transactions, which no coordinator tracks any more. Raise `InvalidProducerEpochError` or
    `TransactionCoordinatorFencedError`.
    """
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        topics=[TopicIndexes(name=topic, partition_indexes=(partition,))],
        coordinator_epoch=coordinator_epoch,
    )

    def attempt() -> Script[None]:
        (leader,) = yield from find_leaders(call, [(topic, partition)])
        answer = yield from call.request(leader, WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers=[marker]))
        subject = f"the marker for partition {topic}-{partition}"
        topics = [of for each in answer.markers if each.producer_id == producer_id for of in each.topics]
        partitions = [each for of in topics if of.name == topic for each in of.partitions]
        written = find_result(partitions, lambda each: each.partition_index == partition, subject)
        raise_error(written.error_code, subject)

    yield from call.retrying(attempt)


def fence_producer(call: AdminCall, transactional_id: str, *, timeout_ms: int) -> Script[None]:
    """Abort the open transaction of a transactional id and fence its producer (`InitProducerId`).

    Return when the abort is complete. While the broker reports that a transaction is still ending, the request is retried.
    `timeout_ms` becomes the transaction timeout of the id, until its next producer sets its own.
    """
    message = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout=timeout_ms, producer_id=-1, producer_epoch=-1
    )
    yield from call.ask_coordinator(TRANSACTION, transactional_id, INIT_PRODUCER_ID, message)


def _active_producer(state: ProducerState) -> ActiveProducer:
    start = state.current_txn_start_offset
    return ActiveProducer(
        state.producer_id,
        state.producer_epoch,
        state.coordinator_epoch,
        state.last_sequence,
        state.last_timestamp,
        start if start >= 0 else None,
    )
