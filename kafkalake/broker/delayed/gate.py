"""The way of records that wait: from the leader of their partition to the coordinator of their partition of `__delayed`.

The coordinator is the leader of that partition, this broker or another one, and the journal's topic is created when it is first
needed. The partition is added to a producer's transaction at its leader, as that of a group is by TxnOffsetCommit: so a batch that
comes late, behind the marker of its transaction, is refused there.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Protocol
from uuid import UUID

from kafkalake.broker.callbacks import CallbackLoop, Done, call_isolated
from kafkalake.broker.coordination.journal import ProducerIdAndEpoch, Timers
from kafkalake.broker.delayed.delayed_peers import DelayedPeers, HandInRequest
from kafkalake.broker.delayed.delaying_append import HandIn
from kafkalake.broker.delayed.fault_points import DelayedPoint
from kafkalake.broker.delayed.sent_batches import SentBatches
from kafkalake.broker.partitions.batch_checks import check_keys
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.topics import Topics
from kafkalake.broker.transactions.admission import Admission
from kafkalake.broker.transactions.requests import PartitionResults
from kafkalake.cluster.image import NO_LEADER
from kafkalake.config.topic_rules import DelayRules, TopicRules
from kafkalake.delayed_journal import Origin, encode
from kafkalake.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    KafkaError,
    LeaderNotAvailableError,
    NetworkExceptionError,
    NotCoordinatorError,
    NotEnoughReplicasAfterAppendError,
    NotLeaderOrFollowerError,
    ProducerFencedError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
    as_value,
    with_retriable,
)
from kafkalake.internal_topics import DELAYED_JOURNAL
from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.topic_partition import PartitionId

logger = logging.getLogger(__name__)

_PASSING = (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    LeaderNotAvailableError,
    NetworkExceptionError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    UnknownTopicOrPartitionError,
)
"""Errors of a coordinator that producers would take for those of the partition that they sent to."""


class Coordinator(Protocol):
    """The part of a `DelayedService` that takes records that wait."""

    async def make_ready(self) -> None:
        """Create the journal's topic if it does not exist. Raise `CoordinatorNotAvailableError` if that fails."""
        ...

    def journal_partition(self, target: PartitionId[UUID]) -> int:
        """Return the partition of the journal for the records of a partition."""
        ...

    def hand_in(self, index: int, batch: ProducerBatch, done: Done) -> None:
        """Append a batch to a partition of the journal, unless it is there. Call `done` once, when it is durable or refused."""
        ...


