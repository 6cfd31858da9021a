"""The records of one partition in one Fetch response, decoded as the application takes them.

Control batches have no records, and with `read_committed` those of aborted transactions are left out (KIP-98): the response lists
the aborted transactions by their first offset, and the control batch of each ends it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pyarrow as pa

from kafkalake.buffers import Buffer
from kafkalake.client.consuming.records import BatchRecords, ConsumerRecord, arrow_of
from kafkalake.errors import KafkaError, error_for_code
from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire import batch_header as wire
from kafkalake.wire.fetched_run import BatchRun, read_run
from kafkalake.wire.messages.records import AbortedTransaction, FetchResponse
from kafkalake.wire.record_batch import decode_fetched

_OFFSET_AND_LENGTH = struct.Struct(">qi")
_DELTA = struct.Struct(">i")

RawRecord = ConsumerRecord[bytes | None, bytes | None]


def end_offset(data: Buffer, otherwise: int) -> int:
    """Return the offset after the whole batches in `data`, `otherwise` if that is larger or there are none."""
    position = 0
    while len(data) - position >= wire.RECORDS:
        base_offset, length = _OFFSET_AND_LENGTH.unpack_from(data, position)
        size = length + wire.BEFORE_BATCH_LENGTH
        if size < wire.RECORDS or size > len(data) - position:
            break
        end = base_offset + _DELTA.unpack_from(data, position + wire.LAST_OFFSET_DELTA)[0] + 1
        otherwise = max(otherwise, end)
        position += size
    return int(otherwise)


def records_size(response: FetchResponse) -> int:
    """Return the bytes of all records in a response."""
    return sum(len(each.records or b"") for topic in response.responses for each in topic.partitions)


class FetchedRecords:
    """See the module. `next_offset` is the offset after what was taken, `epoch` the leader epoch of the record before it.

    end_offset: the offset after all of it.
    version: of the partition's state when the records were requested (`PartitionState.version`).
    """

    def __init__(
        self,
        partition: TopicPartition,
        version: int,
        first_offset: int,
        data: Buffer,
        aborted: Sequence[AbortedTransaction] | None,
    ) -> None:
        """aborted: None for all records, else the aborted transactions whose records are left out."""
        self.partition = partition
        self.version = version
        self.size_bytes = len(data)
        self.next_offset = first_offset
        self.end_offset = end_offset(data, first_offset)
        self.epoch = -1
        self.is_drained = False
        self.is_read_committed = aborted is not None
        self._aborted = sorted((each.first_offset, each.producer_id) for each in aborted or ())
        self._aborting: set[int] = set()
        self._data = data
        self._position = 0
        self._run: BatchRun | None = None
        self._run_index = 0
        self._batch: ProducerBatch | None = None
        self._records: BatchRecords | None = None
        self._taken = 0

    def take_records(self, limit: int) -> list[RawRecord]:
        """Return up to `limit` further records of one batch, [] only at the end. Raise `KafkaError` for invalid bytes."""
        if self._records is None:
            batch = self._next_batch()
            if batch is None:
                return []
            self._records = BatchRecords(*self.partition, batch)
            self._taken = self._records.first_from(self.next_offset)
        last = min(self._taken + limit, self._records.rows)
        found = self._records.read(self._taken, last)
        if last == self._records.rows:
            self._end_batch()
        else:
            self._taken = last
            self.next_offset, self.epoch = found[-1].offset + 1, found[-1].leader_epoch
        return found or self.take_records(limit)

    def take_arrow(self) -> pa.RecordBatch | None:
        """Return the next batch as Arrow columns, None only at the end. Raise `KafkaError` for invalid bytes."""
        batch = self._batch or self._next_batch()
        if batch is None:
            return None
        found = arrow_of(*self.partition, batch, self.next_offset)
        self._end_batch()
        return found if found.num_rows else self.take_arrow()

    def _next_batch(self) -> ProducerBatch | None:
        """Return the next records to be seen: those of the batches that can be joined."""
        while self._run is not None or self._begin_run():
            self._batch = self._next_of_run()
            if self._batch is not None:
                return self._batch
        return None

    def _begin_run(self) -> bool:
        """Decode the next batches. Return False at the end."""
        self._run = read_run(self._data, self._position)
        self._run_index = 0
        if self._run is not None:
            self._position = self._run.end
            return True
        self._raise_fault()
        assert self.next_offset == self.end_offset, "records of a response were skipped"
        self.is_drained = True
        return False

    def _next_of_run(self) -> ProducerBatch | None:
        """Return the next batches of the run that can be joined, None at its end."""
        assert self._run is not None
        headers = self._run.headers
        first = self._run_index
        while first < len(headers) and not self._is_wanted(headers[first]):
            self._pass(headers[first])
            first += 1
        last = first + 1
        while last < len(headers) and _joins(headers[first], headers[last]) and self._is_wanted(headers[last]):
            last += 1
        self._run_index = last
        if first < len(headers):
            return self._run.join(first, last)
        self._run = None
        return None

    def _is_wanted(self, header: list[int]) -> bool:
        return self._is_visible(header) and header[at.RECORDS] > 0 and _end(header) > self.next_offset

    def _pass(self, header: list[int]) -> None:
        """Move behind a batch."""
        self.next_offset = max(self.next_offset, _end(header))
        self.epoch = header[at.LEADER_EPOCH]

    def _end_batch(self) -> None:
        assert self._batch is not None
        self._pass(self._batch.header.tolist())
        self._batch, self._records, self._taken = None, None, 0

    def _raise_fault(self) -> None:
        """Raise what is wrong with the next batch, unless there is none."""
        try:
            invalid = next(decode_fetched(self._data, position=self._position), None)
        except KafkaError as error:
            topic, number = self.partition
            place = f"partition {topic}-{number}, from offset {self.next_offset} on"
            raise error_for_code(error.code, f"{place}: {error}") from error
        assert invalid is None, "a batch is valid alone and not among others"

    def _is_visible(self, header: list[int]) -> bool:
        """Return whether the records of the next batch are to be seen. Call it for each, in order."""
        attributes, producer_id = header[at.ATTRIBUTES], header[at.PRODUCER_ID]
        while self._aborted and self._aborted[0][0] < _end(header):
            self._aborting.add(self._aborted.pop(0)[1])
        if attributes & at.ATTRIBUTE_CONTROL:
            if header[at.CONTROL_TYPE] == wire.ABORT:
                self._aborting.discard(producer_id)
            return False
        return not (attributes & at.ATTRIBUTE_TRANSACTIONAL and producer_id in self._aborting)


def _end(header: list[int]) -> int:
    return header[at.BASE_OFFSET] + header[at.LAST_OFFSET_DELTA] + 1


def _joins(header: list[int], other: list[int]) -> bool:
    """Return whether records of two batches can be in one: they have the same leader epoch and kind of timestamp."""
    kind = at.ATTRIBUTE_LOG_APPEND_TIME
    same_epoch = header[at.LEADER_EPOCH] == other[at.LEADER_EPOCH]
    return same_epoch and header[at.ATTRIBUTES] & kind == other[at.ATTRIBUTES] & kind
