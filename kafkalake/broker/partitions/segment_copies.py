"""Copies sealed segments of leaders as whole files: rewritten ones, whose messages have other borders than a follower may have.

A segment comes in parts of at most 4 MiB to a temporary file, which the log verifies and takes over when it is whole. Few parts are
in memory at a time, and the copies of several partitions take turns. After an error a copy goes on where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from kafkalake.broker.partitions.followers import Follower
from kafkalake.broker.partitions.leader_replicas import AskedSegment, LeaderReplicas, ReplicaId, Segment, SegmentPart
from kafkalake.config.broker import BrokerConfig
from kafkalake.errors import CorruptMessageError, KafkaLakeError
from kafkalake.run_blocking import RunBlocking
from kafkalake.storage.segment_copy import SegmentCopy

PARTS_MAX = 2
"""Parts of segments in memory, over all copies."""


class SegmentCopies:
    """See the module. Used on the event loop's thread."""

    def __init__(
        self,
        leaders: LeaderReplicas,
        config: Callable[[], BrokerConfig],
        run_blocking: RunBlocking,
    ) -> None:
        self._leaders = leaders
        self._config = config
        self._run_blocking = run_blocking
        self._parts = asyncio.Semaphore(PARTS_MAX)
        self._begun: dict[ReplicaId, SegmentCopy] = {}

    async def copy(self, follower: Follower, base_offset: int, generation: int) -> None:
        """Copy a segment from the follower's leader into its log. Raise the error of the leader or the log: then try it again."""
        asked = AskedSegment(follower.replica, follower.leader_epoch, base_offset, generation)
        copy = self._begin(follower, base_offset, generation)
        segment = None
        while segment is None or copy.position < segment.total_bytes:
            segment = await self._copy_part(follower, asked, copy)
        try:
            await self._work(follower, partial(follower.log.install_segment, segment, copy.path))
        except KafkaLakeError:
            self._begun.pop(follower.replica, None)  # what was copied does not fit: not a byte of it is used again
            raise
        self._begun.pop(follower.replica, None)

    def _begin(self, follower: Follower, base_offset: int, generation: int) -> SegmentCopy:
        begun = self._begun.get(follower.replica)
        if begun is None or (begun.base_offset, begun.generation) != (base_offset, generation):
            begun = self._begun[follower.replica] = follower.log.begin_copy(base_offset, generation)
        return begun

    async def _copy_part(self, follower: Follower, asked: AskedSegment, copy: SegmentCopy) -> Segment:
        async with self._parts:
            timeout_ms = self._config().replica_socket_timeout_ms
            part: SegmentPart = await self._leaders.fetch_segment(follower.leader_id, asked, copy.position, timeout_ms)
            if not len(part.data) or copy.position + len(part.data) > part.segment.total_bytes:
                raise CorruptMessageError(f"{len(part.data)} bytes at {copy.position} of {part.segment}")
            await self._work(follower, partial(copy.write, part.data))
            return part.segment

    async def _work(self, follower: Follower, work: Callable[[], object]) -> None:
        """Work on the log in a thread. It ends there even if this is cancelled."""
        future = asyncio.ensure_future(self._run_blocking(work))
        follower.work_until(future)
        await asyncio.shield(future)

    def forget(self, followers: Iterable[Follower]) -> None:
        """Drop what was copied for these."""
        for follower in followers:
            if (copy := self._begun.pop(follower.replica, None)) is not None:
                copy.remove()
