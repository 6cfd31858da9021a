"""Copies to a leader what a job has rewritten in the directory of another replica: the one that led when the job ran, mostly.

The leader asks the replicas that follow it, those in the ISR first, and takes a segment as a follower does, verified, while it
appends and is read. Replicas that are away, or do not have the segment either, are asked again after a pause that grows up to a
minute. One partition is copied at a time. Used on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from kafkalake.broker.partitions.leader_replicas import ReplicaId
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.segment_copies import SegmentCopies
from kafkalake.errors import KafkaLakeError
from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.log import Log

logger = logging.getLogger(__name__)

PAUSE_MS_MIN, PAUSE_MS_MAX = 2_000, 60_000


class _Copying:
    """A `CopiedLog`: a partition that is led here, and the replica that is asked now."""

    def __init__(self, partition: Partition) -> None:
        self.replica: ReplicaId = (partition.topic.topic_id, partition.index)
        self.log: Log = partition.log
        self.leader_id = -1
        self.leader_epoch = partition.leader_epoch
        self.under_way: set[asyncio.Future[Any]] = set()
        self.task: asyncio.Task[None] | None = None

    def work_until(self, done: asyncio.Future[Any]) -> None:
        self.under_way.add(done)
        done.add_done_callback(self.under_way.discard)


class MissingGenerations:
    """See the module."""

    def __init__(
        self,
        copies: SegmentCopies,
        now_ms: Callable[[], int],
        later: Callable[[int, Callable[[], None]], object],
        swapped: Callable[[Partition], None],
    ) -> None:
        """`swapped` is called with a partition whose log has rewritten segments now. `later(delay_ms, action)`: runs it later."""
        self._copies = copies
        self._now_ms = now_ms
        self._later = later
        self._swapped = swapped
        self._copying: dict[ReplicaId, _Copying] = {}
        self._paused: dict[ReplicaId, tuple[int, int]] = {}
        """By partition the time of the next attempt and the pause before it, in ms."""
        self._turn = asyncio.Lock()

    def is_copying(self, partition: Partition) -> bool:
        """Return whether segments of a partition are being copied."""
        return (partition.topic.topic_id, partition.index) in self._copying

    def take(self, partition: Partition, missing: Sequence[RewrittenSegment]) -> None:
        """Copy segments that a partition which is led here lacks, unless that is under way, or was tried in vain just now."""
        copying = _Copying(partition)
        if self.is_copying(partition) or self._now_ms() < self._paused.get(copying.replica, (0, 0))[0]:
            return
        self._copying[copying.replica] = copying
        copying.task = asyncio.get_running_loop().create_task(self._take(partition, missing, copying))
        copying.task.add_done_callback(lambda _: self._ended(copying))

    def _ended(self, copying: _Copying) -> None:
        if self._copying.get(copying.replica) is copying:
            del self._copying[copying.replica]

    async def _take(self, partition: Partition, missing: Sequence[RewrittenSegment], copying: _Copying) -> None:
        async with self._turn:
            found = [each for each in missing if await self._take_one(partition, each, copying)]
        if len(found) == len(missing):
            self._paused.pop(copying.replica, None)
        else:
            self._pause(partition, copying.replica)
        if found:
            logger.info("rewritten segments copied to the leader partition=%s number=%d", partition.name, len(found))
            self._swapped(partition)
            log = copying.log
            self._later(log.config.file_delete_delay_ms + 1, log.remove_deleted_files)

    async def _take_one(self, partition: Partition, segment: RewrittenSegment, copying: _Copying) -> bool:
        """Take a segment from this replica's directory or the first one that has it, and return whether there was one."""
        with suppress(KafkaLakeError):
            if await self._copies.adopt(copying, segment):
                return True
        leadership = partition.leadership
        others = dict.fromkeys(each for each in (*leadership.isr, *leadership.replicas) if each != leadership.broker_id)
        for copying.leader_id in others:
            try:
                await self._copies.copy(copying, segment.base_offset, segment.generation)
                return True
            except KafkaLakeError as error:
                logger.debug("rewritten segment not copied partition=%s error=%s", partition.name, error)
        return False

    def _pause(self, partition: Partition, replica: ReplicaId) -> None:
        _, before_ms = self._paused.get(replica, (0, 0))
        if not before_ms:
            logger.warning("no replica has what a job has rewritten partition=%s", partition.name)
        pause_ms = min(max(2 * before_ms, PAUSE_MS_MIN), PAUSE_MS_MAX)
        self._paused[replica] = self._now_ms() + pause_ms, pause_ms

    async def stop(self, replicas: Iterable[ReplicaId]) -> None:
        """Copy nothing more to these, and wait until nothing uses their logs."""
        stopped = []
        for replica in replicas:
            self._paused.pop(replica, None)
            if (copying := self._copying.pop(replica, None)) is not None:
                stopped.append(copying)
        for each in stopped:
            if each.task is not None:
                each.task.cancel()
        waited = {each.task for each in stopped if each.task is not None} | {
            work for each in stopped for work in each.under_way
        }
        if waited:
            await asyncio.wait(waited)
        self._copies.forget(stopped)

    async def stop_all(self) -> None:
        """Copy nothing more."""
        await self.stop(list(self._copying))
