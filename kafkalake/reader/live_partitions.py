"""The partitions of a lake as their leaders have them: the directory of each, and where its records begin and end.

Every reader and job that has no broker to ask looks here. Which row of a partition counts is decided in `metadata/changes.py`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from kafkalake.errors import LakeError
from kafkalake.log_starts import raised_log_start
from kafkalake.metadata import paths
from kafkalake.metadata.catalog import directory_of, partitions_by_id
from kafkalake.metadata.tables.schemas import PartitionRow, TopicRow
from kafkalake.reader.read_options import READ_COMMITTED
from kafkalake.storage.partition_metadata import read_topic_id
from kafkalake.storage.state import STATE_FILE, PartitionState, read_state
from kafkalake.uuid_text import encode_uuid


@dataclass(frozen=True, slots=True)
class LivePartition:
    """A partition. row: of Delta, None before its first publish. directory: None if it was created and never opened."""

    topic: TopicRow
    number: int
    row: PartitionRow | None
    directory: Path | None

    def state(self) -> PartitionState:
        """Return its offsets now, with the log start that counts. Raise `LakeError` if the directory is not readable."""
        if self.directory is None:
            return PartitionState()
        state = read_state(self.directory)
        return state if self.row is None else state._replace(log_start_offset=log_start(state, self.row))


class LivePartitions:
    """The partitions of `rows`, as `PartitionTable.load_partitions` has them, and those without a row yet."""

    def __init__(self, lake: Path, rows: Iterable[PartitionRow]) -> None:
        self._lake = lake
        self._rows = partitions_by_id(rows)

    def of(self, topic: TopicRow, number: int) -> LivePartition:
        """Return a partition, looking for its directory.

        Raise `LakeError` if it has records that this host cannot see, or if the directory now belongs to another topic of the name.
        """
        found = self.of_version(topic, number)
        row = found.row
        if found.directory is None and row is not None and row.log_end_offset > 0:
            missing = directory_of(self._lake, row)
            if missing.is_dir():
                raise LakeError(
                    f"{missing} belongs to another topic: {topic.topic} was deleted and created again just now"
                )
            raise LakeError(
                f"{missing} cannot be seen on host {socket.gethostname()}, and holds {topic.topic}-{number}"
            )
        return found

    def of_version(self, topic: TopicRow, number: int) -> LivePartition:
        """Return a partition of an earlier version, whose directory may be gone."""
        row = self._rows.get((topic.topic_id, number))
        return LivePartition(topic, number, row, _directory(self._lake, topic, number, row))


def log_start(state: PartitionState, row: PartitionRow) -> int:
    """Return the first offset of a partition: retention raises it in Delta, and its broker (or the next start) in `state` later."""
    return raised_log_start(state.log_start_offset, row.log_start_offset, state.high_watermark)


def readable_end(offsets: PartitionState | PartitionRow, isolation: str) -> int:
    """Return the offset after the last one that a read with this isolation may see."""
    return offsets.last_stable_offset if isolation == READ_COMMITTED else offsets.high_watermark


def topic_id_of(topic: TopicRow) -> str:
    """Return the topic's id in Kafka's format, as in the directories of its partitions."""
    return encode_uuid(UUID(topic.topic_id))


def _directory(lake: Path, topic: TopicRow, partition: int, row: PartitionRow | None) -> Path | None:
    """Return the directory of the partition with this topic id, or None if it was created and never opened."""
    if row is not None:
        directory = directory_of(lake, row)
        if directory.is_dir() and _is_of(directory, topic):
            return directory
    found = paths.partition_paths(lake, topic.topic, partition).values()
    return next((path for path in found if (path / STATE_FILE).exists() and _is_of(path, topic)), None)


def _is_of(directory: Path, topic: TopicRow) -> bool:
    """Return whether the directory is the topic's. In a lake of version 0.1 directories have no topic id."""
    return read_topic_id(directory) in (None, UUID(topic.topic_id))
