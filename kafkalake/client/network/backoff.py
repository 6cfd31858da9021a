"""Pauses between attempts, as Kafka's clients have them (KIP-144, KIP-580): doubled by each failure, with chance."""

from __future__ import annotations

from random import Random

_JITTER = 0.2
_DOUBLINGS_MAX = 40


class ExponentialBackoff:
    """Pauses from `initial_ms`, doubled up to `max_ms`, each up to a fifth shorter or longer."""

    def __init__(self, initial_ms: int, max_ms: int, random: Random) -> None:
        self._initial_ms = initial_ms
        self._max_ms = max(initial_ms, max_ms)
        self._random = random

    def delay_ms(self, attempts: int) -> int:
        """Return the pause after `attempts` earlier failures: 0 for the first."""
        pause_ms: int = min(self._initial_ms << min(attempts, _DOUBLINGS_MAX), self._max_ms)
        return round(pause_ms * self._random.uniform(1 - _JITTER, 1 + _JITTER))
