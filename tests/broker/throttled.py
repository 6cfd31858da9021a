"""Throttles of replication with a rate that tests set."""

from __future__ import annotations

from collections.abc import Callable

from kafkalake.broker.partitions.replication_throttle import ReplicationThrottle
from kafkalake.broker.partitions.topics import Topics
from kafkalake.clock import Clock
from kafkalake.cluster.image import ClusterImage


class Throttle:
    """A throttle of all partitions. `rate` in bytes a second; none at first."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics | None = None,
        later: Callable[[int, Callable[[], None]], object] = lambda delay_ms, action: None,
    ) -> None:
        self.rate: int | None = None
        self.replicas = "*"
        known = Topics(ClusterImage("lake")) if topics is None else topics
        self.throttle = ReplicationThrottle(0, known, clock, lambda: self.rate, lambda config: self.replicas, later)
