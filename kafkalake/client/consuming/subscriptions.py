"""What a consumer reads: its topics, its partitions, and the position in each.

Pure: time comes in as `now_ms`. A position is the offset of the next record that the application gets. Positions appear from
committed offsets, from `auto.offset.reset`, or from `seek`; each that carries a leader epoch is checked against the leader's log
before records are fetched at it, which finds truncations (KIP-320). What was requested for a partition that has been assigned
again or moved since is recognized by `PartitionState.version`, and dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from uuid import UUID

from kafkalake.client.errors import LogTruncationError, NoOffsetForPartitionError, SubscriptionError
from kafkalake.client.records import NO_EPOCH, OffsetAndMetadata
from kafkalake.errors import ConfigurationError
from kafkalake.topic_partition import TopicPartition

EARLIEST, LATEST = -2, -1
"""Timestamps of ListOffsets for the first offset and the end."""


class Step(Enum):
    """The reason why a partition waits, until its records are fetched."""

    COMMITTED = "the committed offset"
    RESET = "an offset by timestamp"
    VALIDATION = "the check of its leader epoch"
    FETCHING = "records"


@dataclass(slots=True)
class PartitionState:
    """One assigned partition.

    position: the offset of the next record, None before one is known. epoch: leader epoch of the record before it, if known.
    fetch_offset: the offset after the records that were fetched, at least `position`. reset_timestamp: for `Step.RESET`.
    version: changes with each assignment and seek. high_watermark, last_stable_offset, log_start_offset: of the newest response,
    -1 before. retry_at_ms: nothing is requested before. read_replica: a follower to fetch from until `read_replica_until_ms`
    (KIP-392).
    """

    version: int
    step: Step = Step.COMMITTED
    position: int | None = None
    epoch: int = NO_EPOCH
    fetch_offset: int = -1
    reset_timestamp: int = LATEST
    paused: bool = False
    revoking: bool = False
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    retry_at_ms: int = 0
    read_replica: int = -1
    read_replica_until_ms: int = 0
    leader_epoch: int = NO_EPOCH
    topic_id: UUID | None = None

    def take_offsets(self, high_watermark: int, last_stable_offset: int, log_start_offset: int) -> None:
        """Take over the offsets of a response."""
        self.high_watermark, self.last_stable_offset = high_watermark, last_stable_offset
        self.log_start_offset = log_start_offset

    def read_from(self, replica: int, until_ms: int) -> None:
        """Fetch from a follower until `until_ms`."""
        self.read_replica, self.read_replica_until_ms = replica, until_ms

    def leave_replica(self) -> None:
        """Fetch from the leader."""
        self.read_replica = -1

    def fetched_up_to(self, offset: int) -> None:
        """Continue to fetch at `offset`."""
        self.fetch_offset = offset

    def advance(self, offset: int, epoch: int) -> None:
        """Move the position behind records that were taken. epoch: their leader epoch."""
        self.position = offset
        self.epoch = epoch if epoch != NO_EPOCH else self.epoch

    def end_offset(self, read_committed: bool) -> int:
        """Return the offset after the last readable record as of the newest response, -1 if none came yet."""
        return self.last_stable_offset if read_committed else self.high_watermark

    def lag(self, read_committed: bool) -> int | None:
        """Return how many offsets are left to read as of the newest response, None before there is one."""
        end = self.end_offset(read_committed)
        return None if end < 0 or self.position is None else max(end - self.position, 0)


@dataclass(slots=True)
class Subscriptions:
    """See the module. Exactly one of `subscribe`, `subscribe_pattern` and `assign` is used until `unsubscribe`.

    reset: timestamp of `auto.offset.reset`, None for "none". Methods with a partition raise `SubscriptionError` if it is not
    assigned.
    """

    reset: int | None = LATEST
    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    is_manual: bool = False
    partitions: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    version: int = 0
    """Changes with the subscription."""
    _versions: count[int] = field(default_factory=lambda: count(1))

    # Topics

    @property
    def is_by_group(self) -> bool:
        """Return whether the group assigns the partitions."""
        return bool(self.topics) or self.pattern is not None

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to topics by name. Raise `SubscriptionError` after `assign` or `subscribe_pattern`."""
        names = frozenset(topics)
        if not all(isinstance(name, str) and name.strip() for name in names):
            raise ValueError("a topic needs a name")
        self._require(not self.is_manual and self.pattern is None)
        if names != self.topics:
            self.topics = names
            self.version += 1

    def subscribe_pattern(self, pattern: str) -> None:
        """Subscribe to the topics that `pattern` matches as a whole. Raise `SubscriptionError` after `assign` or `subscribe`."""
        self._require(not self.is_manual and (self.pattern is not None or not self.topics))
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise ConfigurationError(f"'{pattern}' is no regular expression: {error}") from None
        if self.pattern is None or compiled.pattern != self.pattern.pattern:
            self.pattern, self.topics = compiled, frozenset()
            self.version += 1

    def match(self, existing: Iterable[str]) -> bool:
        """Take the topics that the pattern matches. Return whether they are others than before."""
        assert self.pattern is not None
        found = frozenset(name for name in existing if self.pattern.fullmatch(name))
        changed = found != self.topics
        self.topics = found
        return changed

    def includes(self, topic: str) -> bool:
        """Return whether a topic is subscribed to, by the pattern also if it is not known to exist."""
        return topic in self.topics if self.pattern is None else self.pattern.fullmatch(topic) is not None

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a group. Positions of those that stay are kept."""
        self._require(not self.is_by_group)
        self._replace(partitions)
        self.is_manual = bool(self.partitions)

    def unsubscribe(self) -> None:
        """Forget topics and partitions."""
        self.topics, self.pattern, self.is_manual = frozenset(), None, False
        self.partitions = {}
        self.version += 1

    def _require(self, fits: bool) -> None:
        if not fits:
            raise SubscriptionError("subscription by topics, by a pattern and by partitions exclude each other")

    # What the group assigns

    def assign_by_group(self, partitions: Iterable[TopicPartition]) -> None:
        """Take over the partitions that the group assigns. Positions of those that stay are kept."""
        self._replace(partitions)

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Give up partitions."""
        for partition in partitions:
            self.partitions.pop(partition, None)

    def mark_revoking(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch and return nothing more of partitions that are about to be revoked."""
        for partition in partitions:
            if partition in self.partitions:
                self.partitions[partition].revoking = True

    def _replace(self, partitions: Iterable[TopicPartition]) -> None:
        kept = self.partitions
        self.partitions = {
            each: kept[each] if each in kept else PartitionState(next(self._versions)) for each in partitions
        }

    # Positions

    def state(self, partition: TopicPartition) -> PartitionState:
        """Return the state of an assigned partition."""
        found = self.partitions.get(partition)
        if found is None:
            raise SubscriptionError(f"partition {partition[0]}-{partition[1]} is not assigned to this consumer")
        return found

    def seek(self, partition: TopicPartition, offset: int, epoch: int = NO_EPOCH) -> None:
        """Continue at `offset`. epoch: leader epoch of the record before it, if known."""
        if offset < 0:
            raise ValueError(f"an offset is at least 0, not {offset}")
        self._move(self.state(partition), offset, epoch)

    def seek_to_timestamp(self, partition: TopicPartition, timestamp: int) -> None:
        """Continue at the offset of a timestamp (ms), `EARLIEST` or `LATEST`."""
        state = self.state(partition)
        state.version = next(self._versions)
        state.step, state.position, state.reset_timestamp = Step.RESET, None, timestamp
        state.retry_at_ms = 0

    def forget_position(self, partition: TopicPartition) -> None:
        """Continue as after an assignment: at the committed offset, else where `auto.offset.reset` says."""
        state = self.state(partition)
        state.version = next(self._versions)
        state.step, state.position = Step.COMMITTED, None
        state.retry_at_ms = 0

    def begin_at(self, partition: TopicPartition, version: int, offset: int, epoch: int = NO_EPOCH) -> None:
        """Take an offset that was asked for, unless the partition was moved since."""
        state = self.partitions.get(partition)
        if state is not None and state.version == version:
            self._move(state, offset, epoch)

    def begin_without_offset(self, partition: TopicPartition) -> None:
        """Begin where `auto.offset.reset` says. Raise `NoOffsetForPartitionError` if it is "none"."""
        if self.reset is None:
            raise NoOffsetForPartitionError(
                f"partition {partition[0]}-{partition[1]} has no committed offset, and auto.offset.reset is none"
            )
        self.seek_to_timestamp(partition, self.reset)

    def _move(self, state: PartitionState, offset: int, epoch: int) -> None:
        state.version = next(self._versions)
        state.position, state.fetch_offset, state.epoch = offset, offset, epoch
        state.step = Step.FETCHING if epoch == NO_EPOCH else Step.VALIDATION
        state.retry_at_ms = 0

    def follow_leader(self, partition: TopicPartition, topic_id: UUID | None, leader_epoch: int) -> None:
        """Take over the leader of a partition. Of a new one the position is checked.

        If the topic is another one of the same name, the position begins as without an offset.
        """
        state = self.partitions[partition]
        is_same = topic_id is None or state.topic_id in (None, topic_id)
        state.topic_id = topic_id
        if not is_same:
            state.leader_epoch = leader_epoch
            if state.position is not None:
                self.begin_without_offset(partition)
        elif leader_epoch > state.leader_epoch:
            is_known = state.leader_epoch >= 0
            state.leader_epoch = leader_epoch
            if is_known and state.step in (Step.FETCHING, Step.VALIDATION) and state.epoch != NO_EPOCH:
                state.version = next(self._versions)  # what the leader before answers about its log is dropped
                state.step, state.fetch_offset = Step.VALIDATION, state.position or 0

    def validated(self, partition: TopicPartition, version: int, end: tuple[int, int]) -> LogTruncationError | None:
        """Take the end of the position's epoch in the leader's log: (epoch, offset), -1 if the log has none.

        Return the truncation if that is before the position. The position moves there, or where `auto.offset.reset` says if it is
        unknown; if that is "none", it stays.
        """
        state = self.partitions.get(partition)
        if state is None or state.version != version or state.step is not Step.VALIDATION or state.position is None:
            return None
        epoch, offset = end
        is_known = epoch >= 0 and offset >= 0
        if is_known and offset >= state.position:
            state.step = Step.FETCHING
            return None
        truncation = LogTruncationError(
            partition, state.position, OffsetAndMetadata(offset, epoch) if is_known else None
        )
        if self.reset is not None and is_known:
            self._move(state, offset, epoch)
            state.step = Step.FETCHING
        elif self.reset is not None:
            self.seek_to_timestamp(partition, self.reset)
        return truncation

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`."""
        for state in [self.state(each) for each in partitions]:
            state.paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these partitions again."""
        for state in [self.state(each) for each in partitions]:
            state.paused = False

    def positions(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return (offset, leader epoch) by partition, of those that have a position: what is committed."""
        return {
            each: (state.position, state.epoch) for each, state in self.partitions.items() if state.position is not None
        }

    def waiting(self, step: Step, now_ms: int) -> dict[TopicPartition, PartitionState]:
        """Return the partitions that wait for `step` and may be asked for now."""
        return {
            each: state
            for each, state in self.partitions.items()
            if state.step is step and state.retry_at_ms <= now_ms and not state.revoking
        }

    def delay(self, partitions: Mapping[TopicPartition, object] | Iterable[TopicPartition], until_ms: int) -> None:
        """Request nothing of these partitions before `until_ms`."""
        for partition in partitions:
            if partition in self.partitions:
                self.partitions[partition].retry_at_ms = until_ms
