"""Produce (0), versions 3-13: append one record batch per partition.

- 5: log start offset in the response. 7: zstd. 8: error messages, and errors of single records. 9: flexible. 10: the current
  leader, for a client with the wrong one (never here: one broker leads everything). 13: topics by id.
- acks: 0 has no response (an error closes the connection, as in Kafka, so that the client notices), 1 and all are answered
  when the log has the batch. `min.insync.replicas` cannot require more replicas than the one that exists.
- Compression: the producer's, or the topic's `compression.type`.
- Internal topics are written by the broker alone: INVALID_TOPIC_EXCEPTION.
- Transactional batches are accepted for partitions in the producer's transaction. Version 12 adds missing ones (KIP-890).
  Otherwise: TRANSACTION_ABORTABLE, before version 11 INVALID_TXN_STATE. INVALID_PRODUCER_EPOCH for a fenced producer.

Hot path: one pass, no task, hand-written responses instead of the generic encoder. Large batches are decoded in a thread
(`server/produce_batches.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

from kafkalake.broker.partitions.append_queue import ProduceRequest
from kafkalake.broker.partitions.partition import PendingAppend
from kafkalake.errors import InvalidTopicError, KafkaError, as_value
from kafkalake.internal_topics import INTERNAL
from kafkalake.server.produce_admission import admit
from kafkalake.server.produce_batches import TURN_BATCHES, BatchReader, rules_of
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import find_topic, find_topic_by_id
from kafkalake.wire.messages.writing import append_varint
from kafkalake.wire.produce_request import ProduceBody, ProducedTopic

_FIXED_4 = struct.Struct(">ihqq")
_FIXED_5 = struct.Struct(">ihqqq")
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_MESSAGE_BYTES_MAX = 1000


def handle(request: Request[ProduceBody]) -> Coroutine[Any, Any, None] | None:
    body: ProduceBody = request.body
    reader = BatchReader(request, body)
    if request.has_task:
        return _append_many(request, body, reader)
    for topic in body.topics:
        _read_topic(request, topic, reader)
    if reader.has_put_off:
        return _append_in_turns(request, body, reader)
    request.context.request_memory.queue(reader.bytes)
    request.grow(reader.bytes)
    _start(request, body, ProduceRequest(reader.batches, request.guarded(_Reply(request, body, reader.bytes))))
    return None


async def _append_many(request: Request[ProduceBody], body: ProduceBody, reader: BatchReader) -> None:
    """Append the batches of a request so large that it was decoded in a thread."""
    for name, topic_id, partitions in body.topics:
        for start in range(0, len(partitions), TURN_BATCHES):
            _read_topic(request, ProducedTopic(name, topic_id, partitions[start : start + TURN_BATCHES]), reader)
            await request.turn()
    await _append_in_turns(request, body, reader)


def _append_in_turns(
    request: Request[ProduceBody], body: ProduceBody, reader: BatchReader
) -> Coroutine[Any, Any, None]:
    return reader.append_in_turns(partial(_start, request, body), request.guarded(_Reply(request, body, 0)))


def _start(request: Request[ProduceBody], body: ProduceBody, produce: ProduceRequest) -> None:
    if body.transactional_id is None:
        produce.start(request.context.broker.append_queue)
    else:
        admit(request, body.transactional_id, produce)


class _Reply:
    """Replies when all batches have their result, and releases the memory they `held`."""

    __slots__ = ("_body", "_held", "_request")

    def __init__(self, request: Request[ProduceBody], body: ProduceBody, held: int) -> None:
        self._request = request
        self._body = body
        self._held = held

    def __call__(self, produced: ProduceRequest) -> None:
        self._request.context.request_memory.release(self._held)
        request, body, batches = self._request, self._body, produced.batches
        if body.acks != 0:
            if len(batches) > TURN_BATCHES:
                encode = partial(_encode, request, body.topics, batches)
                request.start_task(request.reply_from_thread(lambda: (encode(),)))
            else:
                request.reply_buffers((_encode(request, body.topics, batches),))
            return
        failed = [each.result for each in batches if isinstance(each.result, KafkaError)]
        request.reply_buffers(())
        if failed:
            request.connection.close(f"a produce request with acks=0 failed: {failed[0]}")


def _read_topic(request: Request[ProduceBody], produced: ProducedTopic, reader: BatchReader) -> None:
    try:
        name = produced.name
        topic = find_topic_by_id(request, produced.topic_id) if name is None else find_topic(request, name)
        if topic.name in INTERNAL:
            raise InvalidTopicError(f"Cannot append to internal topic {topic.name}")
    except KafkaError as error:
        reader.refuse(len(produced.partitions), as_value(error))
        return
    rules = rules_of(topic, request.context.broker.config)
    for index, records in produced.partitions:
        reader.read(topic, rules, index, records)


def _encode(
    request: Request[ProduceBody], topics: Sequence[ProducedTopic], batches: Sequence[PendingAppend]
) -> bytearray:
    """Encode the response with its size prefix."""
    version = request.version
    flexible = version >= 9
    out = bytearray(4)
    out += _INT32.pack(request.correlation_id)
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
            _encode_partition(out, request, index, batches[position])
            position += 1
        if flexible:
            out.append(0)
    out += bytes(5 if flexible else 4)  # throttle time 0, no tagged fields
    _INT32.pack_into(out, 0, len(out) - 4)
    return out


def _encode_partition(out: bytearray, request: Request[ProduceBody], index: int, batch: PendingAppend) -> None:
    version, result = request.version, batch.result
    message = None
    if isinstance(result, KafkaError):
        error, base_offset, append_time, log_start = result.code, -1, -1, -1
        message = request.error_text(result).encode()[:_MESSAGE_BYTES_MAX]
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
    """Append the errors of single records in flexible encoding."""
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
