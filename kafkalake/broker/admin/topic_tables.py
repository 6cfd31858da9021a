"""The two tables that have topics, `topics` and the cluster's versions. A fault between two commits leaves a topic in one alone.

A commit to the cluster's versions is refused if another broker is the controller. One to `topics` is not, so each follows a look at
the versions. It is of a topic's id: one that is late all the same removes no topic that has come again under its name.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterator
from functools import partial

from kafkalake.broker.controller.controller import Controller
from kafkalake.cluster.image import ClusterImage
from kafkalake.cluster.topic_changes import delete_topic
from kafkalake.errors import KafkaError, KafkaStorageError, NotControllerError, UnknownTopicOrPartitionError
from kafkalake.metadata.store import TopicTable
from kafkalake.run_blocking import RunBlocking

logger = logging.getLogger(__name__)


class TopicTables:
    """Both tables, as the controller has them."""

    def __init__(self, store: TopicTable, controller: Controller, run_blocking: RunBlocking) -> None:
        self._store = store
        self._controller = controller
        self._run_blocking = run_blocking
        self.are_together = True
        """Whether no topic is known that may be in one table alone, because its deletion has failed in between."""

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Have both tables changed, one after the other. If that fails they are not together until they are brought together."""
        before, self.are_together = self.are_together, False
        yield
        self.are_together = before

    async def change_rows(self, change: Callable[[TopicTable], None]) -> int:
        """Change rows of `topics`. Return the controller epoch in which that was begun.

        Raise `NotControllerError` if another broker is the controller, what `change` raises, or as `Controller.confirm`.
        """
        confirmed = await self._controller.confirm()
        await self._run_blocking(partial(change, self._store))
        return confirmed.controller_epoch

    async def require_together(self) -> None:
        """Wait until a topic that this broker has is none that is being deleted, or that another controller has deleted.

        Raise `NotControllerError` if another broker is the controller, `KafkaStorageError` if that cannot be found out.
        """
        try:
            await (self._controller.confirm() if self.are_together else self.bring_together())
        except NotControllerError:
            raise
        except KafkaError as error:
            raise KafkaStorageError(f"an earlier deletion may have yet to be finished: {error}") from error

    async def bring_together(self) -> None:
        """Remove topics that only one of the tables has. Raise `KafkaError` if a table cannot be read or changed.

        The rows are read between two looks at the versions, in one term: a topic whose row is read and that is in no version then
        comes into none, as its creation has ended, or was of an earlier controller.
        """
        self.are_together = False
        before = await self._controller.confirm()
        rows = await self._run_blocking(self._store.load_topics)
        known = await self._controller.confirm()
        if known.controller_epoch != before.controller_epoch:
            raise NotControllerError()
        for row in rows:
            if uuid.UUID(row.topic_id) not in known.partitions:
                logger.warning("topic of an unfinished creation removed topic=%s topic_id=%s", row.topic, row.topic_id)
                with contextlib.suppress(UnknownTopicOrPartitionError):
                    await self._run_blocking(partial(self._store.delete_topic, row.topic_id))
        in_delta = {uuid.UUID(row.topic_id) for row in rows}
        for topic_id in known.partitions.keys() - in_delta:
            await self._controller.change(partial(without_topic, topic_id), [])
        self.are_together = True


def without_topic(topic_id: uuid.UUID, image: ClusterImage) -> ClusterImage:
    """Return an image without a topic."""
    return delete_topic(image, topic_id, image.topics_version + 1)
