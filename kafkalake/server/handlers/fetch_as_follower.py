"""Fetch (1), version 18, of a broker that follows partitions led here: whole Arrow messages, by topic ids, in sessions or not.

Only for brokers: CLUSTER_ACTION, and the epoch of the broker (KIP-903). `broker.partitions.replica_fetch` has the rules. Messages
are not copied.

A fetch that waits is answered once the follower has sent the next one, of partitions that are due since: requests of a connection
are handled one after the other.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from uuid import UUID

from kafkalake.broker.partitions.follower_fetch import FollowedAnswer, FollowedPartition, FollowerFetch
from kafkalake.buffers import Buffer
from kafkalake.errors import ClusterAuthorizationError, KafkaError
from kafkalake.server.request import Request
from kafkalake.uuid_text import ZERO_UUID
from kafkalake.wire.fetch_response import FetchResponseEncoder
from kafkalake.wire.messages.records import FetchRequest, ReplicaState

WAIT_MS_MAX = 60_000
INLINE_PARTITIONS = 1_000
"""The most partitions of a response, also to a consumer, that is encoded on the event loop."""


def handle(request: Request[FetchRequest], follower: ReplicaState, *, is_allowed: bool) -> Generator[None, None, None]:
    """Answer a follower. `is_allowed`: its principal may act as a broker."""
    body = request.body
    if not is_allowed:
        _refuse(request, ClusterAuthorizationError.code)
        return
    partitions: list[FollowedPartition] = []
    for topic in body.topics:
        topic_id = topic.topic_id or ZERO_UUID
        for each in topic.partitions:
            partitions.append(
                FollowedPartition(
                    topic_id,
                    each.partition,
                    each.fetch_offset,
                    each.partition_max_bytes,
                    each.current_leader_epoch,
                    each.last_fetched_epoch,
                    each.log_start_offset,
                    each.high_watermark,
                )
            )
            yield
    asked = FollowerFetch(
        follower.replica_id,
        follower.replica_epoch,
        partitions,
        body.min_bytes,
        body.max_bytes,
        min(max(body.max_wait, 0), WAIT_MS_MAX),
        body.session_id,
        body.session_epoch,
        [(gone.topic_id or ZERO_UUID, each) for gone in body.forgotten_topics_data for each in gone.partitions],
    )
    broker = request.context.broker

    def reply(answers: list[FollowedAnswer], session_id: int) -> None:
        encode = partial(_encode, request.correlation_id, session_id, answers)
        if len(answers) > INLINE_PARTITIONS:
            request.start_task(request.reply_from_thread(encode))
        else:
            request.reply_buffers(encode())

    try:
        waiting = yield from broker.replica_fetches.fetch(asked, request.guarded(reply))
    except KafkaError as error:
        _refuse(request, error.code)
        return
    if waiting is not None:
        request.call_if_abandoned(lambda: broker.purgatory.discard(waiting))
        request.call_if_followed(lambda: broker.purgatory.finish(waiting))


def _refuse(request: Request[FetchRequest], error_code: int) -> None:
    request.reply_buffers(FetchResponseEncoder(18, request.correlation_id, error_code, 0, 0).finish())


def _encode(correlation_id: int, session_id: int, answers: list[FollowedAnswer]) -> list[Buffer]:
    topics: dict[UUID, list[FollowedAnswer]] = {}
    for answer in answers:
        topics.setdefault(answer.asked.topic_id, []).append(answer)
    out = FetchResponseEncoder(18, correlation_id, 0, session_id, len(topics))
    for topic_id, of_topic in topics.items():
        out.begin_topic(topic_id, len(of_topic))
        for each in of_topic:
            read = each.read
            out.add_followed_partition(
                each.asked.number,
                0 if each.error is None else each.error.code,
                (each.high_watermark, each.last_stable_offset, each.log_start_offset),
                b"" if read is None else read.messages,
                each.diverging,
                each.segment_base_offset,
                read is not None and read.ends_segment,
                None if read is None else read.whole,
            )
        out.end_topic()
    return out.finish()
