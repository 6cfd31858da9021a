"""Creates, changes and deletes topics on the controller: validate, commit the topic's row, then the cluster's next version.

A change is in Delta before it is acknowledged. The commit runs on an executor and the request waits for it up to its timeout. A
slower commit is still completed: after REQUEST_TIMED_OUT a client may find the topic later. Changes run one at a time. One whose
turn comes after its request's timeout is not made, as in Kafka.

The row in `topics` is committed before the version of the cluster that has the topic's partitions, and deleted before the one that
has them no more. So a topic exists if both tables have it. What a fault left in one alone is brought together (`settle`), at once
or before the next change.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

from kafkalake.broker.admin import level_topics
from kafkalake.broker.admin.changes_in_turn import ChangesInTurn
from kafkalake.broker.admin.config_admin import Change
from kafkalake.broker.admin.topic_creation import Count, Creation, make_creations, no_quota, place_all
from kafkalake.broker.admin.topic_plans import (
    TopicPlan,
    TopicPlans,
    check_not_internal,
    check_not_protected,
    parse_overrides,
)
from kafkalake.broker.admin.topic_settler import TopicSettler
from kafkalake.broker.admin.topic_tables import Growth, TopicTables
from kafkalake.broker.controller.controller import Controller
from kafkalake.broker.controller.steps import ControllerStep, Reach
from kafkalake.broker.partitions.new_topic import MorePartitions, NewTopic
from kafkalake.broker.partitions.token_bucket import TokenBucket
from kafkalake.broker.partitions.topic_rows import topic_row
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.cluster.election import Election
from kafkalake.cluster.image import ClusterImage
from kafkalake.cluster.placement import Placement
from kafkalake.cluster.topic_changes import create_topics
from kafkalake.config.layers import Settings
from kafkalake.errors import (
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailableError,
    NotControllerError,
    TopicAlreadyExistsError,
    as_value,
)
from kafkalake.metadata.store import TopicTable
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.run_blocking import TURN_NS, RunBlocking, in_turns, iterate_in_turns
from kafkalake.world import World

logger = logging.getLogger(__name__)


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
        self._now_ns = world.clock.monotonic_ns
        self._settings = settings
        self._tables = TopicTables(store, controller, topics, settings, run_blocking, world, reach)
        self._reach = reach
        self._auto_created = TokenBucket(
            world.clock, lambda: settings().broker.auto_create_topics_partitions_per_second
        )
        self._changes = ChangesInTurn(lambda: controller.is_active)
        self.settler = TopicSettler(
            self._tables, self._changes, lambda: controller.is_active, self._follow_levels, later
        )
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
            planned = await in_turns(self.plans.plan_all(wanted), self._now_ns, TURN_NS)
            return await make_creations(wanted, planned, self._new_topic, count, self._now_ns)
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

    async def delete_all(
        self, topics: Sequence[Topic], *, timeout_ms: int, count: Count = no_quota
    ) -> list[KafkaError | None]:
        """Delete topics and their records in one commit. Return the errors of those that are not deleted, None for the others.

        They are `InvalidTopicError` if a topic is internal, or another's, `PolicyViolationError` if it is protected, and those of
        `count`. Raise `RequestTimedOutError` if the commit takes longer than `timeout_ms`, `KafkaStorageError` if it fails.
        """
        return await self._changes.finish(self._delete_all(topics, count), timeout_ms) if topics else []

    async def add_partitions(
        self,
        wanted: Sequence[MorePartitions],
        *,
        timeout_ms: int,
        validate_only: bool = False,
        count: Count = no_quota,
    ) -> list[KafkaError | None]:
        """Add partitions to topics in one commit. Return the errors of those that do not get them, None for the others.

        They are `InvalidTopicError` if a topic is internal, otherwise as of `create`. Raise as `delete_all`.
        """
        if not wanted:
            return []
        if validate_only:
            await self._controller.confirm()  # a deposed controller has the partitions of before
            return await self._check_all_more(wanted, count)
        return await self._changes.finish(self._check_and_add(wanted, count), timeout_ms)

    async def alter_configs(
        self, changes: Mapping[Topic, Change], *, changed_by: str, validate_only: bool
    ) -> dict[Topic, KafkaError]:
        """Change topics' current settings in one commit. Return the errors of those that are not changed. `changed_by` is logged.

        They are `InvalidConfigError` if a setting is not valid, `UnknownTopicOrPartitionError`. Raise `RequestTimedOutError` if the
        commit takes longer than the broker's request timeout, `KafkaStorageError` if it fails.
        """
        if not changes:
            return {}
        if validate_only:
            await self._controller.confirm()  # a deposed controller has the settings of before
            return (await in_turns(self.plans.plan_alterations(changes), self._now_ns, TURN_NS)).refused
        timeout_ms = self._settings().broker.request_timeout_ms
        return await self._changes.finish(self._alter_configs(changes, changed_by), timeout_ms)

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
        planned = await in_turns(self.plans.plan_all(wanted), self._now_ns, TURN_NS)
        if not any(isinstance(each, KafkaError) for each in planned):
            return planned
        try:
            await self._tables.require_together()
        except KafkaStorageError as error:
            return [as_value(error) if isinstance(each, TopicAlreadyExistsError) else each for each in planned]
        return await in_turns(self.plans.plan_all(wanted), self._now_ns, TURN_NS)

    async def _create_all(self, wanted: Sequence[NewTopic], count: Count = no_quota) -> list[Creation | KafkaError]:
        made = await make_creations(wanted, await self._plan_all(wanted), self._new_topic, count, self._now_ns)
        found = {new.name: each for new, each in zip(wanted, made, strict=True)}
        creations = [each for each in made if not isinstance(each, KafkaError)]
        if creations:
            found |= await self._commit_all(creations)
        created = [new for new in wanted if not isinstance(found[new.name], KafkaError)]
        found |= await self._follow_changed(new.name for new in created if level_topics.wants_levels(new.config))
        return [found[new.name] for new in wanted]

    async def _follow_changed(self, names: Iterable[str]) -> dict[str, KafkaError]:
        """Follow topics of these names, which have levels and have changed. Return why that failed, for each of them."""
        changed = list(names)
        try:
            if changed:
                await self._follow_levels()
            return {}
        except KafkaError as error:
            return dict.fromkeys(changed, as_value(error))

    async def _follow_levels(self) -> None:
        """Create, extend and delete topics of delays, as the settings of the others ask. Raise `KafkaError`."""
        changes = level_topics.level_changes(self._topics)
        if changes.gone:
            await self._delete(changes.gone)
        if changes.small:
            more = sum(each.partitions - len(each.topic.registrations) for each in changes.small)
            self.plans.check_room(changes.small[0].topic.name, more)
            for refused in (await self._add_partitions(changes.small)).values():
                raise refused
        for created in await self._create_all(changes.missing) if changes.missing else ():
            if isinstance(created, KafkaError):
                raise created

    async def _commit_all(self, creations: Sequence[Creation]) -> dict[str, Creation | KafkaError]:
        """Commit the rows, then the version of the cluster. Return each topic's outcome by its name."""
        rows = [topic_row(each.topic, each.plan.partitions) for each in creations]
        refused: dict[str, KafkaError] = {}

        def create(image: ClusterImage) -> ClusterImage:
            if image.controller_epoch != epoch:  # a controller in between may have removed the rows
                raise NotControllerError()
            placed = place_all(image, creations, Placement(image, self._world.random), refused)
            return create_topics(image, placed, image.topics_version + 1) if placed else image

        async with self.settler.change_both():
            epoch = await self._add_rows(rows)
            self._reach(ControllerStep.ROWS_ADDED)
            await self._controller.change_topics(create, rows)
        if refused:
            await self.settler.settle()
        found: dict[str, Creation | KafkaError] = {**refused}
        created = [each for each in creations if each.topic.name not in refused]
        async for each in iterate_in_turns(created, self._now_ns):
            found[each.topic.name] = await self._served(each)
        return found

    async def _served(self, creation: Creation) -> Creation | KafkaError:
        """Return a topic that this broker serves now, or the error of one that it cannot serve, which is deleted.

        Where that fails the topic stays, offline: the topics that were created with it are served all the same.
        """
        topic, plan = self._topics.topic(creation.topic.name), creation.plan
        offline = [each.name for each in topic.replicas.values() if each.is_offline]
        if offline:
            try:
                await self._delete([topic])
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
            await self.settler.settle()
            return await self._tables.change_rows(lambda store, epoch: store.create_topics(rows, epoch))

    async def _delete_all(self, topics: Sequence[Topic], count: Count) -> list[KafkaError | None]:
        """Delete topics, and those of their delays. They are checked now: they may have waited for a change of their settings."""
        refused: dict[str, KafkaError] = {}
        deleted: dict[str, Topic] = {}
        targets_first = sorted(topics, key=lambda topic: topic.config.delay_level is not None)
        async for topic in iterate_in_turns(targets_first, self._now_ns):
            if not self._topics.is_current(topic):
                continue
            try:
                check_not_internal(topic.name)
                if topic.config.delay_target not in deleted:
                    level_topics.check_not_level(self._topics, topic)
                check_not_protected(topic)
                count(len(topic.registrations))
                deleted[topic.name] = topic
            except KafkaError as error:
                refused[topic.name] = as_value(error)
        if deleted:
            await self._delete(deleted.values())
        failed = await self._follow_changed(name for name, topic in deleted.items() if topic.config.delay_levels)
        failed |= refused
        return [failed.get(topic.name) for topic in topics]

    async def _delete(self, topics: Collection[Topic]) -> None:
        async with self.settler.change_both(lambda: not any(map(self._topics.is_current, topics))):
            await self._tables.delete([topic.topic_id for topic in topics])

    async def _check_all_more(self, wanted: Sequence[MorePartitions], count: Count) -> list[KafkaError | None]:
        checked = await in_turns(self.plans.check_all_more(wanted), self._now_ns, TURN_NS)
        for number, (more, refused) in enumerate(zip(wanted, checked, strict=True)):
            try:
                if refused is None:
                    count(more.partitions - len(more.topic.registrations))
            except KafkaError as error:
                checked[number] = as_value(error)
        return checked

    async def _check_and_add(self, wanted: Sequence[MorePartitions], count: Count) -> list[KafkaError | None]:
        await self._tables.require_together()
        checked = await self._check_all_more(wanted, count)
        added = [more for more, refused in zip(wanted, checked, strict=True) if refused is None]
        failed = await self._add_partitions(added) if added else {}
        return [refused or failed.get(more.topic.name) for more, refused in zip(wanted, checked, strict=True)]

    async def _add_partitions(self, wanted: Sequence[MorePartitions]) -> dict[str, KafkaError]:
        """Add partitions and follow topics of delays. Return by name why topics have not got them."""

        def is_done(more: MorePartitions) -> bool:
            return more.assignments is None and len(more.topic.registrations) == more.partitions

        refused: dict[str, KafkaError] = {}
        async with self.settler.change_both(lambda: all(map(is_done, wanted))):
            grown = [Growth(topic_row(topic, count), assignments) for topic, count, assignments in wanted]
            refused = await self._tables.grow(grown)
        if refused:
            await self.settler.settle()
        failed = {
            more.topic.name: refused[more.topic.name]
            for more in wanted
            if more.topic.name in refused and not is_done(more)
        }
        added = [more for more in wanted if more.topic.name not in failed]
        async for topic, count, _ in iterate_in_turns(added, self._now_ns):
            logger.info("partitions added topic=%s partitions=%d", topic.name, count)
        return failed | await self._follow_changed(more.topic.name for more in added if more.topic.config.delay_levels)

    async def _alter_configs(self, changes: Mapping[Topic, Change], changed_by: str) -> dict[Topic, KafkaError]:
        await self._tables.require_together()  # a deposed controller has the settings of before
        planned = await in_turns(self.plans.plan_alterations(changes), self._now_ns, TURN_NS)
        altered = planned.altered
        if not altered:
            return planned.refused
        async with self.settler.change_both(lambda: all(each.is_done for each in altered)):
            resized = [each.topic.topic_id for each in altered if each.is_resized]
            await self._tables.alter([each.row for each in altered], resized)
        unclean = [each.topic for each in altered if each.topic.election_rules.is_unclean_allowed]
        if leaderless := [partition for topic in unclean for partition in topic.leaderless]:
            await self._controller.elect_leaders(leaderless, Election.UNCLEAN)
        async for topic, _, of_topic, _ in iterate_in_turns(altered, self._now_ns):
            for name, old, new in of_topic:
                logger.info(
                    "topic setting changed topic=%s name=%s old=%s new=%s by=%s", topic.name, name, old, new, changed_by
                )
        failed = await self._follow_changed(each.topic.name for each in altered if each.changes_levels)
        return planned.refused | {each.topic: failed[each.topic.name] for each in altered if each.topic.name in failed}
