"""A produced batch of which records may be delivered later, on its way into two logs.

First the partition's log gets the records that are readable at once, under the header of the whole batch (`split`). When it has
them, or had them before, the others are handed in to the coordinator of their partition of `__delayed`. The batch has its result
when both are done. A batch that is sent again is a duplicate in the first log, and is handed in again: the coordinator refuses
doubles too. So what fails between the two is repaired by the producer's retry.

The answer has the base offset of the whole batch. So those of the readable records are right with every client, which counts from
it; that of a record that waits is the place that stays empty. It gets another one when it is delivered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol
from uuid import UUID

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.delayed.split import Split, split_batch
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.pending_append import PendingAppend, nobody_waits
from kafkalake.config.topic_rules import DelayRules
from kafkalake.errors import KafkaError, KafkaStorageError
from kafkalake.record.batch import ProducerBatch
from kafkalake.storage.append_group import AppendResult
from kafkalake.topic_partition import PartitionId

Done = Callable[[KafkaError | None], None]


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
    """A batch for a topic with delays. Without records that wait it is as any other."""

    __slots__ = ("_answer", "_gate", "_handed_in", "_is_logged", "_received", "_refusal", "_rules", "_split", "_target")

    def __init__(self, gate: Gate, partition: Partition, rules: DelayRules, received: Received, acks: int) -> None:
        super().__init__(partition, None, None, acks=acks, timeout_ms=received.timeout_ms)
        self._gate = gate
        self._rules = rules
        self._received = received
        self._target: PartitionId[UUID] | None = None
        self._split: Split | None = None
        self._answer: Callable[[], None] = nobody_waits
        self._is_logged = False
        self._handed_in = False
        self._refusal: KafkaError | None = None

    def decoded(self, batch: ProducerBatch, original: bytes | memoryview | None) -> None:
        """Set the batch. Raise `InvalidRecordError`, `InvalidTimestampError` for its headers, `KafkaError` without a target."""
        assert self.partition is not None
        split = split_batch(batch, self._rules, self._received.now_ms)
        if split is None:
            super().decoded(batch, original)
            return
        self._target = self._gate.target_of(self.partition, self._rules, batch)
        self._split = split
        super().decoded(split.immediate, None)

    def when_settled(self, settled: Callable[[], None]) -> None:
        if self._split is None:
            super().when_settled(settled)
        else:
            self._answer = settled
            super().when_settled(self._logged)

    def appended(self, result: AppendResult | KafkaError) -> None:
        super().appended(result)
        split, self._split = self._split, None
        if split is None or isinstance(result, KafkaError):
            return
        assert self.partition is not None and self._target is not None
        hand_in = HandIn(self.partition.replica, self._target, split, result.base_offset, self._received)
        if not call_isolated(CallbackLoop.COORDINATED, self._gate.hand_in, hand_in, self._done):
            self._done(KafkaStorageError("records that wait were not handed in"))

    def _logged(self) -> None:
        self._is_logged = True
        self._settle()

    def _done(self, error: KafkaError | None) -> None:
        self._handed_in, self._refusal = True, error
        self._settle()

    def _settle(self) -> None:
        """Answer once the result is final: an error of the log, or both parts are done."""
        if not self._is_logged or self._answer is nobody_waits:
            return
        result = self.result
        if isinstance(result, AppendResult):
            if not self._handed_in:
                return
            if self._refusal is not None:
                self.refuse(self._refusal)
        answer, self._answer = self._answer, nobody_waits
        answer()

    def break_cycle(self) -> None:
        super().break_cycle()
        self._answer, self._split = nobody_waits, None
