"""Asks other brokers about the groups that they coordinate, by LowestOffsets, of kafkalake's own."""

from __future__ import annotations

from collections.abc import Collection

from kafkalake.broker.groups.lowest_offsets import LowestOffset, LowestOffsets
from kafkalake.client.peers import Peers
from kafkalake.client.requests import LOWEST_OFFSETS
from kafkalake.errors import BrokerUnavailableError, error_for_code
from kafkalake.wire.messages.offsets import LowestOffsetsRequest


class ConnectedGroupPeers:
    """`GroupPeers` by the connections of `peers`."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def lowest_offsets(self, broker_id: int, topics: Collection[str]) -> LowestOffsets:
        request = LowestOffsetsRequest(topics=sorted(topics))
        response = await self._peers.ask(broker_id, LOWEST_OFFSETS, request)
        if response.error_code:
            raise BrokerUnavailableError(f"broker {broker_id} refused: {error_for_code(response.error_code)}")
        found = {
            (topic.name, each.partition_index): LowestOffset(each.committed_offset, each.group_id)
            for topic in response.topics
            for each in topic.partitions
        }
        return LowestOffsets(frozenset(response.coordinated), found)
