"""Copies sealed segments of leaders as whole files: large ones of which a follower has nothing, and rewritten ones, whose messages
have other borders than a follower may have.

A segment comes in parts of at most 4 MiB to a temporary file, which the log verifies and takes over when it is whole. A part is
written while the next one is fetched. Few parts are in memory at a time, and the copies of several partitions take turns. After an
error a copy goes on where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from kafkalake.broker.partitions.leader_replicas import AskedSegment, LeaderReplicas, ReplicaId, Segment, SegmentPart
from kafkalake.broker.partitions.replication_throttle import ReplicationThrottle
from kafkalake.config.broker import BrokerConfig
from kafkalake.errors import CorruptMessageError, KafkaLakeError
from kafkalake.run_blocking import RunBlocking, T
from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.log import Log
from kafkalake.storage.segment_copy import SegmentCopy

PARTS_MAX = 4
"""Parts of segments in memory, over all copies."""


class CopiedLog(Protocol):
    """A log to which segments are copied: a `Follower`, or one that is led here and lacks what a job has rewritten.

    leader_id: the broker from which they are copied.
    """

    @property
    def replica(self) -> ReplicaId: ...

    @property
    def log(self) -> Log: ...

    @property
    def leader_id(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    def work_until(self, done: asyncio.Future[Any]) -> None:
        """Note work on the log that runs in a thread."""
        ...


class SegmentCopies:
    """See the module. Used on the event loop's thread."""

    def __init__(
        self,
        leaders: LeaderReplicas,
        config: Callable[[], BrokerConfig],
        run_blocking: RunBlocking,
        throttle: ReplicationThrottle,
    ) -> None:
        self._leaders = leaders
        self._config = config
        self._run_blocking = run_blocking
        self._throttle = throttle
        self._parts = asyncio.Semaphore(PARTS_MAX)
        self._begun: dict[ReplicaId, SegmentCopy] = {}

    async def copy(self, follower: CopiedLog, base_offset: int, generation: int) -> None:
        """Copy a segment from the follower's leader into its log. Raise the error of the leader or the log: then try it again."""
        asked = AskedSegment(follower.replica, follower.leader_epoch, base_offset, generation)
        copy = self._begin(follower, base_offset, generation)
        segment = await self._copy_parts(follower, asked, copy)
        try:
            await self._work(follower, partial(follower.log.install_segment, segment, copy.path))
        except KafkaLakeError:
            self._begun.pop(follower.replica, None)  # what was copied does not fit: not a byte of it is used again
            raise
        self._begun.pop(follower.replica, None)

    async def adopt(self, follower: CopiedLog, rewritten: RewrittenSegment) -> bool:
        """Take a segment that a job has written into the follower's own directory, and return whether there is one."""

        def adopt() -> bool:
            log = follower.log
            if not log.has_file(rewritten):
                return False
            log.adopt_rewritten([rewritten])
            return log.generation_of(rewritten.base_offset) >= rewritten.generation

        return await self._work(follower, adopt)

    def _begin(self, follower: CopiedLog, base_offset: int, generation: int) -> SegmentCopy:
        begun = self._begun.get(follower.replica)
        if begun is None or (begun.base_offset, begun.generation) != (base_offset, generation):
            if begun is not None:
                begun.remove()
            begun = self._begun[follower.replica] = follower.log.begin_copy(base_offset, generation)
        return begun

    async def _copy_parts(self, follower: CopiedLog, asked: AskedSegment, copy: SegmentCopy) -> Segment:
        """Copy all parts from where the copy is. None is being written any more when this ends, in whatever way."""
        position, writing = copy.position, None
        try:
            while True:
                if writing is not None and writing.done():
                    await writing  # which may have failed
                part = await self._fetch_part(follower, asked, position)
                writing = asyncio.get_running_loop().create_task(self._write(follower, copy, part.data, writing))
                position += len(part.data)
                if position == part.segment.total_bytes:
                    await writing
                    return part.segment
        finally:
            if writing is not None:
                await asyncio.gather(writing, return_exceptions=True)

    async def _fetch_part(self, follower: CopiedLog, asked: AskedSegment, position: int) -> SegmentPart:
        """Return a part, which counts as in memory until it is written."""
        timeout_ms = self._config().replica_socket_timeout_ms
        await self._throttle.pause(follower.replica)
        await self._parts.acquire()
        try:
            part: SegmentPart = await self._leaders.fetch_segment(follower.leader_id, asked, position, timeout_ms)
            if not len(part.data) or position + len(part.data) > part.segment.total_bytes:
                raise CorruptMessageError(f"{len(part.data)} bytes at {position} of {part.segment}")
        except BaseException:
            self._parts.release()
            raise
        self._throttle.count(follower.replica, len(part.data))
        return part

    async def _write(
        self, follower: CopiedLog, copy: SegmentCopy, data: memoryview, before: asyncio.Task[None] | None
    ) -> None:
        """Write a part once the one before it is written."""
        try:
            if before is not None:
                await before
            await self._work(follower, partial(copy.write, data))
        finally:
            self._parts.release()

    async def _work(self, follower: CopiedLog, work: Callable[[], T]) -> T:
        """Work on the log in a thread. It ends there even if this is cancelled."""
        future = asyncio.ensure_future(self._run_blocking(work))
        follower.work_until(future)
        return await asyncio.shield(future)

    def forget(self, followers: Iterable[CopiedLog]) -> None:
        """Drop what was copied for these."""
        for follower in followers:
            if (copy := self._begun.pop(follower.replica, None)) is not None:
                copy.remove()
