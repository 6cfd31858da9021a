"""The limit on partitions created per second: a token bucket, as in Apache Kafka's controller mutation quota (KIP-599).

A creation is allowed while there are tokens and takes one per partition. A large one may take the bucket below zero and so delay
the next. The bucket is full after `WINDOW_S` seconds without a creation.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalake.clock import Clock

WINDOW_S = 11
"""Kafka's `controller.quota.window.num` of one-second windows."""


class MutationRate:
    """The token bucket. `per_second` returns the current rate."""

    def __init__(self, clock: Clock, per_second: Callable[[], int]) -> None:
        self._clock = clock
        self._per_second = per_second
        self._tokens = float(WINDOW_S * per_second())
        self._filled_ms = clock.monotonic_ms()

    @property
    def is_exceeded(self) -> bool:
        """Return whether the rate is exceeded and nothing may be created now."""
        rate, now_ms = self._per_second(), self._clock.monotonic_ms()
        gained = rate * (now_ms - self._filled_ms) / 1000
        self._tokens, self._filled_ms = min(self._tokens + gained, float(WINDOW_S * rate)), now_ms
        return self._tokens <= 0

    def take(self, partitions: int) -> None:
        """Take one token per created partition."""
        self._tokens -= partitions
