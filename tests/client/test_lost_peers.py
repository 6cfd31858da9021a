"""A broker notices that another one has ended: by a lost connection, or by one that is refused, whatever was asked."""

from __future__ import annotations

import asyncio

import pytest
from kafka_reference import free_port

from kafkalake.client.address import Address
from kafkalake.client.peers import ConnectedPeers
from kafkalake.client.requests import UPDATE_IMAGE
from kafkalake.errors import BrokerRefusedError
from kafkalake.wire.messages.membership import UpdateImageRequest


def test_a_refused_connection_tells_that_a_broker_is_lost() -> None:
    lost: list[int] = []

    async def ask() -> None:
        nobody = Address("127.0.0.1", free_port())
        peers = ConnectedPeers(lambda _: nobody, client_id="b", request_timeout_ms=lambda: 5_000, lost=lost.append)
        for _ in range(2):
            with pytest.raises(BrokerRefusedError):
                await peers.ask(7, UPDATE_IMAGE, UpdateImageRequest(version=0, timeout=0))
        peers.stop()

    asyncio.run(ask())
    assert lost == [7, 7]
