"""Creates, changes and deletes topics on the controller: validate, commit the topic's row, then the cluster's next version.

A change is in Delta before it is acknowledged. The commit runs on an executor and the request waits for it up to its timeout. A
slower commit is still completed: after REQUEST_TIMED_OUT a client may find the topic later. Changes run one at a time. One whose
turn comes after its request's timeout is not made, as in Kafka.

The row in `topics` is committed before the version of the cluster that has the topic's partitions, and deleted before the one that
has them no more. So a topic exists if both tables have it. What a fault left in one alone is brought together (`settle`), at once
or before the next change.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from kafkalake.broker.admin import level_topics
from kafkalake.broker.admin.changes_in_turn import ChangesInTurn
from kafkalake.broker.admin.topic_creation import Count, Creation, make_creations, no_quota, place_all, run_in_turns
from kafkalake.broker.admin.topic_plans import (
    TopicPlan,
    TopicPlans,
    check_not_internal,
    check_not_protected,
    parse_overrides,
)
from kafkalake.broker.admin.topic_tables import TopicTables, is_resized
from kafkalake.broker.controller.controller import Controller
from kafkalake.broker.controller.steps import ControllerStep, Reach
from kafkalake.broker.partitions.new_topic import NewTopic
from kafkalake.broker.partitions.token_bucket import TokenBucket
from kafkalake.broker.partitions.topic_rows import overrides_as_text, topic_row
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.cluster.election import Election
from kafkalake.cluster.image import ClusterImage
from kafkalake.cluster.placement import NewTopics
from kafkalake.cluster.topic_changes import create_topics
from kafkalake.config.layers import Settings, changed_values
from kafkalake.config.setting import Value
from kafkalake.errors import (
    InvalidPartitionsError,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailableError,
    NotControllerError,
    TopicAlreadyExistsError,
    as_value,
)
from kafkalake.metadata.store import TopicTable
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.run_blocking import RunBlocking
from kafkalake.world import World

logger = logging.getLogger(__name__)

_SETTLE_DELAY_MS = 250
_SETTLE_DELAY_MS_MAX = 30_000


class TopicAdmin:
    """The topic changes of a cluster, see the module."""

    def __init__(
        self,
        *,
        topics: Topics,
        controller: Controller,
        create_elsewhere: Callable[[NewTopic, int], Awaitable[None]],
        store: TopicTable,
        world: World,
        settings: Callable[[], Settings],
        run_blocking: RunBlocking,
        later: Callable[[int, Callable[[], None]], object],
        reach: Reach,
    ) -> None:
        """Create the administration. `settings` returns the broker's current settings, `later(delay_ms, action)` acts later.

        `create_elsewhere` has the controller, on another broker, create a topic within some ms, and follows it here.
        """
        self.plans = TopicPlans(topics, settings)
        self._topics = topics
        self._controller = controller
        self._create_elsewhere = create_elsewhere
        self._world = world
        self._settings = settings
        self._later = later
        self._tables = TopicTables(store, controller, topics, settings, run_blocking, world, reach)
        self._reach = reach
        self._auto_created = TokenBucket(
            world.clock, lambda: settings().broker.auto_create_topics_partitions_per_second
        )
        self._changes = ChangesInTurn(lambda: controller.is_active)
        self._is_settling = False
        self._settles_again: list[int] | None = None
        """The pause in ms before the next call of `settle`, if one is to come."""
        self.wait = self._changes.wait
        """Wait until no change is in progress."""

    # Requests.

    async def create(self, new: NewTopic, *, timeout_ms: int) -> Topic:
        """Create a topic and return it.

        Raise `InvalidTopicError`, `TopicAlreadyExistsError`, `InvalidPartitionsError`, `InvalidReplicationFactorError`,
        `InvalidReplicaAssignmentError`, `InvalidRequestError`, `InvalidConfigError` or `PolicyViolationError` if the topic is not
        valid, `RequestTimedOutError` if the commit takes longer than `timeout_ms`, `KafkaStorageError` if it fails.
        """
        self.plans.plan(new)
        if not self._controller.is_active:
            await self._create_elsewhere(new, timeout_ms)
            return self._topics.topic(new.name)
        return await self._changes.finish(self._create(new), timeout_ms)

    async def create_all(
        self, wanted: Sequence[NewTopic], *, timeout_ms: int, validate_only: bool = False, count: Count = no_quota
    ) -> list[Creation | KafkaError]:
        """Create topics in one commit, on the controller. Return them, and the errors of those that are not created, as `create`.

        With `validate_only` nothing is created: the topics are returned as they would be. `count` counts their partitions.
        """
        if not wanted:
            return []
        if validate_only:
            await self._controller.confirm()  # a deposed controller has the topics and brokers of before
            planned = await run_in_turns(self.plans.plan_all(wanted))
            return await make_creations(wanted, planned, self._new_topic, count)
        return await self._changes.finish(self._create_all(wanted, count), timeout_ms)

    async def auto_create(self, name: str, count: Count = no_quota) -> Topic:
        """Create a topic with the broker's defaults and return it.

        Raise as `create`, and `LeaderNotAvailableError` if the rate of automatic creations is exceeded.
        """
        new = NewTopic(name)
        self.plans.plan(new)
        self._check_rate()
        return await self._changes.finish(self._auto_create(new, count), self._settings().broker.request_timeout_ms)

    def admit_auto_creation(self, name: str) -> None:
        """Count a topic that the controller, another broker, is about to create. Raise as `auto_create`."""
        plan = self.plans.plan(NewTopic(name))
        self._check_rate()
        self._auto_created.take(plan.partitions)

    def _check_rate(self) -> None:
        if self._auto_created.is_exceeded:
            raise LeaderNotAvailableError("more than auto.create.topics.partitions.per.second")

    async def _auto_create(self, new: NewTopic, count: Count) -> Topic:
        self.admit_auto_creation(new.name)
        return await self._create(new, count)

    async def delete(self, topic: Topic, *, timeout_ms: int, count: Count = no_quota) -> None:
        """Delete a topic and its records.

        Raise `InvalidTopicError` if it is internal, `PolicyViolationError` if it is protected, `RequestTimedOutError` if the commit
        takes longer than `timeout_ms`, `KafkaStorageError` if it fails.
        """
        check_not_internal(topic.name)
        level_topics.check_not_level(self._topics, topic)
        await self._changes.finish(self._delete_with_levels(topic, count), timeout_ms)

    async def add_partitions(
        self,
        topic: Topic,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        *,
        timeout_ms: int,
        validate_only: bool = False,
        count_new: Count = no_quota,
    ) -> None:
        """Increase a topic's partitions to `count`. Raise `InvalidTopicError` if the topic is internal, otherwise as `create`."""
        if validate_only:
            await self._controller.confirm()  # a deposed controller has the partitions of before
            self.plans.check_more(topic, count, assignments)
            count_new(count - len(topic.registrations))
        else:
            await self._changes.finish(self._check_and_add(topic, count, assignments, count_new), timeout_ms)

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
        if validate_only:
            await self._controller.confirm()  # a deposed controller has the settings of before
            self.plans.check_settings(topic, parse_overrides(change(overrides_as_text(topic.overrides))))
        else:
            timeout_ms = self._settings().broker.request_timeout_ms
            work = self._alter_config(topic, lambda now: parse_overrides(change(now)), changed_by)
            await self._changes.finish(work, timeout_ms)

    def _new_topic(self, new: NewTopic) -> Topic:
        overrides = parse_overrides(new.config or {})
        config = self._settings().topic(overrides)
        return Topic(new.name, self._world.ids(), overrides, config, self._world.clock.now_ms())

    # Execution.

    async def _create(self, new: NewTopic, count: Count = no_quota) -> Topic:
        (created,) = await self._create_all([new], count)
        if isinstance(created, KafkaError):
            raise created
        return created.topic

    async def _plan_all(self, wanted: Sequence[NewTopic]) -> list[TopicPlan | KafkaError]:
        """Return the plans of new topics. What refuses them is of the newest version; a topic that is being deleted does not."""
        planned = await run_in_turns(self.plans.plan_all(wanted))
        if not any(isinstance(each, KafkaError) for each in planned):
            return planned
        try:
            await self._tables.require_together()
        except KafkaStorageError as error:
            return [as_value(error) if isinstance(each, TopicAlreadyExistsError) else each for each in planned]
        return await run_in_turns(self.plans.plan_all(wanted))

    async def _create_all(self, wanted: Sequence[NewTopic], count: Count = no_quota) -> list[Creation | KafkaError]:
        made = await make_creations(wanted, await self._plan_all(wanted), self._new_topic, count)
        found = {new.name: each for new, each in zip(wanted, made, strict=True)}
        creations = [each for each in made if not isinstance(each, KafkaError)]
        if creations:
            found |= await self._commit_all(creations)
        if level_topics.wants_levels(new.config for new in wanted):
            await self._follow_levels()
        return [found[new.name] for new in wanted]

    async def _follow_levels(self) -> None:
        """Create, extend and delete topics of delays, as the settings of the others ask. Raise `KafkaError`."""
        changes = level_topics.level_changes(self._topics)
        for topic in changes.gone:
            await self._delete(topic)
        for topic, count in changes.small:
            await self._add_partitions(topic, count, None)
        for created in await self._create_all(changes.missing) if changes.missing else ():
            if isinstance(created, KafkaError):
                raise created

    async def _delete_with_levels(self, topic: Topic, count: Count) -> None:
        await self._delete(topic, count)
        if topic.config.delay_levels:
            await self._follow_levels()

    async def _commit_all(self, creations: Sequence[Creation]) -> dict[str, Creation | KafkaError]:
        """Commit the rows, then the version of the cluster. Return each topic's outcome by its name."""
        rows = [topic_row(each.topic, each.plan.partitions) for each in creations]
        refused: dict[str, KafkaError] = {}

        def create(image: ClusterImage) -> ClusterImage:
            if image.controller_epoch != epoch:  # a controller in between may have removed the rows
                raise NotControllerError()
            placed = place_all(image, creations, NewTopics(image, self._world.random), refused)
            return create_topics(image, placed, image.topics_version + 1) if placed else image

        async with self._change_both():
            epoch = await self._add_rows(rows)
            self._reach(ControllerStep.ROWS_ADDED)
            await self._controller.change(create, rows)
        if refused:
            await self.settle()
        served = {each.topic.name: each for each in creations if each.topic.name not in refused}
        return {**refused, **{name: await self._served(each) for name, each in served.items()}}

    async def _served(self, creation: Creation) -> Creation | KafkaError:
        """Return a topic that this broker serves now, or the error of one that it cannot serve, which is deleted.

        Where that fails the topic stays, offline: the topics that were created with it are served all the same.
        """
        topic, plan = self._topics.topic(creation.topic.name), creation.plan
        offline = [each.name for each in topic.replicas.values() if each.is_offline]
        if offline:
            try:
                await self._delete(topic)
            except KafkaError as error:
                logger.warning("topic without a log not deleted topic=%s error=%s", topic.name, error)
            return KafkaStorageError(f"the log of {offline[0]} could not be opened")
        logger.info("topic created topic=%s topic_id=%s partitions=%d", topic.name, topic.topic_id, plan.partitions)
        return Creation(topic, plan)

    async def _add_rows(self, rows: Sequence[TopicRow]) -> int:
        """Add topics' rows, return the controller epoch. Those of their names that an interrupted creation left are removed."""
        try:
            return await self._tables.change_rows(lambda store, epoch: store.create_topics(rows, epoch))
        except TopicAlreadyExistsError:
            await self.settle()
            return await self._tables.change_rows(lambda store, epoch: store.create_topics(rows, epoch))

    async def _delete(self, topic: Topic, count: Count = no_quota) -> None:
        if self._topics.find(topic.name) is not topic:
            return
        check_not_protected(topic)  # only now: it may have waited for a change of its settings
        count(len(topic.registrations))
        async with self._change_both(lambda: self._topics.find(topic.name) is not topic):
            await self._tables.delete(topic.topic_id)

    @contextlib.asynccontextmanager
    async def _change_both(self, is_done: Callable[[], bool] = lambda: False) -> AsyncIterator[None]:
        """Have both tables changed. If that fails they are brought together; the error is raised unless the change `is_done` then.

        Raise `KafkaStorageError` too where a change before has yet to be finished or undone.
        """
        try:
            with self._tables.changing():
                yield
        except NotControllerError:
            raise  # the next controller brings them together
        except KafkaError as error:
            await self.settle()
            if is_done():
                return
            if isinstance(error, TopicAlreadyExistsError | InvalidPartitionsError):  # in `topics`, not in the cluster
                raise KafkaStorageError(f"an earlier change has yet to be finished or undone: {error}") from error
            raise

    def settle_soon(self) -> None:
        """Bring `topics` and the cluster together: the controller before this one may have been killed."""
        self._changes.begin(self.settle())

    async def settle(self, delay_ms: int = _SETTLE_DELAY_MS) -> None:
        """Bring `topics` and the cluster together after a change with an unknown outcome, or later while Delta cannot be used.

        A topic in Delta but not in the cluster is removed from Delta, because its creation was not acknowledged. A topic in the
        cluster but not in Delta is deleted, because its records would be lost at the next start.
        """
        if self._is_settling or not self._controller.is_active:
            return
        self._is_settling = True
        try:
            is_whole = await self._tables.bring_together()
            await self._follow_levels()
            self._settles_again = None
            if not is_whole:
                self._settle_later(delay_ms)
        except Exception as error:
            logger.warning("topics not brought together error=%r", error)
            self._settle_later(delay_ms)
        finally:
            self._is_settling = False

    def _settle_later(self, delay_ms: int) -> None:
        if self._settles_again is not None and self._settles_again[0] <= delay_ms:
            return
        again = self._settles_again = [delay_ms]

        def settle_again() -> None:
            if self._settles_again is again:  # else they are together since, or a new failure has its own pause
                self._settles_again = None
                self._changes.begin(self.settle(min(2 * delay_ms, _SETTLE_DELAY_MS_MAX)))

        self._later(delay_ms, settle_again)

    async def _check_and_add(
        self, topic: Topic, count: int, assignments: Sequence[Sequence[int]] | None, count_new: Count
    ) -> None:
        await self._tables.require_together()
        self.plans.check_more(topic, count, assignments)
        count_new(count - len(topic.registrations))
        await self._add_partitions(topic, count, assignments)

    async def _add_partitions(self, topic: Topic, count: int, assignments: Sequence[Sequence[int]] | None) -> None:
        self.plans.check_room(topic.name, count - len(topic.registrations))
        async with self._change_both(lambda: assignments is None and len(topic.registrations) == count):
            await self._tables.grow(topic_row(topic, count), assignments)
        logger.info("partitions added topic=%s partitions=%d", topic.name, count)
        if topic.config.delay_levels:
            await self._follow_levels()

    async def _alter_config(
        self, topic: Topic, change: Callable[[dict[str, str]], dict[str, Value]], changed_by: str
    ) -> None:
        await self._tables.require_together()  # a deposed controller has the settings of before
        overrides = change(overrides_as_text(topic.overrides))
        if overrides == topic.overrides:
            return
        self.plans.check_settings(topic, overrides)
        settings = self._settings()
        changes = changed_values(settings.describe_topic(topic.overrides), settings.describe_topic(overrides))
        row = topic_row(topic, len(topic.registrations), overrides)
        async with self._change_both(lambda: topic.overrides == overrides):
            await self._tables.alter(row, [topic.topic_id] if is_resized(topic, overrides, settings) else [])
        if topic.election_rules.is_unclean_allowed:
            await self._controller.elect_leaders(topic.leaderless, Election.UNCLEAN)
        for name, old, new in changes:
            logger.info(
                "topic setting changed topic=%s name=%s old=%s new=%s by=%s", topic.name, name, old, new, changed_by
            )
        if any(name == level_topics.LEVELS for name, _, _ in changes):
            await self._follow_levels()
