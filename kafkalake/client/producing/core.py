"""A producer without threads and without waiting: what the blocking face and the one for event loops share.

Composes settings, network, accumulator, identity and sender; makes batches of records. What would have to wait returns None.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa

from kafkalake.client.arguments import Header, check_part, checked_headers, checked_number, checked_timestamp
from kafkalake.client.errors import ClientTimeoutError, IllegalStateError, SerializationError, TransactionAbortedError
from kafkalake.client.metrics import Metrics
from kafkalake.client.network.backoff import ExponentialBackoff
from kafkalake.client.network.client import NetworkClient
from kafkalake.client.producing.accumulator import Accumulator
from kafkalake.client.producing.arrow import STICKY, ArrowEncoder, EncodedBatch
from kafkalake.client.producing.batch import HEADER_BYTES, Batch, OnDelivery, RecordFuture
from kafkalake.client.producing.idempotence import Sequences
from kafkalake.client.producing.identities import IdempotentIdentity, Identities, NoIdentity
from kafkalake.client.producing.interceptors import Interceptors, ProducerInterceptor, ProducerRecord
from kafkalake.client.producing.partitioners import Partitioner, partition_of_key
from kafkalake.client.producing.queues import TopicQueues
from kafkalake.client.producing.sender import Sender
from kafkalake.client.producing.settings import ProducerSettings, producer_settings
from kafkalake.client.producing.transactions import Outcome, Transactions
from kafkalake.client.record_sizes import RECORD_OVERHEAD_BYTES
from kafkalake.client.serialization import BytesSerde, Serializer, serde_named
from kafkalake.clock import Clock, SystemClock
from kafkalake.errors import (
    InvalidTopicError,
    KafkaLakeError,
    MessageTooLargeError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
    as_value,
    with_retriable,
)

logger = logging.getLogger(__name__)

Append = Callable[[], RecordFuture | None]
"""Adds a record that is serialized and has its partition: nothing of the application is called. Returns None without memory."""
CLOSING_ATTEMPTS = 2
"""Operations that a close waits for at most: a commit that fails leaves a transaction to be aborted."""


@dataclass(frozen=True)
class ProducerParts:
    """Parts of a producer that are no settings. None: the default."""

    key_serializer: Serializer | str | None = None
    value_serializer: Serializer | str | None = None
    partitioner: Partitioner | None = None
    interceptors: Sequence[ProducerInterceptor] = ()
    clock: Clock | None = None
    random: Random | None = None


class ProducerCore:
    """See the module."""

    def __init__(
        self,
        given: Mapping[str, object],
        parts: ProducerParts,
        woken: Callable[[], None],
        check_wait: Callable[[], object],
    ) -> None:
        """`woken` is called when the machine must be polled. check_wait: see `Batch`.

        Raise `ConfigurationError` for invalid settings.
        """
        self.settings: ProducerSettings = producer_settings(given)
        self.clock = parts.clock or SystemClock()
        random = parts.random or Random()
        self._metrics = Metrics(self.clock.monotonic_ms())
        self.client = NetworkClient(self.settings, random, metadata_max_idle_ms=self.settings.metadata_max_idle_ms)
        self.accumulator = Accumulator(
            self.settings, random, woken, check_wait, is_transactional=self.settings.transactional_id is not None
        )
        is_transactional = self.settings.transactional_id is not None
        self.sequences = Sequences(is_transactional=is_transactional) if self.settings.enable_idempotence else None
        self.transactions: Transactions | None = None
        self.identities: Identities = self._identities(random)
        self.sender = Sender(
            self.settings, self.client, self.accumulator, self.identities, self.sequences, self._metrics, random
        )
        self._metrics.gauge("batches-in-flight", lambda: self.sender.batches_in_flight)
        self._metrics.gauge("buffer-total-bytes", lambda: self.settings.buffer_memory)
        self._metrics.gauge("buffer-available-bytes", lambda: self.settings.buffer_memory - self.accumulator.used_bytes)
        self._append = self.accumulator.append
        self._now_ms, self._monotonic_ms = self.clock.now_ms, self.clock.monotonic_ms
        self._key = _serializer("key_serializer", parts.key_serializer)
        self._value = _serializer("value_serializer", parts.value_serializer)
        check_part("partitioner", parts.partitioner, "partition")
        self._partitioner = parts.partitioner
        self._interceptors = Interceptors(parts.interceptors)
        self.has_interceptors = bool(parts.interceptors)
        self._ignores_keys = self.settings.partitioner_ignore_keys
        self._largest = min(self.settings.max_request_size, self.settings.buffer_memory)
        self._arrow = ArrowEncoder(
            self.settings.arrow_batch_size,
            self._largest,
            self.settings.codec,
            parts.partitioner,
            is_transactional=is_transactional,
            ignores_keys=self.settings.partitioner_ignore_keys,
        )

    def intercepted(self, record: ProducerRecord, on_delivery: OnDelivery | None) -> tuple[ProducerRecord, OnDelivery]:
        """Return the record that the interceptors return, and a callback that tells them of its delivery.

        Raise `TypeError` for an `on_delivery` that is no callback, which that would hide.
        """
        if on_delivery is not None:
            _check_callback(on_delivery)
        chain = self._interceptors

        def delivered(metadata: Any, error: KafkaLakeError | None) -> None:
            chain.on_acknowledgement(metadata, error)
            if on_delivery is not None:
                on_delivery(metadata, error)

        return chain.on_send(record), delivered

    def note_refusal(self, error: Exception) -> None:
        """Tell the interceptors of a record that was not taken, of which no delivery will."""
        known = error if isinstance(error, KafkaLakeError) else SerializationError(f"{type(error).__name__}: {error}")
        self._interceptors.on_acknowledgement(None, known)

    def metrics(self) -> dict[str, float]:
        """Return the producer's metrics by name, times in ms."""
        return self._metrics.snapshot(self.clock.monotonic_ms())

    def check_send(self) -> None:
        """Raise the error for which no record may be sent now, for a producer with transactions."""
        if self.transactions is not None:
            self.transactions.check_send()

    @property
    def ending(self) -> Callable[[Transactions], Outcome] | None:
        """The operation that ends the transaction before the producer is closed, see `Transactions.ending`."""
        return None if self.transactions is None else self.transactions.ending

    def operate(self, operation: Callable[[Transactions], Outcome]) -> Outcome:
        """Begin an operation of transactions, in the thread that polls. Return its outcome, done if it is refused."""
        try:
            if self.transactions is None:
                raise IllegalStateError("a producer without transactional.id has no transactions")
            return operation(self.transactions)
        except KafkaLakeError as error:
            return Outcome(is_done=True, error=as_value(error))

    def note_unended(self, error: KafkaLakeError) -> None:
        """Log why the operation of `ending` was in vain."""
        logger.warning("a transaction was not ended when the producer was closed: %s", error)

    def operation_timeout(self) -> ClientTimeoutError:
        """Return the error of an operation of transactions that has taken `max.block.ms`."""
        failure = None if self.transactions is None else self.transactions.last_failure
        why = f"; the last failure: {failure}" if failure is not None else ""
        return ClientTimeoutError(f"the coordinator has not done this in {self.settings.max_block_ms} ms{why}")

    @property
    def news(self) -> tuple[int, int, int]:
        """Return what changes when a caller that waits should look again."""
        version = 0 if self.transactions is None else self.transactions.version
        return self.client.metadata.version, self.accumulator.releases, version

    def want_topic(self, topic: str) -> None:
        """Ask for a topic's metadata. In the thread that polls. Who waits asks again, as idle topics are forgotten."""
        self.client.metadata.add([topic])

    def topic_error(self, topic: str) -> KafkaLakeError | None:
        """Return why a topic's metadata cannot be had although a broker was asked, None if it may come."""
        error = self.client.metadata.cluster.errors.get(topic)
        if isinstance(error, InvalidTopicError | TopicAuthorizationError):
            return error
        return self.client.unreachable(self.clock.monotonic_ms())

    def last_topic_error(self, topic: str) -> KafkaLakeError | None:
        """Return the error of the newest metadata about a topic, None without one."""
        metadata = self.client.metadata
        error = metadata.cluster.errors.get(topic) or metadata.error
        if isinstance(error, UnknownTopicOrPartitionError):
            return with_retriable(UnknownTopicOrPartitionError(f"topic '{topic}' does not exist"), False)
        return error

    def try_append(
        self,
        queues: TopicQueues,
        value: object,
        key: object,
        partition: int | None,
        headers: Sequence[Header],
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None,
    ) -> RecordFuture | Append:
        """Add a record. Return its future, or, if there is no memory for it now, what adds it later.

        Raise `SerializationError`, `MessageTooLargeError`, `UnknownTopicOrPartitionError` for a partition that is not there, or
        `TypeError` or `ValueError` for arguments that are no record.
        """
        if headers:
            headers = checked_headers(headers)
        if (value is not None and type(value) is not bytes) or self._value is not None:
            value = _serialized(self._value or _BYTES, queues.name, headers, value)
        if (key is not None and type(key) is not bytes) or self._key is not None:
            key = _serialized(self._key or _BYTES, queues.name, headers, key)
        size = RECORD_OVERHEAD_BYTES
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        if headers:
            size += headers_bytes(headers)
        if size > self._largest:
            self._refuse_size(size)
        timestamp_ms = self._now_ms() if timestamp_ms is None else checked_timestamp(timestamp_ms)
        if on_delivery is not None:
            _check_callback(on_delivery)
        if partition is not None or key is not None or self._partitioner is not None:
            chosen = self._choose(queues, partition, key, value)
        else:
            chosen = STICKY
        record = (queues, chosen, key, value, timestamp_ms, headers, size, on_delivery, self._monotonic_ms)
        return self._append(*record) or partial(self._append, *record)

    def encode_arrow(
        self, queues: TopicQueues, records: pa.RecordBatch | pa.Table, partition: int | None
    ) -> Iterator[EncodedBatch]:
        """Yield the encoded batches of Arrow records. Raise as `ArrowEncoder.encode` does."""
        return self._arrow.encode(queues, records, partition, self._now_ms(), as_columns=self.client.takes_columns)

    def try_append_encoded(self, queues: TopicQueues, batch: EncodedBatch) -> Batch | None:
        """Add an encoded batch. Return it, None if there is no memory for it now."""
        return self.accumulator.append_encoded(
            queues, batch.partition, batch.data, batch.records, self.clock.monotonic_ms()
        )

    def _choose(self, queues: TopicQueues, partition: int | None, key: bytes | None, value: bytes | None) -> int:
        if partition is not None:
            return checked_partition(queues, partition)
        if self._partitioner is not None:
            found = self._partitioner.partition(queues.name, key, value, queues.count, queues.available)
            return checked_partition(queues, found)
        if key is None or self._ignores_keys:
            return STICKY
        return partition_of_key(key, queues.count)

    def _refuse_size(self, size: int) -> None:
        name = "max.request.size" if size > self.settings.max_request_size else "buffer.memory"
        raise MessageTooLargeError(f"a record of up to {size} bytes is larger than {name}, {self._largest}")

    def _identities(self, random: Random) -> Identities:
        if self.sequences is None:
            return NoIdentity()
        backoff = ExponentialBackoff(self.settings.retry_backoff_ms, self.settings.retry_backoff_max_ms, random)
        if self.settings.transactional_id is not None:
            self.transactions = Transactions(
                self.settings.transactional_id,
                self.settings.transaction_timeout_ms,
                self.client,
                self.sequences,
                backoff,
                is_drained=lambda: not self.accumulator.has_incomplete,
                abort_unsent=self._abort_unsent,
            )
            return self.transactions
        return IdempotentIdentity(self.client, self.sequences, backoff)

    def _abort_unsent(self) -> None:
        self.sender.abort_unsent(TransactionAbortedError("the record's transaction was ended before it was sent"))