class DelayGate:
    """The `Gate` of a broker. Runs on the event loop's thread."""

    def __init__(
        self,
        broker_id: int,
        topics: Topics,
        coordinator: Coordinator,
        admission: Admission,
        peers: DelayedPeers,
        timers: Timers,
        reach: Callable[[Enum], None] = lambda point: None,
    ) -> None:
        """`reach` is called at `DelayedPoint.BATCH_APPENDED`."""
        self._broker_id = broker_id
        self._topics = topics
        self._coordinator = coordinator
        self._admission = admission
        self._timers = timers
        self._reach = reach
        self._sent = SentBatches(peers.hand_in, timers)
        self._early: deque[Done] = deque()
        """What waits for the journal's topic."""
        self._creation: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Hand nothing more in."""
        self._sent.stop()
        if self._creation is not None:
            self._creation.cancel()

    def target_of(self, partition: Partition, rules: DelayRules, batch: ProducerBatch) -> PartitionId[UUID]:
        if rules.target is None:
            return partition.replica
        target = self._topics.find(rules.target)
        if target is None:
            raise with_retriable(
                UnknownTopicOrPartitionError(f"there is no topic {rules.target}, to which {partition.name} delivers"),
                False,
            )
        if partition.index >= len(target.registrations):
            raise LeaderNotAvailableError(f"{rules.target} does not have partition {partition.index} yet")
        check_keys(TopicRules.of(target.config), batch)
        return target.topic_id, partition.index

    def hand_in(self, hand_in: HandIn, done: Done) -> None:
        self._reach(DelayedPoint.BATCH_APPENDED)
        header, received = hand_in.split.immediate.header, hand_in.received
        origin = Origin(
            hand_in.target,
            hand_in.source,
            int(header[at.PRODUCER_ID]),
            int(header[at.PRODUCER_EPOCH]),
            int(header[at.BASE_SEQUENCE]),
            hand_in.base_offset,
            bool(header[at.ATTRIBUTES] & at.ATTRIBUTE_TRANSACTIONAL),
        )
        split = hand_in.split
        batch = encode(split.rows, split.due, origin, split.delay_ids, received.now_ms)
        transactional_id = received.transactional_id if origin.is_transactional else None
        answer = self._in_time(done, received.timeout_ms)

        def send(error: KafkaError | None) -> None:
            if error is not None:
                answer(error)
            else:
                self._send(self._coordinator.journal_partition(hand_in.target), batch, transactional_id, answer)

        if self._early or self._topics.find(DELAYED_JOURNAL) is None:
            self._early.append(send)
            self._create()
        else:
            send(None)

    def _in_time(self, done: Done, timeout_ms: int) -> Done:
        """Return a callback that calls `done` once with the error for the producer, at the latest after the timeout."""
        is_done = False

        def answer(error: KafkaError | None) -> None:
            nonlocal is_done
            if not is_done:
                is_done = True
                self._timers.cancel(timeout)
                done(None if error is None else _for_producers(error))

        late = RequestTimedOutError("the records that wait were not acknowledged in time")
        timeout = self._timers.schedule(timeout_ms, partial(answer, late))
        return answer

    def _create(self) -> None:
        if self._creation is None or self._creation.done():
            self._creation = asyncio.ensure_future(self._make_ready())

    async def _make_ready(self) -> None:
        error: KafkaError | None = None
        try:
            await self._coordinator.make_ready()
        except KafkaError as failed:
            error = as_value(failed)
        except Exception:
            logger.exception("%s not created", DELAYED_JOURNAL)
            error = CoordinatorNotAvailableError()
        while self._early:
            call_isolated(CallbackLoop.COORDINATED, self._early.popleft(), error)

    def _send(self, index: int, batch: ProducerBatch, transactional_id: str | None, done: Done) -> None:
        try:
            leader = self._topics.leader_id((DELAYED_JOURNAL, index))
        except UnknownTopicOrPartitionError as error:
            done(as_value(error))
            return
        if leader == self._broker_id:
            self.accept(index, batch, transactional_id, done)
        elif leader == NO_LEADER:
            done(LeaderNotAvailableError())
        else:
            self._sent.send(leader, HandInRequest(index, batch, transactional_id), len(batch.body), done)

    def accept(self, index: int, batch: ProducerBatch, transactional_id: str | None, done: Done) -> None:
        """Take records for a partition of the journal that this broker leads, also from another broker."""
        if transactional_id is None:
            self._coordinator.hand_in(index, batch, done)
            return
        key = DELAYED_JOURNAL, index
        producer = ProducerIdAndEpoch(int(batch.header[at.PRODUCER_ID]), int(batch.header[at.PRODUCER_EPOCH]))

        def admitted(results: PartitionResults) -> None:
            refusal = results[key]
            if refusal is not None:
                done(refusal())
            else:
                self._coordinator.hand_in(index, batch, done)

        self._admission.admit(transactional_id, producer, (key,), admitted, add=True)


def _for_producers(error: KafkaError) -> KafkaError:
    """Return the error for a producer whose batch is in its partition's log, and whose records that wait are not durable."""
    if isinstance(error, ProducerFencedError):
        return InvalidProducerEpochError(str(error))
    if isinstance(error, _PASSING):
        return NotEnoughReplicasAfterAppendError(f"the records that wait are not durable yet: {error}")
    return error
