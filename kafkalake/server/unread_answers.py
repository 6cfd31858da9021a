"""One bound on the bytes of answers that clients do not read (`queued.max.response.bytes`), over all connections.

A connection counts while its write buffer is full, with what was in there when it became so. The less room is left, the smaller are
the answers that are read from the files. Where that is not enough, the connection that has waited the longest is closed: a client
that reads, however slowly, empties its buffer and is counted anew.
"""

from __future__ import annotations

from collections.abc import Callable

ANSWER_BYTES_MIN = 1024 * 1024
_SHARE = 64
"""An answer takes at most such a part of the room that is left."""
SMALLER_BEFORE_BYTES = 128 * 1024 * 1024
_SHARE_BEFORE = 8
"""And at most such a part of what is left of this: many slow clients do without large answers long before the room runs out."""


class UnreadAnswers:
    """Counts per connection. Used by the event loop's thread only."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.preparing = 0
        """Bytes of answers that a thread works on: whoever starts it counts them, and counts them off."""
        self._by_age: dict[object, tuple[int, Callable[[], None]]] = {}

    def add(self, connection: object, count: int, close: Callable[[], None]) -> None:
        """`connection` has `count` bytes to send that its client does not take; `close` ends it."""
        self.remove(connection)
        self._by_age[connection] = (count, close)
        self.bytes += count
        while self.bytes > self.bytes_max and len(self._by_age) > 1:
            oldest = next(iter(self._by_age))
            _, close_oldest = self._by_age[oldest]
            self.remove(oldest)
            close_oldest()

    def remove(self, connection: object) -> None:
        """`connection` is closed, or its client has read. Nothing happens where it was not counted."""
        count, _ = self._by_age.pop(connection, (0, None))
        self.bytes -= count

    def answer_bytes_max(self, most: int) -> int:
        """Return how large a large answer may be now, `most` where there is room enough."""
        used = self.bytes + self.preparing
        room = min((self.bytes_max - used) // _SHARE, (SMALLER_BEFORE_BYTES - used) // _SHARE_BEFORE)
        return max(min(most, room), min(most, ANSWER_BYTES_MIN))
