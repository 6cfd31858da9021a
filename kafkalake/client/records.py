"""What clients return about records and offsets."""

from __future__ import annotations

from typing import NamedTuple

from kafkalake.wire.consumer_protocol import NO_GENERATION

NO_EPOCH = -1
"""On the wire, and where positions are kept, the leader epoch that is not known."""


class RecordMetadata(NamedTuple):
    """The place of a record. `offset` is -1 with acks=0. timestamp_ms: the record's, or the broker's for LogAppendTime."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class BatchMetadata(NamedTuple):
    """The place of consecutive records of an Arrow batch: `records` offsets from `base_offset` on (-1 with acks=0)."""

    topic: str
    partition: int
    base_offset: int
    records: int


class OffsetAndMetadata(NamedTuple):
    """A committed offset: that of the next record to be read. `leader_epoch` is None if it is not known."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


class ConsumerGroupMetadata(NamedTuple):
    """A member of a group, for offsets that are committed in a transaction: those of a member that is gone are refused."""

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None
