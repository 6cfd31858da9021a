"""A plain consumer of one topic, without a group: positions in, Arrow batches out.

Each `poll` sends one Fetch to every leader of wanted partitions, then receives the responses. Brokers delay a response until
there are records or `max_wait_ms` is over. Positions advance as batches are returned, so that a loop of polls returns each
record once. With `read_committed`, records of aborted transactions are dropped (KIP-98). Control batches always are.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from kafkalake.client.admin import EARLIEST, LATEST, list_offsets
from kafkalake.client.cluster import Cluster
from kafkalake.client.requests import FETCH, error_name
from kafkalake.errors import BrokerUnavailableError, KafkaError, OffsetOutOfRangeError, as_value, error_for_code
from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.wire.messages.message import Message
from kafkalake.wire.messages.records import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from kafkalake.wire.record_batch import decode_fetched

FAILURE_TIMEOUT_MS = 30_000
ABORT = 0


OutOfRange = Literal["earliest", "latest", "error"]
"""Where to continue a partition whose position is outside of the log."""


@dataclass(frozen=True)
class FetchedRecords:
    """Records of one partition, ordered by offset. `records` has the columns of `record.schema.SCHEMA`."""

    partition: int
    records: pa.RecordBatch
    timestamp_type: Literal["CreateTime", "LogAppendTime"]


class Fetcher:
    """Reads one topic from the given positions (partition -> offset).

    `out_of_range`: where to continue if a position is not (or no longer) in the log. "error" raises `OffsetOutOfRangeError`.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        positions: Mapping[int, int],
        *,
        read_committed: bool = False,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 50 * 1024 * 1024,
        partition_max_bytes: int = 1024 * 1024,
        out_of_range: OutOfRange = "error",
    ) -> None:
        self.topic = topic
        self.positions = dict(positions)
        self.end_offsets: dict[int, int] = {}
        """By partition, the offset after the last readable record, as of the newest response."""
        self._cluster = cluster
        self._read_committed = read_committed
        self._max_wait_ms = max_wait_ms
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes
        self._out_of_range = out_of_range
        self._failing_since_ms: int | None = None
        self._error: KafkaError | None = None
        self._failures = 0

    def poll(self, partitions: Sequence[int] | None = None, *, max_wait_ms: int | None = None) -> list[FetchedRecords]:
        """Return records, or [] after `max_wait_ms`. Raise `KafkaError` or `BrokerUnavailableError`, retriable ones after 30 s."""
        wait_ms = self._max_wait_ms if max_wait_ms is None else min(self._max_wait_ms, max_wait_ms)
        wanted = self.positions if partitions is None else partitions
        if self._error is not None:
            raise self._error
        fetched: list[FetchedRecords] = []
        errors: list[KafkaError] = []
        try:
            for answer in self._ask(wanted, wait_ms):
                self._read(answer, fetched, errors)
        except (KafkaError, BrokerUnavailableError) as error:
            self._cluster.close()  # connections with pending responses cannot be reused
            self._failed(as_value(error))
            return []
        if not errors:
            self._failing_since_ms, self._failures = None, 0
        elif not fetched:
            self._failed(errors[0])
        else:  # deliver records first, raise on the next poll; retriable errors recur
            self._error = next((error for error in errors if not error.retriable), None)
            self._cluster.forget(self.topic)
        return fetched

    def _ask(self, partitions: Iterable[int], wait_ms: int) -> list[Message]:
        """Send one request to every leader, then receive all responses."""
        by_leader: dict[int, list[FetchPartition]] = {}
        for partition in partitions:
            info = self._cluster.led_partition(self.topic, partition)
            by_leader.setdefault(info.leader, []).append(self._asked(partition, info.leader_epoch))
        connections = [(self._cluster.broker(leader), led) for leader, led in by_leader.items()]
        for connection, led in connections:
            connection.send(FETCH, self._request(led, wait_ms))
        timeout_ms = self._cluster.request_timeout_ms + wait_ms
        return [connection.receive(timeout_ms) for connection, _ in connections]

    def _asked(self, partition: int, leader_epoch: int) -> FetchPartition:
        """Return the entry of a request. leader_epoch: without it followers answer, too, whose logs may end before the position."""
        return FetchPartition(
            partition=partition,
            fetch_offset=self.positions[partition],
            partition_max_bytes=self._partition_max_bytes,
            current_leader_epoch=leader_epoch,
        )

    def _request(self, partitions: Sequence[FetchPartition], wait_ms: int) -> FetchRequest:
        return FetchRequest(
            replica_id=-1,
            max_wait=wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=self._read_committed,
            session_epoch=-1,
            topics=[FetchTopic(topic=self.topic, partitions=partitions)],
        )

    def _read(self, answer: Message, fetched: list[FetchedRecords], errors: list[KafkaError]) -> None:
        assert isinstance(answer, FetchResponse)
        if answer.error_code:
            raise error_for_code(answer.error_code)
        for topic in answer.responses:
            for part in topic.partitions:
                try:
                    for records in self._read_partition(part):
                        fetched.append(records)
                except KafkaError as error:
                    errors.append(as_value(error))

    def _read_partition(self, part: PartitionData) -> Iterator[FetchedRecords]:
        partition = part.partition_index
        code = part.error_code
        if code == OffsetOutOfRangeError.code:
            self._reset(partition)
            return
        if code:
            raise error_for_code(code, f"partition {self.topic}-{partition}: {error_name(code)}")
        end = int(part.last_stable_offset if self._read_committed else part.high_watermark)
        if end >= 0:  # a new leader does not know it at once
            self.end_offsets[partition] = end
        aborted = sorted((entry.first_offset, entry.producer_id) for entry in part.aborted_transactions or ())
        aborting: set[int] = set()
        for batch in self._decoded(partition, bytes(part.records or b"")):
            last = int(batch.header[at.BASE_OFFSET] + batch.header[at.LAST_OFFSET_DELTA])
            while aborted and aborted[0][0] <= last:
                aborting.add(aborted.pop(0)[1])
            records = self._visible(batch, aborting)
            if records is not None and last >= self.positions[partition]:
                records = _from_offset(records, self.positions[partition])
                append_time = batch.header[at.ATTRIBUTES] & at.ATTRIBUTE_LOG_APPEND_TIME
                if records.num_rows:
                    yield FetchedRecords(partition, records, "LogAppendTime" if append_time else "CreateTime")
            self.positions[partition] = max(self.positions[partition], last + 1)

    def _decoded(self, partition: int, data: bytes) -> Iterator[ProducerBatch]:
        """Yield the batches in `data`. Errors name partition and offset."""
        try:
            yield from decode_fetched(data)
        except KafkaError as error:
            place = f"partition {self.topic}-{partition}, from offset {self.positions[partition]} on"
            raise error_for_code(error.code, f"{place}: {error}") from error

    def _visible(self, batch: ProducerBatch, aborting: set[int]) -> pa.RecordBatch | None:
        """Return the records of a batch, None for a control batch and, if read_committed, for an aborted one."""
        attributes = int(batch.header[at.ATTRIBUTES])
        producer_id = int(batch.header[at.PRODUCER_ID])
        if attributes & at.ATTRIBUTE_CONTROL:
            if batch.header[at.CONTROL_TYPE] == ABORT:
                aborting.discard(producer_id)
            return None
        if self._read_committed and attributes & at.ATTRIBUTE_TRANSACTIONAL and producer_id in aborting:
            return None
        return batch.to_arrow()

    def _reset(self, partition: int) -> None:
        place = {"earliest": EARLIEST, "latest": LATEST}.get(self._out_of_range)
        if place is None:
            ends = [
                list_offsets(self._cluster, self.topic, {partition: time_})[partition] for time_ in (EARLIEST, LATEST)
            ]
            raise OffsetOutOfRangeError(
                f"partition {self.topic}-{partition} has no offset {self.positions[partition]}: "
                f"it goes from {ends[0].offset} to {ends[1].offset}"
            )
        found = list_offsets(self._cluster, self.topic, {partition: place}, read_committed=self._read_committed)
        self.positions[partition] = found[partition].offset

    def _failed(self, error: KafkaError | BrokerUnavailableError) -> None:
        """Raise an error that is not retriable, or any after `FAILURE_TIMEOUT_MS` of failures. Otherwise back off."""
        now_ms = time.monotonic_ns() // 1_000_000
        self._failing_since_ms = self._failing_since_ms or now_ms
        if isinstance(error, KafkaError) and not type(error).retriable:
            raise error
        if now_ms - self._failing_since_ms >= FAILURE_TIMEOUT_MS:
            raise error
        self._cluster.forget(self.topic)
        self._cluster.pause(self._failures)
        self._failures += 1


def _from_offset(records: pa.RecordBatch, offset: int) -> pa.RecordBatch:
    """Return the records from `offset` on, since a broker returns whole batches."""
    offsets = records.column("offset").to_numpy()
    first = int(np.searchsorted(offsets, offset))
    return records.slice(first) if first else records