_BYTES = BytesSerde()


def _serializer(name: str, given: Serializer | str | None) -> Serializer | None:
    """Return what makes bytes of values, None for bytes."""
    found = serde_named(given) if isinstance(given, str) else given
    check_part(name, found, "serialize")
    return None if isinstance(found, BytesSerde) else found


def _serialized(serializer: Serializer, topic: str, headers: Sequence[Header], value: object) -> bytes | None:
    found: object = serializer.serialize(topic, headers, value)
    if found is None or isinstance(found, bytes):
        return found
    raise SerializationError(f"{type(serializer).__name__} returned {type(found).__name__}, not bytes")


def _check_callback(on_delivery: object) -> None:
    if not callable(on_delivery):
        raise TypeError(f"on_delivery is called with metadata and an error, but {on_delivery!r} is not callable")
    if inspect.iscoroutinefunction(on_delivery):
        raise TypeError(f"on_delivery is called and not awaited, but {on_delivery!r} is a coroutine function")


def headers_bytes(headers: Sequence[Header]) -> int:
    """Return an upper bound of the bytes of headers on the wire."""
    size = 0
    for key, value in headers:
        size += HEADER_BYTES + (4 * len(key) if isinstance(key, str) else len(key))
        if value is not None:
            size += len(value)
    return size


def checked_partition(queues: TopicQueues, partition: int) -> int:
    """Return a partition of a topic. Raise `UnknownTopicOrPartitionError` if it is not there, `TypeError` for no number."""
    if type(partition) is not int:
        partition = checked_number(partition, "a partition")
    if 0 <= partition < queues.count:
        return partition
    text = f"topic '{queues.name}' has no partition {partition}; it has {queues.count}, numbered from 0"
    raise with_retriable(UnknownTopicOrPartitionError(text), False)
