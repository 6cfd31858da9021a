"""Administration of transactions: list, describe, the producers of a partition, and aborting hanging transactions.

Requests for a transactional id go to its coordinator, requests for a partition to its leader. Broker errors are raised as the
classes of `kafkalake.errors`. Source: KIP-664 (tooling to detect and abort hanging transactions).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from kafkalake.client.cluster import Cluster
from kafkalake.client.coordinators import TRANSACTION, coordinator, raise_error
from kafkalake.client.requests import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
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
    WritableTxnMarker,
    WriteTxnMarkersRequest,
)

OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""States with a transaction that has not ended in all its partitions."""

ANY_DURATION = -1


@dataclass(frozen=True)
class ListedTransaction:
    """A transactional id and the broker that coordinates it."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class ActiveProducer:
    """A producer in a partition's state. `transaction_start_offset` is None without an open transaction there."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start_offset: int | None


def list_transactions(
    cluster: Cluster,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    duration_ms: int = ANY_DURATION,
) -> list[ListedTransaction]:
    """Return the transactional ids of all brokers, by name. `duration_ms`: only those with a transaction open for longer."""
    wanted = ListTransactionsRequest(
        state_filters=tuple(states),
        producer_id_filters=tuple(producer_ids),
        duration_filter=duration_ms,
    )

    def ask() -> list[ListedTransaction]:
        found = []
        for node in cluster.brokers():
            answer = cluster.broker(node.broker_id).request(LIST_TRANSACTIONS, wanted)
            raise_error(answer.error_code, "the list of transactions")
            found += [
                ListedTransaction(each.transactional_id, node.broker_id, each.producer_id, each.transaction_state)
                for each in answer.transaction_states
            ]
        return sorted(found, key=lambda each: each.transactional_id)

    return cluster.retrying(ask)


def describe_transaction(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    """Return the current state of a transactional id. Raise `TransactionalIdNotFoundError` if it does not exist."""

    def ask() -> TransactionDescription:
        node, connection = coordinator(cluster, TRANSACTION, transactional_id)
        (found,) = connection.request(
            DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest(transactional_ids=(transactional_id,))
        ).transaction_states
        try:
            raise_error(found.error_code, f"transactional id '{transactional_id}'")
        except TransactionalIdNotFoundError:
            raise TransactionalIdNotFoundError(f"transactional id '{transactional_id}' does not exist") from None
        started = found.transaction_start_time
        return TransactionDescription(
            transactional_id,
            node.broker_id,
            found.producer_id,
            found.producer_epoch,
            found.transaction_state,
            found.transaction_timeout,
            None if started < 0 else started,
            tuple(sorted((str(topic.topic), int(index)) for topic in found.topics for index in topic.partitions)),
        )

    return cluster.retrying(ask)


def describe_producers(cluster: Cluster, topic: str, partition: int) -> list[ActiveProducer]:
    """Return the active producers of a partition, from its leader, by id. Raise `UnknownTopicOrPartitionError`."""

    def ask() -> list[ActiveProducer]:
        connection = cluster.broker(cluster.leader(topic, partition))
        answer = connection.request(
            DESCRIBE_PRODUCERS,
            DescribeProducersRequest(topics=[TopicIndexes(name=topic, partition_indexes=(partition,))]),
        )
        found = answer.topics[0].partitions[0]
        raise_error(found.error_code, f"partition {topic}-{partition}")
        return sorted(map(_active_producer, found.active_producers), key=lambda each: each.producer_id)

    return cluster.retrying(ask)


def write_abort_marker(
    cluster: Cluster, topic: str, partition: int, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
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

    def ask() -> None:
        connection = cluster.broker(cluster.leader(topic, partition))
        answer = connection.request(WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers=[marker]))
        written = answer.markers[0].topics[0].partitions[0]
        raise_error(written.error_code, f"the marker for partition {topic}-{partition}")

    cluster.retrying(ask)


def fence_producer(cluster: Cluster, transactional_id: str, *, timeout_ms: int) -> None:
    """Abort the open transaction of a transactional id and fence its producer (`InitProducerId`).

    Return when the abort is complete. While the broker reports that a transaction is still ending, the request is retried.
    `timeout_ms` becomes the transaction timeout of the id, until its next producer sets its own.
    """

    def ask() -> None:
        _, connection = coordinator(cluster, TRANSACTION, transactional_id)
        answer = connection.request(
            INIT_PRODUCER_ID,
            InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout=timeout_ms,
                producer_id=-1,
                producer_epoch=-1,
            ),
        )
        raise_error(answer.error_code, f"transactional id '{transactional_id}'")

    cluster.retrying(ask)


def _active_producer(state: Any) -> ActiveProducer:
    start = state.current_txn_start_offset
    return ActiveProducer(
        state.producer_id,
        state.producer_epoch,
        state.coordinator_epoch,
        state.last_sequence,
        state.last_timestamp,
        start if start >= 0 else None,
    )
