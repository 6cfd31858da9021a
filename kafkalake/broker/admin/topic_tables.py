"""The two tables that have topics, `topics` and the cluster's versions. A fault between two commits leaves a topic in one alone.

A commit to the cluster's versions is refused if another broker is the controller. One to `topics` follows a look at the versions
and has the controller epoch of that look: it is refused once a later controller has changed the table, or claimed it to read it.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from kafkalake.broker.admin.topic_plans import is_resized
from kafkalake.broker.controller.controller import Controller
from kafkalake.broker.controller.steps import ControllerStep, Reach
from kafkalake.broker.partitions.topic_rows import overrides_as_text
from kafkalake.broker.partitions.topics import Topics
from kafkalake.cluster.image import ClusterImage, decide_together
from kafkalake.cluster.placement import Placement, factor_of
from kafkalake.cluster.topic_changes import (
    add_partitions,
    change_topics,
    clear_eligible,
    delete_topics,
    new_partitions,
)
from kafkalake.config.layers import Settings
from kafkalake.config.stored import parse_stored_overrides
from kafkalake.errors import (
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    KafkaError,
    KafkaStorageError,
    NotControllerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    as_value,
)
from kafkalake.metadata.store import TopicTable
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.run_blocking import RunBlocking
from kafkalake.world import World

logger = logging.getLogger(__name__)


class Growth(NamedTuple):
    """The new row of a topic that gets more partitions. assignments: the replicas of the last ones, or None to place them."""

    row: TopicRow
    assignments: Sequence[Sequence[int]] | None = None


class TopicTables:
    """Both tables, as the controller has them."""

    def __init__(
        self,
        store: TopicTable,
        controller: Controller,
        topics: Topics,
        settings: Callable[[], Settings],
        run_blocking: RunBlocking,
        world: World,
        reach: Reach,
    ) -> None:
        self._store = store
        self._controller = controller
        self._topics = topics
        self._settings = settings
        self._run_blocking = run_blocking
        self._world = world
        self._reach = reach
        self.are_together = True
        """Whether no topic is known that may be different in both tables, because a change has failed in between."""

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Have both tables changed, one after the other. If that fails they are not together until they are brought together."""
        before, self.are_together = self.are_together, False
        yield
        self.are_together = before

    async def change_rows(self, change: Callable[[TopicTable, int], None]) -> int:
        """Change rows of `topics` in this controller epoch. Return the epoch.

        Raise `NotControllerError` if another broker is the controller, what `change` raises, or as `Controller.confirm`.
        """
        confirmed = await self._controller.confirm()
        await self._run_blocking(partial(change, self._store, confirmed.controller_epoch))
        return confirmed.controller_epoch

    async def delete(self, topic_ids: Collection[uuid.UUID]) -> None:
        """Delete topics, or finish an interrupted deletion. Raise as `change_rows` and `Controller.change`."""
        with contextlib.suppress(UnknownTopicOrPartitionError):  # an interrupted deletion has removed the rows
            await self.change_rows(lambda store, epoch: store.delete_topics([str(each) for each in topic_ids], epoch))
        self._reach(ControllerStep.ROWS_DELETED)
        await self._controller.change_topics(partial(without_topics, topic_ids), [])

    async def grow(self, grown: Sequence[Growth]) -> dict[str, KafkaError]:
        """Give topics more partitions, as many as their new rows have. Return as `with_partitions` why some have not got them.

        Raise as `change_rows` and `Controller.change`.
        """
        await self.change_rows(lambda store, epoch: store.alter_topics([each.row for each in grown], epoch))
        self._reach(ControllerStep.ROWS_GROWN)
        return await self._add_partitions(grown)

    async def alter(self, rows: Sequence[TopicRow], resized: Iterable[uuid.UUID]) -> None:
        """Give topics the settings of new rows, see `with_settings`. Raise as `change_rows` and `Controller.change`."""
        await self.change_rows(lambda store, epoch: store.alter_topics(rows, epoch))
        self._reach(ControllerStep.ROWS_ALTERED)
        await self._controller.change_topics(partial(with_settings, resized), rows)

    async def _add_partitions(self, grown: Sequence[Growth]) -> dict[str, KafkaError]:
        refused: dict[str, KafkaError] = {}
        rows = [each.row for each in grown]
        await self._controller.change_topics(partial(with_partitions, grown, self._world, refused), rows)
        return refused

    async def require_together(self) -> None:
        """Wait until what this broker has of topics is what both tables have, in the newest version.

        Raise `NotControllerError` if another broker is the controller, `KafkaStorageError` if that cannot be found out.
        """
        try:
            await (self._controller.confirm() if self.are_together else self.bring_together())
        except NotControllerError:
            raise
        except KafkaError as error:
            raise KafkaStorageError(f"an earlier change may have yet to be finished: {error}") from error

    async def bring_together(self) -> bool:
        """Remove topics that only one of the tables has, and have the partitions and settings of the rows followed.

        Return whether all partitions of the rows could be placed. Raise `KafkaError` if a table cannot be read or changed.

        The rows are read between two looks at the versions, in one term, and are claimed before: a topic whose row is read and that
        is in no version then comes into none, as its creation has ended, or was of an earlier controller.
        """
        self.are_together = False
        before = await self._controller.confirm()
        epoch = before.controller_epoch
        await self._run_blocking(partial(self._store.claim_topics, epoch))
        rows = await self._run_blocking(self._store.load_topics)
        known = await self._controller.confirm()
        if known.controller_epoch != epoch:
            raise NotControllerError()
        unfinished = [row for row in rows if uuid.UUID(row.topic_id) not in known.partitions]
        for row in unfinished:
            logger.warning("topic of an unfinished creation removed topic=%s topic_id=%s", row.topic, row.topic_id)
        if unfinished:
            with contextlib.suppress(UnknownTopicOrPartitionError):
                topic_ids = [row.topic_id for row in unfinished]
                await self._run_blocking(partial(self._store.delete_topics, topic_ids, epoch))
        in_delta = {uuid.UUID(row.topic_id) for row in rows}
        if gone := known.partitions.keys() - in_delta:
            await self._controller.change_topics(partial(without_topics, gone), [])
        grown = [row for row in rows if row.partitions > len(known.partitions.get(uuid.UUID(row.topic_id), ())) > 0]
        are_finished = not grown or await self._finish_growth(grown)
        changed, resized = await self._run_blocking(partial(changed_settings, rows, self._topics, self._settings()))
        if changed:
            await self._controller.change_topics(partial(with_settings, resized), changed)
        self.are_together = True
        return are_finished

    async def _finish_growth(self, rows: Sequence[TopicRow]) -> bool:
        """Add the partitions that only topics' rows have. Return whether there are brokers to place all of them on."""
        refused = await self._add_partitions([Growth(row) for row in rows])
        for row in rows:
            if row.topic in refused:
                error = refused[row.topic]
                logger.warning("partitions of an unfinished change not added topic=%s error=%s", row.topic, error)
            else:
                count = row.partitions
                logger.warning("partitions of an unfinished change added topic=%s partitions=%d", row.topic, count)
        return all(isinstance(error, UnknownTopicIdError) for error in refused.values())


