"""Produce (0), versions 3-13: append one record batch per partition.

- 5: log start offset in the response. 7: zstd. 8: error messages, and errors of single records. 9: flexible. 10: the current
  leader, for a client with the wrong one (KIP-951). 13: topics by id.
- acks: 0 has no response (an error closes the connection, as in Kafka, so that the client notices), 1 is answered when the
  log has the batch, all when the replicas in sync have it, at the latest after the request's timeout.
- Compression: the producer's, or the topic's `compression.type`.
- Internal topics are written by the broker alone: INVALID_TOPIC_EXCEPTION.
- Transactional batches are accepted for partitions in the producer's transaction. Version 12 adds missing ones (KIP-890).
  Otherwise: TRANSACTION_ABORTABLE, before version 11 INVALID_TXN_STATE. INVALID_PRODUCER_EPOCH for a fenced producer.

Hot path: one pass, no task, hand-written responses instead of the generic encoder. Large batches are decoded in a thread
(`server/produce_batches.py`).
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial

from kafkalake.broker.partitions.append_queue import ProduceRequest
from kafkalake.broker.partitions.pending_append import PendingAppend
from kafkalake.errors import InvalidTopicError, KafkaError, as_value
from kafkalake.internal_topics import INTERNAL
from kafkalake.server.current_leaders import current_leader
from kafkalake.server.produce_admission import admit
from kafkalake.server.produce_batches import TURN_BATCHES, BatchReader, rules_of
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import find_topic, find_topic_by_id
from kafkalake.wire.current_leader import CurrentLeader
from kafkalake.wire.produce_request import ProduceBody, ProducedTopic
from kafkalake.wire.produce_response import encode_produced
from kafkalake.wire.repeated_produce import ProducePattern


def handle(request: Request[ProduceBody]) -> Coroutine[object, object, None] | None:
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
    if body.pattern is not None:
        _OneBatch(request, body.pattern, reader.batches[0], reader.bytes).start()
        return None
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
) -> Coroutine[object, object, None]:
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
            results = [each.result for each in batches if each.result is not None]
            what = request.version, request.correlation_id, body.topics, results, request.error_text, self._leader_of
            if len(batches) > TURN_BATCHES:
                request.start_task(request.reply_from_thread(lambda: (encode_produced(*what),)))
            else:
                request.reply_buffers((encode_produced(*what),))
            return
        failed = [each.result for each in batches if isinstance(each.result, KafkaError)]
        request.reply_buffers(())
        if failed:
            request.connection.close(f"a produce request with acks=0 failed: {failed[0]}")

    def _leader_of(self, topic: ProducedTopic, index: int) -> CurrentLeader | None:
        return current_leader(self._request, topic.topic_id if topic.name is None else topic.name, index)


class _OneBatch:
    """The append of a request that repeats a pattern, and its reply, which releases the memory `held`."""

    __slots__ = ("_held", "_pattern", "_pending", "_request")

    def __init__(
        self, request: Request[ProduceBody], pattern: ProducePattern, pending: PendingAppend, held: int
    ) -> None:
        self._request = request
        self._pattern = pattern
        self._pending = pending
        self._held = held

    def start(self) -> None:
        """Queue the batch unless it has failed already."""
        settled = self._request.guarded(self._reply)
        if self._pending.result is None:
            self._request.context.broker.append_queue.add(self._pending, settled)
        else:
            settled()

    def _reply(self) -> None:
        request, pending = self._request, self._pending
        result = pending.result
        if result is None or isinstance(result, KafkaError) or pending.acks == 0:
            _Reply(request, request.body, self._held)(ProduceRequest([pending], lambda _: None))
        else:
            request.context.request_memory.release(self._held)
            request.reply_buffers((self._pattern.encode(request.correlation_id, result),))


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
