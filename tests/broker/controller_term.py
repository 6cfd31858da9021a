"""A controller over a store in memory, which may be slow, and fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from manual_clock import ManualClock
from memory_control_store import MemoryControlStore

from kafkalake.broker.controller.controller import Controller
from kafkalake.cluster.controller_election import claim
from kafkalake.cluster.election import ElectionRules
from kafkalake.cluster.image import BrokerRegistration, ClusterImage
from kafkalake.errors import KafkaStorageError
from kafkalake.metadata.tables.schemas import TopicRow

COMMITTED = ElectionRules(min_isr=2)
"""Of the topics in rows; those that are followed have Kafka's defaults."""


class Term:
    """A broker as the controller, elected in `store`. followed, rows: the versions that it has followed, and the rows with them.
    slow: held while the store is to be slow. is_held_up: set once a commit has met that. may_follow: cleared while the broker does
    not come to an end with following. unfollowed: how many versions cannot be followed. told: the versions told to others."""

    def __init__(self, timeout_ms: int = 5_000, broker_id: int = 0, store: MemoryControlStore | None = None) -> None:
        self.clock = ManualClock()
        self.slow = threading.Lock()
        self.is_held_up = threading.Event()
        self.fails = 0
        self.timeout_ms = timeout_ms
        self.may_follow = asyncio.Event()
        self.may_follow.set()
        self.unfollowed = 0
        self.told: list[int] = []
        self.followed: list[int] = []
        self.rows: list[TopicRow] = []
        self.store = store or MemoryControlStore(
            ClusterImage("lake"), before_commit=self._wait, after_commit=self._fail
        )
        self.controller = Controller(
            broker_id,
            self.store,
            self._follow,
            self.clock,
            lambda: self.timeout_ms,
            lambda work: asyncio.to_thread(work),
            lambda topic_id: ElectionRules(),
            lambda rows: lambda topic_id: COMMITTED,
            lambda image: self.told.append(image.version),
            self._is_followed,
            self._is_refused,
            lambda step: None,
        )
        self._broker_id = broker_id
        self._following = asyncio.Lock()
        self.elect()

    def elect(self) -> None:
        """Elect this broker."""
        self.store.commit(claim(self.newest, self._broker_id))
        self.controller.activate(self.newest)

    def _wait(self) -> None:
        if self.slow.locked():
            self.is_held_up.set()
        with self.slow:
            pass

    def _fail(self) -> None:
        if self.fails:
            self.fails -= 1
            raise KafkaStorageError("unknown outcome")

    async def _follow(self, image: ClusterImage, rows: Sequence[TopicRow] | None) -> None:
        async with self._following:
            await self.may_follow.wait()
        if self.unfollowed:
            self.unfollowed -= 1
            raise KafkaStorageError("the topics cannot be read")
        self.followed.append(image.version)
        self.rows += rows or ()

    async def _is_followed(self, image: ClusterImage) -> None:
        return

    async def _is_refused(self, broker: BrokerRegistration) -> bool:
        return True

    def set(self, name: str) -> Callable[[ClusterImage], ClusterImage]:
        return lambda image: replace(image, version=image.version + 1, config={**image.config, name: "1"})

    @property
    def newest(self) -> ClusterImage:
        return self.store.images[-1]
