"""What brokers ask each other about records that wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from kafkalake.errors import KafkaError
from kafkalake.record.batch import ProducerBatch
from kafkalake.topic_partition import PartitionId


class HandInRequest(NamedTuple):
    """A batch for a partition of `__delayed`. transactional_id: None outside of a transaction."""

    journal_partition: int
    batch: ProducerBatch
    transactional_id: str | None


class DeliveryRequest(NamedTuple):
    """A batch of records that are due, for a partition of their topic."""

    target: PartitionId[UUID]
    batch: ProducerBatch


class DelayedPeers(Protocol):
    """The other brokers. `BrokerUnavailableError`: one does not answer, and may have done what was asked."""

    async def hand_in(self, broker_id: int, batches: Sequence[HandInRequest]) -> Sequence[KafkaError | None]:
        """Have a coordinator append batches. Return the error of each, or None."""
        ...

    async def deliver(self, broker_id: int, batches: Sequence[DeliveryRequest]) -> Sequence[KafkaError | None]:
        """Have a leader append batches. Return the error of each, or None."""
        ...
