"""Throttles of replication (KIP-73): limits on the bytes a second that leaders here send, or that followers here fetch.

A throttle concerns replicas that the topic's settings name and that are outside of the ISR: a broker that catches up does not take
the network from those that are in sync, and no throttle makes a replica leave the ISR. The bytes of throttled replicas count
whether they are in the ISR or not. On average over a second the rate holds, however large an answer is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafkalake.broker.partitions.leader_replicas import ReplicaId
from kafkalake.broker.partitions.token_bucket import TokenBucket
from kafkalake.broker.partitions.topics import Topics
from kafkalake.clock import Clock
from kafkalake.config.setting import LONG_MAX
from kafkalake.config.throttled_replicas import throttled_partitions
from kafkalake.config.topics import TopicConfig

PAUSE_MS_MAX = 10_000
"""The longest pause of a copy at once."""
LOOK_AGAIN_MS = 500
_BURST_S = 1


class ReplicationThrottle:
    """One side's throttle on this broker."""

    def __init__(
        self,
        broker_id: int,
        topics: Topics,
        clock: Clock,
        rate: Callable[[], int | None],
        replicas_of: Callable[[TopicConfig], str],
        later: Callable[[int, Callable[[], None]], object],
    ) -> None:
        """`rate` returns the limit in bytes a second, None: there is none, `replicas_of` the setting of a topic for this side.

        `later(delay_ms, action)` runs an action after a delay.
        """
        self._broker_id = broker_id
        self._topics = topics
        self._limit = rate
        self._replicas_of = replicas_of
        self._later = later
        self._bucket = TokenBucket(clock, self._rate, _BURST_S)

    def _rate(self) -> int:
        limit = self._limit()
        return LONG_MAX if limit is None else limit

    @property
    def is_exceeded(self) -> bool:
        """Return whether throttled replicas outside of the ISR must wait now."""
        return self._rate() < LONG_MAX and self._bucket.is_exceeded

    @property
    def delay_ms(self) -> int:
        """The time that they must wait, `PAUSE_MS_MAX` if nothing is allowed."""
        rate = self._rate()
        if rate <= 0:
            return PAUSE_MS_MAX
        return self._bucket.delay_ms() if rate < LONG_MAX else 0

    def holds_back(self, replica: ReplicaId) -> bool:
        """Return whether this replica must wait now, if it is outside of the ISR."""
        return self.is_exceeded and self.is_throttled(replica)

    def wait_ms(self, replica: ReplicaId) -> int:
        """Return after what time to look again whether this replica may go on, 0: it may. The throttle may be removed before."""
        return min(self.delay_ms, LOOK_AGAIN_MS) if self.holds_back(replica) else 0

    def is_throttled(self, replica: ReplicaId) -> bool:
        """Return whether the bytes of this partition count."""
        topic_id, index = replica
        topic = self._topics.find_id(topic_id)
        if topic is None:
            return False
        throttled = throttled_partitions(self._replicas_of(topic.config), self._broker_id)
        return throttled is None or index in throttled

    def count(self, replica: ReplicaId, size: int) -> None:
        """Count bytes of a partition that were sent or fetched."""
        if size and self._rate() < LONG_MAX and self.is_throttled(replica):
            self._bucket.take(size)

    async def pause(self, replica: ReplicaId) -> None:
        """Wait while the replica must, at most `PAUSE_MS_MAX`."""
        if self.holds_back(replica):
            over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._later(min(self.delay_ms, PAUSE_MS_MAX), lambda: _end(over))
            await over


def _end(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)
