"""FetchSegment (10003, kafkalake's own), version 0: bytes of a sealed segment, and its size, for a follower that copies it whole.

Only for brokers, as a follower's Fetch. At most 4 MiB an answer, read in a thread. OFFSET_OUT_OF_RANGE if the leader has no segment
of that generation any more: the follower fetches again and learns of the newer one. A replica that follows answers its leader, for
segments that a job has rewritten there.
"""

from __future__ import annotations

from kafkalake.broker.partitions.fetch import corrupt
from kafkalake.broker.partitions.follower_fetch import FollowedPartition, FollowerFetch
from kafkalake.errors import (
    ClusterAuthorizationError,
    CorruptSegmentError,
    InvalidRequestError,
    KafkaError,
)
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.uuid_text import ZERO_UUID
from kafkalake.wire.fetch_response import encode_segment_part
from kafkalake.wire.messages.replication import FetchSegmentRequest, FetchSegmentResponse


async def handle(request: Request[FetchSegmentRequest]) -> FetchSegmentResponse | None:
    try:
        if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError()
        part = await _read(request, request.body)
        if not request.connection.is_closing:
            request.reply_buffers(encode_segment_part(request.correlation_id, part))
        return None
    except CorruptSegmentError as error:
        return FetchSegmentResponse(error_code=corrupt(error).code)
    except KafkaError as error:
        return FetchSegmentResponse(error_code=error.code)


async def _read(request: Request[FetchSegmentRequest], body: FetchSegmentRequest) -> FetchSegmentResponse:
    if body.position < 0 or body.length < 0:
        raise InvalidRequestError("the position and the length of a part of a segment are not negative")
    asked = FollowedPartition(
        body.topic_id or ZERO_UUID, body.partition, body.base_offset, 1, body.current_leader_epoch, -1, -1, -1
    )
    fetch = FollowerFetch(body.replica_id, body.replica_epoch, (asked,), 0, 1, 0)
    segment, data = await request.context.broker.sent_segments.read(fetch, body.generation, body.position, body.length)
    return FetchSegmentResponse(
        next_offset=segment.next_offset,
        size_bytes=segment.size_bytes,
        txn_index_bytes=segment.txn_index_bytes,
        data=data,
    )
