"""The two tables that have topics, `topics` and the cluster's versions. A fault between two commits leaves a topic in one alone."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Iterator
from functools import partial

from kafkalake.broker.controller.controller import Controller
from kafkalake.cluster.image import ClusterImage
from kafkalake.cluster.topic_changes import delete_topic
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

    async def bring_together(self) -> None:
        """Remove topics that only one of the tables has. Raise `KafkaError` if a table cannot be read or changed."""
        self.are_together = False
        known = await self._controller.change(_as_it_is, [])  # after a commit whose outcome is not known yet
        rows = await self._run_blocking(self._store.load_topics)
        for row in rows:
            if uuid.UUID(row.topic_id) not in known.partitions:
                logger.warning("topic of an unfinished creation removed topic=%s topic_id=%s", row.topic, row.topic_id)
                await self._run_blocking(partial(self._store.delete_topic, row.topic))
        in_delta = {uuid.UUID(row.topic_id) for row in rows}
        for topic_id in known.partitions.keys() - in_delta:
            await self._controller.change(partial(without_topic, topic_id), [])
        self.are_together = True


def without_topic(topic_id: uuid.UUID, image: ClusterImage) -> ClusterImage:
    """Return an image without a topic."""
    return delete_topic(image, topic_id, image.topics_version + 1)


def _as_it_is(image: ClusterImage) -> ClusterImage:
    return image
