"""Reads the current start and end of a stream's partitions from their `state` files, once per micro-batch.

The tables stay open between calls, so that each call costs a listing of two logs and 256 bytes per partition.
"""

from __future__ import annotations

from pathlib import Path

from kafkalake.errors import UnknownTopicOrPartitionError
from kafkalake.metadata.catalog import partitions_by_id
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.reader.positions import Edge
from kafkalake.reader.read_options import READ_COMMITTED, ReadOptions
from kafkalake.reader.snapshot import live_directory, log_start, topic_id_of, wanted_partitions
from kafkalake.storage.state import read_state
from kafkalake.topic_partition import TopicPartition


class Edges:
    """The edges of the partitions that `options` name. The topics that match a pattern may change between calls."""

    def __init__(self, options: ReadOptions) -> None:
        """Raise `LakeError` if there is no lake."""
        self._options = options
        self._lake = Path(options.lake).absolute()
        self.store = DeltaMetadataStore(self._lake, create=False)

    def look(self) -> dict[TopicPartition, Edge]:
        """Return the edges by topic and partition. Raise `UnknownTopicOrPartitionError` (for a named topic) or `LakeError`."""
        try:
            wanted = wanted_partitions(self._options, self.store.load_topics())
        except UnknownTopicOrPartitionError:
            if self._options.pattern is None:
                raise
            return {}  # a matching topic may be created later
        leaders = partitions_by_id(self.store.load_partitions())
        found = {}
        for topic, partitions in wanted:
            topic_id = topic_id_of(topic)
            for partition in partitions:
                row = leaders.get((topic.topic_id, partition))
                directory = live_directory(self._lake, topic, partition, row)
                if directory is None:
                    found[topic.topic, partition] = Edge(0, 0, 0, topic_id)
                    continue
                state = read_state(directory)
                readable = (
                    state.last_stable_offset if self._options.isolation == READ_COMMITTED else state.high_watermark
                )
                found[topic.topic, partition] = Edge(log_start(state, row), readable, state.log_end_offset, topic_id)
        return found
