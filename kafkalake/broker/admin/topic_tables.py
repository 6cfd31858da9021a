"""The two tables that have topics, `topics` and the cluster's versions. A fault between two commits leaves a topic in one alone.

A commit to the cluster's versions is refused if another broker is the controller. One to `topics` follows a look at the versions
and has the controller epoch of that look: it is refused once a later controller has changed the table, or claimed it to read it.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from kafkalake.broker.controller.controller import Controller
from kafkalake.broker.controller.steps import ControllerStep, Reach
from kafkalake.broker.partitions.topic_rows import overrides_as_text
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.cluster.image import ClusterImage, decide_together
from kafkalake.cluster.placement import factor_of, place
from kafkalake.cluster.topic_changes import add_partitions, change_topics, clear_eligible, delete_topic
from kafkalake.config.layers import Settings
from kafkalake.config.setting import Value
from kafkalake.config.stored import parse_stored_overrides
from kafkalake.errors import (
    InvalidReplicationFactorError,
    KafkaError,
    KafkaStorageError,
    NotControllerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kafkalake.metadata.store import TopicTable
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.run_blocking import RunBlocking
from kafkalake.world import World

logger = logging.getLogger(__name__)


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

    async def delete(self, topic_id: uuid.UUID) -> None:
        """Delete a topic, or finish an interrupted deletion. Raise as `change_rows` and `Controller.change`."""
        with contextlib.suppress(UnknownTopicOrPartitionError):  # an interrupted deletion has removed the row
            await self.change_rows(lambda store, epoch: store.delete_topic(str(topic_id), epoch))
        self._reach(ControllerStep.ROW_DELETED)
        await self._controller.change(partial(without_topic, topic_id), [])

    async def grow(self, row: TopicRow, assignments: Sequence[Sequence[int]] | None) -> None:
        """Give a topic more partitions, as many as a new row has. Raise as `change_rows` and `Controller.change`."""
        await self.change_rows(lambda store, epoch: store.alter_topic(row, epoch))
        self._reach(ControllerStep.ROW_GROWN)
        await self._add_partitions(row, assignments)

    async def alter(self, row: TopicRow, resized: Iterable[uuid.UUID]) -> None:
        """Give a topic the settings of a new row, see `with_settings`. Raise as `change_rows` and `Controller.change`."""
        await self.change_rows(lambda store, epoch: store.alter_topic(row, epoch))
        self._reach(ControllerStep.ROW_ALTERED)
        await self._controller.change(partial(with_settings, resized), [row])

    async def _add_partitions(self, row: TopicRow, assignments: Sequence[Sequence[int]] | None = None) -> None:
        await self._controller.change(partial(with_partitions, row, assignments, self._world), [row])

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
        for row in rows:
            if uuid.UUID(row.topic_id) not in known.partitions:
                logger.warning("topic of an unfinished creation removed topic=%s topic_id=%s", row.topic, row.topic_id)
                with contextlib.suppress(UnknownTopicOrPartitionError):
                    await self._run_blocking(partial(self._store.delete_topic, row.topic_id, epoch))
        in_delta = {uuid.UUID(row.topic_id) for row in rows}
        for topic_id in known.partitions.keys() - in_delta:
            await self._controller.change(partial(without_topic, topic_id), [])
        grown = [row for row in rows if row.partitions > len(known.partitions.get(uuid.UUID(row.topic_id), ())) > 0]
        are_finished = [await self._finish_growth(row) for row in grown]
        changed, resized = await self._run_blocking(partial(changed_settings, rows, self._topics, self._settings()))
        if changed:
            await self._controller.change(partial(with_settings, resized), changed)
        self.are_together = True
        return all(are_finished)

    async def _finish_growth(self, row: TopicRow) -> bool:
        """Add the partitions that only a topic's row has. Return whether there are brokers to place them on."""
        try:
            await self._add_partitions(row)
        except UnknownTopicIdError:
            return True
        except InvalidReplicationFactorError as error:
            logger.warning("partitions of an unfinished change not added topic=%s error=%s", row.topic, error)
            return False
        logger.warning("partitions of an unfinished change added topic=%s partitions=%d", row.topic, row.partitions)
        return True


def with_partitions(
    row: TopicRow, assignments: Sequence[Sequence[int]] | None, world: World, image: ClusterImage
) -> ClusterImage:
    """Return the next version, in which a topic has the partitions of its row; the same one if it has them.

    assignments: the replicas of the last ones. Raise `InvalidReplicationFactorError` as `place`, or as `add_partitions`.
    """
    topic_id = uuid.UUID(row.topic_id)
    existing = image.partitions.get(topic_id, ())
    missing = row.partitions - len(existing)
    if missing <= 0:
        return image
    if not existing:
        raise UnknownTopicIdError()
    more = assignments[-missing:] if assignments else place(image, missing, factor_of(existing), world.random, existing)
    return add_partitions(image, topic_id, more, image.topics_version + 1)


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


def is_resized(topic: Topic, overrides: Mapping[str, Value], settings: Settings) -> bool:
    """Return whether a topic has another `min.insync.replicas` with these settings of its own."""
    return settings.topic(overrides).min_insync_replicas != topic.config.min_insync_replicas


def with_settings(resized: Iterable[uuid.UUID], image: ClusterImage) -> ClusterImage:
    """Return the next version, in which settings of topics have changed, `min.insync.replicas` of those that are `resized`."""
    clear = [partial(clear_eligible, topic_id=topic_id) for topic_id in resized]
    return decide_together(image, lambda now: change_topics(now, now.topics_version + 1), *clear)


def without_topic(topic_id: uuid.UUID, image: ClusterImage) -> ClusterImage:
    """Return an image without a topic."""
    return delete_topic(image, topic_id, image.topics_version + 1)
