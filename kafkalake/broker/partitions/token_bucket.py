"""A token bucket, by which rates are limited as Kafka's quotas limit them: on average over a window of seconds.

Something is allowed while there are tokens and takes as many as it needs. Something large may take the bucket below zero and so
delay the next. The bucket is full after the seconds of its window in which nothing is taken. When the rate changes, what is in the
bucket stays.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalake.clock import Clock

WINDOW_S = 11
"""Kafka's `quota.window.num` and `controller.quota.window.num` of one-second windows."""

RATE_MAX = 1e18
"""A higher rate, which may be infinite, is taken for this one: what is left of infinity is not a number."""
DELAY_MAX_MS = 1 << 31
"""The longest delay. A rate may be so low that a longer one is infinite."""


class TokenBucket:
    """The bucket. `per_second` returns the current rate."""

    def __init__(self, clock: Clock, per_second: Callable[[], float], window_s: int = WINDOW_S) -> None:
        self._clock = clock
        self._per_second = per_second
        self._window_s = window_s
        self._tokens = window_s * self._rate
        self._filled_ms = clock.monotonic_ms()

    @property
    def is_exceeded(self) -> bool:
        """Return whether the rate is exceeded and nothing more is allowed now."""
        self._fill()
        return self._tokens <= 0

    @property
    def is_full(self) -> bool:
        """Return whether nothing that was taken counts any more."""
        return self._fill() <= self._tokens

    def _fill(self) -> float:
        """Add what was gained since the last time. Return how much there can be."""
        rate, now_ms = self._rate, self._clock.monotonic_ms()
        gained, most = rate * (now_ms - self._filled_ms) / 1000, self._window_s * rate
        self._tokens, self._filled_ms = min(self._tokens + gained, most), now_ms
        return most

    def lacks(self, count: float) -> bool:
        """Return whether there are less than `count` tokens."""
        self._fill()
        return self._tokens < count

    def take(self, count: float) -> None:
        """Take tokens."""
        self._tokens -= count

    def delay_ms(self, count: float = 0) -> int:
        """Return how long it takes until there are more than `count` tokens, 0 while there are. `DELAY_MAX_MS` may be too short."""
        self._fill()
        missing = count - self._tokens
        return int(min(missing / self._rate * 1000, DELAY_MAX_MS)) + 1 if missing >= 0 else 0

    @property
    def _rate(self) -> float:
        return min(self._per_second(), RATE_MAX)
