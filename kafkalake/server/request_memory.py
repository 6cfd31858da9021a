"""One bound on the bytes of requests that a server holds at one time, over all its connections (`queued.max.request.bytes`).

Two kinds are counted: `arriving`, of frames that are not whole yet, and `queued`, of batches on their way into the logs, as Arrow
columns. Who finds the bound reached stops reading, or decoding, and is called when there is room.

A frame that is under way can only end by growing. So that many of them do not wait for each other when the bound is reached, one
connection at a time may go beyond it, until its frame is whole or too late (`connection.max.unfinished.ms`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class RequestMemory:
    """Counts, and calls who waits. Used by the event loop's thread only."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.arriving = 0
        self.queued = 0
        self._beyond: object = None
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_full(self) -> bool:
        """Whether no more batches should be decoded."""
        return self.queued >= self.bytes_max

    def may_grow(self, frame: object) -> bool:
        """Whether the frame of connection `frame` may take more; the first that asks beyond the bound may, until `arrived`."""
        if self.arriving + self.queued < self.bytes_max or self._beyond is frame:
            return True
        if self._beyond is None:
            self._beyond = frame
            return True
        return False

    def arrived(self, frame: object, count: int) -> None:
        """A frame of which `count` bytes were `arriving` is whole, or will never be."""
        self.arriving -= count
        if self._beyond is frame:
            self._beyond = None
        if self._waiting:
            self._wake()

    def release(self, count: int) -> None:
        """`count` bytes that were `queued` are in the log, or refused."""
        self.queued -= count
        if self._waiting:
            self._wake()

    def call_when_free(self, action: Callable[[], None]) -> None:
        """Call `action` once, when something was given back: it looks again whether there is room."""
        self._waiting.append(action)

    async def room(self) -> None:
        """Wait until more batches may be decoded."""
        while self.is_full:
            free = asyncio.get_running_loop().create_future()
            self.call_when_free(lambda free=free: None if free.done() else free.set_result(None))  # type: ignore[misc]
            await free

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            action()
