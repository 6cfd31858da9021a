"""Hand-written: a follower's fetch of one partition in a session (Fetch 18), and its answer with messages. Each costs less than
half of what it does by `messages.codec`, and a follower has thousands of them a second.

All others are left to `messages.codec`; tests hold both equal. Source: FetchRequest and FetchResponse in Kafka's protocol guide,
`messages.own_schemas.PartitionData`.
"""

from __future__ import annotations

import struct

from kafkalake.buffers import Buffer
from kafkalake.unsigned_varint import append_unsigned_varint, read_unsigned_varint
from kafkalake.wire.messages.own_keys import OWN_FROM
from kafkalake.wire.messages.reading import uuid_of
from kafkalake.wire.messages.records import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

API_KEY, VERSION = 1, 18
_HEADER = struct.Struct(">ihhih")
_REQUEST = struct.Struct(">xiiibiiB16sBiiqiqiBBBqxBBBBBiqx")
"""Behind the client's id: the request as far as its topics, the one partition with its high watermark, that nothing is forgotten,
no rack, and the replica's id and epoch."""
_ANSWER = struct.Struct(">iBihiB16sBihqqqBi")
"""The answer as far as the length of the messages."""
_ONE, _NONE, _NO_TEXT = 2, 1, 1
"""Lengths of arrays and texts, each with one added."""
_WATERMARK_HEAD = 1, 1, 8
_REPLICA_HEAD = 1, 1, 13
"""Before a tagged field: the number of fields, its tag, its length."""
_SEGMENT_HEAD = bytearray((1,))
append_unsigned_varint(_SEGMENT_HEAD, OWN_FROM)
_SEGMENT_HEAD.append(8)
_TAIL = struct.Struct(f">{len(_SEGMENT_HEAD)}sqH")
"""Behind the messages: the base offset of their segment, and no other tagged field, neither of the topic nor of the answer."""
_UNKNOWN_WATERMARK = 2**63 - 1


def encode_fetch(correlation_id: int, client_id: str, message: FetchRequest) -> bytes | None:
    """Return a request with its size prefix, None for one that is left to `messages.codec`."""
    replica, topics = message.replica_state, message.topics
    if replica is None or len(topics) != 1 or len(topics[0].partitions) != 1 or message.forgotten_topics_data:
        return None
    (topic,) = topics
    (each,) = topic.partitions
    if topic.topic_id is None or each.replica_directory_id is not None or each.high_watermark == _UNKNOWN_WATERMARK:
        return None
    if topic.topic or message.replica_id >= 0 or message.rack_id or message.cluster_id is not None:
        return None
    client = client_id.encode()
    size = _HEADER.size + len(client) + _REQUEST.size - 4
    body = _REQUEST.pack(
        message.max_wait,
        message.min_bytes,
        message.max_bytes,
        message.isolation_level,
        message.session_id,
        message.session_epoch,
        _ONE,
        topic.topic_id.bytes,
        _ONE,
        each.partition,
        each.current_leader_epoch,
        each.fetch_offset,
        each.last_fetched_epoch,
        each.log_start_offset,
        each.partition_max_bytes,
        *_WATERMARK_HEAD,
        each.high_watermark,
        _NONE,
        _NO_TEXT,
        *_REPLICA_HEAD,
        replica.replica_id,
        replica.replica_epoch,
    )
    return _HEADER.pack(size, API_KEY, VERSION, correlation_id, len(client)) + client + body


def decode_fetched(correlation_id: int, frame: Buffer) -> FetchResponse | None:
    """Return the answer in a frame without its size, None for one that is left to `messages.codec`. Its messages are not copied."""
    if len(frame) <= _ANSWER.size + _TAIL.size:
        return None
    (answered, tags, throttle, error, session, topics, topic_id, partitions, index, code, watermark, stable, start, aborted,
     preferred) = _ANSWER.unpack_from(frame, 0)  # fmt: skip
    end = len(frame) - _TAIL.size
    head, segment, others = _TAIL.unpack_from(frame, end)
    try:
        length, position = read_unsigned_varint(frame, _ANSWER.size)
    except IndexError:
        return None
    if answered != correlation_id or position + length - 1 != end or head != _SEGMENT_HEAD:
        return None
    if (tags, topics, partitions, aborted, others) != (0, _ONE, _ONE, _NONE, 0):
        return None
    partition = PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=watermark,
        last_stable_offset=stable,
        aborted_transactions=[],
        records=frame[position:end],
        log_start_offset=start,
        preferred_read_replica=preferred,
        segment_base_offset=segment,
    )
    topic = FetchableTopicResponse(topic_id=uuid_of(topic_id), partitions=[partition])
    return FetchResponse(throttle_time=throttle, error_code=error, session_id=session, responses=[topic])
