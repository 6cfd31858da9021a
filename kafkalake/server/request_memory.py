"""A bound on the bytes of requests that a server holds at one time, over all its connections (`queued.max.request.bytes`).

Two kinds are counted: `arriving`, bytes of incomplete frames, and `queued`, bytes of batches on their way into the logs, as
Arrow columns. At the bound, a connection stops reading or decoding, and is called back when there is room.

An incomplete frame frees its memory only after growing to its end. To avoid deadlock at the bound, one connection at a time may
exceed it, until its frame is complete or times out (`connection.max.unfinished.ms`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class RequestMemory:
    """Counts bytes and calls back waiting connections. Used by the event loop's thread only."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.arriving = 0
        self.queued = 0
        self._beyond: object = None
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_full(self) -> bool:
        """Return whether no more batches should be decoded."""
        return self.queued >= self.bytes_max

    def may_grow(self, frame: object) -> bool:
        """Return whether the frame of connection `frame` may grow. Beyond the bound the first caller may, until `arrived`."""
        if self.arriving + self.queued < self.bytes_max or self._beyond is frame:
            return True
        if self._beyond is None:
            self._beyond = frame
            return True
        return False

    def arrive(self, count: int) -> None:
        """Count `count` bytes as `arriving`."""
        self.arriving += count

    def arrived(self, frame: object, count: int) -> None:
        """Release `count` bytes that were `arriving`: their frame is complete or abandoned."""
        self.arriving -= count
        if self._beyond is frame:
            self._beyond = None
        if self._waiting:
            self._wake()

    def queue(self, count: int) -> None:
        """Count `count` bytes as `queued`."""
        self.queued += count

    def release(self, count: int) -> None:
        """Release `count` bytes that were `queued`: they are in the log, or refused."""
        self.queued -= count
        if self._waiting:
            self._wake()

    def call_when_free(self, action: Callable[[], None]) -> None:
        """Call `action` once, after the next release. It must check again whether there is room."""
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
