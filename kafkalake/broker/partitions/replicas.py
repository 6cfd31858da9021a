"""The replicas of this broker: opens, leads, resigns and removes them as a newer version of the cluster's image says.

`follow` is the only way to the next version, for the controller's own broker as for every other. Logs are opened before anything
is changed, on the executor; then the topics, the image and the leaders change in one turn of the event loop. A log whose partition
is not led here stays open and idle, until the image gives the partition back, or takes the replica away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.partitions.log_directory import LogDirectory, log_config
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.topic_rows import topic_of
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.broker.partitions.wire_cache import WireCache
from kafkalake.cluster.image import ClusterImage, PartitionRegistration
from kafkalake.cluster.replication import Leadership, begin_leadership, follow_registration
from kafkalake.config.layers import Settings
from kafkalake.errors import KafkaError, KafkaStorageError, as_value
from kafkalake.metadata.store import TopicTable
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.storage.log import Log
from kafkalake.topic_partition import PartitionId

logger = logging.getLogger(__name__)

ReplicaId = PartitionId[UUID]


class ReplicaObserver(Protocol):
    """Callbacks for partitions that this broker begins or ceases to lead."""

    def partition_added(self, partition: Partition) -> None: ...

    def partition_removed(self, partition: Partition) -> None: ...

    def partition_resigned(self, partition: Partition) -> None:
        """Publish the partition no more: another broker leads it, or none. Its segments stay."""
        ...


class Replicas:
    """The replicas of one broker, see the module."""

    def __init__(
        self,
        *,
        broker_id: int,
        topics: Topics,
        store: TopicTable,
        logs: LogDirectory,
        cache: WireCache,
        settings: Callable[[], Settings],
        observer: ReplicaObserver,
        changed: Callable[[str], None],
        moved: Callable[[Topic, int], None],
        run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]],
        later: Callable[[int, Callable[[], None]], object],
        now_ms: Callable[[], int],
        advance: Callable[[Partition], None],
        leave: Callable[[Partition], None],
    ) -> None:
        """Create the replicas. `settings` returns the broker's current settings.

        `changed` is called with the name of each topic created, deleted or given more partitions.
        `moved` is called with each partition that is led here from now on, in a newer epoch, or no longer.
        `later(delay_ms, action)` runs an action after a delay. `now_ms` is of a clock that never goes back. `advance` is called
        with a partition whose replicas or ISR have changed, `leave` with one that is not led here any more.
        """
        self._broker_id = broker_id
        self._topics = topics
        self._store = store
        self._logs = logs
        self._cache = cache
        self._settings = settings
        self._observer = observer
        self._changed = changed
        self._moved = moved
        self._run_blocking = run_blocking
        self._later = later
        self._now_ms = now_ms
        self._advance = advance
        self._leave = leave
        self._idle: dict[ReplicaId, Log | KafkaError] = {}
        self._lock = asyncio.Lock()
        self._removing: set[asyncio.Future[Any]] = set()

    # At the broker's start

    def take(self, topic_id: UUID, index: int, opened: Log | KafkaError) -> None:
        """Take a log that was opened at the start, or the error of one that could not be."""
        self._idle[topic_id, index] = opened

    @property
    def idle(self) -> Mapping[ReplicaId, Log | KafkaError]:
        """The logs whose partitions are not led here, by topic id and number."""
        return self._idle

    @property
    def version(self) -> int:
        """The version of the image that is followed here."""
        return self._topics.image.version

    def offline(self) -> list[ReplicaId]:
        """Return the replicas whose log could not be opened."""
        led = ((topic.topic_id, each) for topic in self._topics.unordered() for each in topic.replicas.values())
        failed = [key for key, log in self._idle.items() if isinstance(log, KafkaError)]
        return [*failed, *((topic_id, each.index) for topic_id, each in led if each.is_offline)]

    # Versions of the image

    async def follow(self, image: ClusterImage, rows: Sequence[TopicRow] | None = None) -> None:
        """Follow a newer version of the image; nothing if this or a newer one is followed already.

        `rows`: the topics that are new or changed in it, None to read them from the metadata store. Raise `KafkaStorageError` if
        they cannot be read.
        """
        async with self._lock:
            now = self._topics.image
            if image.version <= now.version:
                return
            if rows is None:
                rows = await self._read_rows(image)
            by_id = {UUID(row.topic_id): row for row in rows}
            known = {topic.topic_id: topic for topic in self._topics.unordered()}
            new = {
                topic_id: topic_of(by_id[topic_id], self._settings())
                for topic_id in image.partitions
                if topic_id not in known and topic_id in by_id
            }
            opened = await self._open(image, {**known, **new})
            self._idle.update(opened)
            gone = [topic for topic_id, topic in known.items() if topic_id not in image.partitions]
            for topic in gone:
                self._topics.remove(topic)
            for topic in new.values():
                self._topics.add(topic)
            before = {topic_id: topic.registrations for topic_id, topic in known.items()}
            self._topics.apply(image)
            changed = [topic for topic in self._topics.unordered() if before.get(topic.topic_id) != topic.registrations]
            for topic in changed:
                for index in self._place(topic):
                    call_isolated(CallbackLoop.TOPIC_CHANGE, self._moved, topic, index)
            self._configure_changed(known, by_id)
            for topic in gone:
                self._forget(topic)
            grown = [topic for topic in changed if len(topic.registrations) != len(before.get(topic.topic_id, ()))]
            for topic in (*grown, *gone):
                call_isolated(CallbackLoop.TOPIC_CHANGE, self._changed, topic.name)
            if predecessors := self._logs.take_predecessors():
                self._remove_later(predecessors, self._settings().topic({}).file_delete_delay_ms)

    async def _read_rows(self, image: ClusterImage) -> Sequence[TopicRow]:
        now = self._topics.image
        if image.topics_version == now.topics_version and image.partitions.keys() == now.partitions.keys():
            return ()
        found: Sequence[TopicRow] = await self._run_blocking(self._store.load_topics)
        return found

    async def _open(self, image: ClusterImage, topics: Mapping[UUID, Topic]) -> dict[ReplicaId, Log | KafkaError]:
        """Open the logs of replicas that are new here. One that cannot be opened is an error in the result."""
        opening: list[tuple[ReplicaId, Callable[[], Log]]] = []
        expiration_ms = self._settings().broker.producer_id_expiration_ms
        for topic_id, registrations in image.partitions.items():
            topic = topics.get(topic_id)
            if topic is None or topic.registrations == registrations:
                continue
            config = log_config(topic.config, expiration_ms)
            for index, registered in enumerate(registrations):
                if self._broker_id not in registered.replicas:
                    continue
                if index not in topic.replicas and (topic_id, index) not in self._idle:
                    opening.append(((topic_id, index), partial(self._logs.open, topic.name, index, topic_id, config)))
        if not opening:
            return {}
        found: dict[ReplicaId, Log | KafkaError] = await self._run_blocking(lambda: _opened(opening))
        return found

    def _place(self, topic: Topic) -> list[int]:
        """Lead the partitions of a topic that the image gives to this broker, and resign the others. Return those that moved."""
        moved = []
        for index, registered in enumerate(topic.registrations):
            leads = registered.leader == self._broker_id
            is_here = self._broker_id in registered.replicas
            partition = topic.replicas.get(index)
            if partition is not None and not partition.is_offline and leads:
                if partition.leader_epoch == registered.leader_epoch:
                    self._follow_registration(partition, registered)
                    continue
                partition.lead(self._leadership(topic, partition.log, registered))
                call_isolated(CallbackLoop.FETCHES_OF_PARTITION, self._advance, partition)
            elif partition is not None and not leads and not (partition.is_offline and is_here):
                self._resign(topic, partition)
            elif partition is None and (leads or self._broker_id in registered.offline):
                self._lead(topic, index, registered)
            else:
                continue
            moved.append(index)
        return moved

    def _follow_registration(self, partition: Partition, registered: PartitionRegistration) -> None:
        after = follow_registration(partition.leadership, registered)
        if after is not partition.leadership:
            partition.lead(after)
            call_isolated(CallbackLoop.FETCHES_OF_PARTITION, self._advance, partition)

    def _leadership(self, topic: Topic, log: Log, registered: PartitionRegistration) -> Leadership:
        min_isr = topic.config.min_insync_replicas
        return begin_leadership(registered, self._broker_id, log.log_end_offset, min_isr, self._now_ms())

    def _lead(self, topic: Topic, index: int, registered: PartitionRegistration) -> None:
        """Lead a partition by its log.

        A partition whose log could not be opened is offline: all its requests are refused, and its state in Delta is kept.
        """
        opened = self._idle.pop((topic.topic_id, index), None) or KafkaStorageError("its log is not open")
        is_offline = isinstance(opened, KafkaError)
        log = self._offline(topic, index) if isinstance(opened, KafkaError) else opened
        leadership = self._leadership(topic, log, registered)
        partition = Partition(topic, index, log, self._cache.tail(), leadership, is_offline=is_offline)
        topic.replicas[index] = partition
        if not is_offline:
            call_isolated(CallbackLoop.TOPIC_CHANGE, self._observer.partition_added, partition)

    def _offline(self, topic: Topic, index: int) -> Log:
        logger.error("partition offline until the next start topic=%s partition=%d", topic.name, index)
        config = log_config(topic.config, self._settings().broker.producer_id_expiration_ms)
        return self._logs.offline(topic.name, index, config)

    def _resign(self, topic: Topic, partition: Partition) -> None:
        """Lead a partition no more: what waits at it is refused, its log stays open."""
        del topic.replicas[partition.index]
        partition.resign()
        if not partition.is_offline:
            self._idle[topic.topic_id, partition.index] = partition.log
        call_isolated(CallbackLoop.TOPIC_CHANGE, self._observer.partition_resigned, partition)
        call_isolated(CallbackLoop.FETCHES_OF_PARTITION, self._leave, partition)
        logger.info("partition resigned partition=%s", partition.name)

    # Settings

    def _configure_changed(self, known: Mapping[UUID, Topic], rows: Mapping[UUID, TopicRow]) -> None:
        settings = self._settings()
        for topic_id, topic in known.items():
            if topic_id not in rows or topic.name not in self._topics:
                continue
            overrides = topic_of(rows[topic_id], settings).overrides
            if overrides == topic.overrides:
                continue
            topic.overrides = overrides
            self.apply_settings(topic)

    def apply_settings(self, topic: Topic) -> None:
        """Apply the topic's overrides and the broker's current settings to the topic and its logs."""
        config = self._settings().topic(topic.overrides)
        of_logs = log_config(config, self._settings().broker.producer_id_expiration_ms)
        self._topics.configure(topic, topic.overrides, config, of_logs)
        for index in range(len(topic.registrations)):
            idle = self._idle.get((topic.topic_id, index))
            if isinstance(idle, Log):
                idle.configure(of_logs)

    # Removal

    def _forget(self, topic: Topic) -> None:
        """Stop serving a topic that was deleted, and retire its directories."""
        for partition in topic.replicas.values():
            partition.remove()
            call_isolated(CallbackLoop.TOPIC_CHANGE, self._observer.partition_removed, partition)
            call_isolated(CallbackLoop.FETCHES_OF_PARTITION, self._leave, partition)
        of_topic = [key for key in self._idle if key[0] == topic.topic_id]
        idle = {index: self._idle.pop((topic_id, index)) for topic_id, index in of_topic}
        logs = {index: partition.log for index, partition in topic.replicas.items()}
        logs |= {index: log for index, log in idle.items() if isinstance(log, Log)}
        self._work(self._retire(topic, logs, [*topic.replicas, *idle]))
        logger.info("topic deleted topic=%s topic_id=%s", topic.name, topic.topic_id)

    async def _retire(self, topic: Topic, logs: Mapping[int, Log], indices: Sequence[int]) -> None:
        def discard_and_retire() -> list[Path]:
            """Discard and retire a deleted topic's logs, on the executor. They need neither footer nor state."""
            for log in logs.values():
                log.discard()
            return self._logs.retire(topic.name, topic.topic_id, indices)

        self._remove_later(await self._run_blocking(discard_and_retire), topic.config.file_delete_delay_ms)

    def _remove_later(self, retired: list[Path], delay_ms: int) -> None:
        self._later(delay_ms, lambda: self._work(self._run_blocking(lambda: self._logs.remove(retired))))

    def _work(self, work: Awaitable[Any]) -> None:
        future = asyncio.ensure_future(work)
        self._removing.add(future)
        future.add_done_callback(self._removed)

    def _removed(self, future: asyncio.Future[Any]) -> None:
        self._removing.discard(future)
        if not future.cancelled() and future.exception() is not None:
            logger.error("directories of a deleted topic not removed error=%r", future.exception())

    async def wait(self) -> None:
        """Wait until no image is being followed and nothing is being removed."""
        async with self._lock:
            pass
        while self._removing:
            await asyncio.wait(list(self._removing))

    def open_logs(self) -> Iterable[Log]:
        """Return all open logs, led here or idle."""
        led = [partition.log for partition in self._topics.partitions()]
        return [*led, *(log for log in self._idle.values() if isinstance(log, Log))]


def _opened(opening: Iterable[tuple[ReplicaId, Callable[[], Log]]]) -> dict[ReplicaId, Log | KafkaError]:
    found: dict[ReplicaId, Log | KafkaError] = {}
    for key, work in opening:
        try:
            found[key] = work()
        except KafkaError as error:
            found[key] = as_value(error)
    return found
