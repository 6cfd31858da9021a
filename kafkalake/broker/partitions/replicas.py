"""The replicas of this broker: opens, leads, follows, resigns and removes them as a newer version of the cluster's image says.

`follow` is the only way to the next version, for the controller's own broker as for every other. First logs are opened, replicas
that get another leader are fetched no more, and those that are to lead begin their epoch, all on the executor. Then the topics,
the image and the leaders change, a partition at a time on the event loop. A log whose partition has no leader stays open and idle.

A replica whose log fails goes offline, which the next heartbeat says. Where there are other replicas its log is opened again from
time to time, and what is missing in it is copied.

More than 400 lines: all of it is the steps from one version to the next, which only together keep each log with one user.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Protocol, TypeVar
from uuid import UUID

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.partitions.fetchers import Fetchers
from kafkalake.broker.partitions.followed_reads import FollowedReads
from kafkalake.broker.partitions.followers import Follower
from kafkalake.broker.partitions.idle_logs import IdleLogs, LogWork
from kafkalake.broker.partitions.leader_replicas import LeaderReplicas
from kafkalake.broker.partitions.leader_replicas import ReplicaId as ReplicaId
from kafkalake.broker.partitions.log_directory import LogDirectory, log_config
from kafkalake.broker.partitions.missing_generations import MissingGenerations
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.replica_changes import ReplicaChange, changed_partitions
from kafkalake.broker.partitions.replication_throttle import ReplicationThrottle
from kafkalake.broker.partitions.retired_logs import RetiredLogs
from kafkalake.broker.partitions.topic_rows import topic_of
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.broker.partitions.wire_cache import WireCache
from kafkalake.clock import Clock
from kafkalake.cluster.image import NO_LEADER, ClusterImage, PartitionRegistration
from kafkalake.cluster.replication import begin_leadership, follow_registration
from kafkalake.config.layers import Settings
from kafkalake.errors import KafkaError, KafkaStorageError, as_value
from kafkalake.metadata.store import TopicTable
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.run_blocking import RunBlocking, iterate_in_turns
from kafkalake.storage.log import Log

logger = logging.getLogger(__name__)

T = TypeVar("T")

_RESTED_TOGETHER = 1_000
"""Replicas that cease to follow at one time."""


class ReplicaObserver(Protocol):
    """Callbacks for partitions that this broker begins or ceases to lead."""

    def partition_added(self, partition: Partition) -> None: ...

    def partition_removed(self, partition: Partition) -> None: ...

    def partition_resigned(self, partition: Partition) -> None:
        """Publish the partition no more: another broker leads it, or none. Its segments stay."""
        ...

    def partition_swapped(self, partition: Partition) -> None:
        """Note that the log has segments that a job has rewritten, copied from another replica."""
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
        clock: Clock,
        settings: Callable[[], Settings],
        leaders: LeaderReplicas,
        reads: FollowedReads,
        throttle: ReplicationThrottle,
        observer: ReplicaObserver,
        changed: Callable[[Sequence[str]], None],
        moved: Callable[[Topic, int], None],
        run_blocking: RunBlocking,
        later: Callable[[int, Callable[[], None]], object],
        advance: Callable[[Partition], None],
        leave: Callable[[Partition], None],
    ) -> None:
        """Create the replicas. `settings` returns the broker's current settings. `leaders`: on other brokers. `reads`:
        of consumers from replicas that follow. `throttle`: of what these fetch.

        `changed` is called with the names of the topics created, deleted or given more partitions by a version.
        `moved` is called with each partition that is led here from now on, in a newer epoch, or no longer.
        `later(delay_ms, action)` runs an action after a delay. `advance` is called with a partition whose replicas or ISR have
        changed, `leave` with one that is not led here any more.
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
        self._now_ms = clock.monotonic_ms
        self._now_ns = clock.monotonic_ns
        self._advance = advance
        self._leave = leave
        self._idle = IdleLogs(run_blocking)
        self._retired = RetiredLogs(logs, run_blocking, later)
        self._fetchers = Fetchers(
            leaders,
            clock,
            lambda: settings().broker,
            run_blocking,
            later,
            reads,
            throttle,
            self._log_failed,
            self._may_lead,
        )
        self.missing = MissingGenerations(self._fetchers.copies, clock.monotonic_ms, later, observer.partition_swapped)
        """The segments that jobs have rewritten and leaders here lack."""
        self._lock = asyncio.Lock()
        self._failed_in: dict[ReplicaId, int] = {}
        """By replica whose log has failed while it led, the leader epoch."""

    def _in_turns(self, items: Iterable[T]) -> AsyncIterator[T]:
        return iterate_in_turns(items, self._now_ns)

    # At the broker's start

    def take(self, topic_id: UUID, index: int, opened: Log | KafkaError) -> None:
        """Take a log that was opened at the start, or the error of one that could not be."""
        self._idle.keep((topic_id, index), opened)

    @property
    def idle(self) -> Mapping[ReplicaId, Log | KafkaError]:
        """The logs that neither lead nor follow, and the errors of those that failed, by topic id and number."""
        return self._idle.all

    @property
    def version(self) -> int:
        """The version of the image that is followed here."""
        return self._topics.image.version

    def offline(self) -> Iterable[ReplicaId]:
        """Return the replicas whose log could not be opened, or has failed."""
        return self._idle.failed

    def cut(self) -> Iterable[ReplicaId]:
        """Return those of `offline` that have lost records for which they may be counted."""
        return list(self._idle.cut)

    async def forget_cuts(self) -> None:
        """Note in the logs that have lost records that the controller knows, as this broker has registered with that."""
        for log in [each for each in self.open_logs() if each.was_cut]:
            try:
                await self._run_blocking(log.forget_cut)
            except KafkaStorageError as error:  # it is told again at the next start
                logger.warning("not noted that lost records are known directory=%s error=%s", log.directory, error)

    @property
    def fetchers(self) -> Fetchers:
        """The replicas that follow a leader."""
        return self._fetchers

    def following_by_time(self) -> Iterator[Follower]:
        """Yield the followers of topics with `flush.ms`."""
        for topic in self._topics.with_flush_ms():
            for index in range(len(topic.registrations)):
                if (follower := self._fetchers.find((topic.topic_id, index))) is not None:
                    yield follower

    def _may_lead(self, replica: ReplicaId) -> bool:
        """Return whether this replica may be elected without losing records that were acknowledged."""
        registered = self._topics.image.partition(replica)
        if registered is None:
            return False
        return self._broker_id in (*registered.isr, *registered.elr, *registered.last_known_elr)

    def _log_failed(self, follower: Follower, error: KafkaError) -> None:
        """Take a follower offline whose log has failed."""
        logger.error("replica offline partition=%s error=%s", follower.name, error)
        follower.log.discard()
        self._idle.keep(follower.replica, error, was_cut=follower.log.was_cut)

    # Versions of the image

    async def follow(self, image: ClusterImage, rows: Sequence[TopicRow] | None = None) -> None:
        """Follow a newer version of the image; nothing if this or a newer one is followed already.

        `rows`: the topics that are new or changed since the version before, None to read them from the metadata store.
        Raise `KafkaStorageError` if they cannot be read.
        """
        following = asyncio.ensure_future(self._follow_version(image, rows))
        await asyncio.shield(following)  # a caller that waits no longer leaves no version half applied

    async def _follow_version(self, image: ClusterImage, rows: Sequence[TopicRow] | None) -> None:
        async with self._lock:
            if image.version <= self._topics.image.version:
                return
            if rows is None or image.version > self._topics.image.version + 1:  # one between could not be followed
                rows = await self._read_rows(image)
            by_id = {UUID(row.topic_id): row for row in rows}
            known = {topic.topic_id: topic for topic in self._topics.unordered()}
            new = {
                topic_id: topic_of(by_id[topic_id], self._settings())
                async for topic_id in self._in_turns(image.partitions)
                if topic_id not in known and topic_id in by_id
            }
            partitions = {topic_id: len(topic.registrations) for topic_id, topic in known.items()}
            changes = [each async for each in self._in_turns(changed_partitions(image, {**known, **new}))]
            gone = [topic for topic_id, topic in known.items() if topic_id not in image.partitions]
            others = await self._make_way({topic.name for topic in new.values()}, gone)
            resigned = await self._prepare(changes, others)
            self._topics.apply(image, new.values(), gone)
            await self._place_all(changes, resigned)
            await self._configure_changed(known, by_id)
            async for topic in self._in_turns(others):
                await self._forget(topic)
            grown = [
                topic
                for topic in dict.fromkeys(each.topic for each in changes)
                if len(topic.registrations) != partitions.get(topic.topic_id, 0)
            ]
            if names := [topic.name for topic in (*grown, *gone)]:
                call_isolated(CallbackLoop.TOPIC_CHANGE, self._changed, names)
            if predecessors := self._logs.take_predecessors():
                self._retired.remove_later(predecessors, self._settings().topic({}).file_delete_delay_ms)

    async def _read_rows(self, image: ClusterImage) -> Sequence[TopicRow]:
        now = self._topics.image
        if image.topics_version == now.topics_version and image.partitions.keys() == now.partitions.keys():
            return ()
        found: Sequence[TopicRow] = await self._run_blocking(self._store.load_topics)
        return found

    # Before anything is changed

    async def _make_way(self, names: Set[str], gone: Iterable[Topic]) -> list[Topic]:
        """Have the directories of deleted topics with the names of new ones away before those are opened.

        A broker that comes late follows both changes in one version. Those of `gone` are forgotten by that; return the others.
        """
        replaced = [topic for topic in gone if topic.name in names]
        await self._let_rest([replica for topic in replaced for replica in _replicas_of(topic)])
        for topic in replaced:
            await self._forget(topic)
        await self._retired.wait_for(names)
        return [topic for topic in gone if topic.name not in names]

    async def _prepare(self, changes: Sequence[ReplicaChange], gone: Sequence[Topic]) -> Set[ReplicaId]:
        """Open the logs of new replicas, stop those that follow another leader from now on, and begin the epochs to lead in.

        Return those that have resigned.
        """
        here = self._broker_id
        await self._open([each async for each in self._in_turns(changes) if self._is_new(each)])
        stopping = [
            each.replica
            async for each in self._in_turns(changes)
            if not each.is_followed(self._fetchers.find(each.replica), here)
        ]
        stopping += [replica for topic in gone for replica in _replicas_of(topic)]
        await self.missing.stop([each.replica async for each in self._in_turns(changes) if not each.is_led_on(here)])
        rested = await self._let_rest(stopping)
        await self._hold_cut([each for each in changes if each.replica in rested])  # their last work may have failed
        resigned = await self._resign_all(changes)
        await self._take_over(changes)
        return resigned

    async def _resign_all(self, changes: Sequence[ReplicaChange]) -> Set[ReplicaId]:
        """Lead the partitions no more whose leadership ends, and wait until nothing changes their logs: the next leader counts what
        is copied. Return them."""
        resigned = []
        async for each in self._in_turns(changes):
            if each.ends_leadership(self._broker_id):
                resigned.append((each.replica, each.topic.replicas[each.number]))
                self._resign(each.topic, each.topic.replicas[each.number])
        work = [each for _, partition in resigned for each in partition.under_way]
        await asyncio.gather(*work, return_exceptions=True)
        return {replica for replica, _ in resigned}

    async def _let_rest(self, replicas: Sequence[ReplicaId]) -> Set[ReplicaId]:
        """Change nothing more in the logs of these replicas, and return those that have followed a leader."""
        rested = set()
        for first in range(0, len(replicas), _RESTED_TOGETHER):
            some = replicas[first : first + _RESTED_TOGETHER]
            await self.missing.stop(some)
            for follower in await self._fetchers.stop(some):
                self._idle.keep(follower.replica, follower.log)
                rested.add(follower.replica)
            await asyncio.sleep(0)
        return rested

    def _is_new(self, change: ReplicaChange) -> bool:
        has_log = change.number in change.topic.replicas or change.replica in self._idle.all
        is_new = not has_log and self._fetchers.find(change.replica) is None
        return is_new and self._broker_id in change.registered.replicas

    async def _open(self, changes: Sequence[ReplicaChange], *, is_new: bool = True) -> None:
        """Open the logs of replicas, new here or offline. One that cannot be opened is offline."""
        expiration_ms = self._settings().broker.producer_id_expiration_ms
        configs = {topic: log_config(topic.config, expiration_ms) for topic in {each.topic for each in changes}}

        def opening(each: ReplicaChange) -> LogWork:
            topic, number, registered = each
            here = topic.name, number, topic.topic_id, configs[topic]
            is_counted = not is_new and registered.counts(self._broker_id)
            is_replicated = len(registered.replicas) > 1
            return each.replica, partial(self._logs.open, *here, is_replicated=is_replicated, is_counted=is_counted)

        await self._idle.work([opening(each) async for each in self._in_turns(changes)])
        await self._hold_cut(changes)

    async def _hold_cut(self, changes: Sequence[ReplicaChange]) -> None:
        """Keep replicas offline that have lost records and are still counted for them: the next heartbeat tells it."""
        forgotten = []
        async for change in self._in_turns(changes):
            log = self._idle.find(change.replica)
            if log is None or not log.was_cut:
                continue
            if change.registered.counts(self._broker_id):
                error = KafkaStorageError("it has lost records, which is not known to all yet")
                self._idle.keep(change.replica, error, was_cut=True)
            else:
                forgotten.append((change.replica, log.forget_cut))
        await self._idle.work(forgotten)

    async def _take_over(self, changes: Sequence[ReplicaChange]) -> None:
        """Begin the epochs in which this broker is to lead, durably. A log that fails is offline."""
        works: list[LogWork] = [
            (each.replica, partial(log.take_over, each.registered.leader_epoch))
            async for each in self._in_turns(changes)
            if each.registered.leader == self._broker_id and (log := self._idle.find(each.replica)) is not None
        ]
        await self._idle.work(works)

    # The change

    async def _place_all(self, changes: Sequence[ReplicaChange], resigned: Set[ReplicaId] = frozenset()) -> None:
        """Lead, follow or resign each partition as its registration says, and remove the replicas that the broker has no more.

        resigned: those that have resigned before.
        """
        async for change in self._in_turns(changes):
            if self._place(change) or change.replica in resigned:
                call_isolated(CallbackLoop.TOPIC_CHANGE, self._moved, change.topic, change.number)
        async for change in self._in_turns(changes):
            if self._broker_id not in change.registered.replicas and change.replica in self._idle.all:
                await self._remove(change.topic, change.number)

    def _place(self, change: ReplicaChange) -> bool:
        """Lead, follow or resign a partition. Return whether its leadership here has changed."""
        topic, index, registered = change
        leads, is_here = registered.leader == self._broker_id, self._broker_id in registered.replicas
        partition = topic.replicas.get(index)
        if partition is not None and leads and not partition.is_offline:
            self._follow_registration(partition, registered)
            return False
        if partition is not None:
            if partition.is_offline and is_here and (leads or registered.leader == NO_LEADER):
                return False
            self._resign(topic, partition)
        has_leader = registered.leader not in (NO_LEADER, self._broker_id)
        if is_here and has_leader and (log := self._idle.find(change.replica)) is not None:
            self._idle.take(change.replica)
            self._follow(change, log)
        elif leads or (is_here and not has_leader and self._idle.has_failed(change.replica)):
            self._lead(topic, index, registered)
            return True
        return partition is not None

    def _follow(self, change: ReplicaChange, log: Log) -> None:
        """Copy the log of the partition's leader from now on."""
        topic, index, registered = change
        name = f"{topic.name}-{index}"
        self._fetchers.follow(Follower(change.replica, name, log, registered.leader, registered.leader_epoch))

    def _follow_registration(self, partition: Partition, registered: PartitionRegistration) -> None:
        after = follow_registration(partition.leadership, registered)
        if after is not partition.leadership:
            partition.lead(after)
            call_isolated(CallbackLoop.FETCHES_OF_PARTITION, self._advance, partition)

    def _lead(self, topic: Topic, index: int, registered: PartitionRegistration) -> None:
        """Lead a partition by its log, which has begun the epoch.

        A partition whose log could not be opened is offline: all its requests are refused, and its state in Delta is kept.
        """
        replica, partition = (topic.topic_id, index), None
        if (log := self._idle.find(replica)) is not None:
            try:
                partition = self._partition_of(topic, index, log, registered)
                self._idle.take(replica)
            except KafkaError as error:
                self._idle.keep(replica, as_value(error))
        if partition is None:
            partition = self._offline_partition(topic, index, registered)
        topic.replicas[index] = partition
        if registered.is_recovering and not partition.is_offline:
            logger.warning(
                "leader of an unclean election, acknowledged records may be lost partition=%s epoch=%d end=%d",
                partition.name,
                registered.leader_epoch,
                partition.log.log_end_offset,
            )
        if not partition.is_offline:
            call_isolated(CallbackLoop.TOPIC_CHANGE, self._observer.partition_added, partition)

    def _offline_partition(self, topic: Topic, index: int, registered: PartitionRegistration) -> Partition:
        replica = topic.topic_id, index
        self._idle.keep(replica, self._idle.all.get(replica) or KafkaStorageError("its log is not open"))
        logger.error("partition offline topic=%s partition=%d", topic.name, index)
        config = log_config(topic.config, self._settings().broker.producer_id_expiration_ms)
        log = self._logs.offline(topic.name, index, config)
        return self._partition_of(topic, index, log, registered, is_offline=True)

    def _partition_of(
        self, topic: Topic, index: int, log: Log, registered: PartitionRegistration, *, is_offline: bool = False
    ) -> Partition:
        """Return the partition as it is led from now on. Raise `KafkaStorageError` if the log cannot be used."""
        min_isr = topic.config.min_insync_replicas
        leadership = begin_leadership(registered, self._broker_id, log.log_end_offset, min_isr, self._now_ms())
        return Partition(topic, index, log, self._cache.tail(), leadership, is_offline=is_offline)

    def _resign(self, topic: Topic, partition: Partition) -> None:
        """Lead a partition no more: what waits at it is refused, its log stays open."""
        del topic.replicas[partition.index]
        partition.resign()
        if not partition.is_offline:
            self._idle.keep((topic.topic_id, partition.index), partition.log)
        call_isolated(CallbackLoop.TOPIC_CHANGE, self._observer.partition_resigned, partition)
        call_isolated(CallbackLoop.FETCHES_OF_PARTITION, self._leave, partition)
        logger.info("partition resigned partition=%s", partition.name)

    # Replicas that are offline

    def fail(self, partition: Partition) -> None:
        """Take a partition offline whose disk or flush has failed, and that has followers. It is led here in a newer epoch only."""
        topic, index, replica = partition.topic, partition.index, (partition.topic.topic_id, partition.index)
        if topic.replicas.get(index) is partition:
            self._resign(topic, partition)
            self._failed_in[replica] = partition.leader_epoch
            error = KafkaStorageError("its disk has failed, and other replicas may have more records")
            logger.error("replica offline partition=%s error=%s", partition.name, error)
            self._idle.keep(replica, error)
            call_isolated(CallbackLoop.TOPIC_CHANGE, self._moved, topic, index)

    def _may_reopen(self, change: ReplicaChange) -> bool:
        """Return whether a log that has failed in an epoch would not go on in it."""
        registered = change.registered
        failed_in = self._failed_in.get(change.replica, -1)
        return registered.leader != self._broker_id or registered.leader_epoch != failed_in

    async def reopen_failed(self) -> None:
        """Open the logs of offline replicas again: a round of `IdleLogs.due`."""
        async with self._lock:
            changes = [
                ReplicaChange(topic, index, topic.registrations[index])
                for topic_id, index in self._idle.due()
                if (topic := self._topics.find_id(topic_id)) is not None and index < len(topic.registrations)
            ]
            changes = [each for each in changes if self._may_reopen(each)]
            await self.missing.stop([each.replica for each in changes])
            await self._open(changes, is_new=False)
            reopened = [each for each in changes if not self._idle.has_failed(each.replica)]
            for change in reopened:
                self._failed_in.pop(change.replica, None)
                logger.info("replica online again partition=%s-%d", change.topic.name, change.number)
                if (partition := change.topic.replicas.get(change.number)) is not None:
                    self._resign(change.topic, partition)
            await self._take_over(reopened)
            await self._place_all(reopened)

    # Settings

    async def _configure_changed(self, known: Mapping[UUID, Topic], rows: Mapping[UUID, TopicRow]) -> None:
        settings = self._settings()
        async for topic_id, topic in self._in_turns(known.items()):
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
            follower = self._fetchers.find((topic.topic_id, index))
            log = self._idle.find((topic.topic_id, index)) if follower is None else follower.log
            if log is not None:
                log.configure(of_logs)

    # Removal

    async def _forget(self, topic: Topic) -> None:
        """Stop serving a topic that was deleted, and retire its directories."""
        led = topic.replicas
        topic.replicas = {}  # it is not retired twice, if the version is followed only the next time
        async for partition in self._in_turns(led.values()):
            partition.remove()
            call_isolated(CallbackLoop.TOPIC_CHANGE, self._observer.partition_removed, partition)
            call_isolated(CallbackLoop.FETCHES_OF_PARTITION, self._leave, partition)
        idle = {
            replica[1]: self._take_away(replica)
            async for replica in self._in_turns(self._idle.of_topic(topic.topic_id))
        }
        logs = {index: partition.log for index, partition in led.items()}
        logs |= {index: log for index, log in idle.items() if log is not None}
        self._retired.retire_soon(topic, logs, list({*led, *idle}))
        logger.info("topic deleted topic=%s topic_id=%s", topic.name, topic.topic_id)

    async def _remove(self, topic: Topic, index: int) -> None:
        """Remove a replica that a reassignment took from this broker. Its directory is free when this returns."""
        log = self._take_away((topic.topic_id, index))
        await self._retired.retire(topic, {} if log is None else {index: log}, [index])
        logger.info("replica removed partition=%s-%d", topic.name, index)

    def _take_away(self, replica: ReplicaId) -> Log | None:
        """Return the log of a replica that is no longer here, and forget the replica. None if it has failed."""
        self._failed_in.pop(replica, None)
        return self._idle.take(replica)

    async def wait(self) -> None:
        """Wait until no image is being followed and nothing is being removed."""
        async with self._lock:
            pass
        await self._retired.wait()

    async def stop_following(self) -> None:
        """Fetch nothing more from other brokers. The logs stay open."""
        async with self._lock:
            await self.missing.stop_all()
            for follower in await self._fetchers.stop_all():
                self._idle.keep(follower.replica, follower.log)

    def find_log(self, topic: Topic, index: int) -> Log:
        """Return the open log of a replica, whether it leads or not. Raise as `Topic.leader` if there is none here."""
        if (follower := self._fetchers.find((topic.topic_id, index))) is not None:
            return follower.log
        if (idle := self._idle.find((topic.topic_id, index))) is not None:
            return idle
        partition = topic.leader(index)
        partition.check_online()
        return partition.log

    def led(self) -> Iterable[Partition]:
        """Return the partitions that are led here, with an open log."""
        return self._topics.partitions()

    def idle_logs(self) -> Sequence[Log]:
        """Return the open logs that neither lead nor follow."""
        return self._idle.logs()

    def open_logs(self) -> Iterable[Log]:
        """Return all open logs: of partitions led here, of followers and idle ones."""
        led = [partition.log for partition in self._topics.partitions()]
        following = [follower.log for follower in self._fetchers.followers()]
        return [*led, *following, *self.idle_logs()]


def _replicas_of(topic: Topic) -> list[ReplicaId]:
    return [(topic.topic_id, index) for index in range(len(topic.registrations))]
