"""Decodes the batches of a Produce request: small ones on the event loop, at once; large ones in a thread, a few at a time.

Batches may be compressed a thousandfold, so the size of a request does not bound its cost. Up to `INLINE_BYTES` of a request
are decoded where it is handled. From the first batch beyond that on, the rest is deferred: a thread decodes up to `TURN_BYTES`
of Arrow columns, those are appended, and then the next follow. So a request takes bounded memory and never blocks the loop for
long, and its batches reach each partition in order. The connection takes no further request meanwhile. `RequestMemory` bounds
all requests together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

from kafkalake.broker.delayed.delaying_append import Received, begin_append, may_wait
from kafkalake.broker.partitions.append_queue import ProduceRequest
from kafkalake.broker.partitions.batch_checks import OWN_PRODUCER_IDS_FROM, uncompressed_bytes_max
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.pending_append import PendingAppend
from kafkalake.broker.partitions.topics import Topic
from kafkalake.config.broker import BrokerConfig
from kafkalake.config.topic_rules import TopicRules
from kafkalake.config.topics import TopicConfig
from kafkalake.errors import (
    DecompressedTooLargeError,
    InvalidProducerIdMappingError,
    InvalidRequiredAcksError,
    KafkaError,
    TransactionalIdAuthorizationError,
    UnsupportedCompressionTypeError,
    as_value,
)
from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.server.request import Request
from kafkalake.wire.compression import ZSTD
from kafkalake.wire.produce_request import ProduceBody
from kafkalake.wire.record_batch import BatchLimits, decode_produced, is_as_stored

INLINE_BYTES = 17 * 64 * 1024
"""A little more than 1 MiB, so that a batch of the default `max.message.bytes` fits."""
TURN_BATCHES = 1_000
"""Most batches of one request decoded and appended at once, however small."""
TURN_BYTES = 16 * 1024 * 1024
_ZSTD_SINCE = 7


class BatchRules:
    """Limits and codec of a topic's batches. Built once per `TopicConfig`, see `rules_of`."""

    __slots__ = ("codec", "config", "delays", "limits")

    def __init__(self, config: TopicConfig, broker: BrokerConfig) -> None:
        self.config = config
        rules = TopicRules.of(config)
        self.limits = BatchLimits(
            max_message_bytes=rules.message_bytes_max,
            max_decompressed_bytes=uncompressed_bytes_max(rules, broker),
            timestamp_before_max_ms=rules.timestamp_before_max_ms,
            timestamp_after_max_ms=rules.timestamp_after_max_ms,
            key_required=rules.key_required,
        )
        self.codec = -1 if rules.codec is None else rules.codec
        self.delays = rules.delays


_rules: WeakKeyDictionary[Topic, BatchRules] = WeakKeyDictionary()


def rules_of(topic: Topic, broker: BrokerConfig) -> BatchRules:
    """Return the rules of the topic's current settings."""
    rules = _rules.get(topic)
    if rules is None or rules.config is not topic.config:
        rules = _rules[topic] = BatchRules(topic.config, broker)
    return rules


class _PutOff(NamedTuple):
    """A batch to be decoded later. `pending` receives it, or its error."""

    pending: PendingAppend
    rules: BatchRules
    records: bytes | memoryview


