"""A broker notices that another one has ended: by a lost connection, or by one that is refused, whatever was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, cast

import pytest
from cluster.cluster_images import cluster
from kafka_reference import free_port

from kafkalake.broker.controller.announcements import REFUSED_TRIES_MAX, Announcements
from kafkalake.broker.controller.protocol import OtherBrokers
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


@pytest.mark.parametrize("refusals", [0, 3, REFUSED_TRIES_MAX])
def test_a_version_is_told_once_a_broker_listens(refusals: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker is unfenced a moment before it listens. One that never does is told no more, until there is another version."""
    asked: list[int] = []
    slept: list[float] = []

    class Others:
        async def tell(self, node_id: int, version: int, timeout_ms: int) -> int:
            asked.append(version)
            if len(asked) <= refusals:
                raise BrokerRefusedError("nobody")
            return version

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("kafkalake.broker.controller.announcements.asyncio.sleep", sleep)
    tasks: list[asyncio.Task[None]] = []

    def work(coroutine: Coroutine[Any, Any, None]) -> None:
        tasks.append(asyncio.get_running_loop().create_task(coroutine))

    async def tell() -> None:
        announcements = Announcements(0, cast(OtherBrokers, Others()), lambda: True, work)
        for version in (5, 6):
            announcements.tell(replace(cluster(unfenced="01"), version=version))
            await asyncio.gather(*tasks)

    asyncio.run(tell())
    assert asked == [5] * min(refusals + 1, REFUSED_TRIES_MAX) + [6]
    assert len(slept) == min(refusals, REFUSED_TRIES_MAX - 1)
