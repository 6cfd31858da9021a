"""Hands records that wait, and those that are due, to other brokers: DelayRecords and DeliverRecords, of kafkalake's own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kafkalake.broker.delayed.delayed_peers import DeliveryRequest, HandInRequest
from kafkalake.client.peers import Channel, Peers
from kafkalake.client.requests import DELAY_RECORDS, DELIVER_RECORDS
from kafkalake.errors import BrokerUnavailableError, KafkaError, error_for_code
from kafkalake.record.batch import ProducerBatch
from kafkalake.wire.messages.delayed import (
    BatchResult,
    DelayedBatch,
    DelayRecordsRequest,
    DelayRecordsResponse,
    DeliveredBatch,
    DeliverRecordsRequest,
    DeliverRecordsResponse,
)
from kafkalake.wire.record_batch import encode_batch

_HAND_INS, _DELIVERIES = 0, 1
"""The connections to a broker: neither kind of request waits for the other."""


class ConnectedDelayedPeers:
    """`DelayedPeers` by the connections of `peers`."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def hand_in(self, broker_id: int, batches: Sequence[HandInRequest]) -> Sequence[KafkaError | None]:
        asked = [
            DelayedBatch(
                journal_partition=each.journal_partition,
                transactional_id=each.transactional_id,
                records=await _encoded(each.batch),
            )
            for each in batches
        ]
        response = await self._peers.ask(
            broker_id, DELAY_RECORDS, DelayRecordsRequest(batches=asked), channel=Channel.DELAYED, number=_HAND_INS
        )
        return _errors(broker_id, response)

    async def deliver(self, broker_id: int, batches: Sequence[DeliveryRequest]) -> Sequence[KafkaError | None]:
        asked = [
            DeliveredBatch(topic_id=each.target[0], partition_index=each.target[1], records=await _encoded(each.batch))
            for each in batches
        ]
        response = await self._peers.ask(
            broker_id,
            DELIVER_RECORDS,
            DeliverRecordsRequest(batches=asked),
            channel=Channel.DELAYED,
            number=_DELIVERIES,
        )
        return _errors(broker_id, response)


async def _encoded(batch: ProducerBatch) -> bytes:
    await asyncio.sleep(0)  # a MiB takes a millisecond
    return encode_batch(batch)


def _errors(broker_id: int, response: DelayRecordsResponse | DeliverRecordsResponse) -> Sequence[KafkaError | None]:
    if response.error_code:
        raise BrokerUnavailableError(f"broker {broker_id} refused: {error_for_code(response.error_code)}")
    return [_error(each) for each in response.results]


def _error(result: BatchResult) -> KafkaError | None:
    return error_for_code(result.error_code, result.error_message or "") if result.error_code else None
