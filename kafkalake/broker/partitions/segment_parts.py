"""The parts of one segment of a leader, in order: a part is asked for while the one before it arrives."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from kafkalake.broker.partitions.leader_replicas import ReplicaId, Segment, SegmentPart
from kafkalake.broker.partitions.replication_throttle import ReplicationThrottle
from kafkalake.errors import CorruptMessageError

ASKED_MAX = 2
"""The parts of one segment that are asked for at a time."""


class SegmentParts:
    """See the module. `position`: where the next part begins. `segment`: the whole segment, None until a part has arrived.

    A part has one of `slots` from when it is asked for. The taker gives it back. Only the first of the parts asked for waits for a
    slot: one that waits for others in order never holds up those that it waits for.
    """

    def __init__(
        self,
        fetch: Callable[[int], Coroutine[Any, Any, SegmentPart]],
        slots: asyncio.Semaphore,
        throttle: ReplicationThrottle,
        replica: ReplicaId,
        position: int,
        segment: Segment | None,
    ) -> None:
        """`fetch` returns the part at a position. `segment`: that of the parts that were copied before."""
        self.position = self._next_position = position
        self.segment = segment
        self._fetch = fetch
        self._slots = slots
        self._throttle = throttle
        self._replica = replica
        self._part_bytes = 0
        """The length of a part, as of the last one."""
        self._asked: deque[asyncio.Task[SegmentPart]] = deque()
        self._is_ending = False

    @property
    def is_whole(self) -> bool:
        """Return whether all parts were taken."""
        return self.segment is not None and self.position == self.segment.total_bytes

    def end(self) -> bool:
        """Ask for no more parts, and return whether none is left to take."""
        self._is_ending = True
        return not self._asked

    async def take(self) -> SegmentPart:
        """Return the next part.

        Raise the error of the leader, CorruptMessageError if the part does not continue the segment.
        """
        if not self._asked:
            await self._throttle.pause(self._replica)
            await self._slots.acquire()
            self._ask()
        part = await self._asked[0]
        self._check(part)
        self._asked.popleft()
        try:
            await self._go_on(part)
        except BaseException:
            self._slots.release()  # nobody takes it
            raise
        return part

    async def _go_on(self, part: SegmentPart) -> None:
        """Count a part that was taken, and ask for those behind it."""
        self._throttle.count(self._replica, len(part.data))
        self.segment = part.segment
        self.position += len(part.data)
        if len(part.data) != self._part_bytes:
            self._part_bytes = len(part.data)
            await self.close()
        await self._ask_ahead()

    def _ask(self) -> None:
        self._asked.append(asyncio.get_running_loop().create_task(self._fetch(self._next_position)))
        self._next_position += self._part_bytes

    async def _ask_ahead(self) -> None:
        assert self.segment is not None
        while (
            not self._is_ending
            and len(self._asked) < ASKED_MAX
            and self._next_position < self.segment.total_bytes
            and not self._slots.locked()
            and not self._throttle.wait_ms(self._replica)
        ):
            await self._slots.acquire()  # at once
            self._ask()

    def _check(self, part: SegmentPart) -> None:
        if self.segment not in (None, part.segment):
            raise CorruptMessageError(f"a part of {part.segment} instead of {self.segment}")
        if not len(part.data) or self.position + len(part.data) > part.segment.total_bytes:
            raise CorruptMessageError(f"{len(part.data)} bytes at {self.position} of {part.segment}")

    async def close(self) -> None:
        """Drop the parts that were not taken. The next one is asked for again."""
        dropped, self._asked = self._asked, deque()
        self._next_position = self.position
        for each in dropped:
            each.cancel()
            self._slots.release()
        await asyncio.gather(*dropped, return_exceptions=True)
