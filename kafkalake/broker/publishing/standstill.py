"""When the publisher needs a moment in which no transaction is open, as positions that hide transactions stand still. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalake.topic_partition import TopicPartition

STANDSTILL_MS = 5_000
"""How long a position may hide transactions and not move."""
PAUSE_MS_MAX = 60_000
"""The longest pause after moments that did not come, doubled from `STANDSTILL_MS`."""


class Standstill:
    """The positions of one controller epoch. Times are monotonic, in ms."""

    def __init__(self) -> None:
        self._since: dict[TopicPartition, tuple[int, int]] = {}
        """Of partitions of hidden transactions: the position, and since when it is published."""
        self._pause_ms = STANDSTILL_MS
        self._due_ms = 0

    def published(self, positions: Mapping[TopicPartition, int], now_ms: int) -> None:
        """Note the positions of all partitions of hidden transactions."""
        since = self._since
        self._since = {
            partition: known if (known := since.get(partition)) and known[0] == position else (position, now_ms)
            for partition, position in positions.items()
        }

    def is_due(self, now_ms: int) -> bool:
        """Return whether a quiet moment is to be asked for."""
        return now_ms >= self._due_ms and any(now_ms - since >= STANDSTILL_MS for _, since in self._since.values())

    def tried(self, now_ms: int, *, is_quiet: bool) -> None:
        """Note that a quiet moment was asked for, and whether it came."""
        self._pause_ms = STANDSTILL_MS if is_quiet else min(2 * self._pause_ms, PAUSE_MS_MAX)
        self._due_ms = now_ms + self._pause_ms
