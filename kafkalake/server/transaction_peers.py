"""Asks other brokers about transactions by Kafka's own requests: WriteTxnMarkers, AddPartitionsToTxn between brokers, Produce;
and by KnownTransactions, of its own.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.partitions.pending_append import ACKS_ALL
from kafkalake.broker.transactions.decisions import Marker, MarkerResult
from kafkalake.broker.transactions.requests import PartitionResults
from kafkalake.broker.transactions.transaction_peers import (
    AdmissionRequest,
    BatchRequest,
    KnownTransactions,
    MarkerRequest,
)
from kafkalake.client.peers import Peers
from kafkalake.client.requests import ADMIT_TO_TXN, KNOWN_TRANSACTIONS, PRODUCE_TO_LEADER, WRITE_TXN_MARKERS
from kafkalake.errors import BrokerUnavailableError, KafkaError, error_for_code
from kafkalake.offset_range import OffsetRange
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire.messages.offsets import TopicIndexes
from kafkalake.wire.messages.records import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalake.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    KnownTransactionsRequest,
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WriteTxnMarkersRequest,
)
from kafkalake.wire.record_batch import encode_batch

_TIMEOUT_MS = 30_000

_Ending = tuple[Marker, int]
"""A transaction's end: the marker, and the epoch of its coordinator."""


class ConnectedTransactionPeers:
    """`TransactionPeers` by the connections of `peers`."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def write_markers(self, broker_id: int, markers: Sequence[MarkerRequest]) -> Sequence[MarkerResult]:
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
        results: dict[tuple[_Ending, TopicPartition], MarkerResult] = {}
        for end, written in zip(ends, response.markers, strict=False):
            for topic in written.topics:
                for found in topic.partitions:
                    results[end, (topic.name, found.partition_index)] = _marker_result(found)
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

    async def known(self, broker_id: int, producer_ids: Collection[int]) -> KnownTransactions:
        request = KnownTransactionsRequest(producer_ids=sorted(producer_ids))
        response = await self._peers.ask(broker_id, KNOWN_TRANSACTIONS, request)
        if response.error_code:
            raise BrokerUnavailableError(f"broker {broker_id} refused: {_error(response.error_code)}")
        unfinished = frozenset(
            (each.producer_id, (topic.name, index))
            for each in response.unfinished
            for topic in each.topics
            for index in topic.partition_indexes
        )
        return KnownTransactions(frozenset(response.coordinated), unfinished, frozenset(response.committed))

    async def append(
        self, broker_id: int, transactional_id: str, batches: Sequence[BatchRequest]
    ) -> Sequence[KafkaError | None]:
        data: dict[str, list[PartitionProduceData]] = {}
        for each in batches:
            name, index = each.partition
            data.setdefault(name, []).append(PartitionProduceData(index=index, records=encode_batch(each.batch)))
            await asyncio.sleep(0)  # a MiB takes a millisecond
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=ACKS_ALL,
            timeout=_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=name, partition_data=found) for name, found in data.items()],
        )
        response = await self._peers.ask(broker_id, PRODUCE_TO_LEADER, request)
        results = {
            (topic.name, found.index): (found.error_code, found.error_message or "")
            for topic in response.responses
            for found in topic.partition_responses
        }
        try:
            answers = [results[each.partition] for each in batches]
        except KeyError as missing:
            raise BrokerUnavailableError(f"broker {broker_id} has not said anything about {missing}") from None
        return [error_for_code(code, message) if code else None for code, message in answers]


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterable[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    return topics.items()


def _marker_result(found: WritableTxnMarkerPartitionResult) -> MarkerResult:
    if found.error_code or found.last_offset < 0:
        return _error(found.error_code)
    return OffsetRange(found.first_offset, found.last_offset)


def _error(code: int) -> ErrorClass | None:
    return type(error_for_code(code)) if code else None
