"""A follower's fetch and its answer, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kafkalake.broker.partitions.fetch_sessions import FINAL_EPOCH
from kafkalake.broker.partitions.leader_replicas import ReplicaId
from kafkalake.cluster.replication import EpochEnd
from kafkalake.errors import KafkaError
from kafkalake.storage.replica_read import ReplicaRead

UNKNOWN = -1


class FollowedPartition(NamedTuple):
    """A partition that a follower asks for: in the leader epoch, and with the records, log start and watermark that it knows."""

    topic_id: UUID
    number: int
    offset: int
    bytes_max: int
    leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int
    high_watermark: int

    def is_behind(self, high_watermark: int) -> bool:
        """Return whether the follower has records below the leader's high watermark of which it does not know that."""
        return self.high_watermark < min(high_watermark, self.offset)


@dataclass(frozen=True, slots=True)
class FollowerFetch:
    """A follower's request. broker_epoch: of the incarnation that asks, or `ANY_EPOCH`.

    session_id, session_epoch: as `fetch_session`. forgotten: the partitions that the session is to be without.
    """

    broker_id: int
    broker_epoch: int
    partitions: Sequence[FollowedPartition]
    bytes_min: int
    bytes_max: int
    wait_ms: int
    session_id: int = 0
    session_epoch: int = FINAL_EPOCH
    forgotten: Sequence[ReplicaId] = ()


@dataclass(slots=True)
class FollowedAnswer:
    """The answer for one partition. Offsets are -1 if `error` leaves them unknown.

    read: None with an error or `diverging`. segment_base_offset: where its messages, or the next ones, lie; if the offset is out of
    range, the first offset that a follower can copy.
    """

    asked: FollowedPartition
    error: KafkaError | None = None
    high_watermark: int = UNKNOWN
    last_stable_offset: int = UNKNOWN
    log_start_offset: int = UNKNOWN
    segment_base_offset: int = UNKNOWN
    read: ReplicaRead | None = None
    diverging: EpochEnd | None = None

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offsets that it tells, by which it differs from the last one."""
        return self.high_watermark, self.log_start_offset, self.segment_base_offset

    @property
    def has_content(self) -> bool:
        """Return whether it tells more than offsets."""
        if self.error is not None or self.diverging is not None:
            return True
        return self.read is not None and (len(self.read.messages) > 0 or self.read.whole is not None)

    @property
    def bytes(self) -> int:
        """The bytes of its messages."""
        return 0 if self.read is None else len(self.read.messages)

    @property
    def is_urgent(self) -> bool:
        """Return whether it is answered at once, whatever the request waits for."""
        if self.error is not None or self.diverging is not None:
            return True
        return self.read is not None and self.read.whole is not None

    @property
    def is_behind(self) -> bool:
        """Return whether the follower has records below the high watermark of which it does not know that."""
        return self.error is None and self.asked.is_behind(self.high_watermark)
