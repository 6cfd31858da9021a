"""Fetches from the leaders on other brokers: Kafka's Fetch, by topic ids, as a replica and in sessions, and FetchSegment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from uuid import UUID

from kafkalake.broker.partitions.fetch_session import FetchSession, SessionRequest
from kafkalake.broker.partitions.leader_replicas import (
    AskedReplica,
    AskedSegment,
    FetchedReplica,
    FetchLimits,
    ReplicaId,
    Segment,
    SegmentPart,
)
from kafkalake.client.peers import Channel, Peers
from kafkalake.client.requests import FETCH_AS_FOLLOWER, FETCH_SEGMENT
from kafkalake.cluster.replication import EpochEnd
from kafkalake.errors import FetchSessionIdNotFoundError, InvalidFetchSessionEpochError, error_for_code
from kafkalake.uuid_text import ZERO_UUID
from kafkalake.wire.messages.records import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
    WholeSegment,
)
from kafkalake.wire.messages.replication import FetchSegmentRequest

_PART_BYTES = 4 << 20


class ConnectedLeaderReplicas:
    """`LeaderReplicas` by the connections of `peers`."""

    def __init__(self, peers: Peers, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        """`broker_epoch` returns the epoch of this broker's registration."""
        self._peers = peers
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._sessions: dict[tuple[int, int], FetchSession] = {}
        """By leader and number of the fetcher."""

    async def fetch(
        self,
        leader_id: int,
        fetcher: int,
        asked: Mapping[ReplicaId, AskedReplica],
        changed: Collection[ReplicaId],
        limits: FetchLimits,
    ) -> Sequence[FetchedReplica]:
        session = self._sessions.setdefault((leader_id, fetcher), FetchSession())
        try:
            answer = await self._fetch_in(session, leader_id, fetcher, asked, changed, limits)
        except (FetchSessionIdNotFoundError, InvalidFetchSessionEpochError):
            answer = await self._fetch_in(session, leader_id, fetcher, asked, changed, limits)
        return [
            _fetched(topic.topic_id or ZERO_UUID, partition)
            for topic in answer.responses
            for partition in topic.partitions
        ]

    async def _fetch_in(
        self,
        session: FetchSession,
        leader_id: int,
        fetcher: int,
        asked: Mapping[ReplicaId, AskedReplica],
        changed: Collection[ReplicaId],
        limits: FetchLimits,
    ) -> FetchResponse:
        request = session.begin(asked, changed)
        try:
            answer = await self._ask(leader_id, fetcher, request, limits)
            if answer.error_code:
                raise error_for_code(answer.error_code)
        except BaseException:
            session.failed(request)
            raise
        session.answered(request, answer.session_id)
        return answer

    async def _ask(self, leader_id: int, fetcher: int, session: SessionRequest, limits: FetchLimits) -> FetchResponse:
        request = FetchRequest(
            max_wait=limits.wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=_topics(session.named),
            forgotten_topics_data=_forgotten(session.forgotten) if session.forgotten else (),
            replica_state=ReplicaState(replica_id=self._broker_id, replica_epoch=self._broker_epoch()),
        )
        return await self._peers.ask(
            leader_id,
            FETCH_AS_FOLLOWER,
            request,
            timeout_ms=max(limits.timeout_ms, limits.wait_ms),
            channel=Channel.FETCH,
            number=fetcher,
        )

    async def fetch_segment(self, leader_id: int, asked: AskedSegment, position: int, timeout_ms: int) -> SegmentPart:
        topic_id, index = asked.replica
        request = FetchSegmentRequest(
            replica_id=self._broker_id,
            replica_epoch=self._broker_epoch(),
            topic_id=topic_id,
            partition=index,
            current_leader_epoch=asked.leader_epoch,
            base_offset=asked.base_offset,
            generation=asked.generation,
            position=position,
            length=_PART_BYTES,
        )
        answer = await self._peers.ask(
            leader_id, FETCH_SEGMENT, request, timeout_ms=timeout_ms, channel=Channel.SEGMENTS
        )
        if answer.error_code:
            raise error_for_code(answer.error_code)
        segment = Segment(
            asked.base_offset, answer.next_offset, asked.generation, answer.size_bytes, answer.txn_index_bytes
        )
        return SegmentPart(segment, memoryview(answer.data))


def _topics(asked: Sequence[AskedReplica]) -> list[FetchTopic]:
    topics: list[FetchTopic] = []
    of_topic: list[FetchPartition] = []
    for each in asked:
        topic_id, number = each.replica
        if not topics or topics[-1].topic_id != topic_id:
            of_topic = []
            topics.append(FetchTopic(topic_id=topic_id, partitions=of_topic))
        of_topic.append(
            FetchPartition(
                partition=number,
                current_leader_epoch=each.leader_epoch,
                fetch_offset=each.offset,
                last_fetched_epoch=each.last_epoch,
                log_start_offset=each.log_start_offset,
                partition_max_bytes=each.max_bytes,
                high_watermark=each.high_watermark,
            )
        )
    return topics


def _forgotten(replicas: Sequence[ReplicaId]) -> list[ForgottenTopic]:
    return [
        ForgottenTopic(topic_id=topic_id, partitions=[number for _, number in of_topic])
        for topic_id, of_topic in groupby(replicas, key=lambda each: each[0])
    ]


def _fetched(topic_id: UUID, found: PartitionData) -> FetchedReplica:
    diverging, whole = found.diverging_epoch, found.whole_segment
    return FetchedReplica(
        (topic_id, found.partition_index),
        error_for_code(found.error_code) if found.error_code else None,
        found.high_watermark,
        found.log_start_offset,
        memoryview(found.records or b""),
        found.segment_base_offset,
        found.ends_segment,
        None if whole is None or whole.base_offset < 0 else _segment(whole),
        None if diverging is None or diverging.epoch < 0 else EpochEnd(diverging.epoch, diverging.end_offset),
    )


def _segment(whole: WholeSegment) -> Segment:
    return Segment(whole.base_offset, whole.next_offset, whole.generation, whole.size_bytes, whole.txn_index_bytes)
