"""A Spark job as a consumer group: committed offsets, read and written, so that its lag shows where every other group's does.

Offsets are committed through a broker of the lake, as by a consumer that assigns its partitions itself (no member, no generation).
Brokers are found in the lake (`brokers`), and believed only when they answer with the lake's cluster id: the port may be
another's by now. With no broker running, committed offsets are read from `group_offsets`, and a commit is kept until one
runs: what is written to that table behind a broker's journal could be undone when the journal is read again.

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
from kafkalake.reader.positions import Partition, Positions

TIMEOUT_MS = 10_000

_log = logging.getLogger(__name__)


class ConsumerGroup:
    """The group `group` of the lake at `lake`."""

    def __init__(self, lake: str | Path, group: str) -> None:
        self.group = group
        self._lake = Path(lake).absolute()
        self._pending: Positions = {}
        self._done: Positions = {}
        self._warned = ""

    def committed(self) -> Positions:
        """The committed offsets: a running broker's, else what was published last. Raises `LakeError`, `KafkaError`."""
        store = DeltaMetadataStore(self._lake, create=False)
        try:
            with self._cluster(store) as cluster:
                found = committed_offsets(cluster, self.group)
            return {partition: each.offset for partition, each in found.items()}
        except BrokerUnavailableError:
            rows = store.load_group_offsets().rows
            topic_ids = {topic.topic: topic.topic_id for topic in store.load_topics()}
            return {
                (row.topic, row.partition): row.offset
                for row in rows
                if row.group == self.group and row.offset is not None and row.is_for(topic_ids.get(row.topic))
            }

    def commit(self, positions: Mapping[Partition, int]) -> bool:
        """Commit what is new in `positions`; whether it was. What was not comes along with the next; why is logged, once."""
        self._pending |= {where: offset for where, offset in positions.items() if self._done.get(where) != offset}
        if not self._pending:
            return True
        try:
            with self._cluster(DeltaMetadataStore(self._lake, create=False)) as cluster:
                commit_offsets(cluster, self.group, self._pending)
        except KafkaLakeError as error:
            self._warn(str(error))
            return False
        self._done |= self._pending
        self._pending = {}
        self._warned = ""
        return True

    @contextmanager
    def _cluster(self, store: DeltaMetadataStore) -> Iterator[Cluster]:
        """A running broker of this lake. Raises `BrokerUnavailableError`."""
        wanted = known_cluster_id(self._lake)
        brokers = store.load_brokers() if wanted is not None else []
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
            _log.warning("group %s: offsets not committed, tried again with the next batch: %s", self.group, why)
            self._warned = why
