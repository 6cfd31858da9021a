"""Tells the other nodes of the versions that this broker, the controller, has made, and knows which of them they follow.

A node that is not told looks for newer versions by itself, so nothing is repeated but to a node that does not listen yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from kafkalake.broker.controller.protocol import OtherBrokers
from kafkalake.cluster.image import ClusterImage
from kafkalake.errors import BrokerRefusedError, KafkaLakeError

logger = logging.getLogger(__name__)

TELL_TIMEOUT_MS = 5_000
FOLLOW_WAIT_S = 2.0
"""How long a broker that stops in order waits for its followers to lead."""
REFUSED_TRIES_MAX = 20
REFUSED_PAUSE_S = 0.1
"""A broker is unfenced a moment before it listens. The connection to it is also what shows first that it has ended."""
_NO_VERSION = -1


class Announcements:
    """The announcements of one broker. On the event loop's thread."""

    def __init__(
        self,
        broker_id: int,
        others: OtherBrokers,
        is_controller: Callable[[], bool],
        work: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """`work` runs a coroutine as a task of the membership."""
        self._broker_id = broker_id
        self._others = others
        self._is_controller = is_controller
        self._work = work
        self._newest = _NO_VERSION
        self._telling: set[int] = set()
        self._followed: dict[int, int] = {}
        """The versions that other nodes have said that they follow, by their ids."""
        self._has_followed = asyncio.Event()

    def tell(self, image: ClusterImage) -> None:
        """Tell the other nodes of a version, each after it was told of those before it."""
        self._newest = max(self._newest, image.version)
        for node_id in sorted(_reachable(image) - {self._broker_id} - self._telling):
            self._telling.add(node_id)
            self._work(self._tell_one(node_id))

    async def _tell_one(self, node_id: int) -> None:
        told = _NO_VERSION
        try:
            while told < self._newest and self._is_controller():
                told = self._newest
                self._followed[node_id] = await self._tell_listening(node_id, told)
                self._has_followed.set()
        except KafkaLakeError as error:
            logger.debug("node not told of a version node=%d version=%d error=%s", node_id, told, error)
        finally:
            self._telling.discard(node_id)

    async def _tell_listening(self, node_id: int, version: int) -> int:
        """Return the version that a node follows when it was told of one; wait a little for a node that does not listen yet."""
        for _ in range(REFUSED_TRIES_MAX - 1):
            try:
                return await self._others.tell(node_id, version, TELL_TIMEOUT_MS)
            except BrokerRefusedError:
                await asyncio.sleep(REFUSED_PAUSE_S)
        return await self._others.tell(node_id, version, TELL_TIMEOUT_MS)

    async def wait(self, image: ClusterImage) -> None:
        """Wait until the other brokers that may lead follow a version, `FOLLOW_WAIT_S` at most."""
        others = {each.broker_id for each in image.brokers.values() if each.is_active} - {self._broker_id}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FOLLOW_WAIT_S):
                while any(self._followed.get(each, _NO_VERSION) < image.version for each in others):
                    self._has_followed.clear()
                    await self._has_followed.wait()


def _reachable(image: ClusterImage) -> set[int]:
    return {each.broker_id for each in image.brokers.values() if not each.is_fenced} | image.controllers.keys()
