"""Committed offsets of a Spark job as a consumer group, so that its lag appears with that of all other groups.

Offsets are committed through a broker of the lake, as by a consumer with manual assignment (no member, no generation).
With no broker running, committed offsets are read from `group_offsets`, and commits are kept until one
runs: writing that table behind a broker's journal could be undone when the journal is replayed.

Positions are of topics, not of names: those of a topic that was deleted are not committed, neither to the next topic of the name
nor, as a broker refuses that, to none.

Spark's own Kafka connector commits nothing (SPARK-27549).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from kafkalake.errors import BrokerUnavailableError, KafkaLakeError
from kafkalake.metadata.catalog import is_committed_to
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.reader.lake_broker import connect
from kafkalake.reader.live_partitions import topic_id_of
from kafkalake.reader.positions import Positions, TopicIds, is_another
from kafkalake.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


class GroupPositions:
    """The consumer group `group` of the lake at `lake`, which has these `tables`."""

    def __init__(self, lake: str | Path, group: str, tables: DeltaMetadataStore) -> None:
        self.group = group
        self._tables = tables
        self._lake = Path(lake).absolute()
        self._pending: Positions = {}
        self._done: Positions = {}
        self._topic_ids: TopicIds = {}
        self._warned = ""

    def committed(self) -> Positions:
        """Return the committed offsets of a running broker, or else the last published. Raise `LakeError` or `KafkaError`."""
        try:
            with connect(self._lake) as admin:
                found = admin.committed_offsets(self.group)
            return {partition: each.offset for partition, each in found.items()}
        except BrokerUnavailableError:
            rows = self._tables.load_group_offsets().rows
            topics = {topic.topic: topic for topic in self._tables.load_topics()}
            return {
                (row.topic, row.partition): row.offset
                for row in rows
                if row.group == self.group and row.offset is not None and is_committed_to(row, topics.get(row.topic))
            }

    def commit(self, positions: Mapping[TopicPartition, int], topic_ids: Mapping[str, str]) -> bool:
        """Commit changed positions and return success. Failed ones are retried by the next call. Log a failure once.

        topic_ids: of the topics that the positions are of, as far as they are known.
        """
        self._forget_earlier(topic_ids)
        self._pending |= {where: offset for where, offset in positions.items() if self._done.get(where) != offset}
        try:
            self._pending = self._of_topics_now(self._pending)
            if self._pending:
                with connect(self._lake) as admin:
                    admin.alter_offsets(self.group, self._pending)
        except KafkaLakeError as error:
            self._warn(str(error))
            return False
        self._done |= self._pending
        self._pending = {}
        self._warned = ""
        return True

    def _forget_earlier(self, topic_ids: Mapping[str, str]) -> None:
        """Forget the positions of topics that now are others of their names."""
        anew = {topic for topic, topic_id in topic_ids.items() if is_another(topic, topic_id, self._topic_ids)}
        self._pending, self._done = (
            {where: offset for where, offset in each.items() if where[0] not in anew}
            for each in (self._pending, self._done)
        )
        self._topic_ids |= topic_ids

    def _of_topics_now(self, positions: Positions) -> Positions:
        """Return the positions of the topics that are there, without those of earlier topics of their names."""
        if not positions:
            return positions
        topics = {topic.topic: topic for topic in self._tables.find_topics({topic for topic, _ in positions})}
        return {
            (name, partition): offset
            for (name, partition), offset in positions.items()
            if (topic := topics.get(name)) is not None
            and partition < topic.partitions
            and not is_another(name, topic_id_of(topic), self._topic_ids)
        }

    def _warn(self, why: str) -> None:
        if why != self._warned:
            logger.warning("group %s: offsets not committed, tried again with the next batch: %s", self.group, why)
            self._warned = why
