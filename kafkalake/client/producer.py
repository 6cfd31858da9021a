"""A plain producer: Arrow batches of records in, acknowledged Kafka batches out.

Records are assigned to partitions (`partitioner`), cut into batches, encoded and sent to the partitions' leaders. One request
per leader is in flight while the next is encoded, so retries keep the order within a partition. A batch that fails with a
retriable error is resent, in its place, until `delivery_timeout_ms`. With `acks=all` each batch carries a producer id and
sequence numbers (KIP-98), so that a batch sent twice is written once.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalake import codecs
from kafkalake.client.cluster import Cluster
from kafkalake.client.connection import BrokerConnection
from kafkalake.client.partitioner import partitions_of_keys, sticky_partitions
from kafkalake.client.record_sizes import cut, record_bytes
from kafkalake.client.requests import INIT_PRODUCER_ID, PRODUCE
from kafkalake.client.transaction import Transaction
from kafkalake.errors import (
    BrokerUnavailableError,
    ConnectionLostError,
    DuplicateSequenceError,
    KafkaError,
    MessageTooLargeError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    as_value,
    error_for_code,
)
from kafkalake.record.schema import SCHEMA
from kafkalake.wire.arrow_batch import batch_from_arrow
from kafkalake.wire.messages.records import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kafkalake.wire.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from kafkalake.wire.record_batch import encode_batch

REQUEST_BYTES = 8 * 1024 * 1024
TOPIC_WAIT_MS = 5_000
"""How long to wait for the broker to create a missing topic."""

METADATA_WAIT_MS = 300
"""How long to wait until a newly created topic is in the metadata of the broker."""

ALL, LEADER, NONE = -1, 1, 0


@dataclass(eq=False)
class _Batch:
    """An encoded batch to be sent to a partition."""

    partition: int
    data: bytes
    records: int
    deadline_ms: int
    attempts: int = 0


@dataclass
class Sent:
    """Counts of what has been sent and acknowledged so far (with `acks=0`: sent)."""

    records: int = 0
    batches: int = 0
    bytes: int = 0
    next_offsets: dict[int, int] = field(default_factory=dict)
    """By partition, the offset after the last acknowledged record."""


class Producer:
    """Writes to one topic. Use it in a `with` block, from one thread. Leaving the block flushes.

    acks: `ALL`, `LEADER` or `NONE`. compression: none, gzip, snappy, lz4 or zstd. `partition`: send all records there.
    `create_topic`: let the broker create a missing topic if its settings allow auto-creation. With a `transactional_id` everything
    sent is one transaction, committed by leaving the block and aborted if an error leaves it. Raise
    `UnknownTopicOrPartitionError` if the topic does not exist.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        acks: int = ALL,
        compression: str = "none",
        partition: int | None = None,
        batch_bytes: int = 256 * 1024,
        delivery_timeout_ms: int = 120_000,
        idempotent: bool = True,
        create_topic: bool = True,
        transactional_id: str | None = None,
    ) -> None:
        assert transactional_id is None or acks == ALL
        self.topic = topic
        self.sent = Sent()
        self._cluster = cluster
        self._acks = acks
        self._codec = codecs.NUMBERS[compression]
        self._partition = partition
        self._batch_bytes = batch_bytes
        self._delivery_timeout_ms = delivery_timeout_ms
        wait_ms = TOPIC_WAIT_MS if create_topic else METADATA_WAIT_MS
        self._partitions = len(cluster.topic(topic, create=create_topic, wait_ms=wait_ms).partitions)
        if partition is not None:
            cluster.leader(topic, partition)
        self._unkeyed_bytes = 0
        self._waiting: dict[int, deque[_Batch]] = {}
        self._in_flight: dict[int, tuple[BrokerConnection, list[_Batch]]] = {}
        self._producer_id, self._producer_epoch = -1, -1
        self._next_sequence: dict[int, int] = {}
        self._transaction: Transaction | None = None
        if transactional_id is not None:
            self._transaction = Transaction(cluster, transactional_id)
            self._producer_id, self._producer_epoch = self._transaction.begin()
        elif idempotent and acks == ALL:
            self._become_idempotent()

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.flush()
        elif self._transaction is not None:
            with contextlib.suppress(KafkaError, BrokerUnavailableError):
                self.flush()  # no batch may arrive after the abort
        if self._transaction is not None:
            self._transaction.end(commit=error is None)

    @property
    def is_transactional(self) -> bool:
        """Return whether everything sent is one transaction."""
        return self._transaction is not None

    @property
    def is_committing(self) -> bool:
        """Return whether the commit of the transaction was requested and not acknowledged, so that its outcome is unknown."""
        return self._transaction is not None and self._transaction.is_committing

    @property
    def pending_records(self) -> int:
        """The number of records queued or sent and not acknowledged."""
        queues = [*self._waiting.values(), *(batches for _, batches in self._in_flight.values())]
        return sum(batch.records for queue in queues for batch in queue)

    def send(self, records: pa.RecordBatch) -> None:
        """Encode and send `records`: columns `key` and `value` (binary), optionally `headers` and `timestamp` as in `SCHEMA`.

        Return when all records are in flight and earlier ones are acknowledged. Raise `KafkaError` or `BrokerUnavailableError`.
        """
        for partition, part in self._spread(_complete(records)):
            self._enqueue(partition, part)
        while self._waiting:
            self._turn()

    def flush(self) -> None:
        """Return when all records sent have been acknowledged. Raise the same errors as `send`."""
        while self._waiting or self._in_flight:
            self._turn()

    # From records to batches

    def _spread(self, records: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield pieces of the records, each for one partition and at most `batch_bytes` (or one record)."""
        sizes = record_bytes(records)
        if self._partition is not None or self._partitions == 1:
            yield from ((self._partition or 0, part) for part in cut(records, sizes, self._batch_bytes))
            return
        partitions = self._assign(records.column("key"), sizes)
        order = np.argsort(partitions, kind="stable")
        counts = np.bincount(partitions, minlength=self._partitions)
        records = records.take(pa.array(order))
        sizes = sizes[order]
        start = 0
        for partition in np.flatnonzero(counts).tolist():
            end = start + int(counts[partition])
            for part in cut(records.slice(start, end - start), sizes[start:end], self._batch_bytes):
                yield partition, part
            start = end

    def _assign(self, keys: pa.BinaryArray, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        if keys.null_count == 0:
            return partitions_of_keys(keys, self._partitions)
        partitions = partitions_of_keys(keys, self._partitions)
        unkeyed = np.flatnonzero(pc.is_null(keys).to_numpy(zero_copy_only=False))
        of_unkeyed = sizes[unkeyed]
        partitions[unkeyed] = sticky_partitions(of_unkeyed, self._unkeyed_bytes, self._batch_bytes, self._partitions)
        self._unkeyed_bytes += int(of_unkeyed.sum())
        return partitions

    def _enqueue(self, partition: int, records: pa.RecordBatch) -> None:
        sequence = self._next_sequence.get(partition, 0) if self._producer_id >= 0 else -1
        if self._transaction is not None:
            self._transaction.add(self.topic, partition)
        batch = batch_from_arrow(
            records,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=sequence,
            transactional=self._transaction is not None,
        )
        if self._producer_id >= 0:
            self._next_sequence[partition] = (sequence + records.num_rows) & 0x7FFFFFFF
        data = encode_batch(batch, self._codec)
        deadline_ms = _now_ms() + self._delivery_timeout_ms
        self._waiting.setdefault(partition, deque()).append(_Batch(partition, data, records.num_rows, deadline_ms))

    # From batches to acknowledgements

    def _turn(self) -> None:
        """Receive the pending response of each leader, then send the queued batches."""
        for leader in list(self._in_flight):
            self._collect(leader)
        self._dispatch()

    def _dispatch(self) -> None:
        by_leader: dict[int, list[_Batch]] = {}
        failed: KafkaError | BrokerUnavailableError | None = None
        for partition in list(self._waiting):
            try:
                leader = self._cluster.leader(self.topic, partition)
            except (KafkaError, BrokerUnavailableError) as error:
                failed = as_value(error)
                self._check_deadline(self._waiting[partition][0], failed)
                continue
            batches = by_leader.setdefault(leader, [])
            if sum(len(batch.data) for batch in batches) < REQUEST_BYTES:
                batches.append(self._take(partition))
        for leader, batches in by_leader.items():
            try:
                self._send(leader, batches)
            except BrokerUnavailableError as error:
                failed = as_value(error)
                self._put_back(batches, failed)
        if failed is not None:
            self._cluster.pause(max((queue[0].attempts for queue in self._waiting.values()), default=0))

    def _send(self, leader: int, batches: list[_Batch]) -> None:
        data = [PartitionProduceData(index=batch.partition, records=batch.data) for batch in batches]
        values = ProduceRequest(
            transactional_id=None if self._transaction is None else self._transaction.transactional_id,
            acks=self._acks,
            timeout=self._cluster.request_timeout_ms,
            topic_data=[TopicProduceData(name=self.topic, partition_data=data)],
        )
        connection = self._cluster.broker(leader)
        connection.send(PRODUCE, values, answered=self._acks != NONE)
        if self._acks == NONE:
            for batch in batches:
                self._count(batch)
        else:
            self._in_flight[leader] = (connection, batches)

    def _collect(self, leader: int) -> None:
        connection, batches = self._in_flight.pop(leader)
        try:
            answer = connection.receive()
            assert isinstance(answer, ProduceResponse)
        except ConnectionLostError as error:
            self._put_back(batches, as_value(error))
            return
        results = {result.index: result for topic in answer.responses for result in topic.partition_responses}
        failed = [(batch, self._result(batch, results.get(batch.partition))) for batch in batches]
        again = [(batch, error) for batch, error in failed if error is not None]
        if again:
            self._put_back([batch for batch, _ in again], again[-1][1])
            self._cluster.pause(again[0][0].attempts)

    def _result(self, batch: _Batch, result: PartitionProduceResponse | None) -> KafkaError | None:
        """Count a batch as acknowledged, or return a retriable error. Raise any other error."""
        if result is None:
            result = PartitionProduceResponse(error_code=UnknownTopicOrPartitionError.code)
        code = result.error_code
        if code in (0, DuplicateSequenceError.code):
            self._count(batch)
            if result.base_offset >= 0:
                self.sent.next_offsets[batch.partition] = result.base_offset + batch.records
            return None
        error = error_for_code(code)
        said = result.error_message or error.label.lower().replace("_", " ")
        if isinstance(error, MessageTooLargeError):
            said = f"a batch of {len(batch.data)} bytes is larger than the topic's max.message.bytes"
        error = error_for_code(code, f"partition {self.topic}-{batch.partition}: {said}")
        if not error.retriable:
            raise error
        return error

    def _put_back(self, batches: list[_Batch], error: KafkaError | BrokerUnavailableError) -> None:
        """Requeue unacknowledged batches at the front of their queues."""
        self._cluster.forget(self.topic)
        for batch in batches:
            self._check_deadline(batch, error)
            batch.attempts += 1
            self._waiting.setdefault(batch.partition, deque()).appendleft(batch)

    def _check_deadline(self, batch: _Batch, error: Exception) -> None:
        if _now_ms() >= batch.deadline_ms or (isinstance(error, KafkaError) and not type(error).retriable):
            raise error

    def _take(self, partition: int) -> _Batch:
        queue = self._waiting[partition]
        batch = queue.popleft()
        if not queue:
            del self._waiting[partition]
        return batch

    def _count(self, batch: _Batch) -> None:
        self.sent.records += batch.records
        self.sent.batches += 1
        self.sent.bytes += len(batch.data)

    def _become_idempotent(self) -> None:
        """Get a producer id. Batches carry none if the broker does not support it."""
        values = InitProducerIdRequest(
            transactional_id=None, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1
        )

        def ask() -> InitProducerIdResponse:
            answer = self._cluster.any_broker().request(INIT_PRODUCER_ID, values)
            if answer.error_code:
                raise error_for_code(answer.error_code)
            return answer

        try:
            answer = self._cluster.retrying(ask)
        except UnsupportedVersionError:
            return
        self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _complete(records: pa.RecordBatch) -> pa.RecordBatch:
    """Return `records` with columns timestamp, key, value, headers of `SCHEMA`. Absent timestamps are now, absent headers none."""
    rows = records.num_rows
    columns = {}
    for name in ("timestamp", "key", "value", "headers"):
        kind = SCHEMA.field(name).type
        if name in records.schema.names:
            column = records.column(name)
            columns[name] = column if column.type == kind else column.cast(kind)
        elif name == "headers":
            zeros = pa.array(np.zeros(rows + 1, dtype=np.int32))
            columns[name] = pa.ListArray.from_arrays(zeros, pa.array([], kind.value_type)).cast(kind)
        elif name == "timestamp":
            columns[name] = pa.array(np.full(rows, time.time_ns() // 1_000_000), pa.int64()).cast(kind)
        else:
            columns[name] = pa.nulls(rows, kind)
    return pa.RecordBatch.from_arrays(
        list(columns.values()), schema=pa.schema([SCHEMA.field(name) for name in columns])
    )
