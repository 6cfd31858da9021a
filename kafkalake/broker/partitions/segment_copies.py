"""Copies sealed segments of leaders as whole files: large ones of which a follower has nothing, and rewritten ones, whose messages
have other borders than a follower may have.

A segment comes in parts of at most 4 MiB to a temporary file, which the log verifies and takes over when it is whole. A part is
written while the next ones are fetched. Few parts are in memory at a time, and the copies of several partitions take turns. After
an error a copy goes on where it was.

While a segment is verified the one behind it is copied, as far as that gets: most likely it is to be copied next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from kafkalake.broker.partitions.leader_replicas import AskedSegment, LeaderReplicas, ReplicaId, Segment, SegmentPart
from kafkalake.broker.partitions.replication_throttle import ReplicationThrottle
from kafkalake.broker.partitions.segment_parts import SegmentParts
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
        self._slots = asyncio.Semaphore(PARTS_MAX)
        self._begun: dict[tuple[ReplicaId, bool], SegmentCopy] = {}
        """By replica, and whether a job has rewritten the segment: such a copy may go on beside another one."""

    async def copy(self, follower: CopiedLog, base_offset: int, generation: int) -> None:
        """Copy a segment from the follower's leader into its log. Raise the error of the leader or the log: then try it again."""
        asked = AskedSegment(follower.replica, follower.leader_epoch, base_offset, generation)
        copy = self._begin(follower, asked)
        segment = await self._copy_parts(follower, asked, copy)
        assert segment is not None
        self._begun.pop(_key(asked), None)  # if it does not fit, not a byte of it is used again
        installing = self._start(follower, partial(install_segment, follower.log, segment, copy.path))
        if not generation:
            await self._copy_ahead(follower, asked._replace(base_offset=segment.next_offset), installing)
        await asyncio.shield(installing)

    async def _copy_ahead(self, follower: CopiedLog, asked: AskedSegment, until: asyncio.Future[None]) -> None:
        """Copy a segment until `until` is done. Errors come again if it is to be copied."""
        copy = self._begin(follower, asked)
        with suppress(KafkaLakeError):
            await self._copy_parts(follower, asked, copy, until)
        if not copy.position:
            self._begun.pop(_key(asked), None)

    async def adopt(self, follower: CopiedLog, rewritten: RewrittenSegment) -> bool:
        """Take a segment that a job has written into the follower's own directory, and return whether there is one."""

        def adopt() -> bool:
            log = follower.log
            if not log.has_file(rewritten):
                return False
            log.adopt_rewritten([rewritten])
            return log.generation_of(rewritten.base_offset) >= rewritten.generation

        return await self._work(follower, adopt)

    def _begin(self, follower: CopiedLog, asked: AskedSegment) -> SegmentCopy:
        begun = self._begun.get(_key(asked))
        if begun is None or (begun.base_offset, begun.generation) != (asked.base_offset, asked.generation):
            if begun is not None:
                begun.remove()
            begun = self._begun[_key(asked)] = follower.log.begin_copy(asked.base_offset, asked.generation)
        return begun

    async def _copy_parts(
        self, follower: CopiedLog, asked: AskedSegment, copy: SegmentCopy, until: asyncio.Future[None] | None = None
    ) -> Segment | None:
        """Copy all parts from where the copy is, or until `until` is done, and return the segment if the copy is whole.

        No part is under way or being written any more when this ends, in whatever way.
        """
        timeout_ms = self._config().replica_socket_timeout_ms
        fetch = partial(self._leaders.fetch_segment, follower.leader_id, asked, timeout_ms=timeout_ms)
        parts = SegmentParts(fetch, self._slots, self._throttle, follower.replica, copy.position, copy.segment)
        writing: asyncio.Task[None] | None = None
        try:
            while not parts.is_whole and not (until is not None and until.done() and parts.end()):
                if writing is not None and writing.done():
                    await writing  # which may have failed
                part = await parts.take()
                writing = asyncio.get_running_loop().create_task(self._write(follower, copy, part, writing))
                writing.add_done_callback(self._free_slot)  # also if it is cancelled before it begins
            if writing is not None:
                await writing
            return parts.segment if parts.is_whole else None
        except CorruptMessageError:
            self._begun.pop(_key(asked), None)
            raise
        finally:
            await parts.close()
            if writing is not None:
                await asyncio.gather(writing, return_exceptions=True)

    async def _write(
        self, follower: CopiedLog, copy: SegmentCopy, part: SegmentPart, before: asyncio.Task[None] | None
    ) -> None:
        """Write a part once the one before it is written."""
        if before is not None:
            await before
        await self._work(follower, partial(copy.write, part.data, part.segment))

    def _free_slot(self, written: asyncio.Future[None]) -> None:
        self._slots.release()

    async def _work(self, follower: CopiedLog, work: Callable[[], T]) -> T:
        """Work on the log in a thread. It ends there even if this is cancelled."""
        return await asyncio.shield(self._start(follower, work))

    def _start(self, follower: CopiedLog, work: Callable[[], T]) -> asyncio.Future[T]:
        future = asyncio.ensure_future(self._run_blocking(work))
        follower.work_until(future)
        return future

    def forget(self, followers: Iterable[CopiedLog]) -> None:
        """Drop what was copied for these."""
        for follower in followers:
            for is_rewritten in (False, True):
                self._drop((follower.replica, is_rewritten))

    def drop_ahead(self, follower: CopiedLog) -> None:
        """Drop what was copied of a segment that is fetched by messages after all."""
        if self._begun:
            self._drop((follower.replica, False))

    def _drop(self, key: tuple[ReplicaId, bool]) -> None:
        if (copy := self._begun.pop(key, None)) is not None:
            copy.remove()


def install_segment(log: Log, segment: Segment, path: str) -> None:
    """Install a copied segment, and force its records as the topic asks, before the leader hears that they are here.

    Raise as `Log.install_segment` and `Log.flush`.
    """
    counted_end = log.log_end_offset
    log.install_segment(segment, path)
    if not segment.generation and log.flush_due():
        log.flush(counted_end)


def _key(asked: AskedSegment) -> tuple[ReplicaId, bool]:
    return asked.replica, asked.generation > 0
