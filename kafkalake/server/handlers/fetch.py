"""Fetch (1), versions 4-18: records from an offset on, with long poll and incremental sessions.

- 5: log start offset. 7: sessions (KIP-227). 9: current leader epoch (KIP-320). 10: zstd. 11: rack and preferred replica; a
  consumer may read from a follower (KIP-392). 12: flexible, last
  fetched epoch and diverging epoch (KIP-595), the current leader with an error (KIP-951). 13: topics by id (KIP-516).
  16: the current leader's address. 15, 17, 18: differ for replicas only; 18 sends the leader a follower's high watermark
  (KIP-1166). Brokers that follow use 18 (`fetch_as_follower`).
- Records come from the cache of producers' bytes, or are encoded here from the stored Arrow messages.
- A consumer without zstd (below version 10) gets UNSUPPORTED_COMPRESSION_TYPE for a topic with `compression.type` zstd.

Responses are assembled from pieces, so that cached records are not copied. Records that must be compressed again, for a lagging
consumer, are compressed in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from functools import partial
from uuid import UUID

from kafkalake.broker.partitions.fetch import STORED_BYTES_MAX, FetchRequest
from kafkalake.broker.partitions.fetch_sessions import FetchPartition, PartitionKey
from kafkalake.broker.partitions.fetched import (
    CachedRecords,
    Fetched,
    FetchedPartition,
    Isolation,
    StoredRecords,
)
from kafkalake.buffers import Buffer
from kafkalake.errors import CorruptMessageError, LakeError, UnsupportedCompressionTypeError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.current_leaders import current_leader
from kafkalake.server.handlers import fetch_as_follower
from kafkalake.server.request import Request
from kafkalake.uuid_text import ZERO_UUID
from kafkalake.wire.current_leader import CurrentLeader, names_leader
from kafkalake.wire.fetch_response import FetchResponseEncoder
from kafkalake.wire.messages import records
from kafkalake.wire.record_batch import encode_fetched

logger = logging.getLogger(__name__)

_ZSTD_SINCE = 10
_RACKS_SINCE = 11
_FOLLOWERS_SINCE = 18
INLINE_BYTES = 128 * 1024
"""Most bytes compressed on the event loop: 4 ms of gzip. More are compressed in a thread."""


def handle(request: Request[records.FetchRequest]) -> Generator[None, None, None]:
    body = request.body
    if body.replica_state is not None and body.replica_state.replica_id >= 0 and request.version >= _FOLLOWERS_SINCE:
        is_allowed = request.allows(Resource.CLUSTER, CLUSTER_NAME)
        yield from fetch_as_follower.handle(request, body.replica_state, is_allowed=is_allowed)
        return
    by_id = request.version >= 13
    partitions: list[FetchPartition] = []
    for topic in body.topics:
        key = topic.topic_id or ZERO_UUID if by_id else topic.topic
        for asked in topic.partitions:
            partitions.append(
                FetchPartition(
                    key,
                    asked.partition,
                    asked.fetch_offset,
                    asked.partition_max_bytes,
                    asked.current_leader_epoch,
                    asked.last_fetched_epoch,
                )
            )
            yield
    forgotten: list[PartitionKey] = []
    for gone in body.forgotten_topics_data:
        key = gone.topic_id or ZERO_UUID if by_id else gone.topic
        forgotten += [(key, index) for index in gone.partitions]
    asked_for = FetchRequest(
        partitions,
        forgotten,
        body.session_id,
        body.session_epoch,
        by_id,
        Isolation.READ_COMMITTED if body.isolation_level == 1 else Isolation.READ_UNCOMMITTED,
        body.min_bytes,
        body.max_bytes,
        body.max_wait,
        lambda name: request.allows(Resource.TOPIC, name),
        request.listener,
        body.rack_id if request.version >= _RACKS_SINCE else None,
        request.context.unread_answers.answer_bytes_max(STORED_BYTES_MAX),
    )
    broker = request.context.broker
    waiting = yield from broker.fetcher.fetch(
        asked_for, request.guarded(lambda fetched: _reply(request, asked_for, fetched))
    )
    if waiting is not None:
        request.call_if_abandoned(lambda: broker.purgatory.discard(waiting))


def _reply(request: Request[records.FetchRequest], asked_for: FetchRequest, fetched: Fetched) -> None:
    bytes_max = min(asked_for.max_bytes, request.context.broker.config.fetch_max_bytes)

    def leader_of(asked: FetchPartition) -> CurrentLeader | None:
        return current_leader(request, asked.topic, asked.partition)

    encode = partial(_encode, request.version, request.correlation_id, fetched, bytes_max, leader_of)
    size = _compressed_bytes(fetched)
    if size > INLINE_BYTES or len(fetched.partitions) > fetch_as_follower.INLINE_PARTITIONS:
        request.start_task(_reply_from_thread(request, fetched, encode, size))
    else:
        request.reply_buffers(encode())
        fetched.sent()
        request.context.read_ahead.begin(fetched)


def _compressed_bytes(fetched: Fetched) -> int:
    """Return roughly how many bytes must be compressed for the response."""
    return sum(
        min(partition.records.read.max_bytes, partition.records.messages.size_bytes)
        for partition in fetched.partitions
        if isinstance(partition.records, StoredRecords) and partition.records.is_compressed
    )


async def _reply_from_thread(
    request: Request[records.FetchRequest], fetched: Fetched, encode: Callable[[], list[Buffer]], size: int
) -> None:
    with request.context.unread_answers.prepare(size):
        await request.reply_from_thread(encode)
        fetched.sent()


def _encode(
    version: int,
    correlation_id: int,
    fetched: Fetched,
    bytes_max: int,
    leader_of: Callable[[FetchPartition], CurrentLeader | None],
) -> list[Buffer]:
    """Encode the response in pieces. Its records take `bytes_max`, or are one batch. Also called in a thread.

    Partitions whose records do not fit, or cannot be encoded, are changed accordingly.
    """
    topics: dict[str | UUID, list[FetchedPartition]] = {}
    for partition in fetched.partitions:
        topics.setdefault(partition.asked.topic, []).append(partition)
    error = 0 if fetched.error is None else fetched.error.code
    out = FetchResponseEncoder(version, correlation_id, error, fetched.context.session_id, len(topics))
    budget = _Budget(bytes_max)
    for key, partitions in topics.items():
        out.begin_topic(key, len(partitions))
        for partition in partitions:
            _encode_partition(out, version, partition, budget, leader_of)
        out.end_topic()
    return out.finish()


class _Budget:
    """Bytes left for records in the response. `empty` until it has records."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.empty = True


