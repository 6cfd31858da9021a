"""Produce (0), versions 3-13: append one record batch per partition.

- 5: log start offset in the answer. 7: zstd. 8: error messages and, per record, which ones were wrong. 9: flexible. 10: the current
  leader, where the client has the wrong one (never here: one broker leads everything). 13: topics by id.
- acks: 0 has no answer (an error closes the connection, as in Kafka, so that the client finds out), 1 and all are answered
  when the log has the batch. `min.insync.replicas` asks for no more replicas than there are, which is one.
- Compression: what the producer chose, or the topic's `compression.type`.
- Internal topics are written by the broker alone: INVALID_TOPIC_EXCEPTION.
- Transactional batches are taken for partitions that are in the producer's transaction; version 12 adds those that are not
  (KIP-890). Else: TRANSACTION_ABORTABLE, before version 11 INVALID_TXN_STATE; INVALID_PRODUCER_EPOCH for a fenced producer.

Hot path: one pass, no task, answers written by hand rather than through the generic encoder.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from kafkalake.broker.partition import Partition, PendingAppend
from kafkalake.broker.produce import ProduceRequest
from kafkalake.broker.topics import Topic
from kafkalake.config import TopicConfig
from kafkalake.errors import (
    InvalidRequiredAcksError,
    InvalidTopicError,
    KafkaError,
    TransactionalIdAuthorizationError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
    as_value,
)
from kafkalake.internal_topics import INTERNAL
from kafkalake.record import layout as at
from kafkalake.record.batch import RecordBatch
from kafkalake.server.authorizer import Operation
from kafkalake.server.produce_admission import admit
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import find_topic, find_topic_by_id
from kafkalake.wire.compression import CODECS, ZSTD
from kafkalake.wire.produce_request import ProduceBody, ProducedTopic
from kafkalake.wire.record_batch import BatchLimits, decode_produced, is_as_stored
from kafkalake.wire.responses import append_varint

_TRANSACTIONAL = at.ATTRIBUTE_TRANSACTIONAL
_FIXED_4 = struct.Struct(">ihqq")
_FIXED_5 = struct.Struct(">ihqqq")
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_MESSAGE_BYTES_MAX = 1000
_ZSTD_SINCE = 7


class _TopicRules:
    """What the topic's settings mean for a batch; made once per `TopicConfig`."""

    __slots__ = ("codec", "config", "keeps_bytes", "limits")

    def __init__(self, config: TopicConfig, request_bytes_max: int) -> None:
        self.config = config
        has_create_time = config.message_timestamp_type == "CreateTime"
        self.limits = BatchLimits(
            max_message_bytes=config.max_message_bytes,
            max_decompressed_bytes=request_bytes_max,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms if has_create_time else None,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms if has_create_time else None,
            key_required="compact" in config.cleanup_policy,
        )
        self.codec = -1 if config.compression_type == "producer" else CODECS[config.compression_type]
        self.keeps_bytes = has_create_time


_rules: WeakKeyDictionary[Topic, _TopicRules] = WeakKeyDictionary()


def _rules_of(topic: Topic, request: Request) -> _TopicRules:
    rules = _rules.get(topic)
    if rules is None or rules.config is not topic.config:
        rules = _rules[topic] = _TopicRules(topic.config, request.context.broker.config.socket_request_max_bytes)
    return rules


def handle(request: Request) -> None:
    body: ProduceBody = request.body
    batches: list[PendingAppend] = []
    for topic in body.topics:
        _read_topic(request, body, topic, batches)
    produce = ProduceRequest(batches, request.guarded(_Reply(request, body)))
    if body.transactional_id is None:
        produce.start(request.context.broker.append_queue)
    else:
        admit(request, body.transactional_id, produce)


class _Reply:
    """Answers when all batches have their result."""

    __slots__ = ("_body", "_request")

    def __init__(self, request: Request, body: ProduceBody) -> None:
        self._request = request
        self._body = body

    def __call__(self, produced: ProduceRequest) -> None:
        request, body, batches = self._request, self._body, produced.batches
        if body.acks != 0:
            request.reply_buffers((_encode(request.version, request.correlation_id, body.topics, batches),))
            return
        failed = [each.result for each in batches if isinstance(each.result, KafkaError)]
        request.reply_nothing()
        if failed:
            request.connection.close(f"a produce request with acks=0 failed: {failed[0]}")


def _read_topic(request: Request, body: ProduceBody, produced: ProducedTopic, batches: list[PendingAppend]) -> None:
    try:
        if produced.name is None:
            topic = find_topic_by_id(request, Operation.WRITE, produced.topic_id)
        else:
            topic = find_topic(request, Operation.WRITE, produced.name)
        if topic.name in INTERNAL:
            raise InvalidTopicError(f"Cannot append to internal topic {topic.name}")
    except KafkaError as error:
        refused = as_value(error)
        batches += [PendingAppend(None, None, None, refused) for _ in produced.partitions]
        return
    rules = _rules_of(topic, request)
    for index, records in produced.partitions:
        try:
            batches.append(_read_batch(request, topic, rules, body, index, records))
        except KafkaError as error:
            batches.append(PendingAppend(None, None, None, as_value(error)))


