"""The ISRs of the partitions that this broker leads: proposed by what followers fetch, and decided by the controller.

A follower's fetch moves the high watermark, and may let it join the ISR. Every half `replica.lag.time.max.ms` those that lag are
proposed to leave. AlterPartition asks the controller, which may be this broker: one request at a time for all partitions, repeated
after a pause while the outcome is unknown. What the controller decided comes by its answer or by a version of the image, by the one
that is first (`cluster.replication`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Protocol

from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.scheduler import Scheduler
from kafkalake.broker.partitions.topics import Topics
from kafkalake.clock import Clock
from kafkalake.cluster.partition_changes import ANY_EPOCH, IsrChange, IsrState
from kafkalake.cluster.replication import (
    Leadership,
    ReplicaFetch,
    is_repeated,
    isr_change,
    joining_replicas,
    note_fetch,
    note_repeated,
    propose_growth,
    propose_shrink,
    settle_proposal,
)
from kafkalake.errors import KafkaError, KafkaLakeError, RequestTimedOutError

logger = logging.getLogger(__name__)

CHANGES_MAX = 5_000
"""The limit on partitions in one request. The others follow."""
PAUSE_MS, PAUSE_MS_MAX = 50, 1_000
"""The pause before a request is repeated. It doubles while the controller does not answer."""


class IsrController(Protocol):
    """The controller, as far as it decides on ISRs."""

    async def alter_partition(
        self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChange]
    ) -> list[IsrState | KafkaError]: ...


class IsrChanges:
    """The changes of the ISRs, see the module. Runs on the event loop's thread."""

    def __init__(
        self,
        broker_id: int,
        topics: Topics,
        *,
        controller: Callable[[], IsrController],
        broker_epoch: Callable[[], int],
        advance: Callable[[Partition], None],
        later: Callable[[int, Callable[[], None]], object],
        clock: Clock,
        lag_ms: Callable[[], int],
    ) -> None:
        """`advance` is called with each partition whose high watermark may move. `later(delay_ms, action)` runs an action later.

        `lag_ms` returns `replica.lag.time.max.ms`.
        """
        self._broker_id = broker_id
        self._topics = topics
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._advance = advance
        self._later = later
        self._now_ms = clock.monotonic_ms
        self._lag_ms = lag_ms
        self._waiting: dict[Partition, None] = {}
        self._request: asyncio.Task[None] | None = None
        self._is_asking = False
        """Whether a request is under way, or one is to be repeated."""
        self._pause_ms = PAUSE_MS

    def begin(self, scheduler: Scheduler, count_repeated: Callable[[], None]) -> None:
        """Look for followers that lag from now on. `count_repeated` notes the fetches of sessions that were not noted yet."""

        def look() -> None:
            count_repeated()
            self.propose_shrinks()

        scheduler.every("isr", lambda: self._lag_ms() // 2 + 1, look)

    def stop(self) -> None:
        """Ask for nothing more."""
        self._waiting.clear()
        if self._request is not None:
            self._request.cancel()

    # Proposals

    def note_fetch(self, partition: Partition, fetch: ReplicaFetch) -> None:
        """Count a fetch of a follower, at an offset up to which its log equals the leader's.

        Raise `UnknownLeaderEpochError`, `NotLeaderOrFollowerError` as `cluster.replication.check_replica`.
        """
        broker = self._topics.image.brokers.get(fetch.broker_id)
        registered = ANY_EPOCH if broker is None else broker.epoch
        log, before = partition.log, partition.leadership
        noted = note_fetch(before, fetch, log.log_end_offset, registered, self._now_ms())
        self._go_by(partition, propose_growth(noted, fetch.broker_id, log.high_watermark, broker))
        if partition.leadership.proposed is not before.proposed:
            self._log_proposal(partition, "Expanding")
            self._ask_soon(partition)
        if partition.can_advance or before.has_older_start(fetch):
            self._advance(partition)

    def note_repeated(self, partition: Partition, broker_id: int, fetched_ms: int) -> None:
        """Count a fetch of then, by a follower whose session has asked for the same as before."""
        follower = partition.leadership.follower(broker_id)
        if follower is not None and fetched_ms - follower.fetched_ms > self._lag_ms() // 10:
            self._go_by(partition, note_repeated(partition.leadership, broker_id, fetched_ms))

    def propose_shrinks(self) -> None:
        """Propose that followers that lag leave their ISRs."""
        for partition in list(self._topics.partitions()):
            before = partition.leadership
            if not before.followers:
                continue
            after = propose_shrink(before, partition.log.log_end_offset, self._now_ms(), self._lag_ms())
            self._go_by(partition, after)
            if after is not before:
                self._log_proposal(partition, "Shrinking")
                self._ask_soon(partition)
            elif partition.can_advance:
                self._advance(partition)

    def _go_by(self, partition: Partition, leadership: Leadership) -> None:
        joining: Sequence[int] = ()
        if len(leadership.isr) < len(leadership.replicas):
            end, brokers = partition.log.log_end_offset, self._topics.image.brokers
            joining = joining_replicas(leadership, end, brokers, self._now_ms(), self._lag_ms())
        partition.lead(leadership, joining)

    # Requests

    def _ask_soon(self, partition: Partition) -> None:
        self._waiting[partition] = None
        if not self._is_asking:
            self._begin_asking()

    def _begin_asking(self) -> None:
        self._is_asking = True
        self._request = asyncio.ensure_future(self._ask_waiting())

    async def _ask_waiting(self) -> None:
        """Ask for the changes that wait, and again later for those whose outcome is unknown."""
        repeated: list[Partition] = []
        try:
            while self._waiting and not repeated:
                chosen = list(islice(self._waiting, CHANGES_MAX))
                for partition in chosen:
                    del self._waiting[partition]
                asked = {each: change for each in chosen if (change := self._change(each)) is not None}
                repeated = await self._ask(asked)
                self._waiting.update(dict.fromkeys(repeated))
        finally:
            self._is_asking = bool(repeated)
        if repeated:
            self._later(self._pause_ms, self._begin_asking)
            self._pause_ms = min(2 * self._pause_ms, PAUSE_MS_MAX)
        else:
            self._pause_ms = PAUSE_MS

    def _change(self, partition: Partition) -> IsrChange | None:
        """Return the request for a partition, None if its proposal is settled, or it is not led here any more."""
        if partition.removed or partition.leadership.proposed is None:
            return None
        return isr_change((partition.topic.topic_id, partition.index), partition.leadership, self._broker_epoch())

    async def _ask(self, changes: dict[Partition, IsrChange]) -> list[Partition]:
        """Ask for changes and return the partitions for which that is to be repeated."""
        if not changes:
            return []
        asked = list(changes.values())
        answers: Sequence[IsrState | KafkaError]
        try:
            answers = await self._controller().alter_partition(self._broker_id, self._broker_epoch(), asked)
        except Exception as error:  # no proposal is to wait for ever
            level = logging.WARNING if isinstance(error, KafkaLakeError) else logging.ERROR
            logger.log(level, "ISRs not changed partitions=%d error=%r", len(asked), error)
            answers = [RequestTimedOutError() for _ in asked]
        settled = zip(changes, asked, answers, strict=True)
        return [partition for partition, change, answer in settled if self._is_repeated(partition, change, answer)]

    def _is_repeated(self, partition: Partition, asked: IsrChange, answer: IsrState | KafkaError) -> bool:
        """Go by an answer of the controller, and return whether the request is to be repeated."""
        before = partition.leadership
        if partition.removed:
            return False
        after = settle_proposal(before, asked, answer)
        if after is not before:
            self._go_by(partition, after)
            self._advance(partition)
        of = partition.name, self._broker_id
        if isinstance(answer, KafkaError):
            logger.info("[Partition %s broker=%d] ISR not changed to %s: %s", *of, _ids(asked.broker_ids), answer.label)
            return is_repeated(after, asked, answer)
        if after is not before:
            logger.info(
                "[Partition %s broker=%d] ISR updated to %s and version updated to %d",
                *of,
                _ids(after.isr),
                after.partition_epoch,
            )
        return False

    def _log_proposal(self, partition: Partition, what: str) -> None:
        """Log a proposal as Kafka does."""
        state, log = partition.leadership, partition.log
        assert state.proposed is not None
        lagging = [
            f"(brokerId: {each.broker_id}, endOffset: {each.log_end}, lastCaughtUpTimeMs: {each.caught_up_ms})"
            for each in state.followers
            if each.broker_id in state.isr and each.broker_id not in state.proposed
        ]
        logger.info(
            "[Partition %s broker=%d] %s ISR from %s to %s. Leader: (highWatermark: %d, endOffset: %d).",
            partition.name,
            self._broker_id,
            what,
            _ids(state.isr),
            _ids(state.proposed),
            log.high_watermark,
            log.log_end_offset,
        )
        if lagging:
            logger.info("[Partition %s broker=%d] Out of sync replicas: %s", partition.name, self._broker_id, lagging)


def _ids(isr: Iterable[int]) -> str:
    return ",".join(map(str, isr))
