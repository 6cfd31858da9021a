"""A batch of records of one partition, from the first record to the acknowledgement, and the future of each record.

Records are collected as columns and encoded once, when the batch is closed. Its producer id and sequence numbers are written into
the encoded batch when it is sent, as they may change until it is acknowledged.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeAlias

from kafkalake.buffers import Buffer
from kafkalake.client.application_calls import call_application
from kafkalake.client.arguments import Header, checked_seconds
from kafkalake.client.errors import ClientTimeoutError
from kafkalake.client.records import BatchMetadata, RecordMetadata
from kafkalake.errors import KafkaLakeError, as_value
from kafkalake.record.build import HeaderColumns, build_columns
from kafkalake.wire.batch_header import MAGIC, MAGIC_COLUMNS
from kafkalake.wire.header_key import stored_key
from kafkalake.wire.producer_stamp import stamp_producer
from kafkalake.wire.record_batch import encode_batch, records_of_columns

OnDelivery: TypeAlias = Callable[[RecordMetadata | None, KafkaLakeError | None], object]
"""Called with the metadata of a record, or with the error for which it was not delivered."""

HEADER_BYTES = 10
"""Upper bound on the lengths of a header's key and value on the wire."""
LOG_APPEND_TIME_NONE = -1
_CALLBACK_BYTES = 200
"""Of a callback with its place: a tuple, numbers and mostly a function of its own."""