def _read_batch(
    request: Request, topic: Topic, rules: _TopicRules, body: ProduceBody, index: int, records: memoryview | None
) -> PendingAppend:
    if body.acks not in (-1, 0, 1):
        raise InvalidRequiredAcksError()
    if not 0 <= index < len(topic.partitions):
        raise UnknownTopicOrPartitionError()
    partition: Partition = topic.partitions[index]
    batch = decode_produced(b"" if records is None else records, rules.limits, request.context.clock.now_ms())
    attributes = int(batch.header[at.ATTRIBUTES])
    if request.version < _ZSTD_SINCE and attributes & at.ATTRIBUTE_COMPRESSION_MASK == ZSTD:
        raise UnsupportedCompressionTypeError("zstd needs Produce version 7")
    if attributes & _TRANSACTIONAL and body.transactional_id is None:
        raise TransactionalIdAuthorizationError()
    return PendingAppend(partition, batch, _original(request, rules, batch, attributes, records))


def _original(
    request: Request, rules: _TopicRules, batch: RecordBatch, attributes: int, records: memoryview | None
) -> bytes | memoryview | None:
    """The producer's bytes where consumers may get them as they are; sets the codec in which they are to be sent else."""
    codec = attributes & at.ATTRIBUTE_COMPRESSION_MASK
    if rules.codec not in (-1, codec):
        batch.header[at.ATTRIBUTES] = attributes & ~at.ATTRIBUTE_COMPRESSION_MASK | rules.codec
        return None
    if not rules.keeps_bytes or records is None or not is_as_stored(records, batch):
        return None
    return records if request.body_is_kept else bytes(records)


def _encode(
    version: int, correlation_id: int, topics: Sequence[ProducedTopic], batches: Sequence[PendingAppend]
) -> bytearray:
    """The whole response, its size in front."""
    flexible = version >= 9
    out = bytearray(4)
    out += _INT32.pack(correlation_id)
    if flexible:
        out.append(0)
        append_varint(out, len(topics) + 1)
    else:
        out += _INT32.pack(len(topics))
    position = 0
    for name, topic_id, partitions in topics:
        if name is None:
            out += topic_id.bytes if topic_id is not None else bytes(16)
        else:
            text = name.encode()
            if flexible:
                append_varint(out, len(text) + 1)
            else:
                out += _INT16.pack(len(text))
            out += text
        if flexible:
            append_varint(out, len(partitions) + 1)
        else:
            out += _INT32.pack(len(partitions))
        for index, _ in partitions:
            _encode_partition(out, version, index, batches[position])
            position += 1
        if flexible:
            out.append(0)
    out += bytes(5 if flexible else 4)  # throttle time 0, no tagged fields
    _INT32.pack_into(out, 0, len(out) - 4)
    return out


def _encode_partition(out: bytearray, version: int, index: int, batch: PendingAppend) -> None:
    result = batch.result
    message = None
    if isinstance(result, KafkaError):
        error, base_offset, append_time, log_start = result.code, -1, -1, -1
        message = str(result).encode()[:_MESSAGE_BYTES_MAX]
    else:
        assert result is not None
        error, base_offset = 0, result.base_offset
        append_time, log_start = result.log_append_time_ms, result.log_start_offset
    if version >= 5:
        out += _FIXED_5.pack(index, error, base_offset, append_time, log_start)
    else:
        out += _FIXED_4.pack(index, error, base_offset, append_time)
    if version >= 9:
        if message is None:
            out += b"\x01\x00\x00"  # no record errors, no message, no tagged fields
        else:
            assert isinstance(result, KafkaError)
            _append_record_errors(out, result)
            append_varint(out, len(message) + 1)
            out += message
            out.append(0)
    elif version >= 8:
        if message is None:
            out += b"\x00\x00\x00\x00\xff\xff"
        else:
            assert isinstance(result, KafkaError)
            out += _INT32.pack(len(result.record_errors))
            for record, sentence in result.record_errors:
                out += _INT32.pack(record)
                text = (sentence or "").encode()
                out += b"\xff\xff" if sentence is None else _INT16.pack(len(text)) + text
            out += _INT16.pack(len(message)) + message


def _append_record_errors(out: bytearray, error: KafkaError) -> None:
    """Write the records at fault as flexible versions have them."""
    append_varint(out, len(error.record_errors) + 1)
    for record, sentence in error.record_errors:
        out += _INT32.pack(record)
        if sentence is None:
            out.append(0)
        else:
            text = sentence.encode()
            append_varint(out, len(text) + 1)
            out += text
        out.append(0)
