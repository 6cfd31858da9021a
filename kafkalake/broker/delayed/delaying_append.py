"""A produced batch of which records may be delivered later, on its way into two logs.

First the partition's log gets the records that are readable at once, under the header of the whole batch (`split`). When it has
them for good, below the high watermark, or had them before, the others are handed in to the coordinator of their partition of
`__delayed`. The batch has its result when both are done. A batch that is sent again is a duplicate in the first log, and is handed
in again: the coordinator refuses doubles too. So what fails between the two is repaired by the producer's retry.

The topic's settings may change in between. So the log remembers whether it has split a batch, on every replica (the header's flag
SPLIT), and what is sent again is split as it was at first. A leader that does not know the batch knows that nothing of it waits.

The answer has the base offset of the whole batch. So those of the readable records are right with every client, which counts from
it; that of a record that waits is the place that stays empty. It gets another one when it is delivered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol
from uuid import UUID

from kafkalake.broker.callbacks import CallbackLoop, Done, call_isolated
from kafkalake.broker.delayed.split import Split, split_batch
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.pending_append import ACKS_ALL, PendingAppend, nobody_waits
from kafkalake.config.topic_rules import DelayRules
from kafkalake.errors import KafkaError, KafkaStorageError
from kafkalake.record.batch import ProducerBatch
from kafkalake.storage.append_group import AppendResult
from kafkalake.storage.producer_state import SequencedBatch
from kafkalake.topic_partition import PartitionId

_NO_LIMIT_MS = 1 << 62
_BY_HEADERS = DelayRules(_NO_LIMIT_MS)


class Received(NamedTuple):
    """A batch's transactional id, when it came (ms since 1970), and how long its producer waits for the answer."""

    transactional_id: str | None
    now_ms: int
    timeout_ms: int


class HandIn(NamedTuple):
    """The records of a batch that wait, which is in the log of `source` at `base_offset`."""

    source: PartitionId[UUID]
    target: PartitionId[UUID]
    split: Split
    base_offset: int
    received: Received


class Gate(Protocol):
    """The way of records that wait to their coordinators."""

    def target_of(self, partition: Partition, rules: DelayRules, batch: ProducerBatch) -> PartitionId[UUID]:
        """Return where the records of a partition are delivered. Raise `KafkaError` if there is no such partition, or it takes
        no such batch."""
        ...

    def hand_in(self, hand_in: HandIn, done: Done) -> None:
        """Hand records in. Call `done` once, with None when they are durable, at the latest after the timeout."""
        ...


class DelayingAppend(PendingAppend):
    """A batch for a topic with delays. Without records that wait it is as any other, else as one with acks=all.

    rules: None if no new record of the topic is to wait: only those of batches that are sent again.
    """

    __slots__ = ("_answer", "_gate", "_received", "_rules", "_split", "_target")

    def __init__(
        self, gate: Gate, partition: Partition, rules: DelayRules | None, received: Received, acks: int
    ) -> None:
        super().__init__(partition, None, None, acks=acks, timeout_ms=received.timeout_ms)
        self._gate = gate
        self._rules = rules
        self._received = received
        self._target: PartitionId[UUID] | None = None
        self._split: Split | None = None
        self._answer: Callable[[], None] = nobody_waits

    def decoded(self, batch: ProducerBatch, original: bytes | memoryview | None) -> None:
        """Set the batch. Raise `InvalidRecordError`, `InvalidTimestampError` for its headers, `KafkaError` without a target."""
        assert self.partition is not None
        rules = _rules_for(self._rules, self.partition.log.find_repeated(batch))
        split = None if rules is None else split_batch(batch, rules, self._received.now_ms)
        if rules is None or split is None:
            super().decoded(batch, original)
            return
        self._target = self._gate.target_of(self.partition, rules, batch)
        self._split = split
        self.acks = ACKS_ALL
        super().decoded(split.immediate, None)

    def when_settled(self, settled: Callable[[], None]) -> None:
        if self._split is None:
            super().when_settled(settled)
        else:
            self._answer = settled
            super().when_settled(self._logged)

    def _logged(self) -> None:
        """Hand in what waits, once the log has the rest for good."""
        split, self._split = self._split, None
        result = self.result
        if split is None or not isinstance(result, AppendResult):
            self._settle(None)
            return
        assert self.partition is not None and self._target is not None
        hand_in = HandIn(self.partition.replica, self._target, split, result.base_offset, self._received)
        if not call_isolated(CallbackLoop.COORDINATED, self._gate.hand_in, hand_in, self._settle):
            self._settle(KafkaStorageError("records that wait were not handed in"))

    def _settle(self, error: KafkaError | None) -> None:
        if error is not None:
            self.refuse(error)
        answer, self._answer = self._answer, nobody_waits
        answer()


def _rules_for(rules: DelayRules | None, repeated: SequencedBatch | None) -> DelayRules | None:
    """Return the rules by which a batch is split, None if it is not: as at first if it is sent again, whatever they are now."""
    if repeated is None:
        return rules
    return (rules or _BY_HEADERS)._replace(max_ms=_NO_LIMIT_MS) if repeated.is_split else None


def begin_append(
    gate: Gate, partition: Partition, rules: DelayRules | None, received: Received, acks: int
) -> PendingAppend:
    """Return the append of a batch that is to be decoded. rules: of its topic, None if its records are never delayed."""
    if not may_wait(partition, rules):
        return PendingAppend(partition, None, None, acks=acks, timeout_ms=received.timeout_ms)
    return DelayingAppend(gate, partition, rules, received, acks)


def may_wait(partition: Partition, rules: DelayRules | None) -> bool:
    """Return whether records of a batch for a partition may wait: by the rules now, or as they did when it was sent first."""
    return rules is not None or partition.log.has_split_batches
