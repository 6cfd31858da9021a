"""The partitions that delayed records are handed over to, wherever they are led."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from kafkalake.broker.callbacks import Done
from kafkalake.errors import (
    CorruptMessageError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    OutOfOrderSequenceError,
    RecordListTooLargeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kafkalake.record.arrays import Int64s
from kafkalake.record.batch import ProducerBatch
from kafkalake.topic_partition import PartitionId

TOO_LARGE = MessageTooLargeError, RecordListTooLargeError
REFUSED = InvalidRecordError, CorruptMessageError, InvalidTimestampError
"""Errors of a batch that no repetition changes."""
OUT_OF_SEQUENCE = OutOfOrderSequenceError, InvalidProducerEpochError
"""Errors of a target that has lost records, or knows another journal of the same name."""
UNKNOWN = UnknownTopicIdError, UnknownTopicOrPartitionError


class Targets(Protocol):
    """The partitions of the cluster. Used on the event loop's thread."""

    def append(self, target: PartitionId[UUID], batch: ProducerBatch, done: Done) -> None:
        """Append an idempotent batch with acks=all at the target's leader.

        Call `done` when the batch is below the high watermark, or is there already, perhaps before this returns. Any error may be
        of a batch that has been appended.
        """
        ...

    def exists(self, target: PartitionId[UUID]) -> bool:
        """Return whether there is such a partition in the cluster's image."""
        ...

    async def dead_letter(self) -> PartitionId[UUID]:
        """Return a partition for records whose target is gone. Raise `KafkaError` if there is none now."""
        ...


class Metrics(Protocol):
    """The receiver of what was handed over."""

    def handed_over(self, lateness_ms: Int64s, now_ms: int) -> None: ...

    def dead_lettered(self, records: int) -> None: ...
