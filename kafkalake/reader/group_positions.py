"""Committed offsets of a Spark job as a consumer group, so that its lag appears with that of all other groups.

Offsets are committed through a broker of the lake, as by a consumer with manual assignment (no member, no generation).
Brokers are found in the lake (`brokers`) and accepted only if they answer with the lake's cluster id, because another process
may use the port by now. With no broker running, committed offsets are read from `group_offsets`, and commits are kept until one
runs: writing that table behind a broker's journal could be undone when the journal is replayed.

Spark's own Kafka connector commits nothing (SPARK-27549).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kafkalake.client.cluster import Cluster
from kafkalake.client.group_admin import commit_offsets, committed_offsets
from kafkalake.errors import BrokerUnavailableError, KafkaLakeError
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.identity import known_cluster_id
from kafkalake.reader.positions import Positions
from kafkalake.topic_partition import TopicPartition

TIMEOUT_MS = 10_000

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
            with self._cluster() as cluster:
                found = committed_offsets(cluster, self.group)
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
            with self._cluster() as cluster:
                commit_offsets(cluster, self.group, self._pending)
        except KafkaLakeError as error:
            self._warn(str(error))
            return False
        self._done |= self._pending
        self._pending = {}
        self._warned = ""
        return True

    @contextmanager
    def _cluster(self) -> Iterator[Cluster]:
        """Connect to a running broker of this lake. Raise `BrokerUnavailableError` if there is none."""
        wanted = known_cluster_id(self._lake)
        brokers = self._tables.load_brokers() if wanted is not None else []
        for row in brokers:
            with Cluster(
                f"{row.host}:{row.port}",
                client_id="kafkalake-spark",
                request_timeout_ms=TIMEOUT_MS,
                retry_timeout_ms=TIMEOUT_MS,
            ) as cluster:
                try:
                    cluster.refresh(())
                except KafkaLakeError:
                    continue
                if cluster.cluster_id == wanted:
                    yield cluster
                    return
        raise BrokerUnavailableError(f"no broker of {self._lake} is running")

    def _warn(self, why: str) -> None:
        if why != self._warned:
            logger.warning("group %s: offsets not committed, tried again with the next batch: %s", self.group, why)
            self._warned = why
