"""The producer for asyncio: `kafkalake.aio.Producer`. Same core as that for threads; it runs on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, TypeVar

import pyarrow as pa

from kafkalake.client.arguments import Header, check_topic, checked_group, checked_offsets, checked_seconds
from kafkalake.client.errors import BufferExhaustedError, ClientClosedError, ClientTimeoutError
from kafkalake.client.network.event_loop import EventLoopEdge
from kafkalake.client.producing.batch import ArrowFuture, Batch, OnDelivery, RecordFuture
from kafkalake.client.producing.core import CLOSING_ATTEMPTS, ProducerCore, ProducerParts
from kafkalake.client.producing.interceptors import ProducerInterceptor, ProducerRecord
from kafkalake.client.producing.partitioners import Partitioner
from kafkalake.client.producing.queues import TopicQueues
from kafkalake.client.producing.transactions import Outcome, Transactions
from kafkalake.client.records import BatchMetadata, ConsumerGroupMetadata, OffsetAndMetadata, RecordMetadata
from kafkalake.client.serialization import Serializer
from kafkalake.client.settings import merged
from kafkalake.clock import Clock
from kafkalake.errors import KafkaLakeError, as_value
from kafkalake.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Delivery:
    """The delivery of one record: `await` it for the record's metadata."""

    __slots__ = ("_edge", "_future")

    def __init__(self, future: RecordFuture, edge: EventLoopEdge) -> None:
        self._future = future
        self._edge = edge

    @property
    def is_done(self) -> bool:
        """Return whether the record was delivered, or failed."""
        return self._future.is_done

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        if not self._future.is_done:
            self._edge.check_loop()
            yield from _ended(self._future.add_done_callback).__await__()
        return self._future.get(0)


class ArrowDelivery:
    """The delivery of the records of a `send_arrow`: `await` it for their places."""

    __slots__ = ("_edge", "_future")

    def __init__(self, future: ArrowFuture, edge: EventLoopEdge) -> None:
        self._future = future
        self._edge = edge

    def __await__(self) -> Generator[object, None, list[BatchMetadata]]:
        if not self._future.is_done:
            self._edge.check_loop()
            yield from _ended(self._future.add_done_callback).__await__()
        return self._future.get(0)


async def _ended(subscribe: Callable[[Callable[[object], object]], object]) -> None:
    """Wait until what `subscribe` was given is called."""
    ended = asyncio.get_running_loop().create_future()

    def end(_: object) -> None:
        if not ended.done():
            ended.set_result(None)

    subscribe(end)
    await ended