def _encode_partition(
    out: FetchResponseEncoder,
    version: int,
    partition: FetchedPartition,
    budget: _Budget,
    leader_of: Callable[[FetchPartition], CurrentLeader | None],
) -> None:
    asked = partition.asked
    pieces: list[Buffer] = []
    if version < _ZSTD_SINCE and partition.codec == "zstd":
        partition.refuse(UnsupportedCompressionTypeError())
    try:
        pieces = _records(partition, budget)
    except LakeError as failure:
        logger.error("records not encoded topic=%s partition=%d error=%s", asked.topic, asked.partition, failure)
        partition.refuse(CorruptMessageError(str(failure)))
    if not pieces:
        partition.leave_out()
    out.add_partition(
        asked.partition,
        0 if partition.error is None else partition.error.code,
        (partition.high_watermark, partition.last_stable_offset, partition.log_start_offset),
        partition.aborted,
        pieces,
        partition.diverging,
        leader_of(asked) if names_leader(partition.error) else None,
        -1 if partition.preferred_read_replica is None else partition.preferred_read_replica,
    )


def _records(partition: FetchedPartition, budget: _Budget) -> list[Buffer]:
    """Return the record batches as pieces. Raise `LakeError` if the stored messages are invalid."""
    records = partition.records
    if records is None:
        return []
    if isinstance(records, CachedRecords):
        budget.left -= records.size_bytes
        budget.empty = False
        return list(records.views)
    limit = min(records.read.max_bytes, max(budget.left, 0))
    encoded = encode_fetched(records.messages, records.read.offset, records.end_offset, limit)
    size = len(encoded.records)
    if size > limit and not (records.first_whole and budget.empty):
        return []
    budget.left -= size
    budget.empty = budget.empty and not size
    partition.note_encoded(*encoded, may_keep=limit == records.read.max_bytes)
    return [encoded.records] if size else []
