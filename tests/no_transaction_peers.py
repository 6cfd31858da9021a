"""`TransactionPeers` of a broker that reaches no other."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kafkalake.broker.transactions.decisions import MarkerResult
from kafkalake.broker.transactions.requests import PartitionResults
from kafkalake.broker.transactions.transaction_peers import (
    AdmissionRequest,
    BatchRequest,
    KnownTransactions,
    MarkerRequest,
)
from kafkalake.errors import BrokerUnavailableError, KafkaError


class NoTransactionPeers:
    """Refuses each question."""

    async def write_markers(self, broker_id: int, markers: Sequence[MarkerRequest]) -> Sequence[MarkerResult]:
        raise BrokerUnavailableError(f"broker {broker_id} cannot be reached from here")

    async def admit(self, broker_id: int, writes: Sequence[AdmissionRequest]) -> Sequence[PartitionResults]:
        raise BrokerUnavailableError(f"broker {broker_id} cannot be reached from here")

    async def known(self, broker_id: int, producer_ids: Collection[int]) -> KnownTransactions:
        raise BrokerUnavailableError(f"broker {broker_id} cannot be reached from here")

    async def append(
        self, broker_id: int, transactional_id: str, batches: Sequence[BatchRequest]
    ) -> Sequence[KafkaError | None]:
        raise BrokerUnavailableError(f"broker {broker_id} cannot be reached from here")
