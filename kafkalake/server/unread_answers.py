"""A bound on the bytes of responses that clients have not read (`queued.max.response.bytes`), over all connections.

A connection counts while its write buffer is full, with the buffer's size when it became full. The less room is left, the smaller
are the responses read from the files. If that is not enough, the connection that has been full the longest is closed. A client
that reads, however slowly, empties its buffer and is counted anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

ANSWER_BYTES_MIN = 1024 * 1024
_SHARE = 64
"""A response takes at most the remaining room divided by this."""
SMALLER_BEFORE_BYTES = 128 * 1024 * 1024
_SHARE_BEFORE = 8
"""And at most the rest of `SMALLER_BEFORE_BYTES` divided by this, so that many slow clients shrink responses early."""


class UnreadAnswers:
    """Unread bytes per connection. Used by the event loop's thread only."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.preparing = 0
        """Bytes of responses being encoded in a thread."""
        self._by_age: dict[object, tuple[int, Callable[[], None]]] = {}

    def add(self, connection: object, count: int, close: Callable[[], None]) -> None:
        """Count `count` unread bytes of `connection`. `close` closes it if the bound is exceeded."""
        self.remove(connection)
        self._by_age[connection] = (count, close)
        self.bytes += count
        while self.bytes > self.bytes_max and len(self._by_age) > 1:
            oldest = next(iter(self._by_age))
            _, close_oldest = self._by_age[oldest]
            self.remove(oldest)
            close_oldest()

    def remove(self, connection: object) -> None:
        """Stop counting `connection`: it is closed, or its client has read. Does nothing if it was not counted."""
        count, _ = self._by_age.pop(connection, (0, None))
        self.bytes -= count

    @contextmanager
    def prepare(self, count: int) -> Iterator[None]:
        """Count `count` bytes as `preparing` within the block."""
        self.preparing += count
        try:
            yield
        finally:
            self.preparing -= count

    def answer_bytes_max(self, most: int) -> int:
        """Return the current size limit of a large response, `most` if there is enough room."""
        used = self.bytes + self.preparing
        room = min((self.bytes_max - used) // _SHARE, (SMALLER_BEFORE_BYTES - used) // _SHARE_BEFORE)
        return max(min(most, room), min(most, ANSWER_BYTES_MIN))
