"""Reads the current start and end of a stream's partitions from their `state` files, once per micro-batch.

The tables stay open between calls, so that each call costs a listing of two logs and 256 bytes per partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kafkalake.errors import UnknownTopicOrPartitionError
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.reader.live_partitions import LivePartition, LivePartitions, readable_end, topic_id_of
from kafkalake.reader.positions import Edge
from kafkalake.reader.read_options import ReadOptions
from kafkalake.reader.snapshot import wanted_partitions
from kafkalake.topic_partition import TopicPartition


class PartitionBounds:
    """The edges of the partitions that `options` name. The topics that match a pattern may change between calls."""

    def __init__(self, options: ReadOptions, tables: DeltaMetadataStore) -> None:
        """tables: of the lake."""
        self._options = options
        self._lake = Path(options.lake).absolute()
        self.tables = tables

    def look(self) -> dict[TopicPartition, Edge]:
        """Return the edges by topic and partition. Raise `UnknownTopicOrPartitionError` (for a named topic) or `LakeError`."""
        found = {}
        for partition in self._partitions():
            state = partition.state
            end = readable_end(state, self._options.isolation)
            edge = Edge(state.log_start_offset, end, state.log_end_offset, topic_id_of(partition.topic))
            found[partition.topic.topic, partition.number] = edge
        return found

    def directories(self) -> dict[TopicPartition, Path]:
        """Return the directories of the leaders' logs, without partitions that were never opened. Raise the errors of `look`."""
        return {
            (partition.topic.topic, partition.number): partition.directory
            for partition in self._partitions()
            if partition.directory is not None
        }

    def _partitions(self) -> Iterator[LivePartition]:
        try:
            wanted = wanted_partitions(self._options, self.tables.load_topics())
        except UnknownTopicOrPartitionError:
            if self._options.pattern is None:
                raise
            return  # a matching topic may be created later
        live = LivePartitions(self._lake, self.tables.load_partitions(), self.tables.newest_image)
        for topic, partitions in wanted:
            for number in partitions:
                yield live.of(topic, number)