def with_partitions(
    grown: Iterable[Growth], world: World, refused: dict[str, KafkaError], image: ClusterImage
) -> ClusterImage:
    """Return the next version, in which topics have the partitions of their rows; the same one if they have them.

    `refused` gets, by name, why a topic does not get them: `UnknownTopicIdError`, `InvalidReplicationFactorError` as of
    `Placement`, or `InvalidReplicaAssignmentError` as of `new_partitions`.
    """
    refused.clear()
    placement = Placement(image, world.random)
    added = {}
    for row, assignments in grown:
        topic_id = uuid.UUID(row.topic_id)
        existing = image.partitions.get(topic_id, ())
        missing = row.partitions - len(existing)
        try:
            if not existing:
                raise UnknownTopicIdError()
            if missing > 0:
                placed = (
                    assignments[-missing:] if assignments else placement.place(missing, factor_of(existing), existing)
                )
                added[topic_id] = new_partitions(image, placed, first=len(existing))
        except (UnknownTopicIdError, InvalidReplicationFactorError, InvalidReplicaAssignmentError) as error:
            refused[row.topic] = as_value(error)
    return add_partitions(image, added, image.topics_version + 1)


def changed_settings(
    rows: Iterable[TopicRow], served: Topics, settings: Settings
) -> tuple[list[TopicRow], list[uuid.UUID]]:
    """Return the rows with other settings than those served, and the ids of the topics with another `min.insync.replicas`.

    They are of a change that ended before its version.
    """
    changed, resized = [], []
    for row in rows:
        topic = served.find_id(uuid.UUID(row.topic_id))
        if topic is None or row.config == overrides_as_text(topic.overrides):
            continue
        overrides, _ = parse_stored_overrides(row.config)
        if overrides != topic.overrides:
            changed.append(row)
        if is_resized(topic, overrides, settings):
            resized.append(topic.topic_id)
    return changed, resized


def with_settings(resized: Iterable[uuid.UUID], image: ClusterImage) -> ClusterImage:
    """Return the next version, in which settings of topics have changed, `min.insync.replicas` of those that are `resized`."""
    clear = [partial(clear_eligible, topic_id=topic_id) for topic_id in resized]
    return decide_together(image, lambda now: change_topics(now, now.topics_version + 1), *clear)


def without_topics(topic_ids: Collection[uuid.UUID], image: ClusterImage) -> ClusterImage:
    """Return an image without topics."""
    return delete_topics(image, topic_ids, image.topics_version + 1)
