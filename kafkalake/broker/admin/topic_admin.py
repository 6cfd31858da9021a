"""Creates, changes and deletes topics: validate, commit to the metadata store, then serve.

A change is in Delta before it is acknowledged. The commit runs on an executor and the request waits for it up to its timeout. A
slower commit is still completed: after REQUEST_TIMED_OUT a client finds the topic later, as with Kafka. Changes run one at a time.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kafkalake.broker.admin.mutation_rate import MutationRate
from kafkalake.broker.admin.topic_plans import (
    NewTopic,
    TopicPlans,
    check_not_internal,
    check_not_protected,
    parse_overrides,
)
from kafkalake.broker.admin.topic_rows import overrides_as_text, topic_of, topic_row
from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.partitions.log_directory import LogDirectory, log_config
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.broker.partitions.wire_cache import WireCache
from kafkalake.clock import Clock
from kafkalake.cluster.image import PartitionRegistration, sole_replica
from kafkalake.config.layers import Settings, changed_values
from kafkalake.config.setting import Value
from kafkalake.errors import (
    InvalidPartitionsError,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailableError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    as_value,
)
from kafkalake.metadata.store import TopicTable
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.storage.log import Log

logger = logging.getLogger(__name__)

_SETTLE_DELAY_MS = 250
_SETTLE_DELAY_MS_MAX = 30_000

T = TypeVar("T")
RunBlocking = Callable[[Callable[[], T]], Awaitable[T]]


class TopicObserver(Protocol):
    """Callbacks for partitions added and removed."""

    def partition_added(self, partition: Partition) -> None: ...

    def partition_removed(self, partition: Partition) -> None: ...


class TopicAdmin:
    """The topic changes of one broker, see the module."""

    def __init__(
        self,
        *,
        broker_id: int,
        topics: Topics,
        store: TopicTable,
        logs: LogDirectory,
        cache: WireCache,
        clock: Clock,
        ids: Callable[[], uuid.UUID],
        settings: Callable[[], Settings],
        observer: TopicObserver,
        changed: Callable[[str], None],
        run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]],
        later: Callable[[int, Callable[[], None]], object],
        wake: Callable[[Partition], None],
    ) -> None:
        """Create the administration. `settings` returns the broker's current settings.

        `changed` is called with the name of each topic created, deleted or given more partitions.
        `later(delay_ms, action)` runs an action after a delay. `wake` completes the waiting fetches of a partition.
        """
        self._broker_id = broker_id
        self.plans = TopicPlans(broker_id, topics, settings)
        self._topics = topics
        self._store = store
        self._logs = logs
        self._cache = cache
        self._clock = clock
        self._ids = ids
        self._settings = settings
        self._observer = observer
        self._changed = changed
        self._run_blocking = run_blocking
        self._later = later
        self._wake = wake
        self._auto_created = MutationRate(clock, lambda: settings().broker.auto_create_topics_partitions_per_second)
        self._lock = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()

    # Requests.

    async def create(self, new: NewTopic, *, timeout_ms: int, validate_only: bool = False) -> Topic:
        """Create a topic and return it. With `validate_only`, return it without creating it or its partitions.

        Raise `InvalidTopicError`, `TopicAlreadyExistsError`, `InvalidPartitionsError`, `InvalidReplicationFactorError`,
        `InvalidReplicaAssignmentError`, `InvalidRequestError`, `InvalidConfigError` or `PolicyViolationError` if the topic is not
        valid, `RequestTimedOutError` if the commit takes longer than `timeout_ms`, `KafkaStorageError` if it fails.
        """
        self.plans.plan(new)
        if validate_only:
            return self._new_topic(new)
        return await self._finish(self._create(new), timeout_ms)

    async def auto_create(self, name: str) -> Topic:
        """Create a topic with the broker's defaults and return it.

        Raise as `create`, and `LeaderNotAvailableError` if the rate of automatic creations is exceeded.
        """
        new = NewTopic(name)
        self.plans.plan(new)
        self._check_rate()
        return await self._finish(self._auto_create(new), self._settings().broker.request_timeout_ms)

    def admit_auto_creation(self, name: str) -> None:
        """Count a topic that the controller, another broker, is about to create. Raise as `auto_create`."""
        count = self.plans.plan(NewTopic(name))
        self._check_rate()
        self._auto_created.take(count)

    def _check_rate(self) -> None:
        if self._auto_created.is_exceeded:
            raise LeaderNotAvailableError("more than auto.create.topics.partitions.per.second")

    async def _auto_create(self, new: NewTopic) -> Topic:
        self.admit_auto_creation(new.name)
        return await self._create(new)

    async def delete(self, topic: Topic, *, timeout_ms: int) -> None:
        """Delete a topic and its records.

        Raise `InvalidTopicError` if it is internal, `PolicyViolationError` if it is protected, `RequestTimedOutError` if the commit
        takes longer than `timeout_ms`, `KafkaStorageError` if it fails.
        """
        check_not_internal(topic.name)
        await self._finish(self._delete(topic), timeout_ms)

    async def add_partitions(
        self,
        topic: Topic,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        *,
        timeout_ms: int,
        validate_only: bool = False,
    ) -> None:
        """Increase a topic's partitions to `count`. Raise `InvalidTopicError` if the topic is internal, otherwise as `create`."""
        self.plans.check_more(topic, count, assignments)
        if not validate_only:
            await self._finish(self._add_partitions(topic, count), timeout_ms)

    async def alter_config(
        self,
        topic: Topic,
        change: Callable[[dict[str, str]], Mapping[str, str | None]],
        *,
        changed_by: str,
        validate_only: bool,
    ) -> None:
        """Apply `change` to a topic's current settings. `changed_by` is for the log.

        Raise `InvalidConfigError` if a setting is not valid, `RequestTimedOutError` if the commit takes longer than the broker's
        request timeout, `KafkaStorageError` if it fails.
        """
        parse_overrides(change(overrides_as_text(topic.overrides)))
        if not validate_only:
            timeout_ms = self._settings().broker.request_timeout_ms
            work = self._alter_config(topic, lambda now: parse_overrides(change(now)), changed_by)
            await self._finish(work, timeout_ms)

    def _new_topic(self, new: NewTopic) -> Topic:
        overrides = parse_overrides(new.config or {})
        config = self._settings().topic(overrides)
        return Topic(new.name, self._ids(), overrides, config, self._clock.now_ms())

    # Execution.

    async def _finish(self, work: Coroutine[Any, Any, T], timeout_ms: int) -> T:
        """Run `work` after changes in progress. After `timeout_ms` stop waiting and raise, but let the work finish."""

        task = asyncio.ensure_future(self._in_turn(work))
        self._under_way.add(task)
        task.add_done_callback(self._settled)
        try:
            return await asyncio.wait_for(asyncio.shield(task), max(timeout_ms, 0) / 1000)
        except TimeoutError:
            raise RequestTimedOutError() from None
        except KafkaError as error:
            raise as_value(error) from None  # without frames that reference the futures holding it
        finally:
            del task

    async def _in_turn(self, work: Coroutine[Any, Any, T]) -> T:
        async with self._lock:
            return await work

    def _settled(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and task.exception() is not None and not isinstance(task.exception(), KafkaError):
            logger.error("change of topics failed error=%r", task.exception())

    async def wait(self) -> None:
        """Wait until no change is in progress."""
        while self._under_way:
            await asyncio.wait(list(self._under_way))

    async def _create(self, new: NewTopic) -> Topic:
        count = self.plans.plan(new)
        topic = self._new_topic(new)
        try:
            logs = await self._run_blocking(lambda: self._commit_and_open(topic, count))
        except KafkaStorageError:
            await self._settle(topic)
            raise
        placed = self._serve(topic, logs, {})
        self._topics.add(topic)
        self._register(topic, placed)
        call_isolated(CallbackLoop.TOPIC_CHANGE, self._changed, topic.name)
        if predecessors := self._logs.take_predecessors():
            self._later(topic.config.file_delete_delay_ms, lambda: self._remove_later(predecessors))
        logger.info("topic created topic=%s topic_id=%s partitions=%d", topic.name, topic.topic_id, count)
        return topic

    def _commit_and_open(self, topic: Topic, count: int) -> list[Log]:
        """Commit a topic and open its logs, on the executor. If a log cannot be opened, delete the topic again."""
        try:
            self._store.create_topic(topic_row(topic, count))
        except TopicAlreadyExistsError as error:  # in Delta and not served: `_settle` has not removed it yet
            raise KafkaStorageError(f"an earlier creation of topic {topic.name} has yet to be undone") from error
        try:
            return self._open(topic, range(count))
        except KafkaError:
            self._store.delete_topic(topic.name)
            self._logs.remove(self._logs.retire(topic.name, topic.topic_id, range(count)))
            raise

    def _open(self, topic: Topic, indices: range) -> list[Log]:
        config = log_config(topic.config, self._settings().broker.producer_id_expiration_ms)
        logs: list[Log] = []
        try:
            for index in indices:
                logs.append(self._logs.open(topic.name, index, topic.topic_id, config))
        except KafkaError:
            for log in logs:
                log.discard()
            raise
        return logs

    def _serve(
        self, topic: Topic, logs: Sequence[Log | KafkaError], least_epochs: Mapping[int, int]
    ) -> tuple[PartitionRegistration, ...]:
        """Lead further partitions of a topic by their logs, and return their registrations.

        A partition whose log could not be opened is offline: all its requests are refused, and its state in Delta is kept.
        """
        placed = []
        for index, opened in enumerate(logs, len(topic.replicas)):
            log = self._offline(topic, index) if (is_offline := isinstance(opened, KafkaError)) else opened
            epoch = max(log.leader_epoch + 1, least_epochs.get(index, 0))
            partition = Partition(topic, index, log, self._cache.tail(), epoch, is_offline=is_offline)
            topic.replicas[index] = partition
            placed.append(sole_replica(self._broker_id, epoch, is_offline=is_offline))
            if not is_offline:
                call_isolated(CallbackLoop.TOPIC_CHANGE, self._observer.partition_added, partition)
        return tuple(placed)

    def _offline(self, topic: Topic, index: int) -> Log:
        logger.error("partition offline until the next start topic=%s partition=%d", topic.name, index)
        config = log_config(topic.config, self._settings().broker.producer_id_expiration_ms)
        return self._logs.offline(topic.name, index, config)

    def _register(self, topic: Topic, more: tuple[PartitionRegistration, ...]) -> None:
        self._topics.apply(self._topics.image.with_topics({topic.topic_id: topic.registrations + more}))

    def serve_existing(
        self, row: TopicRow, logs: Sequence[Log | KafkaError], least_epochs: Mapping[int, int]
    ) -> tuple[PartitionRegistration, ...]:
        """Serve a topic found in the metadata at startup and return the registrations of its partitions.

        `logs` has an error for each log that did not open. least_epochs: the smallest leader epoch of each partition.
        """
        topic = topic_of(row, self._settings())
        placed = self._serve(topic, logs, least_epochs)
        self._topics.add(topic)
        return placed

    async def _delete(self, topic: Topic) -> None:
        if self._topics.find(topic.name) is not topic:
            return
        check_not_protected(topic)  # only now: it may have waited for a change of its settings
        try:
            await self._run_blocking(lambda: self._store.delete_topic(topic.name))
        except KafkaStorageError:
            await self._settle(topic)
            if self._topics.find(topic.name) is topic:
                raise
            return
        await self._forget(topic)

    async def _settle(self, topic: Topic, delay_ms: int = _SETTLE_DELAY_MS) -> None:
        """Resolve a change with an unknown outcome from Delta, or retry later while Delta cannot be read.

        A topic in Delta but not served is removed from Delta, because its creation was not acknowledged. A topic served but not
        in Delta is deleted, because its records would be lost at the next start.
        """

        def is_known() -> bool:
            rows = self._store.load_topics()
            found = any(row.topic_id == str(topic.topic_id) for row in rows)
            if found and self._topics.find(topic.name) is not topic:
                self._store.delete_topic(topic.name)
                return False
            return found

        try:
            known = await self._run_blocking(is_known)
        except KafkaStorageError as error:
            logger.warning("whether a topic is in Delta is not known topic=%s error=%s", topic.name, error)
            again = min(2 * delay_ms, _SETTLE_DELAY_MS_MAX)
            self._later(delay_ms, lambda: self._do_later(self._in_turn(self._settle(topic, again))))
            return
        if not known and self._topics.find(topic.name) is topic:
            await self._forget(topic)

    async def _forget(self, topic: Topic) -> None:
        """Stop serving a topic that is not in Delta, and retire its directories."""
        self._topics.remove(topic)
        self._topics.apply(self._topics.image.without_topic(topic.topic_id))
        for partition in topic.replicas.values():
            partition.remove()
            call_isolated(CallbackLoop.TOPIC_CHANGE, self._observer.partition_removed, partition)
            call_isolated(CallbackLoop.FETCHES_OF_PARTITION, self._wake, partition)
        call_isolated(CallbackLoop.TOPIC_CHANGE, self._changed, topic.name)
        retired = await self._run_blocking(lambda: self._discard_and_retire(topic))
        self._later(topic.config.file_delete_delay_ms, lambda: self._remove_later(retired))
        logger.info("topic deleted topic=%s topic_id=%s", topic.name, topic.topic_id)

    def _discard_and_retire(self, topic: Topic) -> list[Path]:
        """Discard and retire a deleted topic's logs, on the executor. They need neither footer nor state."""
        for partition in topic.replicas.values():
            partition.log.discard()
        return self._logs.retire(topic.name, topic.topic_id, topic.replicas)

    def _remove_later(self, retired: list[Path]) -> None:
        self._do_later(self._run_blocking(lambda: self._logs.remove(retired)))

    def _do_later(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._settled)

    async def _add_partitions(self, topic: Topic, count: int) -> None:
        first = len(topic.registrations)
        if count <= first:
            raise InvalidPartitionsError(f"Topic already has {first} partition(s).")
        self.plans.check_room(topic.name, count - first)

        def commit_and_open() -> list[Log]:
            self._store.alter_topic(topic_row(topic, count))
            return self._open(topic, range(first, count))

        self._register(topic, self._serve(topic, await self._run_blocking(commit_and_open), {}))
        call_isolated(CallbackLoop.TOPIC_CHANGE, self._changed, topic.name)
        logger.info("partitions added topic=%s partitions=%d", topic.name, count)

    async def _alter_config(
        self, topic: Topic, change: Callable[[dict[str, str]], dict[str, Value]], changed_by: str
    ) -> None:
        overrides = change(overrides_as_text(topic.overrides))
        if overrides == topic.overrides:
            return
        row = topic_row(topic, len(topic.registrations), overrides)
        await self._run_blocking(lambda: self._store.alter_topic(row))
        settings = self._settings()
        changes = changed_values(settings.describe_topic(topic.overrides), settings.describe_topic(overrides))
        self._configure(topic, overrides)
        for name, old, new in changes:
            logger.info(
                "topic setting changed topic=%s name=%s old=%s new=%s by=%s", topic.name, name, old, new, changed_by
            )

    def apply_settings(self, topic: Topic) -> None:
        """Apply the topic's overrides and the broker's current settings to the topic and its logs."""
        self._configure(topic, topic.overrides)

    def _configure(self, topic: Topic, overrides: dict[str, Value]) -> None:
        config = self._settings().topic(overrides)
        of_logs = log_config(config, self._settings().broker.producer_id_expiration_ms)
        self._topics.configure(topic, overrides, config, of_logs)