class Batch:
    """See the module. `size`: upper bound of its bytes on the wire; `charged`: what it may grow to before more memory is taken.

    `check_wait` raises an error in a thread that would wait for the batch for ever.
    """

    __slots__ = (
        "_callbacks",
        "_done_callbacks",
        "_headers",
        "_keys",
        "_parts",
        "_timestamps",
        "_values",
        "attempts",
        "base_offset",
        "base_sequence",
        "charged",
        "check_wait",
        "codec",
        "created_ms",
        "data",
        "error",
        "is_done",
        "is_transactional",
        "last_error",
        "log_append_time_ms",
        "partition",
        "producer_epoch",
        "producer_id",
        "records",
        "retry_at_ms",
        "sequence_was_reset",
        "size",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        now_ms: int,
        codec: int,
        check_wait: Callable[[], object],
        *,
        is_transactional: bool,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.created_ms = now_ms
        self.codec = codec
        self.check_wait = check_wait
        self.is_transactional = is_transactional
        self.records = 0
        self.size = 0
        self.charged = 0
        self.data: bytearray | memoryview | None = None
        self.producer_id = self.producer_epoch = self.base_sequence = -1
        self.sequence_was_reset = False
        self.attempts = 0
        self.retry_at_ms = 0
        self.last_error: KafkaLakeError | None = None
        self.is_done = False
        self.error: KafkaLakeError | None = None
        self.base_offset = -1
        self.log_append_time_ms = LOG_APPEND_TIME_NONE
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._timestamps: list[int] = []
        self._headers: dict[int, Sequence[Header]] = {}
        self._callbacks: list[tuple[int, int, OnDelivery]] = []
        self._done_callbacks: deque[Callable[[], object]] = deque()
        self._parts: list[Batch] = []

    # Filling

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Sequence[Header],
        size: int,
        on_delivery: OnDelivery | None,
    ) -> int:
        """Add a record of at most `size` bytes. Return its index."""
        index = self.records
        if key is not None:
            if len(self._keys) < index:
                self._keys.extend([None] * (index - len(self._keys)))
            self._keys.append(key)
        self._values.append(value)
        self._timestamps.append(timestamp_ms)
        if headers:
            self._headers[index] = headers
        if on_delivery is not None:
            self._callbacks.append((index, timestamp_ms, on_delivery))
        self.size += size
        self.records = index + 1
        return index

    @property
    def held_bytes(self) -> int:
        """The memory that the batch holds until it ends: its bytes, and the callbacks of its records."""
        return self.size + _CALLBACK_BYTES * len(self._callbacks)

    def charge(self, charged: int) -> None:
        """Take over how many bytes of memory the batch may use."""
        self.charged = charged

    def close(self) -> None:
        """Encode the records. None is added after this."""
        if self.data is not None:
            return
        self._keys.extend([None] * (self.records - len(self._keys)))
        batch = build_columns(
            self._keys,
            self._values,
            self._timestamps,
            self._header_columns(),
            transactional=self.is_transactional,
        )
        self.take_encoded(bytearray(encode_batch(batch, self.codec)), self.records)
        self._keys, self._values, self._timestamps, self._headers = [], [], [], {}

    def take_encoded(self, data: bytearray | memoryview, records: int) -> None:
        """Take over encoded records, or columns, instead of single ones."""
        self.data = data
        self.records = records
        self.size = len(data)

    def _header_columns(self) -> HeaderColumns | None:
        if not self._headers:
            return None
        each = [self._headers.get(index, ()) for index in range(self.records)]
        pairs = [pair for headers in each for pair in headers]
        keys = [stored_key(key.encode() if isinstance(key, str) else key) for key, _ in pairs]
        return HeaderColumns([len(headers) for headers in each], list(keys), [value for _, value in pairs])

    # Sending

    def stamp(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Take over the producer's identity and the first sequence number, -1 each for none."""
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence

    def encoded(self, *, takes_columns: bool) -> Buffer:
        """Return the batch as it is to be sent, with its producer's identity. Columns become records if they are not taken."""
        assert self.data is not None
        if not takes_columns and self.data[MAGIC] == MAGIC_COLUMNS:
            self.take_encoded(bytearray(records_of_columns(self.data, self.codec)), self.records)
        stamp_producer(self.data, self.producer_id, self.producer_epoch, self.base_sequence)
        return self.data

    def reset_sequence(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Take over a sequence number that replaces one with which the batch was sent already."""
        self.stamp(producer_id, producer_epoch, base_sequence)
        self.sequence_was_reset = True

    @property
    def has_sequence(self) -> bool:
        """Return whether the batch has a sequence number."""
        return self.base_sequence >= 0

    def count_attempt(self, error: KafkaLakeError, retry_at_ms: int) -> None:
        """Take the news that the batch was sent in vain, and is not to be sent again before `retry_at_ms`."""
        self.last_error = error
        self.attempts += 1
        self.retry_at_ms = retry_at_ms

    # Ending

    def complete(self, base_offset: int, log_append_time_ms: int) -> None:
        """End: the batch was written at `base_offset`."""
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self._end()

    def fail(self, error: KafkaLakeError) -> None:
        """End: the batch is not delivered, or that is not known."""
        self.error = error
        self._end()

    def replace_by(self, parts: list[Batch]) -> None:
        """End once all of `parts` have ended, which have the records of this batch in order."""
        self._parts = parts
        for part in parts:
            part.add_done_callback(self._end_with_parts)

    def add_done_callback(self, done: Callable[[], object]) -> None:
        """Call `done` once the batch has ended, now if it has."""
        self._done_callbacks.append(done)
        if self.is_done:
            self._run_done_callbacks()

    def remove_done_callback(self, done: Callable[[], object]) -> None:
        """Forget a callback that is not to be called any more. It may have been called."""
        with contextlib.suppress(ValueError):
            self._done_callbacks.remove(done)

    def result(self, index: int, timestamp_ms: int) -> RecordMetadata:
        """Return the metadata of a record, once the batch has ended. Raise the error of the batch."""
        for part in self._parts:
            if index < part.records:
                return part.result(index, timestamp_ms)
            index -= part.records
        if self.error is not None:
            raise as_value(self.error)
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        return RecordMetadata(self.topic, self.partition, offset, self._timestamp_ms(timestamp_ms))

    def spans(self) -> list[BatchMetadata]:
        """Return where the records were written, once the batch has ended. Raise the error of the batch."""
        if self._parts:
            return [span for part in self._parts for span in part.spans()]
        if self.error is not None:
            raise as_value(self.error)
        return [BatchMetadata(self.topic, self.partition, self.base_offset, self.records)]

    def _timestamp_ms(self, timestamp_ms: int) -> int:
        return timestamp_ms if self.log_append_time_ms == LOG_APPEND_TIME_NONE else self.log_append_time_ms

    def _end_with_parts(self) -> None:
        if not self.is_done and all(part.is_done for part in self._parts):
            self._end()

    def _end(self) -> None:
        self.is_done = True
        self.data = None
        callbacks, self._callbacks = self._callbacks, []
        for index, timestamp_ms, on_delivery in callbacks:
            self._deliver(index, timestamp_ms, on_delivery)
        self._run_done_callbacks()

    def _deliver(self, index: int, timestamp_ms: int, on_delivery: OnDelivery) -> None:
        try:
            metadata, error = self.result(index, timestamp_ms), None
        except KafkaLakeError as failed:
            metadata, error = None, as_value(failed)
        call_application(lambda: on_delivery(metadata, error), "a delivery callback")

    def _run_done_callbacks(self) -> None:
        while True:
            try:
                done = self._done_callbacks.popleft()
            except IndexError:  # another thread took the last one
                return
            call_application(done, "a callback of a delivery")


def wait_for(batches: Sequence[Batch], timeout_s: float | None) -> None:
    """Wait until all batches, which are of one producer, have ended, `timeout_s` in all.

    Raise `ClientTimeoutError`, and at once what `check_wait` raises.
    """
    longest_s = None if timeout_s is None else checked_seconds(timeout_s, "a timeout")
    left = [batch for batch in batches if not batch.is_done]
    if not left:
        return
    left[0].check_wait()
    ended = threading.Event()
    end = count_ends(left, ended.set)
    try:
        if not ended.wait(longest_s):
            raise ClientTimeoutError(f"records were not delivered in {longest_s:g} s")
    finally:
        if not ended.is_set():
            for batch in left:
                batch.remove_done_callback(end)


def count_ends(batches: Sequence[Batch], done: Callable[[], object]) -> Callable[[], object]:
    """Call `done` once all batches have ended, at once if there are none. Return the callback that the batches got for it."""
    left = count(len(batches) - 1, -1)  # threads may end batches at the same time

    def end() -> None:
        if not next(left):
            done()

    if not batches:
        done()
    for batch in batches:
        batch.add_done_callback(end)
    return end


class RecordFuture:
    """The delivery of one record."""

    __slots__ = ("_batch", "_index", "_timestamp_ms")

    def __init__(self, batch: Batch, index: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    @property
    def is_done(self) -> bool:
        """Return whether the record was delivered, or failed."""
        return self._batch.is_done

    def get(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait for the delivery and return the record's metadata.

        Raise the error for which the record was not delivered, or `ClientTimeoutError`. Before the delivery raise
        `IllegalStateError` in a callback, for whose end it waits, and `ClientClosedError` in a forked process.
        """
        wait_for([self._batch], timeout_s)
        return self._batch.result(self._index, self._timestamp_ms)

    def add_done_callback(self, done: Callable[[RecordFuture], object]) -> None:
        """Call `done` with this future once the record was delivered or failed, in the sender's thread; now if it is."""
        self._batch.add_done_callback(lambda: done(self))


class ArrowFuture:
    """The delivery of the records of a `send_arrow`."""

    __slots__ = ("_batches",)

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = batches

    @property
    def is_done(self) -> bool:
        """Return whether all records were delivered, or failed."""
        return all(batch.is_done for batch in self._batches)

    def get(self, timeout_s: float | None = None) -> list[BatchMetadata]:
        """Wait for the deliveries and return where the records were written, by batches.

        Raise the first error for which records were not delivered, or `ClientTimeoutError`; others may be delivered. Before the
        deliveries raise as `RecordFuture.get` does.
        """
        wait_for(self._batches, timeout_s)
        return [span for batch in self._batches for span in batch.spans()]

    def add_done_callback(self, done: Callable[[ArrowFuture], object]) -> None:
        """Call `done` with this future once all records were delivered or failed."""
        count_ends(self._batches, lambda: done(self))
