"""The producer for threads: `kafkalake.Producer`. One thread of its own sends; any number of threads may share it."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from types import TracebackType
from typing import TypeVar

import pyarrow as pa

from kafkalake.client.arguments import Header, check_topic, checked_group, checked_offsets, checked_seconds
from kafkalake.client.errors import (
    BufferExhaustedError,
    ClientClosedError,
    ClientTimeoutError,
    IllegalStateError,
)
from kafkalake.client.forks import inherited, watch_forks
from kafkalake.client.network.selector import SelectorEdge
from kafkalake.client.producing.batch import ArrowFuture, OnDelivery, RecordFuture, wait_for
from kafkalake.client.producing.core import CLOSING_ATTEMPTS, ProducerCore, ProducerParts
from kafkalake.client.producing.interceptors import ProducerInterceptor, ProducerRecord
from kafkalake.client.producing.partitioners import Partitioner
from kafkalake.client.producing.queues import TopicQueues
from kafkalake.client.producing.transactions import Outcome, Transactions
from kafkalake.client.records import ConsumerGroupMetadata, OffsetAndMetadata
from kafkalake.client.serialization import Serializer
from kafkalake.client.settings import merged
from kafkalake.clock import Clock
from kafkalake.errors import KafkaLakeError, as_value
from kafkalake.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

_POLL_MS = 60_000
_CLOSE_S = 60.0

T = TypeVar("T")


class Producer:
    """Sends records to topics, in batches, from a thread of its own. Use it in a `with` block, or close it.

    Settings are Kafka's, by name: `Producer({"bootstrap.servers": "localhost:9092"})` or
    `Producer(bootstrap_servers="localhost:9092")`. Raise `ConfigurationError` for one that is unknown or invalid.
    """

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
        """Serializers: an object, or `bytes` (the default), `string` or `json`."""
        parts = ProducerParts(key_serializer, value_serializer, partitioner, interceptors, clock, random)
        self._core = ProducerCore(merged(settings, named), parts, self._wake_up, self._check_wait)
        self._accumulator = self._core.accumulator
        self._edge = SelectorEdge(self._core.sender, self._core.clock)
        self._news = threading.Condition()
        self._seen: tuple[int, int, int] | None = None
        self._is_transactional = self._core.transactions is not None
        self._is_closed = False
        self._is_stopping = False
        self._is_inherited = False
        self._failure: ClientClosedError | None = None
        self._thread = threading.Thread(target=self._run, name=f"producer-{self._core.settings.client_id}", daemon=True)
        self._thread.start()
        watch_forks(self)

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(_CLOSE_S if error is None else 0)

    def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> RecordFuture:
        """Add a record to a batch that is sent soon. Return the future of its metadata.

        timestamp: ms since 1970, now without one. `on_delivery` is called in the producer's thread, with the metadata or an
        error. Waits up to `max.block.ms` for the topic's metadata and for memory.

        Raise `SerializationError`, `MessageTooLargeError`, `BufferExhaustedError`, `ClientTimeoutError`, `ClientClosedError`,
        `BrokerUnavailableError` if no broker was ever reached, the topic's error, or `TypeError` or `ValueError` for arguments
        that are no record.
        """
        if self._core.has_interceptors:
            record = ProducerRecord(topic, value, key, partition, headers, timestamp)
            record, on_delivery = self._core.intercepted(record, on_delivery)
            topic, value, key, partition = record.topic, record.value, record.key, record.partition
            headers, timestamp = record.headers, record.timestamp
        try:
            self._check_open()
            queues = self._accumulator.topic(topic) or self._wait_for_topic(topic)
            added = self._core.try_append(queues, value, key, partition, headers, timestamp, on_delivery)
            return added if isinstance(added, RecordFuture) else self._append_with_room(added)
        except Exception as error:
            self._core.note_refusal(error)
            raise

    def send_arrow(
        self, topic: str, records: pa.RecordBatch | pa.Table, *, partition: int | None = None
    ) -> ArrowFuture:
        """Send the rows of an Arrow batch or table, encoded without an object for a record. Return the future of their places.

        Columns: `value` and, if there are, `key`, `headers` (list of key and value), `timestamp` and `partition`; others are
        ignored. Serializers and interceptors are not used. Waits and raises as `send` does, and raises `ValueError` or
        `pyarrow.ArrowException` for columns that are no records. After an error about memory some rows may have been sent.
        """
        self._check_open()
        queues = self._accumulator.topic(topic) or self._wait_for_topic(topic)
        batches = []
        for encoded in self._core.encode_arrow(queues, records, partition):
            batch = self._core.try_append_encoded(queues, encoded)
            batches.append(batch or self._append_with_room(partial(self._core.try_append_encoded, queues, encoded)))
        return ArrowFuture(batches)

    def partitions_for(self, topic: str) -> int:
        """Return the number of a topic's partitions. Waits and raises as `send` does."""
        if self._is_closed:
            raise self._closed()
        return (self._accumulator.topic(topic) or self._wait_for_topic(topic)).count

    def flush(self, timeout_s: float | None = None) -> None:
        """Send all batches now, and return when the records sent before are delivered or failed.

        Raise `ClientTimeoutError`, and `IllegalStateError` in a callback, for whose end the deliveries wait.
        """
        self._check_wait()
        batches = self._accumulator.begin_flush()
        try:
            wait_for(batches, timeout_s)
        finally:
            self._accumulator.end_flush()

    def close(self, timeout_s: float | None = None) -> None:
        """Deliver what was sent, up to `timeout_s` (None: `delivery.timeout.ms` decides), fail the rest, and end.

        An open transaction is aborted; the end of one that is being committed or aborted is waited for, `max.block.ms`. While
        another thread closes the producer, the shorter time counts.
        """
        longest_s = None if timeout_s is None else checked_seconds(timeout_s, "a timeout")
        is_own_thread = threading.current_thread() is self._thread
        if self._is_closed and (is_own_thread or not self._thread.is_alive()):
            return
        self._is_closed = True
        if not is_own_thread:
            self._finish(longest_s)
        self._is_stopping = True
        self._edge.wake_up()
        if not is_own_thread:
            self._thread.join(_CLOSE_S)

    def _finish(self, longest_s: float | None) -> None:
        ends = None if longest_s is None else self._now_s() + longest_s
        try:
            self.flush(longest_s)
        except ClientTimeoutError:
            logger.warning("records were not delivered in the %g s that the producer had to close", longest_s)
            return
        for _ in range(CLOSING_ATTEMPTS):
            operation = self._core.ending
            left_s = None if ends is None else ends - self._now_s()
            if operation is None or (left_s is not None and left_s <= 0):
                return
            try:
                self._operate(operation, left_s)
            except ClientTimeoutError as error:
                self._core.note_unended(as_value(error))
                return
            except KafkaLakeError as error:
                self._core.note_unended(as_value(error))

    def disown(self) -> None:
        """Refuse all use: see `forks`."""
        self._is_closed = self._is_stopping = self._is_inherited = True

    def metrics(self) -> dict[str, float]:
        """Return the producer's metrics by Kafka's names: totals, and rates, averages and maxima of the last half minute."""
        return self._core.metrics()

    def _check_open(self) -> None:
        if self._is_closed:
            raise self._closed()
        if self._is_transactional:
            self._core.check_send()

    # Transactions

    def init_transactions(self) -> None:
        """Get the producer's id, and end what an earlier producer with this `transactional.id` left open. Call it once, first.

        Raise, as the other operations on transactions: `ProducerFencedError` if a newer producer has begun, other errors of
        the coordinator that make the producer unusable, `IllegalStateError`, `ClientTimeoutError` after `max.block.ms`: then
        the operation goes on, and may be called again.
        """
        self._operate(Transactions.initialize)

    def begin_transaction(self) -> None:
        """Begin a transaction, to which everything belongs that is sent until its end."""
        self._operate(Transactions.begin)

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group: ConsumerGroupMetadata | str
    ) -> None:
        """Commit offsets of a consumer group with the transaction: for each partition that of the next record to be read.

        Raise as `commit_transaction` does.
        """
        committed, metadata = checked_offsets(offsets), checked_group(group)
        self._operate(lambda transactions: transactions.send_offsets(committed, metadata))

    def commit_transaction(self) -> None:
        """Deliver everything that was sent, and commit. Raise `TransactionMustAbortError` if it can only be aborted."""
        self.flush()
        self._operate(Transactions.commit)

    def abort_transaction(self) -> None:
        """Abort the transaction: nobody who reads committed records sees it. Records that were not sent fail."""
        self._operate(Transactions.abort)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Producer]:
        """Begin a transaction; commit it when the block is left, abort it when an error leaves the block.

        After `ClientTimeoutError` of the commit nobody knows whether it is committed: `commit_transaction` may be called again.
        """
        self.begin_transaction()
        try:
            yield self
        except BaseException:
            with contextlib.suppress(KafkaLakeError):
                self.abort_transaction()
            raise
        try:
            self.commit_transaction()
        except ClientTimeoutError:
            raise  # it may be committed
        except BaseException:
            with contextlib.suppress(KafkaLakeError):
                self.abort_transaction()
            raise

    def _operate(self, operation: Callable[[Transactions], Outcome], longest_s: float | None = None) -> None:
        """Begin an operation and wait for its end, `max.block.ms`, or `longest_s` if that is less."""
        self._check_wait()
        outcomes: list[Outcome] = []

        def begin() -> None:
            outcomes.append(self._core.operate(operation))
            self._seen = None

        self._call(begin)
        outcome = self._wait(
            lambda: outcomes[0] if outcomes and outcomes[0].is_done else None,
            self._core.operation_timeout,
            longest_s,
        )
        outcome.is_heard = True
        if outcome.error is not None:
            raise as_value(outcome.error)

    # Waiting

    def _wait_for_topic(self, topic: str) -> TopicQueues:
        check_topic(topic)

        def found() -> TopicQueues | None:
            self._call(lambda: self._core.want_topic(topic))
            error = self._core.topic_error(topic)
            if error is not None:
                raise as_value(error)
            return self._accumulator.topic(topic)

        return self._wait(found, lambda: self._topic_timeout(topic))

    def _topic_timeout(self, topic: str) -> KafkaLakeError:
        error = self._core.last_topic_error(topic)
        return error or ClientTimeoutError(f"no metadata of topic '{topic}' in {self._core.settings.max_block_ms} ms")

    def _append_with_room(self, append: Callable[[], T | None]) -> T:
        self._accumulator.add_waiter(1)
        try:
            return self._wait(
                append,
                lambda: BufferExhaustedError(
                    f"no memory for the record in {self._core.settings.max_block_ms} ms: "
                    f"{self._accumulator.used_bytes} bytes wait to be delivered"
                ),
            )
        finally:
            self._accumulator.add_waiter(-1)

    def _wait(
        self, attempt: Callable[[], T | None], error: Callable[[], KafkaLakeError], longest_s: float | None = None
    ) -> T:
        """Return what `attempt` returns once it is not None. Attempts after each piece of news, up to `max.block.ms`.

        `attempt` calls nothing of the application, which might wait for the producer's thread: that waits to announce its news.
        """
        block_s = self._core.settings.max_block_ms / 1000
        ends = self._now_s() + (block_s if longest_s is None else min(block_s, longest_s))
        with self._news:
            while True:
                self._check()
                found = attempt()
                if found is not None:
                    return found
                self._check_wait()
                left_s = ends - self._now_s()
                if left_s <= 0:
                    raise error()
                self._news.wait(min(left_s, 1.0))

    def _check(self) -> None:
        if self._failure is not None:
            raise as_value(self._failure)
        if self._is_stopping:
            raise self._closed()

    def _check_wait(self) -> None:
        """Raise an error where no wait would end: in the producer's own thread, and in a forked process, which has no such."""
        if self._is_inherited:
            raise inherited()
        if threading.current_thread() is self._thread:
            raise IllegalStateError("a callback cannot wait for the producer, whose thread calls it")

    def _closed(self) -> ClientClosedError:
        return inherited() if self._is_inherited else ClientClosedError("the producer is closed")

    def _call(self, command: Callable[[], None]) -> None:
        if self._is_inherited:
            raise inherited()
        self._core.sender.call(command)
        self._edge.wake_up()

    def _wake_up(self) -> None:
        self._edge.wake_up()

    def _now_s(self) -> float:
        return self._core.clock.monotonic_ms() / 1000

    # The producer's thread

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._edge.carry_out()
                self._announce()
                self._edge.wait(_POLL_MS)
                self._announce()
        except BaseException as error:
            logger.exception("the producer's thread failed")
            self._failure = ClientClosedError(f"the producer's thread has failed: {error!r}")
        try:
            closed = ClientClosedError("the producer was closed before the record was delivered")
            self._core.sender.abort(self._failure or closed)
        finally:
            self._edge.close()
            with self._news:
                self._news.notify_all()

    def _announce(self) -> None:
        """Let those who wait look again if there is news for them."""
        seen = self._core.news
        if seen != self._seen:
            self._seen = seen
            with self._news:
                self._news.notify_all()
