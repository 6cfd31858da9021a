"""Tells the other nodes of the versions that this broker, the controller, has made, and knows which of them they follow.

A node that is not told looks for newer versions by itself, so nothing is repeated. The connection is also what shows first that a
broker has ended: it listens before it is unfenced, so it is told of the version that unfences it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from kafkalake.broker.controller.protocol import OtherBrokers
from kafkalake.cluster.image import ClusterImage
from kafkalake.errors import KafkaLakeError

logger = logging.getLogger(__name__)

TELL_TIMEOUT_MS = 5_000
FOLLOW_WAIT_S = 2.0
"""How long a broker that stops in order waits for its followers to lead."""
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
                self._followed[node_id] = await self._others.tell(node_id, told, TELL_TIMEOUT_MS)
                self._has_followed.set()
        except KafkaLakeError as error:
            logger.debug("node not told of a version node=%d version=%d error=%s", node_id, told, error)
        finally:
            self._telling.discard(node_id)

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
