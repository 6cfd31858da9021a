"""Parts of sealed segments for other brokers: followers copy them from their leader, and a leader copies from a replica that
follows it what a job has rewritten there."""

from __future__ import annotations

from collections.abc import Callable

from kafkalake.broker.partitions.fetchers import Fetchers
from kafkalake.broker.partitions.follower_fetch import FollowerFetch
from kafkalake.broker.partitions.leader_replicas import SegmentPart
from kafkalake.broker.partitions.replica_fetch import SEGMENT_BYTES_MAX, ReplicaFetchService
from kafkalake.cluster.image import ClusterImage
from kafkalake.cluster.partition_changes import ANY_EPOCH
from kafkalake.errors import NotLeaderOrFollowerError
from kafkalake.run_blocking import RunBlocking
from kafkalake.storage.log import Log
from kafkalake.storage.replica_read import SegmentRef


class SentSegments:
    """See the module. `image` returns the version that is followed here."""

    def __init__(
        self,
        replica_fetches: ReplicaFetchService,
        fetchers: Fetchers,
        image: Callable[[], ClusterImage],
        run_blocking: RunBlocking,
    ) -> None:
        self._replica_fetches = replica_fetches
        self._fetchers = fetchers
        self._image = image
        self._run_blocking = run_blocking

    async def read(self, request: FollowerFetch, generation: int, position: int, length: int) -> SegmentPart:
        """Return bytes of the segment that begins at the offset asked for, once a throttle allows so many.

        Raise as a fetch, `OffsetOutOfRangeError` if no segment of that generation begins there, `NotLeaderOrFollowerError` if this
        broker neither leads nor follows the one that asks, `CorruptSegmentError`, `KafkaStorageError`.
        """
        length = min(length, SEGMENT_BYTES_MAX)
        log, segment = await self._find(request, generation, length)
        data: memoryview = await self._run_blocking(lambda: log.read_segment_file(segment, position, length))
        return SegmentPart(segment, data)

    async def _find(self, request: FollowerFetch, generation: int, length: int) -> tuple[Log, SegmentRef]:
        (asked,) = request.partitions
        follower = self._fetchers.find((asked.topic_id, asked.number))
        if follower is None:
            partition, segment = self._replica_fetches.segment(request, generation)
            await self._replica_fetches.pause(partition, request, min(length, segment.size_bytes))
            return partition.log, segment
        leader = self._image().brokers.get(request.broker_id)
        if leader is None or request.broker_epoch not in (ANY_EPOCH, leader.epoch) or not generation:
            raise NotLeaderOrFollowerError()
        if (follower.leader_id, follower.leader_epoch) != (request.broker_id, asked.leader_epoch):
            raise NotLeaderOrFollowerError()
        return follower.log, follower.log.segment_reference(asked.offset, generation)
