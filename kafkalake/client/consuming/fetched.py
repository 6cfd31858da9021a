"""The records of one partition in one Fetch response, decoded as the application takes them.

Control batches have no records, and with `read_committed` those of aborted transactions are left out (KIP-98): the response lists
the aborted transactions by their first offset, and the control batch of each ends it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pyarrow as pa

from kafkalake.buffers import Buffer
from kafkalake.client.consuming.records import ConsumerRecord, arrow_of, records_of
from kafkalake.errors import KafkaError, error_for_code
from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire import batch_header as wire
from kafkalake.wire.messages.records import AbortedTransaction
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
        self._batches = decode_fetched(data)
        self._batch: ProducerBatch | None = None
        self._records: list[RawRecord] = []
        self._taken = 0

    def take_records(self, limit: int) -> list[RawRecord]:
        """Return up to `limit` further records of one batch, [] only at the end. Raise `KafkaError` for invalid bytes."""
        if self._taken == len(self._records):
            batch = self._next_batch()
            if batch is None:
                return []
            records = records_of(*self.partition, batch)
            self._records, self._taken = records, _first_from(records, self.next_offset)
            if self._taken == len(records):
                self._end_batch()
                return self.take_records(limit)
        found = self._records[self._taken : self._taken + limit]
        self._taken += len(found)
        if self._taken == len(self._records):
            self._end_batch()
        else:
            self.next_offset, self.epoch = found[-1].offset + 1, found[-1].leader_epoch
        return found

    def take_arrow(self) -> pa.RecordBatch | None:
        """Return the next batch as Arrow columns, None only at the end. Raise `KafkaError` for invalid bytes."""
        batch = self._batch or self._next_batch()
        if batch is None:
            return None
        found = batch.to_arrow().column("offset").to_numpy()
        first = int(found.searchsorted(self.next_offset))
        self._end_batch()
        return arrow_of(*self.partition, batch, first) if first < len(found) else self.take_arrow()

    def _next_batch(self) -> ProducerBatch | None:
        """Return the next batch with records to be seen."""
        while (batch := self._decode_next()) is not None:
            if self._is_visible(batch) and batch.rows and _end(batch) > self.next_offset:
                self._batch = batch
                return batch
            self.next_offset = max(self.next_offset, _end(batch))
            self.epoch = batch.header.item(at.LEADER_EPOCH)
        assert self.next_offset == self.end_offset, "records of a response were skipped"
        self.is_drained = True
        return None

    def _end_batch(self) -> None:
        assert self._batch is not None
        self.next_offset = max(self.next_offset, _end(self._batch))
        self.epoch = self._batch.header.item(at.LEADER_EPOCH)
        self._batch, self._records, self._taken = None, [], 0

    def _decode_next(self) -> ProducerBatch | None:
        try:
            return next(self._batches, None)
        except KafkaError as error:
            topic, number = self.partition
            place = f"partition {topic}-{number}, from offset {self.next_offset} on"
            raise error_for_code(error.code, f"{place}: {error}") from error

    def _is_visible(self, batch: ProducerBatch) -> bool:
        attributes, producer_id = batch.header.item(at.ATTRIBUTES), batch.header.item(at.PRODUCER_ID)
        while self._aborted and self._aborted[0][0] < _end(batch):
            self._aborting.add(self._aborted.pop(0)[1])
        if attributes & at.ATTRIBUTE_CONTROL:
            if batch.header[at.CONTROL_TYPE] == wire.ABORT:
                self._aborting.discard(producer_id)
            return False
        return not (attributes & at.ATTRIBUTE_TRANSACTIONAL and producer_id in self._aborting)


def _end(batch: ProducerBatch) -> int:
    return int(batch.header.item(at.BASE_OFFSET)) + batch.offsets


def _first_from(records: list[RawRecord], offset: int) -> int:
    """Return the index of the first record at or after `offset`: a broker returns whole batches."""
    if records[0].offset >= offset:
        return 0
    return next((index for index, record in enumerate(records) if record.offset >= offset), len(records))
