"""Reads a partition of a journal from its beginning, for the coordinator that loads it.

Damage is logged and skipped up to the next whole message, wherever that is: what could be read is served. A caller that must not
block the event loop takes the steps one by one, and reads on for as long as the log grows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from kafkalake.broker.partitions.partition import Partition
from kafkalake.errors import KafkaLakeError
from kafkalake.record.build import ReadBatch, read_batches
from kafkalake.storage.lost_records import lost_ranges

logger = logging.getLogger(__name__)

READ_BYTES = 4 << 20


class JournalReplay:
    """The reading of one partition. `follow` is called with every batch. `lost`: the ranges of offsets that are damaged or lost."""

    def __init__(self, partition: Partition, follow: Callable[[ReadBatch], None]) -> None:
        self.lost: list[range] = []
        self.partition = partition
        self._follow = follow
        self._at = partition.log.log_start_offset

    def run(self) -> None:
        """Read up to the high watermark. Raise `KafkaStorageError` on I/O errors."""
        for _ in self.steps():
            pass

    def steps(self, read_bytes: int = READ_BYTES) -> Iterator[None]:
        """Read on up to the high watermark and yield after each batch. Raise `KafkaStorageError` on I/O errors."""
        log = self.partition.log
        while self._at < log.high_watermark:
            reason = "nothing is there"
            try:
                messages = log.read(self._at, read_bytes)
            except KafkaLakeError as error:
                messages, reason = log.read_behind_damage(self._at, read_bytes), str(error)
            if not len(messages):
                self._lose(log.high_watermark, reason)
                return
            for gone in lost_ranges(messages):
                self._at = gone.start
                self._lose(gone.stop, "the machine stopped before they were on the disk")
            for batch in read_batches(messages):
                self._read(batch, reason)
                yield
            self._at = max(self._at, messages.next_offset)

    def _read(self, batch: ReadBatch, reason: str) -> None:
        end = batch.base_offset + max(len(batch.pairs), 1)
        if batch.base_offset > self._at:
            self._lose(batch.base_offset, reason)
        if end > self._at:
            try:
                self._follow(batch)
            except KafkaLakeError as error:
                self._lose(end, str(error))
            self._at = end

    def _lose(self, end: int, reason: str) -> None:
        """Note the offsets from here to `end` as lost and go on behind them."""
        partition = self.partition
        logger.error(
            "damaged journal topic=%s partition=%d offsets=[%d, %d) error=%s",
            partition.topic.name,
            partition.index,
            self._at,
            end,
            reason,
        )
        self.lost.append(range(self._at, end))
        self._at = end