class BatchReader:
    """Decodes the batches of one request. `batches` has one entry each, in order. `bytes` is the size of those decoded."""

    __slots__ = ("_body", "_now_ms", "_put_off", "_request", "batches", "bytes")

    def __init__(self, request: Request[object], body: ProduceBody) -> None:
        self._request = request
        self._body = body
        self._now_ms = request.context.clock.now_ms()
        self._put_off: deque[_PutOff] = deque()
        self.batches: list[PendingAppend] = []
        self.bytes = 0

    @property
    def has_put_off(self) -> bool:
        """Return whether there are batches left for `append_in_turns`."""
        return bool(self._put_off)

    def refuse(self, count: int, error: KafkaError) -> None:
        """Refuse the next `count` batches."""
        self.batches += [PendingAppend(None, None, None, error) for _ in range(count)]

    def read(self, topic: Topic, rules: BatchRules, index: int, records: memoryview | None) -> None:
        """Decode the batch for partition `index`, or defer it."""
        try:
            self.batches.append(self._read(topic, rules, index, b"" if records is None else records))
        except KafkaError as error:
            self.batches.append(PendingAppend(None, None, None, as_value(error)))

    def _read(self, topic: Topic, rules: BatchRules, index: int, records: bytes | memoryview) -> PendingAppend:
        acks = self._body.acks
        if acks not in (-1, 0, 1):
            raise InvalidRequiredAcksError()
        partition = topic.leader(index)
        left = INLINE_BYTES - self.bytes
        few = not self._put_off and len(self.batches) < TURN_BATCHES
        if few and (len(records) <= left or len(records) > rules.limits.max_message_bytes):
            try:
                batch = decode_produced(records, rules.limits, self._now_ms, left, is_kept=self._request.body_is_kept)
                original = self._original(rules, records, batch)
                if not may_wait(partition, rules.delays):
                    return PendingAppend(partition, batch, original, acks=acks, timeout_ms=self._body.timeout_ms)
                pending = self._undecoded(partition, rules)
                pending.decoded(batch, original)
                return pending
            except DecompressedTooLargeError:
                if left >= rules.limits.max_decompressed_bytes:
                    raise
        pending = self._undecoded(partition, rules)
        self._put_off.append(_PutOff(pending, rules, self._kept(records)))
        return pending

    def _undecoded(self, partition: Partition, rules: BatchRules) -> PendingAppend:
        body = self._body
        received = Received(body.transactional_id, self._now_ms, body.timeout_ms)
        return begin_append(self._request.context.broker.delay_gate, partition, rules.delays, received, body.acks)

    def _kept(self, records: bytes | memoryview) -> bytes | memoryview:
        return records if self._request.body_is_kept else bytes(records)

    def _original(
        self, rules: BatchRules, records: bytes | memoryview, batch: ProducerBatch
    ) -> bytes | memoryview | None:
        """Check a decoded batch, and return its bytes if consumers may get them unchanged. Raise `KafkaError`."""
        attributes = batch.header.item(at.ATTRIBUTES)
        codec = attributes & at.ATTRIBUTE_COMPRESSION_MASK
        if self._request.version < _ZSTD_SINCE and codec == ZSTD:
            raise UnsupportedCompressionTypeError("zstd needs Produce version 7")
        if attributes & at.ATTRIBUTE_TRANSACTIONAL and self._body.transactional_id is None:
            raise TransactionalIdAuthorizationError()
        if batch.header.item(at.PRODUCER_ID) >= OWN_PRODUCER_IDS_FROM:
            raise InvalidProducerIdMappingError("producer ids from 2^62 on are the broker's own")
        self.bytes += batch.size
        if rules.codec not in (-1, codec):
            batch.header[at.ATTRIBUTES] = attributes & ~at.ATTRIBUTE_COMPRESSION_MASK | rules.codec
        elif is_as_stored(records, batch):
            return self._kept(records)
        return None

    async def append_in_turns(self, append: Callable[[ProduceRequest], None], reply: Callable[..., None]) -> None:
        """Start appending the decoded batches, then the deferred ones as they are decoded, with `append`. Finally call `reply`."""
        context = self._request.context
        memory = context.request_memory
        put_off = self._put_off
        late = {id(each.pending) for each in put_off}
        turn = [each for each in self.batches if id(each) not in late]
        while True:
            held, self.bytes = self.bytes, 0
            memory.queue(held)
            try:
                await _appended(append, turn)
            finally:
                memory.release(held)
            if not put_off:
                break
            await memory.room()
            turn = []
            for each, decoded in await context.run_in_thread(partial(self._decode_turn, put_off)):
                turn.append(each.pending)
                self._settle(each, decoded)
        ProduceRequest(self.batches, reply).start(context.broker.append_queue)

    def _decode_turn(self, put_off: deque[_PutOff]) -> list[tuple[_PutOff, ProducerBatch | KafkaError]]:
        """Decode batches from the left up to the limits of a turn. Runs in a thread."""
        turn: list[tuple[_PutOff, ProducerBatch | KafkaError]] = []
        left = TURN_BYTES
        while put_off and left > 0 and len(turn) < TURN_BATCHES:
            each = put_off.popleft()
            try:
                batch = decode_produced(each.records, each.rules.limits, self._now_ms, is_kept=True)
                left -= batch.size
                turn.append((each, batch))
            except KafkaError as error:
                turn.append((each, as_value(error)))
        return turn

    def _settle(self, each: _PutOff, decoded: ProducerBatch | KafkaError) -> None:
        if isinstance(decoded, KafkaError):
            each.pending.refuse(decoded)
            return
        try:
            each.pending.decoded(decoded, self._original(each.rules, each.records, decoded))
        except KafkaError as error:
            each.pending.refuse(as_value(error))


async def _appended(append: Callable[[ProduceRequest], None], batches: list[PendingAppend]) -> None:
    """Start these batches and wait until all have a result."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    append(ProduceRequest(batches, lambda _: None if done.done() else done.set_result(None)))
    await done
