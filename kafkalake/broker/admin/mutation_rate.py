"""How many partitions may be created in a second: a bucket of tokens, as Apache Kafka's quota of mutations (KIP-599).

A creation is let through while there are tokens, and takes one for each partition, below zero where it is large: the next one then
has to wait for longer. The bucket is full after `WINDOW_S` seconds without a creation.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalake.clock import Clock

WINDOW_S = 11
"""Kafka's `controller.quota.window.num`, of one second each."""


class MutationRate:
    """Lets so many partitions through. `per_second` gives the rate as it is set now."""

    def __init__(self, clock: Clock, per_second: Callable[[], int]) -> None:
        self._clock = clock
        self._per_second = per_second
        self._tokens = float(WINDOW_S * per_second())
        self._filled_ms = clock.monotonic_ms()

    @property
    def is_exceeded(self) -> bool:
        """Whether nothing may be created now."""
        rate, now_ms = self._per_second(), self._clock.monotonic_ms()
        gained = rate * (now_ms - self._filled_ms) / 1000
        self._tokens, self._filled_ms = min(self._tokens + gained, float(WINDOW_S * rate)), now_ms
        return self._tokens <= 0

    def take(self, partitions: int) -> None:
        """So many partitions are created."""
        self._tokens -= partitions
