"""Offsets by time, by epoch, and the log's start: ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import NamedTuple

from kafkalake.broker.partitions.fetch import corrupt
from kafkalake.broker.partitions.fetched import Isolation
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.purgatory import DelayedOperation, Purgatory
from kafkalake.cluster.replication import EpochEnd, low_watermark
from kafkalake.errors import (
    CorruptSegmentError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    UnsupportedVersionError,
    as_value,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


class FoundOffset(NamedTuple):
    """An offset, the timestamp of its record (ms, -1 if not found by time) and its leader epoch (-1: unknown)."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def list_offset(partition: Partition, timestamp_ms: int, isolation: Isolation) -> FoundOffset | None:
    """Return the offset for a timestamp (ms) or one of Kafka's special values, or None if there is no such record.

    Records not yet visible to the reader do not count. MAX_TIMESTAMP blocks and is safe in any thread. Raise
    `UnsupportedVersionError` for an unknown special value, `CorruptMessageError` if the log is damaged, `KafkaStorageError` on
    I/O errors, `OffsetNotAvailableError` for the newest offsets after an election, until the followers have fetched (KIP-207).
    """
    try:
        return _list_offset(partition, timestamp_ms, isolation)
    except CorruptSegmentError as error:
        raise corrupt(error) from error


def _list_offset(partition: Partition, timestamp_ms: int, isolation: Isolation) -> FoundOffset | None:
    log = partition.log
    visible_end = log.last_stable_offset if isolation is Isolation.READ_COMMITTED else log.high_watermark
    if timestamp_ms == LATEST:
        _check_watermark(partition)
        return FoundOffset(visible_end, -1, partition.leader_epoch)
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        return FoundOffset(log.log_start_offset, -1, log.epoch_for_offset(log.log_start_offset))
    if timestamp_ms == LATEST_TIERED:
        return FoundOffset(-1, -1, -1)
    if timestamp_ms == MAX_TIMESTAMP:
        found = log.max_timestamp()
    elif timestamp_ms < 0:
        raise UnsupportedVersionError()
    else:
        found = log.offset_for_timestamp(timestamp_ms)
    if found is None or found[1] < 0 or found[1] >= visible_end:
        _check_watermark(partition)
        return None
    timestamp, offset = found
    return FoundOffset(offset, timestamp, log.epoch_for_offset(offset))


def _check_watermark(partition: Partition) -> None:
    """Raise `OffsetNotAvailableError` if the newest offsets are not known, because a new leader waits for its followers."""
    if partition.is_watermark_behind:
        raise OffsetNotAvailableError()


def end_of_epoch(partition: Partition, epoch: int) -> EpochEnd:
    """Return the largest epoch up to `epoch` and its end offset, or (-1, -1) if none is known."""
    return EpochEnd(*partition.log.end_offset_for_epoch(epoch))


def delete_records(partition: Partition, offset: int) -> int:
    """Move the log start to `offset` (-1: to the high watermark) and return the new log start.

    Blocking, safe in any thread. Raise `OffsetOutOfRangeError` if the offset is negative (except -1) or above the high watermark,
    `KafkaStorageError` on I/O errors.
    """
    target = partition.log.high_watermark if offset == -1 else offset
    if target < 0 or target > partition.log.high_watermark:
        raise OffsetOutOfRangeError()
    partition.log.delete_records_before(target)
    return partition.log.log_start_offset


class _DeletionWait(DelayedOperation):
    """Waits until the replicas in sync of a partition begin at an offset, or it is led here no more."""

    def __init__(self, offset: int) -> None:
        super().__init__()
        self._offset = offset
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def is_complete(self, key: Hashable) -> bool:
        assert isinstance(key, Partition)
        return key.removed or _low_watermark(key) >= self._offset

    def complete(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


async def wait_until_deleted(purgatory: Purgatory, partition: Partition, offset: int, timeout_ms: int) -> int:
    """Return the smallest log start of the replicas in sync, once it is `offset`: whoever leads next begins there.

    Raise `RequestTimedOutError` after `timeout_ms`, the partition's error if it is led here no more.
    """
    wait = _DeletionWait(offset)
    if not wait.is_complete(partition):
        purgatory.watch(wait, [partition], timeout_ms)
        try:
            await wait.ended
        finally:
            purgatory.discard(wait)
    if partition.refusal is not None:
        raise as_value(partition.refusal)
    if (found := _low_watermark(partition)) < offset:
        raise RequestTimedOutError()
    return found


def _low_watermark(partition: Partition) -> int:
    return low_watermark(partition.leadership, partition.log.log_start_offset)
