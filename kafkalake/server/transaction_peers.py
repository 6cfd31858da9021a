"""Asks other brokers about transactions by Kafka's own requests: WriteTxnMarkers, and AddPartitionsToTxn between brokers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.transactions.decisions import Marker
from kafkalake.broker.transactions.requests import PartitionResults
from kafkalake.broker.transactions.transaction_peers import AdmissionRequest, MarkerRequest
from kafkalake.client.peers import Peers
from kafkalake.client.requests import ADMIT_TO_TXN, WRITE_TXN_MARKERS
from kafkalake.errors import BrokerUnavailableError, error_for_code
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire.messages.offsets import TopicIndexes
from kafkalake.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    WritableTxnMarker,
    WriteTxnMarkersRequest,
)

_Ending = tuple[Marker, int]
"""A transaction's end: the marker, and the epoch of its coordinator."""


class ConnectedTransactionPeers:
    """`TransactionPeers` by the connections of `peers`."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def write_markers(self, broker_id: int, markers: Sequence[MarkerRequest]) -> Sequence[ErrorClass | None]:
        ends: dict[_Ending, list[TopicPartition]] = defaultdict(list)
        for each in markers:
            ends[each.marker, each.coordinator_epoch].append(each.partition)
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=marker.producer_id,
                    producer_epoch=marker.epoch,
                    transaction_result=marker.committed,
                    topics=[
                        TopicIndexes(name=name, partition_indexes=indexes) for name, indexes in _by_topic(partitions)
                    ],
                    coordinator_epoch=coordinator_epoch,
                )
                for (marker, coordinator_epoch), partitions in ends.items()
            ]
        )
        response = await self._peers.ask(broker_id, WRITE_TXN_MARKERS, request)
        results: dict[tuple[_Ending, TopicPartition], ErrorClass | None] = {}
        for end, written in zip(ends, response.markers, strict=False):
            for topic in written.topics:
                for found in topic.partitions:
                    results[end, (topic.name, found.partition_index)] = _error(found.error_code)
        try:
            return [results[(each.marker, each.coordinator_epoch), each.partition] for each in markers]
        except KeyError as missing:
            raise BrokerUnavailableError(f"broker {broker_id} has not said whether it wrote {missing}") from None

    async def admit(self, broker_id: int, writes: Sequence[AdmissionRequest]) -> Sequence[PartitionResults]:
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer.producer_id,
                    producer_epoch=each.producer.epoch,
                    verify_only=not each.add,
                    topics=[
                        AddPartitionsToTxnTopic(name=name, partitions=indexes)
                        for name, indexes in _by_topic(each.partitions)
                    ],
                )
                for each in writes
            ]
        )
        response = await self._peers.ask(broker_id, ADMIT_TO_TXN, request)
        if response.error_code:
            raise BrokerUnavailableError(f"broker {broker_id} refused: {_error(response.error_code)}")
        results: dict[tuple[str, TopicPartition], ErrorClass | None] = {}
        for transaction in response.results_by_transaction:
            for topic in transaction.topic_results:
                for found in topic.results_by_partition:
                    key = transaction.transactional_id, (topic.name, found.partition_index)
                    results[key] = _error(found.partition_error_code)
        try:
            return [{one: results[each.transactional_id, one] for one in each.partitions} for each in writes]
        except KeyError as missing:
            raise BrokerUnavailableError(f"broker {broker_id} has not said anything about {missing}") from None


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterable[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    return topics.items()


def _error(code: int) -> ErrorClass | None:
    return type(error_for_code(code)) if code else None
