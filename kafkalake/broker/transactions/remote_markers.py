"""Has the markers of partitions that other brokers lead written by their leaders, until each is.

Markers go to a broker in lanes (`Lanes`). One without an answer, or with an error that passes, is sent again with increasing
pauses, to the leader that its partition has then. So a marker may be written twice: the second one ends nothing. Those that a
broker has refused have a lane of their own, so that one partition with a broken disk does not hold up the rest.

The number of markers is bounded by those of the transactions that are being ended.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.coordination.journal import Timers
from kafkalake.broker.coordination.lanes import Lanes, Pauses, ask_each
from kafkalake.broker.transactions.decisions import Marker, MarkerResult, error_of
from kafkalake.broker.transactions.transaction_peers import MarkerRequest, TransactionPeers
from kafkalake.cluster.image import NO_LEADER
from kafkalake.errors import (
    InvalidProducerEpochError,
    KafkaError,
    TransactionCoordinatorFencedError,
    UnknownTopicOrPartitionError,
)
from kafkalake.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

NEVER_WRITTEN = (InvalidProducerEpochError, TransactionCoordinatorFencedError)
"""Errors that are not retried, because another coordinator has taken over."""
MARKERS_MAX = 1_000
"""The maximum number of markers in one request."""
PAUSE_MS = 20
PAUSE_MS_MAX = 1_000

Done = Callable[[MarkerResult], None]
WriteHere = Callable[[TopicPartition, Marker, int, Done], bool]
"""Writes a marker if this broker leads the partition, and returns whether it does."""


@dataclass(slots=True, eq=False)
class _Pending:
    """A marker that is not written yet. `done`: of the newest request for it."""

    request: MarkerRequest
    done: Done
    was_refused: bool = False


_Lane = tuple[int, bool]
"""The broker, and whether the markers were refused before. That of this broker has what it cannot write now."""


class _Retries(Pauses[_Lane]):
    """Pauses that grow while there is no answer, and always before markers that were refused."""

    def first_ms(self, lane: _Lane) -> int:
        return PAUSE_MS if lane[1] else 0

    def next_ms(self, lane: _Lane, before_ms: int, is_answered: bool) -> int:
        if is_answered and not lane[1]:
            return 0
        return min(max(2 * before_ms, PAUSE_MS), PAUSE_MS_MAX)


class RemoteMarkers:
    """The markers on their way to other brokers. Runs on the event loop's thread."""

    def __init__(
        self,
        broker_id: int,
        leader_of: Callable[[TopicPartition], int],
        peers: TransactionPeers,
        timers: Timers,
        write_here: WriteHere,
    ) -> None:
        """`leader_of` returns the id of a partition's leader, or raises `UnknownTopicOrPartitionError`.

        `write_here` gets the markers of partitions of which this broker is the leader by now. It may not lead one yet, or no
        longer, since its disk has failed and no other leader is elected: the marker waits.
        """
        self._broker_id = broker_id
        self._leader_of = leader_of
        self._peers = peers
        self._write_here = write_here
        self._pending: dict[int, dict[TopicPartition, _Pending]] = {}
        """Producer id -> its markers."""
        self._lanes: Lanes[_Lane, _Pending] = Lanes(self._take, self._send, timers, _Retries())

    def write(self, partition: TopicPartition, marker: Marker, coordinator_epoch: int, done: Done) -> None:
        """Have a marker written. `done` is called once: with its records, `UnknownTopicOrPartitionError` or one of `NEVER_WRITTEN`.

        It is not called after `abandon`, nor if the same marker is asked for again: then the later `done` is.
        """
        request = MarkerRequest(partition, marker, coordinator_epoch)
        of_producer = self._pending.setdefault(marker.producer_id, {})
        known = of_producer.get(partition)
        if known is not None and known.request == request:
            known.done = done
            return
        of_producer[partition] = pending = _Pending(request, done)
        self._route(pending)

    def abandon(self, producer_id: int) -> list[TopicPartition]:
        """Write no more markers of a producer, whose coordinator is another one now. Return the partitions without an answer."""
        return list(self._pending.pop(producer_id, ()))

    def stop(self) -> None:
        """Send nothing more."""
        self._pending.clear()
        self._lanes.stop()

    def _is_wanted(self, pending: _Pending) -> bool:
        return self._pending.get(pending.request.marker.producer_id, {}).get(pending.request.partition) is pending

    def _settle(self, pending: _Pending, result: MarkerResult) -> None:
        if self._is_wanted(pending):
            producer_id = pending.request.marker.producer_id
            of_producer = self._pending[producer_id]
            del of_producer[pending.request.partition]
            if not of_producer:
                del self._pending[producer_id]
            call_isolated(CallbackLoop.COORDINATED, pending.done, result)

    def _route(self, pending: _Pending) -> None:
        """Queue a marker for the leader that its partition has now."""
        request = pending.request
        leader = self._leader(pending)
        if leader == self._broker_id:
            done = partial(self._settle, pending)
            if not self._write_here(request.partition, request.marker, request.coordinator_epoch, done):
                self._lanes.send((leader, True), pending)
        elif leader is not None:
            self._lanes.send((leader, pending.was_refused), pending)

    def _leader(self, pending: _Pending) -> int | None:
        """Return the id of the leader now, None if the partition is gone: then nothing has to be written."""
        try:
            return self._leader_of(pending.request.partition)
        except UnknownTopicOrPartitionError:
            self._settle(pending, UnknownTopicOrPartitionError)
            return None

    def _take(self, lane: _Lane, waiting: deque[_Pending]) -> list[_Pending]:
        """Return the next markers of a lane. Those whose partition has another leader by now go to that one."""
        batch: list[_Pending] = []
        while waiting and len(batch) < MARKERS_MAX:
            pending = waiting.popleft()
            if not self._is_wanted(pending):
                continue
            if self._leader(pending) == lane[0]:
                batch.append(pending)
            elif self._is_wanted(pending):
                self._route(pending)
        return batch

    async def _send(self, lane: _Lane, batch: Sequence[_Pending]) -> bool:
        """Send markers, settle those with a final answer, queue those that were refused, and return whether there was an answer."""
        broker_id = lane[0]
        if broker_id == NO_LEADER:
            return False
        if broker_id == self._broker_id:
            for pending in batch:
                self._route(pending)
            return True
        requests = [pending.request for pending in batch]
        results = await ask_each(self._peers.write_markers, broker_id, requests, "markers")
        if isinstance(results, KafkaError):
            return False
        for pending, result in zip(batch, results, strict=True):
            refusal = error_of(result)
            if refusal is None or refusal in NEVER_WRITTEN:
                self._settle(pending, result)
            elif self._is_wanted(pending):
                logger.warning(
                    "marker refused, it is sent again broker=%d partition=%s-%d error=%s",
                    broker_id,
                    *pending.request.partition,
                    refusal.label,
                )
                pending.was_refused = True
                self._route(pending)
        return True
