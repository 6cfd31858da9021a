"""Errors of the client itself, which no broker answers with.

KafkaLakeError
├── ClientTimeoutError            something did not happen within its time: metadata, a delivery, a close
│   └── BufferExhaustedError      no room for a record within `max.block.ms`
├── ClientClosedError             the client was closed
├── IllegalStateError             a call that is not allowed now, as a commit outside of a transaction
├── TransactionAbortedError       the record's transaction was aborted before the record was sent
├── TransactionMustAbortError     a transaction that has failed can only be aborted
├── SubscriptionError             a call that does not fit what a consumer is subscribed to or assigned
├── NoOffsetForPartitionError     no offset to begin at, with `auto.offset.reset=none`
├── LogTruncationError            records that were read are gone, with `auto.offset.reset=none` (an `OffsetOutOfRangeError`, too)
├── CommitFailedError             offsets of partitions that others have now
├── ConcurrentWriterError         two writers of one partition in an `ExactlyOnceSink`
├── AssignorError                 an assignor of a consumer's group has raised
├── WakeupError                   a consumer was woken up
└── SerializationError            a key or a value cannot be made bytes, or bytes a value
    └── RecordDeserializationError    those of a record that was read: its partition and offset
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalake.errors import KafkaLakeError, OffsetOutOfRangeError
from kafkalake.topic_partition import TopicPartition, partition_name

if TYPE_CHECKING:
    from kafkalake.client.records import OffsetAndMetadata


class ClientTimeoutError(KafkaLakeError):
    """Something did not happen in its time. It may still happen."""

    code = 7
    retriable = True


class BufferExhaustedError(ClientTimeoutError):
    """The records that wait fill `buffer.memory`, and none was delivered within `max.block.ms`."""


class ClientClosedError(KafkaLakeError):
    """The client is closed, or was closed while a call waited or a record was not delivered."""


class IllegalStateError(KafkaLakeError):
    """A call that the client's state does not allow. Nothing was changed."""


class TransactionAbortedError(KafkaLakeError):
    """The record's transaction was aborted before the record was sent."""


class TransactionMustAbortError(KafkaLakeError):
    """The transaction has failed, for the reason in `__cause__` and in the text. Abort it; the producer stays usable."""


class AssignorError(KafkaLakeError):
    """An assignor has raised, for the reason in `__cause__` and in the text. The poll after joins again, and asks it again."""


class SerializationError(KafkaLakeError):
    """A key or a value cannot be made bytes, or bytes cannot be made one."""


class WakeupError(KafkaLakeError):
    """`wakeup` was called while a consumer waited, or before it did."""


class RecordDeserializationError(SerializationError):
    """A record's key or value cannot be deserialized. The position stays at it: `seek` behind it to go on."""

    def __init__(self, partition: TopicPartition, offset: int, reason: str) -> None:
        super().__init__(f"the record at offset {offset} of partition {partition[0]}-{partition[1]}: {reason}")
        self.partition = partition
        self.offset = offset


class SubscriptionError(KafkaLakeError):
    """A call that does not fit what the consumer is subscribed to or assigned."""


class NoOffsetForPartitionError(KafkaLakeError):
    """A partition has neither a committed offset nor, with `auto.offset.reset=none`, another to begin at."""


class LogTruncationError(OffsetOutOfRangeError):
    """Records before the position have been truncated from a partition's log, with `auto.offset.reset=none`.

    Attributes: `partition`, its `position`, and `divergent_offset`: the first that is not as it was read, with the leader epoch
    before it, None if the log has nothing of the position's epoch left. The position stays: `seek` to go on.
    """

    def __init__(self, partition: TopicPartition, position: int, divergent_offset: OffsetAndMetadata | None) -> None:
        where = "an unknown offset" if divergent_offset is None else f"offset {divergent_offset.offset}"
        super().__init__(
            f"partition {partition_name(partition)} was truncated at {where}, before the position {position}"
        )
        self.partition, self.position, self.divergent_offset = partition, position, divergent_offset


class CommitFailedError(KafkaLakeError):
    """The group has assigned the partitions to other members meanwhile: the offsets were not committed."""


class ConcurrentWriterError(KafkaLakeError):
    """Another consumer wrote records of the same partition at the same time, again and again. Nothing was written."""
