"""What a follower asks of the leaders of its partitions, as plain values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID

from kafkalake.cluster.replication import EpochEnd
from kafkalake.errors import KafkaError
from kafkalake.storage.replica_read import SegmentRef
from kafkalake.topic_partition import PartitionId

ReplicaId = PartitionId[UUID]
"""A replica of this broker, by the id of its topic and its number."""

Segment = SegmentRef
"""A sealed segment of the leader that is copied as a file."""

_NOTHING = memoryview(b"")


class AskedReplica(NamedTuple):
    """A partition to fetch: from the follower's log end on, in the leader epoch that the follower knows.

    last_epoch: the newest leader epoch in the follower's log, -1 without any. high_watermark: as the follower knows it.
    """

    replica: ReplicaId
    leader_epoch: int
    offset: int
    last_epoch: int
    log_start_offset: int
    high_watermark: int
    max_bytes: int


@dataclass(slots=True)
class FetchedReplica:
    """The leader's answer for one partition.

    messages: whole Arrow messages from the asked offset on, which lie in the leader's segment `segment_base_offset`;
    ends_segment: that segment is sealed and ends with them. whole: a segment to fetch as a file instead. diverging: where the
    follower's log parts from the leader's. With `OffsetOutOfRangeError`, `segment_base_offset` is where the leader's log begins.
    """

    replica: ReplicaId
    error: KafkaError | None = None
    high_watermark: int = -1
    log_start_offset: int = -1
    messages: memoryview = _NOTHING
    segment_base_offset: int = -1
    ends_segment: bool = False
    whole: SegmentRef | None = None
    diverging: EpochEnd | None = None


class AskedSegment(NamedTuple):
    """A sealed segment to copy, in the leader epoch that the follower knows."""

    replica: ReplicaId
    leader_epoch: int
    base_offset: int
    generation: int


class SegmentPart(NamedTuple):
    """Bytes of a sealed segment, and what the whole of it is."""

    segment: Segment
    data: memoryview


class FetchLimits(NamedTuple):
    """Of one request: the wait for `min_bytes` at the leader, the bytes of its answer, and the wait for that."""

    wait_ms: int
    min_bytes: int
    max_bytes: int
    timeout_ms: int


class LeaderReplicas(Protocol):
    """The leaders on other brokers. A simulation has its own."""

    async def fetch(
        self,
        leader_id: int,
        fetcher: int,
        asked: Mapping[ReplicaId, AskedReplica],
        changed: Collection[ReplicaId],
        limits: FetchLimits,
    ) -> Sequence[FetchedReplica]:
        """Return the leader's answers, of some or all partitions. `fetcher`: the number of one of several to that broker.

        changed: the partitions that are asked for otherwise than in the call before, or not any more.

        Raise `BrokerUnavailableError` without an answer, `KafkaError` if the whole request was refused.
        """
        ...

    async def fetch_segment(self, leader_id: int, asked: AskedSegment, position: int, timeout_ms: int) -> SegmentPart:
        """Return a part of a sealed segment, from `position` on, that is not empty. Raise as `fetch`, or the partition's error."""
        ...
