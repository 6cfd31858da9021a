"""The questions that a coordinator, and the leader of a partition, have for other brokers about transactions.

The journal partition of a transactional id and the partitions of its transaction may each have another leader. `server` asks by
Kafka's own requests; a broker that is alone has no other to ask.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.transactions.decisions import Marker, MarkerResult
from kafkalake.broker.transactions.requests import PartitionResults
from kafkalake.errors import KafkaError
from kafkalake.record.batch import ProducerBatch
from kafkalake.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class MarkerRequest:
    """A marker to be written by the leader of its partition."""

    partition: TopicPartition
    marker: Marker
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """A producer's write to partitions, to be admitted by the coordinator of its transactional id. `add`: see `Admission.admit`."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: tuple[TopicPartition, ...]
    add: bool


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """A batch of a transaction, to be appended by the leader of its partition."""

    partition: TopicPartition
    batch: ProducerBatch


class KnownTransactions(NamedTuple):
    """The answer of a coordinator about producers.

    coordinated: the partitions of the transactions' journal whose ids it coordinates. unfinished: the partitions that lack markers
    of the producers' transactions, with the producer ids. committed: producer ids whose last transaction was committed.
    """

    coordinated: frozenset[int]
    unfinished: frozenset[tuple[int, TopicPartition]] = frozenset()
    committed: frozenset[int] = frozenset()


class TransactionPeers(Protocol):
    """The other brokers. Each question raises `BrokerUnavailableError` if there is no answer: it may or may not have arrived."""

    async def write_markers(self, broker_id: int, markers: Sequence[MarkerRequest]) -> Sequence[MarkerResult]:
        """Have markers written by the leader of their partitions, and return the result of each."""
        ...

    async def admit(self, broker_id: int, writes: Sequence[AdmissionRequest]) -> Sequence[PartitionResults]:
        """Ask the coordinator of transactional ids, of each id at most once, and return the result of each write."""
        ...

    async def known(self, broker_id: int, producer_ids: Collection[int]) -> KnownTransactions:
        """Ask a coordinator what it knows of producers."""
        ...

    async def append(
        self, broker_id: int, transactional_id: str, batches: Sequence[BatchRequest]
    ) -> Sequence[KafkaError | None]:
        """Have batches appended by the leader of their partitions, of each at most one, and return the result of each."""
        ...
