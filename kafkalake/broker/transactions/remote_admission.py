"""Admits writes into transactions whose coordinator is another broker: the coordinator is asked, by Kafka's AddPartitionsToTxn.

As in Kafka, the log is the memory of what was admitted: nothing is asked about a partition with an open transaction of this
producer and epoch. A marker that comes while the coordinator is asked makes its answer void (`MarkerWatch`): a batch appended
behind the marker would open a transaction that nothing ends. Source: KIP-890.

One request is under way to each broker (`Lanes`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.coordination.journal import ProducerIdAndEpoch, Timers
from kafkalake.broker.coordination.lanes import Lanes, ask_each
from kafkalake.broker.partitions.topics import Topics
from kafkalake.broker.transactions.requests import PartitionResults
from kafkalake.broker.transactions.transaction_peers import AdmissionRequest, TransactionPeers
from kafkalake.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    KafkaError,
)
from kafkalake.topic_partition import TopicPartition

WRITES_MAX = 1_000
"""The maximum number of writes in one request."""

Reply = Callable[[PartitionResults], None]


class MarkerWatch:
    """The markers that are queued for partitions, and those that were while writes of their producers waited to be admitted."""

    def __init__(self) -> None:
        self._queued: Counter[tuple[TopicPartition, int]] = Counter()
        self._watched: dict[tuple[TopicPartition, int], list[set[TopicPartition]]] = {}

    def begin(self, partitions: Iterable[TopicPartition], producer_id: int) -> set[TopicPartition]:
        """Return a set that gets the partitions for which a marker of the producer is queued, until `end`."""
        marked: set[TopicPartition] = set()
        for partition in partitions:
            self._watched.setdefault((partition, producer_id), []).append(marked)
        return marked

    def end(self, partitions: Iterable[TopicPartition], producer_id: int, marked: set[TopicPartition]) -> None:
        """End the watch that `begin` has returned."""
        for partition in partitions:
            watching = [each for each in self._watched.pop((partition, producer_id), ()) if each is not marked]
            if watching:
                self._watched[partition, producer_id] = watching

    def queued(self, partition: TopicPartition, producer_id: int) -> None:
        """Note that a marker is being queued."""
        key = partition, producer_id
        self._queued[key] += 1
        for marked in self._watched.get(key, ()):
            marked.add(partition)

    def settled(self, partition: TopicPartition, producer_id: int) -> None:
        """Note that a queued marker was appended, or was not."""
        key = partition, producer_id
        self._queued[key] -= 1
        if not self._queued[key]:
            del self._queued[key]

    def is_queued(self, partition: TopicPartition, producer_id: int) -> bool:
        """Return whether a marker of the producer is queued for the partition."""
        return (partition, producer_id) in self._queued


@dataclass(slots=True, eq=False)
class _Waiting:
    """A write without an answer. `marked`: see `MarkerWatch.begin`."""

    request: AdmissionRequest
    reply: Reply
    marked: set[TopicPartition]
    timeout: object = field(default=None, init=False)
    is_answered: bool = field(default=False, init=False)


class RemoteAdmission:
    """The writes that wait for other brokers. Runs on the event loop's thread. `wait_ms`: the longest wait of each."""

    def __init__(
        self, topics: Topics, peers: TransactionPeers, timers: Timers, watch: MarkerWatch, wait_ms: int
    ) -> None:
        self._topics = topics
        self._peers = peers
        self._timers = timers
        self._watch = watch
        self._wait_ms = wait_ms
        self._lanes: Lanes[int, _Waiting] = Lanes(_take, self._ask, timers)

    def accepts(self, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]) -> bool:
        """Return whether the producer's transaction is open in each of the partitions, all led by this broker.

        It is not if its end is queued.
        """
        try:
            return all(self._is_open(producer, partition) for partition in partitions)
        except KafkaError:
            return False

    def _is_open(self, producer: ProducerIdAndEpoch, partition: TopicPartition) -> bool:
        known = self._topics.leader(*partition).log.producer(producer.producer_id)
        is_open = known is not None and known.transaction_offset >= 0 and known.epoch == producer.epoch
        return is_open and not self._watch.is_queued(partition, producer.producer_id)

    def admit(self, broker_id: int, request: AdmissionRequest, reply: Reply) -> None:
        """Ask the coordinator. Reply once: `CoordinatorNotAvailableError` without an answer in time."""
        marked = self._watch.begin(request.partitions, request.producer.producer_id)
        waiting = _Waiting(request, reply, marked)
        waiting.timeout = self._timers.schedule(self._wait_ms, partial(self._answer, waiting, _unavailable(waiting)))
        self._lanes.send(broker_id, waiting)

    def stop(self) -> None:
        """Ask nothing more. Writes that wait get no answer."""
        self._lanes.stop()

    async def _ask(self, broker_id: int, taken: Sequence[_Waiting]) -> bool:
        found = await ask_each(self._peers.admit, broker_id, [each.request for each in taken], "writes to be admitted")
        results = map(_unavailable, taken) if isinstance(found, KafkaError) else found
        for each, result in zip(taken, results, strict=True):
            self._answer(each, result)
        return True

    def _answer(self, waiting: _Waiting, results: PartitionResults) -> None:
        if waiting.is_answered:
            return
        waiting.is_answered = True
        self._timers.cancel(waiting.timeout)
        request = waiting.request
        self._watch.end(request.partitions, request.producer.producer_id, waiting.marked)
        checked = {
            each: ConcurrentTransactionsError if error is None and each in waiting.marked else error
            for each, error in results.items()
        }
        call_isolated(CallbackLoop.TURN_OF_PRODUCER, waiting.reply, checked)


def _unavailable(waiting: _Waiting) -> PartitionResults:
    return dict.fromkeys(waiting.request.partitions, CoordinatorNotAvailableError)


def _take(broker_id: int, waiting: deque[_Waiting]) -> list[_Waiting]:
    taken: list[_Waiting] = []
    while waiting and len(taken) < WRITES_MAX:
        each = waiting.popleft()
        if not each.is_answered:
            taken.append(each)
    return taken
