"""Collects batches for one Arrow message: checks each, assigns its offset and answers it. Does no I/O.

A group is all or nothing: if its bytes do not reach the log, `fail` replaces the answers, and the changes of producer state
(`pending`) are dropped.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kafkalake.errors import InvalidRecordError, KafkaError, NotEnoughReplicasAfterAppendError, as_value
from kafkalake.offset_range import OffsetRange
from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.storage.producer_state import (
    EndMarker,
    PendingProducers,
    Producers,
    SequencedBatch,
)
from kafkalake.storage.replay import attempt_of


class AppendResult(NamedTuple):
    """The place of a batch. Offsets inclusive. `log_append_time_ms` is -1 for CreateTime. `duplicate`: it was already appended.

    ended: of a marker, the records of the transaction that it has ended, None if none was open.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False
    ended: OffsetRange | None = None


Answer = AppendResult | KafkaError


class AppendGroup:
    """The batches of the next message, which begins at `base_offset`."""

    def __init__(
        self, base_offset: int, leader_epoch: int, now_ms: int, log_start_offset: int, *, log_append_time: bool
    ) -> None:
        self.base_offset = self.next_offset = base_offset
        self.leader_epoch = leader_epoch
        self.now_ms = now_ms
        self.batches: list[ProducerBatch] = []
        self.bytes = 0
        self.records = 0
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        self.pending = PendingProducers()
        self._log_start_offset = log_start_offset
        self._log_append_time = log_append_time
        self._accepted: list[int] = []
        self._duplicates: list[int] = []

    def has_room(self, batch: ProducerBatch, limit_bytes: int) -> bool:
        """Return whether `batch` fits beside those there are."""
        return self.bytes + batch.size <= limit_bytes and len(self.batches) < at.MAXIMUM_BATCHES

    def accept(self, number: int, batch: ProducerBatch, producers: Producers) -> Answer:
        """Add batch `number` and return its place, the original's place if it is a duplicate, or its error."""
        header = batch.header
        numbers: list[int] = header.tolist()
        attributes, records = numbers[at.ATTRIBUTES], numbers[at.RECORDS]
        if attributes & at.ATTRIBUTE_CONTROL or numbers[at.LAST_OFFSET_DELTA] < 0 or records != batch.rows:
            return InvalidRecordError(
                "a producer's batch holds records, as many as its header says, and no control records"
            )
        offset = self.next_offset
        timestamp = self.now_ms if self._log_append_time else numbers[at.MAX_TIMESTAMP]
        if numbers[at.PRODUCER_ID] >= 0:
            try:
                known = producers.accept(attempt_of(numbers), offset, timestamp, self.now_ms, self.pending)
            except KafkaError as error:
                return as_value(error)
            if known is not None:
                if known.is_split != bool(numbers[at.FLAGS] & at.SPLIT):
                    return NotEnoughReplicasAfterAppendError(
                        "the first try was not in the log yet: send the batch again"
                    )
                self._duplicates.append(number)
                return self._answer(known)
        if self._log_append_time:
            header[at.ATTRIBUTES] = attributes | at.ATTRIBUTE_LOG_APPEND_TIME
            header[at.MAX_TIMESTAMP] = self.now_ms
        elif attributes & at.ATTRIBUTE_LOG_APPEND_TIME:
            header[at.ATTRIBUTES] = attributes & ~at.ATTRIBUTE_LOG_APPEND_TIME
        if records and timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = timestamp, offset
        self._accepted.append(number)
        last_offset = self.add(batch, numbers[at.LAST_OFFSET_DELTA], records)
        return AppendResult(offset, last_offset, self.now_ms if self._log_append_time else -1, self._log_start_offset)

    def add(self, batch: ProducerBatch, last_offset_delta: int, records: int) -> int:
        """Assign the next offsets to `batch` and return its last one."""
        header = batch.header
        header[at.BASE_OFFSET] = self.next_offset
        header[at.LEADER_EPOCH] = self.leader_epoch
        last_offset = self.next_offset + last_offset_delta
        self.batches.append(batch)
        self.bytes += batch.size
        self.records += records
        self.next_offset = last_offset + 1
        return last_offset

    def fail(self, answers: list[Answer], error: KafkaError) -> None:
        """Answer all batches of a group that was not written, and duplicates of them, with `error`."""
        for number in self._accepted:
            answers[number] = error
        for number in self._duplicates:
            answer = answers[number]
            if isinstance(answer, AppendResult) and answer.base_offset >= self.base_offset:
                answers[number] = error

    def _answer(self, known: SequencedBatch) -> AppendResult:
        time_ms = known.timestamp if self._log_append_time else -1
        return AppendResult(known.base_offset, known.last_offset, time_ms, self._log_start_offset, True)


def control_batch(marker: EndMarker, timestamp: int) -> ProducerBatch:
    """Return the batch of a transaction's marker: one offset, no rows."""
    header = np.zeros(at.HEADER_FIELDS, dtype=np.int64)
    header[at.PRODUCER_ID] = marker.producer_id
    header[at.PRODUCER_EPOCH] = marker.epoch
    header[at.ATTRIBUTES] = at.ATTRIBUTE_CONTROL | at.ATTRIBUTE_TRANSACTIONAL
    header[at.BASE_SEQUENCE] = -1
    header[at.BASE_TIMESTAMP] = header[at.MAX_TIMESTAMP] = timestamp
    header[at.CONTROL_TYPE] = marker.control_type
    header[at.COORDINATOR_EPOCH] = marker.coordinator_epoch
    return ProducerBatch(np.zeros(0, dtype=np.uint8), np.zeros(at.LAYOUT_SIZE, dtype=np.int64), header)
