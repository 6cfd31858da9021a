"""The records that wait to be sent, as Kafka's `RecordAccumulator`: batches by partition, within `buffer.memory`.

Threads append, one thread takes batches out; a lock is held for each. No clock, no socket. Memory is taken in steps while a batch
grows, as many small batches would otherwise use it up, and what an encoded batch does not need is given back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from weakref import WeakValueDictionary

from kafkalake.client.arguments import Header
from kafkalake.client.network.metadata import ClusterMetadata
from kafkalake.client.producing.batch import Batch, OnDelivery, RecordFuture
from kafkalake.client.producing.queues import Filled, PartitionQueue, TopicQueues
from kafkalake.client.producing.settings import ProducerSettings
from kafkalake.errors import KafkaLakeError, as_value
from kafkalake.wire.record_batch import batch_from_arrow, decode_fetched, encode_batch

_CHARGE_STEP = 16_384


@dataclass
class Ready:
    """Partitions with batches that may be sent now, by leader. topics_without_leader: their metadata is wanted."""

    by_leader: dict[int, list[PartitionQueue]] = field(default_factory=dict)
    topics_without_leader: set[str] = field(default_factory=set)
    next_check_ms: int | None = None

    def check_at(self, time_ms: int) -> None:
        """Remember when something may become ready."""
        self.next_check_ms = time_ms if self.next_check_ms is None else min(self.next_check_ms, time_ms)


class Accumulator:
    """See the module. check_wait: see `Batch`.

    `woken` is called, with the lock held, when there is something new to send: not for what is behind a full batch, at which the
    sender looks whenever it may send again.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        random: Random,
        woken: Callable[[], None],
        check_wait: Callable[[], object],
        *,
        is_transactional: bool = False,
    ) -> None:
        self._settings = settings
        self._random = random
        self._woken = woken
        self._check_wait = check_wait
        self._is_transactional = is_transactional
        self._mutes = settings.is_ordered and not settings.enable_idempotence
        self._codec = settings.codec
        self._lock = threading.Lock()
        self._topics: dict[str, TopicQueues] = {}
        self._forgotten: WeakValueDictionary[str, TopicQueues] = WeakValueDictionary()
        """Of topics that are forgotten while a caller may still append to them."""
        self._filled: Filled = {}
        self._spread: dict[str, None] = {}
        """Topics whose sticky partitioner has been asked since it got the load of the partitions."""
        self._used = 0
        self._waiters = 0
        self._flushes = 0
        self._incomplete: set[Batch] = set()
        self._refusal: KafkaLakeError | None = None
        self.releases = 0
        """How often memory was given back: a caller without room waits until it changes."""

    # For those who send

    def topic(self, name: str) -> TopicQueues | None:
        """Return the queues of a topic, None before its metadata is known."""
        try:
            return self._topics.get(name)
        except TypeError:  # of an argument that is no text, which its check names later
            return None

    def append(
        self,
        topic: TopicQueues,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Sequence[Header],
        size: int,
        on_delivery: OnDelivery | None,
        now: Callable[[], int],
    ) -> RecordFuture | None:
        """Add a record of at most `size` bytes. Return its future, None if there is no memory.

        partition: -1 lets the sticky partitioner choose. now: the monotonic clock in ms, read for a new batch. Raise the error
        of `close` after it.
        """
        with self._lock:
            self._check_open()
            while True:
                chosen = partition
                if chosen < 0:
                    chosen = topic.sticky.current
                    if chosen < 0 or chosen >= topic.count:
                        chosen = topic.sticky.begin(topic.count, topic.available)
                queue = topic.partitions[chosen]
                batch = queue.open
                if batch is not None:
                    if batch.size + size <= batch.charged:
                        break
                    if batch.size + size > self._settings.batch_size:
                        self._close(queue, batch)
                        continue  # the sticky partition may be another one now
                self._topics.setdefault(topic.name, topic)  # forgotten since the caller has looked
                if partition < 0:
                    self._spread[topic.name] = None
                batch = self._make_room(queue, size, now())
                if batch is None:
                    return None
                break
            return RecordFuture(batch, batch.append(key, value, timestamp_ms, headers, size, on_delivery), timestamp_ms)

    def append_encoded(
        self, topic: TopicQueues, partition: int, data: bytearray | memoryview, records: int, now_ms: int
    ) -> Batch | None:
        """Add a batch of encoded records. Return it, None if there is no memory. partition: as for `append`."""
        with self._lock:
            self._check_open()
            size = len(data)
            if not self._take(size):
                return None
            chosen = partition
            if partition < 0:
                chosen = topic.sticky.begin(topic.count, topic.available)
                self._spread[topic.name] = None
            batch = self._new_batch(topic.name, chosen, now_ms)
            batch.take_encoded(data, records)
            batch.charge(size)
            self._topics.setdefault(topic.name, topic)  # as in `append`
            queue = topic.partitions[chosen]
            is_news = not queue.has_full
            queue.add_encoded(batch)
            topic.count_batch(chosen, size)
            if is_news:
                self._woken()
            return batch

    def add_waiter(self, count: int) -> None:
        """Count a caller that waits for memory (1) or does so no more (-1). While there is one, batches do not linger."""
        with self._lock:
            was_alone = not self._waiters
            self._waiters += count
            if was_alone and not all(queue.has_full for queue in self._filled):
                self._woken()

    def begin_flush(self) -> list[Batch]:
        """Let no batch linger until `end_flush`. Return the batches that are not done."""
        with self._lock:
            self._flushes += 1
            self._woken()
            return list(self._incomplete)

    def end_flush(self) -> None:
        """End what `begin_flush` began."""
        with self._lock:
            self._flushes -= 1

    # For the sender

    def update(self, cluster: ClusterMetadata) -> None:
        """Take over the partitions of the newest metadata. Forget the topics that these have forgotten, once they are empty."""
        with self._lock:
            for name, info in cluster.topics.items():
                queues = self._topics.get(name) or self._forgotten.get(name)
                if queues is None:
                    queues = TopicQueues(name, self._settings.batch_size, self._random, self._filled)
                queues.update(info)
                self._topics[name] = queues
            idle = self._topics.keys() - cluster.topics.keys() - cluster.errors.keys()
            for name in idle - {batch.topic for batch in self._incomplete} if idle else ():
                self._forgotten[name] = self._topics.pop(name)

    def ready(self, cluster: ClusterMetadata, now_ms: int, is_available: Callable[[int], bool]) -> Ready:
        """Return what may be sent. `is_available`: whether a broker should get records without a key (KIP-794)."""
        found = Ready()
        with self._lock:
            for queue in self._filled:
                self._check(queue, cluster, now_ms, found)
            self._update_loads(cluster, now_ms, is_available)
        return found

    def take(self, queues: list[PartitionQueue], may_send: Callable[[Batch], bool], now_ms: int) -> list[Batch]:
        """Return the first batch of each of `queues` that may be sent, encoded, up to `max.request.size` in all.

        The queues that gave a batch are removed from `queues`, or put last if they have more.
        """
        taken: list[Batch] = []
        size = 0
        with self._lock:
            for queue in list(queues):
                if (
                    not queue.batches
                    or self._is_muted(queue)
                    or self._due_ms(queue) > now_ms
                    or not may_send(queue.batches[0])
                ):
                    queues.remove(queue)
                    continue
                if taken and size + queue.batches[0].size > self._settings.max_request_size:
                    break
                batch = queue.pop()
                batch.close()
                self._give_back(batch, batch.held_bytes)
                taken.append(batch)
                size += batch.size
                queues.remove(queue)
                if queue.batches:
                    queues.append(queue)
                queue.begin_flight()
        return taken

    def put_back(self, batch: Batch) -> None:
        """Queue a batch again that was sent in vain."""
        with self._lock:
            self._queue(batch).put_back(batch)

    def split(self, batch: Batch) -> list[Batch]:
        """Replace a batch by two of half of its records each, which are queued in its place. Return them."""
        (whole,) = decode_fetched(bytes(batch.encoded(takes_columns=False)))
        table = whole.to_arrow()
        half = (batch.records + 1) // 2
        parts = []
        with self._lock:
            for piece in (table.slice(0, half), table.slice(half)):
                part = self._new_batch(batch.topic, batch.partition, batch.created_ms)
                encoded = encode_batch(batch_from_arrow(piece, transactional=batch.is_transactional), batch.codec)
                part.take_encoded(bytearray(encoded), piece.num_rows)
                part.charge(0)
                parts.append(part)
        return parts

    def expired(self, now_ms: int) -> list[Batch]:
        """Remove the queued batches whose delivery has taken too long, and return them."""
        found = []
        with self._lock:
            for queue in list(self._filled):
                for batch in list(queue.batches):
                    if not self.is_expired(batch, now_ms):
                        break
                    queue.remove(batch)
                    found.append(batch)
        return found

    def is_expired(self, batch: Batch, now_ms: int) -> bool:
        """Return whether delivering a batch has taken too long."""
        return batch.created_ms + self._settings.delivery_timeout_ms <= now_ms

    def release(self, batch: Batch) -> None:
        """Give back the memory of a batch that has ended."""
        with self._lock:
            self._incomplete.discard(batch)
            self._give_back(batch, 0)
            self.releases += 1

    def end_flight(self, batch: Batch) -> None:
        """Take the news that the request of a batch has ended."""
        with self._lock:
            self._queue(batch).end_flight()

    def remove_all(self, is_unsent: Callable[[Batch], bool] = lambda batch: True) -> list[Batch]:
        """Remove the queued batches for which `is_unsent`, and return them."""
        found = []
        with self._lock:
            for queue in list(self._filled):
                for batch in [each for each in queue.batches if is_unsent(each)]:
                    queue.remove(batch)
                    found.append(batch)
        return found

    def close(self, error: KafkaLakeError) -> list[Batch]:
        """Take no more records: `append` raises `error`. Remove what is queued, and return all batches that have not ended."""
        with self._lock:
            self._refusal = as_value(error)
            for queue in list(self._filled):
                queue.clear()
            return list(self._incomplete)

    @property
    def has_incomplete(self) -> bool:
        """Return whether any batch has not ended."""
        return bool(self._incomplete)

    @property
    def used_bytes(self) -> int:
        """The bytes of `buffer.memory` that are in use."""
        return self._used

    # Parts, with the lock held

    def _check_open(self) -> None:
        if self._refusal is not None:
            raise as_value(self._refusal)

    def _queue(self, batch: Batch) -> PartitionQueue:
        return self._topics[batch.topic].partitions[batch.partition]

    def _new_batch(self, topic: str, partition: int, now_ms: int) -> Batch:
        batch = Batch(topic, partition, now_ms, self._codec, self._check_wait, is_transactional=self._is_transactional)
        self._incomplete.add(batch)
        return batch

    def _close(self, queue: PartitionQueue, batch: Batch) -> None:
        """Encode the open batch, which is full. Batches before it are known to be ready already."""
        is_news = not queue.has_full
        queue.close_open()
        self._give_back(batch, batch.held_bytes)
        if is_news:
            self._woken()

    def _make_room(self, queue: PartitionQueue, size: int, now_ms: int) -> Batch | None:
        """Return a batch with memory for `size` more bytes: the open one, or a new one."""
        batch = queue.open
        if batch is not None:
            wanted = min(max(batch.size + size, batch.charged + _CHARGE_STEP), self._settings.batch_size)
            if not self._take(wanted - batch.charged):
                return None
            batch.charge(wanted)
            return batch
        first = max(size, min(_CHARGE_STEP, self._settings.batch_size))
        if not self._take(first):
            return None
        made = self._new_batch(queue.topic, queue.partition, now_ms)
        made.charge(first)
        queue.begin(made)
        if len(queue.batches) == 1:
            self._woken()
        return made

    def _take(self, size: int) -> bool:
        """Take memory. A record is never refused while nothing else is there."""
        if self._used and self._used + size > self._settings.buffer_memory:
            return False
        self._used += size
        return True

    def _give_back(self, batch: Batch, needed: int) -> None:
        """Keep the memory that a batch needs, mostly less than it had."""
        self._used += needed - batch.charged
        batch.charge(needed)

    def _check(self, queue: PartitionQueue, cluster: ClusterMetadata, now_ms: int, found: Ready) -> None:
        first = queue.batches[0]
        found.check_at(first.created_ms + self._settings.delivery_timeout_ms)
        leader = cluster.leader(queue.topic, queue.partition)
        if leader is None:
            found.topics_without_leader.add(queue.topic)
            return
        if self._is_muted(queue):
            return
        due_ms = self._due_ms(queue)
        if due_ms <= now_ms:
            found.by_leader.setdefault(leader, []).append(queue)
        else:
            found.check_at(due_ms)

    def _is_muted(self, queue: PartitionQueue) -> bool:
        """Return whether nothing of a queue is sent before what is in flight has ended."""
        return queue.in_flight > 0 and (self._mutes or queue.is_moving)

    def _due_ms(self, queue: PartitionQueue) -> int:
        """Return when the first batch of a queue is to be sent: at once if it is full or somebody waits."""
        first = queue.batches[0]
        lingers = not queue.has_full and not self._waiters and not self._flushes
        return max(first.created_ms + self._settings.linger_ms if lingers else 0, first.retry_at_ms)

    def _update_loads(self, cluster: ClusterMetadata, now_ms: int, is_available: Callable[[int], bool]) -> None:
        for name in list(self._spread):
            topic = self._topics.get(name)
            if topic is None:
                del self._spread[name]
            elif topic.load_due_ms <= now_ms:
                del self._spread[name]
                self._update_load(topic, cluster, now_ms, is_available)

    def _update_load(
        self, topic: TopicQueues, cluster: ClusterMetadata, now_ms: int, is_available: Callable[[int], bool]
    ) -> None:
        if not self._settings.partitioner_adaptive_partitioning_enable:
            return
        usable = []
        for partition in topic.available:
            leader = cluster.leader(topic.name, partition)
            if leader is not None and is_available(leader):
                usable.append(partition)
        topic.update_load(usable, now_ms)
