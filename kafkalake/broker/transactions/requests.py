"""Requests to the transaction coordinator and their results, free of wire versions.

Results with an `error` (a class; None: no error) carry nothing else of value. Handlers map errors to those of old versions:
`ProducerFencedError` is INVALID_PRODUCER_EPOCH before version 2 of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn, and before
version 4 of InitProducerId.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.transactions.records import NO_EPOCH, NO_PRODUCER_ID
from kafkalake.topic_partition import TopicPartition

PartitionResults: TypeAlias = Mapping[TopicPartition, ErrorClass | None]


@dataclass(frozen=True, slots=True)
class ProducerResult:
    """The result of InitProducerId and EndTxn: the producer's id and epoch from now on."""

    error: ErrorClass | None
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id as DescribeTransactions shows it. `state` is Kafka's name of it, partitions are sorted."""

    transactional_id: str
    state: str
    timeout_ms: int
    started_at_ms: int
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class TransactionSummary:
    """A transactional id as ListTransactions shows it."""

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """The filter of ListTransactions. Empty means all, `duration_ms` -1 any. The pattern is a whole match (KIP-1152)."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    duration_ms: int = -1
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class TransactionList:
    """The result of ListTransactions. `unknown_states` are state names of the filter that do not exist."""

    transactions: tuple[TransactionSummary, ...]
    unknown_states: tuple[str, ...] = ()
