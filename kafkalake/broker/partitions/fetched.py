"""What a fetch finds: the records of a partition, as they are stored or ready to send, and the response to a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from kafkalake.broker.partitions.fetch_sessions import FetchContext, FetchPartition
from kafkalake.broker.partitions.followed_reads import ReadableReplica
from kafkalake.broker.partitions.wire_cache import EncodedRead
from kafkalake.cluster.replication import EpochEnd
from kafkalake.errors import KafkaError
from kafkalake.record import layout as at
from kafkalake.record.message_set import MessageSet


class Isolation(Enum):
    """The isolation level of a reader, which bounds the readable offsets."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


def readable_end(partition: ReadableReplica, isolation: Isolation) -> int:
    """Return the offset before which the records are visible at `isolation`."""
    return partition.log.last_stable_offset if isolation is Isolation.READ_COMMITTED else partition.log.high_watermark


class CachedRecords(NamedTuple):
    """Batches below `end_offset` in offset order, ready to send: producers' bytes, or those of an earlier read."""

    views: Sequence[memoryview]
    size_bytes: int
    end_offset: int


class StoredRead(NamedTuple):
    """A consumer's read from files: records of `partition` from `offset` on, within `max_bytes` of batches."""

    partition: ReadableReplica
    offset: int
    max_bytes: int
    isolation: Isolation


class StoredRecords(NamedTuple):
    """The result of a `read`: messages below `end_offset`, to be encoded from the batch containing the read's offset.

    `first_whole`: the first batch is returned even if it is larger than the read allows. `generation`:
    `Partition.reads_generation` of the read.
    """

    read: StoredRead
    generation: int
    messages: MessageSet
    end_offset: int
    first_whole: bool

    @property
    def is_compressed(self) -> bool:
        """Return whether batches are compressed, and must be again to be sent."""
        return bool((self.messages.headers[:, at.ATTRIBUTES] & at.ATTRIBUTE_COMPRESSION_MASK).any())

    def keep(self, records: memoryview, next_offset: int, memory_bytes: int, *, ahead: bool = False) -> None:
        """Keep the batches, encoded within the read's limit and up to `next_offset`, for other consumers.

        Not if the log's segments were rewritten meanwhile. ahead: as for `PartitionTail.keep_encoded`.
        """
        (partition, offset, max_bytes, _), messages = self.read, self.messages
        share = (next_offset - offset) / (messages.next_offset - messages.base_offset)
        stored_bytes = int((messages.positions[-1] - messages.positions[0]) * share)
        read = EncodedRead(records, next_offset, self.end_offset, memory_bytes, stored_bytes)
        if partition.reads_generation == self.generation:
            partition.keep_encoded(offset, max_bytes, read, ahead=ahead)


@dataclass(slots=True)
class FetchedPartition:
    """The response for one partition. Offsets are -1 if they are not known: after an `error`, or for a while to a new leader."""

    asked: FetchPartition
    error: KafkaError | None = None
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) of transactions whose records a read_committed consumer skips up to their abort markers."""
    records: CachedRecords | StoredRecords | None = None
    diverging: EpochEnd | None = None
    preferred_read_replica: int | None = None
    """The follower from which the consumer is to read instead."""
    codec: str = ""
    """The topic's `compression.type`."""
    read: StoredRead | None = None
    """The read from files that was made, if there was one."""
    _encoded: tuple[memoryview, int, int] | None = field(default=None, init=False)

    def note_encoded(self, records: memoryview, next_offset: int, memory_bytes: int, *, may_keep: bool) -> None:
        """Take over the encoded records up to `next_offset`, as for `StoredRecords.keep`. `may_keep`: they have its limit."""
        if may_keep:
            self._encoded = records, next_offset, memory_bytes

    def keep_encoded(self) -> None:
        """Keep the encoded records for others."""
        if self._encoded is not None and isinstance(self.records, StoredRecords):
            self.records.keep(*self._encoded)

    def expect_read(self) -> StoredRead | None:
        """Return the read that the consumer is expected to ask for next, None if it is not known to go on. Called once."""
        if self.read is None or self.records is None:
            return None
        if isinstance(self.records, CachedRecords):
            next_offset = self.records.end_offset
        elif self._encoded is not None:
            next_offset = self._encoded[1]
        else:
            return None
        partition, offset, max_bytes, isolation = self.read
        if not partition.goes_on(offset, next_offset, max_bytes):
            return None
        return StoredRead(partition, next_offset, max_bytes, isolation)

    def refuse(self, error: KafkaError) -> None:
        """Return `error` instead of the records."""
        self.error, self.records = error, None

    def leave_out(self) -> None:
        """Return no records: those there are do not fit, or none is asked for."""
        self.records = None


@dataclass(slots=True)
class Fetched:
    """The response to a request: `error` alone, or the partitions."""

    error: KafkaError | None
    context: FetchContext
    partitions: list[FetchedPartition] = field(default_factory=list)

    def sent(self) -> None:
        """Record in the session what the response has, once it is encoded."""
        for each in self.partitions:
            each.keep_encoded()
            if each.error is not None or each.diverging is not None:
                self.context.told_error(each.asked)
            else:
                self.context.told(
                    each.asked, each.high_watermark, each.log_start_offset, had_records=each.records is not None
                )