class Producer:
    """As `kafkalake.Producer`, on the running event loop: `async with Producer(...) as producer`."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        key_serializer: Serializer | str | None = None,
        value_serializer: Serializer | str | None = None,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        clock: Clock | None = None,
        random: Random | None = None,
        **named: object,
    ) -> None:
        """Serializers: an object, or `bytes` (the default), `string` or `json`. Made on a running event loop."""
        parts = ProducerParts(key_serializer, value_serializer, partitioner, interceptors, clock, random)
        self._core = ProducerCore(merged(settings, named), parts, self._wake_up, _no_thread_waits)
        self._accumulator = self._core.accumulator
        self._edge = EventLoopEdge(self._core.sender, self._core.clock, self._failed)
        self._failure: ClientClosedError | None = None
        self._is_closed = False
        self._is_over = False
        self._edge.schedule()

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True):
            self._edge.abandon(self)

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(None if error is None else 0)

    async def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Add a record to a batch that is sent soon. Return its delivery, to be awaited. See `kafkalake.Producer.send`."""
        if self._core.has_interceptors:
            record = ProducerRecord(topic, value, key, partition, headers, timestamp)
            record, on_delivery = self._core.intercepted(record, on_delivery)
            topic, value, key, partition = record.topic, record.value, record.key, record.partition
            headers, timestamp = record.headers, record.timestamp
        try:
            self._check_open()
            queues = self._accumulator.topic(topic) or await self._wait_for_topic(topic)
            added = self._core.try_append(queues, value, key, partition, headers, timestamp, on_delivery)
            future = added if isinstance(added, RecordFuture) else await self._append_with_room(added)
        except Exception as error:
            self._core.note_refusal(error)
            raise
        return Delivery(future, self._edge)

    async def send_and_wait(self, topic: str, value: Any = None, key: Any = None, **others: Any) -> RecordMetadata:
        """Send a record and return its metadata once it is delivered. See `send`."""
        return await (await self.send(topic, value, key, **others))

    async def send_arrow(
        self, topic: str, records: pa.RecordBatch | pa.Table, *, partition: int | None = None
    ) -> ArrowDelivery:
        """Send the rows of an Arrow batch or table. Return their delivery, to be awaited. See `kafkalake.Producer.send_arrow`."""
        self._check_open()
        queues = self._accumulator.topic(topic) or await self._wait_for_topic(topic)
        batches: list[Batch] = []
        for encoded in self._core.encode_arrow(queues, records, partition):
            batch = self._core.try_append_encoded(queues, encoded)
            if batch is None:
                batch = await self._append_with_room(partial(self._core.try_append_encoded, queues, encoded))
            batches.append(batch)
        return ArrowDelivery(ArrowFuture(batches), self._edge)

    async def partitions_for(self, topic: str) -> int:
        """Return the number of a topic's partitions. Waits and raises as `send` does."""
        self._check()
        return (self._accumulator.topic(topic) or await self._wait_for_topic(topic)).count

    # Transactions, see `kafkalake.Producer`

    async def init_transactions(self) -> None:
        """Get the producer's id, and end what an earlier producer with this `transactional.id` left open."""
        await self._operate(Transactions.initialize)

    async def begin_transaction(self) -> None:
        """Begin a transaction."""
        await self._operate(Transactions.begin)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group: ConsumerGroupMetadata | str
    ) -> None:
        """Commit offsets of a consumer group with the transaction."""
        committed, metadata = checked_offsets(offsets), checked_group(group)
        await self._operate(lambda transactions: transactions.send_offsets(committed, metadata))

    async def commit_transaction(self) -> None:
        """Deliver everything that was sent, and commit."""
        await self.flush()
        await self._operate(Transactions.commit)

    async def abort_transaction(self) -> None:
        """Abort the transaction."""
        await self._operate(Transactions.abort)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Producer]:
        """Begin a transaction; commit it when the block is left, abort it when an error leaves the block.

        After `ClientTimeoutError` of the commit nobody knows whether it is committed: `commit_transaction` may be called again.
        """
        await self.begin_transaction()
        try:
            yield self
        except BaseException:
            with contextlib.suppress(KafkaLakeError):
                await self.abort_transaction()
            raise
        try:
            await self.commit_transaction()
        except ClientTimeoutError:
            raise  # it may be committed
        except BaseException:
            with contextlib.suppress(KafkaLakeError):
                await self.abort_transaction()
            raise

    async def _operate(self, operation: Callable[[Transactions], Outcome]) -> None:
        outcome = self._core.operate(operation)
        self._edge.schedule()
        await self._wait(
            lambda: outcome if outcome.is_done else None,
            self._core.operation_timeout,
        )
        outcome.is_heard = True
        if outcome.error is not None:
            raise as_value(outcome.error)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send all batches now, and return when the records sent before are delivered or failed. Raise `ClientTimeoutError`."""
        self._edge.check_loop()
        longest_s = None if timeout_s is None else checked_seconds(timeout_s, "a timeout")
        batches = self._accumulator.begin_flush()
        try:
            async with asyncio.timeout(longest_s):
                for batch in batches:
                    await _end_of(batch)
        except TimeoutError:
            raise ClientTimeoutError(f"records were not delivered in {longest_s:g} s") from None
        finally:
            self._accumulator.end_flush()

    async def close(self, timeout_s: float | None = None) -> None:
        """Deliver what was sent, up to `timeout_s` (None: `delivery.timeout.ms` decides), fail the rest, and end.

        An open transaction is aborted; the end of one that is being committed or aborted is waited for, `max.block.ms`. While
        another task closes the producer, the shorter time counts.
        """
        longest_s = None if timeout_s is None else checked_seconds(timeout_s, "a timeout")
        if self._is_over:
            return
        if not self._edge.is_over:
            self._edge.check_loop()
        self._is_closed = True
        try:
            if not self._edge.is_over:
                await self._finish(longest_s)
        finally:
            self._is_over = True
            self._core.sender.abort(ClientClosedError("the producer was closed before the record was delivered"))
            self._edge.close()

    async def _finish(self, longest_s: float | None) -> None:
        try:
            async with asyncio.timeout(longest_s):
                await self.flush()
                for _ in range(CLOSING_ATTEMPTS):
                    if (operation := self._core.ending) is None:
                        return
                    try:
                        await self._operate(operation)
                    except ClientTimeoutError as error:
                        self._core.note_unended(as_value(error))
                        return
                    except KafkaLakeError as error:
                        self._core.note_unended(as_value(error))
        except TimeoutError:
            logger.warning("records were not delivered in the %g s that the producer had to close", longest_s)

    def metrics(self) -> dict[str, float]:
        """Return the producer's metrics by Kafka's names: totals, and rates, averages and maxima of the last half minute."""
        return self._core.metrics()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the producer is closed")
        self._check()
        self._core.check_send()

    def _check(self) -> None:
        if self._failure is not None:
            raise as_value(self._failure)
        if self._is_over:
            raise ClientClosedError("the producer is closed")
        self._edge.check_loop()

    def _failed(self, error: Exception) -> None:
        logger.error("the producer has failed", exc_info=error)
        self._failure = ClientClosedError(f"the producer has failed: {error!r}")
        self._core.sender.abort(self._failure)
        self._edge.close()

    async def _wait_for_topic(self, topic: str) -> TopicQueues:
        check_topic(topic)
        self._edge.schedule()

        def found() -> TopicQueues | None:
            self._core.want_topic(topic)
            error = self._core.topic_error(topic)
            if error is not None:
                raise as_value(error)
            return self._accumulator.topic(topic)

        return await self._wait(found, lambda: self._topic_timeout(topic))

    def _topic_timeout(self, topic: str) -> KafkaLakeError:
        error = self._core.last_topic_error(topic)
        return error or ClientTimeoutError(f"no metadata of topic '{topic}' in {self._core.settings.max_block_ms} ms")

    async def _append_with_room(self, append: Callable[[], T | None]) -> T:
        self._accumulator.add_waiter(1)
        try:
            return await self._wait(
                append,
                lambda: BufferExhaustedError(
                    f"no memory for the record in {self._core.settings.max_block_ms} ms: "
                    f"{self._accumulator.used_bytes} bytes wait to be delivered"
                ),
            )
        finally:
            self._accumulator.add_waiter(-1)

    async def _wait(self, attempt: Callable[[], T | None], error: Callable[[], KafkaLakeError]) -> T:
        """Return what `attempt` returns once it is not None. Attempts after each turn of the edge, up to `max.block.ms`."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._core.settings.max_block_ms / 1000
        while True:
            self._check()
            found = attempt()
            if found is not None:
                return found
            if loop.time() >= ends:
                raise error()
            await self._edge.next_turn(min(ends - loop.time(), 1.0))

    def _wake_up(self) -> None:
        self._edge.schedule()


def _no_thread_waits() -> None:
    """Raise nothing: tasks await the end of a batch."""


async def _end_of(batch: Batch) -> None:
    if not batch.is_done:
        await _ended(lambda end: batch.add_done_callback(lambda: end(None)))
