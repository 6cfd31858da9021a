"""Committed offsets of a Spark job as a consumer group, so that its lag appears with that of all other groups.

Offsets are committed through a broker of the lake, as by a consumer with manual assignment (no member, no generation).
With no broker running, committed offsets are read from `group_offsets`, and commits are kept until one
runs: writing that table behind a broker's journal could be undone when the journal is replayed.

Spark's own Kafka connector commits nothing (SPARK-27549).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from kafkalake.errors import BrokerUnavailableError, KafkaLakeError
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.reader.lake_broker import connect
from kafkalake.reader.positions import Positions
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
        self._warned = ""

    def committed(self) -> Positions:
        """Return the committed offsets of a running broker, or else the last published. Raise `LakeError` or `KafkaError`."""
        try:
            with connect(self._lake) as admin:
                found = admin.committed_offsets(self.group)
            return {partition: each.offset for partition, each in found.items()}
        except BrokerUnavailableError:
            rows = self._tables.load_group_offsets().rows
            topic_ids = {topic.topic: topic.topic_id for topic in self._tables.load_topics()}
            return {
                (row.topic, row.partition): row.offset
                for row in rows
                if row.group == self.group and row.offset is not None and row.is_for(topic_ids.get(row.topic))
            }

    def commit(self, positions: Mapping[TopicPartition, int]) -> bool:
        """Commit changed positions and return success. Failed ones are retried by the next call. Log a failure once."""
        self._pending |= {where: offset for where, offset in positions.items() if self._done.get(where) != offset}
        if not self._pending:
            return True
        try:
            with connect(self._lake) as admin:
                admin.alter_offsets(self.group, self._pending)
        except KafkaLakeError as error:
            self._warn(str(error))
            return False
        self._done |= self._pending
        self._pending = {}
        self._warned = ""
        return True

    def _warn(self, why: str) -> None:
        if why != self._warned:
            logger.warning("group %s: offsets not committed, tried again with the next batch: %s", self.group, why)
            self._warned = why
