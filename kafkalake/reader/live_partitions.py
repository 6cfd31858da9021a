"""The partitions of a lake as their leaders have them: the directory of each, and where its records begin and end.

Every reader and job that has no broker to ask looks here. The table `cluster` has the leaders (`metadata/catalog.py`);
`watermarks.py` decides whether a `state` has the true watermark:

    1. read the newest version of `cluster`      a leader is in it before it acknowledges anything
    2. read the leader's `state`                 it has every acknowledged record, or the leader has just begun
    3. look for a newer version                  another leader since: again from 1

A leader that has not begun or has just begun, or whose directory is not there or has no valid `state`, is waited for, at most
`_PATIENCE_S` for all partitions together. After that the largest watermark that is known counts, of all replicas and of Delta. The
leader's log is read if it has begun, otherwise the one whose `state` has the largest watermark.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

from kafkalake.cluster.image import NO_LEADER, ClusterImage, PartitionRegistration
from kafkalake.errors import LakeError
from kafkalake.log_starts import raised_log_start
from kafkalake.metadata import paths
from kafkalake.metadata.catalog import directories_of, partitions_by_id, registration_of
from kafkalake.metadata.tables.schemas import PartitionRow, SegmentRow, TopicRow
from kafkalake.reader.read_options import READ_COMMITTED
from kafkalake.reader.watermarks import has_begun, is_settled, watermark_limit, with_known_watermarks
from kafkalake.storage.files import REAL_FILES
from kafkalake.storage.partition_metadata import read_topic_id
from kafkalake.storage.segment_names import file_name
from kafkalake.storage.state import STATE_FILE, PartitionState, read_state
from kafkalake.uuid_text import encode_uuid

_PATIENCE_S = 1.0
_LOOK_AGAIN_S = 0.005


@dataclass(frozen=True, slots=True)
class LivePartition:
    """A partition when it was looked at.

    row: of Delta, None before its first publish. broker_id, directory: the replica that is read, the leader's if it is there and
    has begun; None if the partition was created and never opened. state: its offsets, with the log start that counts. replicas:
    where each of them has its files, on this host or not, by broker, the leader first. partitions: where it was looked up.
    """

    topic: TopicRow
    number: int
    row: PartitionRow | None
    registration: PartitionRegistration
    replicas: Mapping[int, Path]
    broker_id: int | None = None
    directory: Path | None = None
    state: PartitionState = field(default_factory=PartitionState)
    partitions: LivePartitions | None = field(default=None, repr=False, compare=False)

    def look_again(self) -> LivePartition:
        """Return the partition as it is now. Raise the errors of `LivePartitions.of`."""
        return self if self.partitions is None else self.partitions.of(self.topic, self.number)

    def other_directories(self) -> Iterator[Path]:
        """Yield the directories of the other replicas that this host sees."""
        return (each for each in self.replicas.values() if each != self.directory and _is_of(each, self.topic))


class LivePartitions:
    """The partitions of `rows`, as `PartitionTable.load_partitions` has them, and those without a row yet.

    newest_image: returns the newest version of the cluster, as `DeltaMetadataStore.newest_image` does.
    """

    def __init__(self, lake: Path, rows: Iterable[PartitionRow], newest_image: Callable[[], ClusterImage]) -> None:
        self._lake = lake
        self._rows = partitions_by_id(rows)
        self._newest_image = newest_image
        self._image = newest_image()
        self._deadline_s: float | None = None

    def of(self, topic: TopicRow, number: int) -> LivePartition:
        """Return a partition now, of its leader.

        Raise `LakeError` if it has records that this host cannot see, if the directory now belongs to another topic of the name, or
        if no replica's `state` can be read.
        """
        row = self._rows.get((topic.topic_id, number))
        registration = self._registration(topic, number)
        while True:
            found, is_true = self._look(topic, number, row, registration)
            if is_true and len(registration.replicas) <= 1:
                break
            self._image = self._newest_image()
            newest = self._registration(topic, number)
            is_led_on = newest.leader_epoch == registration.leader_epoch
            if (is_true and is_led_on) or not self._may_wait():
                break
            if is_led_on:
                time.sleep(_LOOK_AGAIN_S)
            registration = newest
        if found.directory is None and row is not None and row.log_end_offset > 0:
            raise LakeError(_not_seen(found))
        return found

    def of_version(self, topic: TopicRow, number: int) -> LivePartition:
        """Return a partition of an earlier version, whose directory may be gone. Its `state` is what the directory has now."""
        row = self._rows.get((topic.topic_id, number))
        return self._look(topic, number, row, self._registration(topic, number))[0]

    def _registration(self, topic: TopicRow, number: int) -> PartitionRegistration:
        row = self._rows.get((topic.topic_id, number))
        return registration_of(self._image, topic.topic_id, number, row)

    def _may_wait(self) -> bool:
        now_s = time.monotonic()
        if self._deadline_s is None:
            self._deadline_s = now_s + _PATIENCE_S
        return now_s < self._deadline_s

    def _look(
        self, topic: TopicRow, number: int, row: PartitionRow | None, registration: PartitionRegistration
    ) -> tuple[LivePartition, bool]:
        """Return a partition, and whether its state has every record that was acknowledged until now."""
        replicas = self._replicas(topic, number, registration)
        nothing = LivePartition(topic, number, row, registration, replicas, partitions=self)
        leader = registration.leader
        of_leader = {leader: replicas[leader]} if leader in replicas else {}
        leading = dict(_states(of_leader, topic)).get(leader)
        if leading is not None and is_settled(leading, registration):
            return _at(nothing, leader, leading), True
        states = dict(_states(replicas, topic)) | ({} if leading is None else {leader: leading})
        if not states:  # of those that are there, the first says why it cannot be read
            states = {each: read_state(where) for each, where in replicas.items() if _is_of(where, topic)}
        if not states:
            return nothing, registration.leader == NO_LEADER or row is None or row.log_end_offset == 0
        leads = leading is not None and has_begun(leading, registration)
        read = leader if leads else max(states, key=lambda each: (states[each].high_watermark, each == leader))
        limit = watermark_limit(states[read], leads=leads)
        state = with_known_watermarks(states[read], [*states.values(), *([] if row is None else [row])], limit)
        is_true = leader == NO_LEADER or (leads and state.high_watermark == limit)
        return _at(nothing, read, state), is_true

    def _replicas(self, topic: TopicRow, number: int, registration: PartitionRegistration) -> dict[int, Path]:
        if registration.replicas:
            return directories_of(self._lake, registration, topic.topic, number)
        found = paths.partition_paths(self._lake, topic.topic, number)  # a lake of 0.1, before the first publish
        return {broker_id: path for broker_id, path in found.items() if (path / STATE_FILE).exists()}


def file_names(directory: Path) -> list[str]:
    """Return the names of a partition's files. Raise `LakeError` if they cannot be listed."""
    try:
        return REAL_FILES.list(str(directory))
    except OSError as error:
        raise LakeError(f"{directory} cannot be listed: {error.strerror or error}") from error


def files_of(
    lake: Path, partition: LivePartition, names: Collection[str], rows: Iterable[SegmentRow]
) -> Iterator[tuple[SegmentRow, str]]:
    """Yield rows of `segments` with their files: in the directory that is read, which has `names`, or in another replica's.

    A file that no replica has is where the row says, for the error of whoever opens it.
    """
    here = frozenset(names)
    others: list[Path] | None = None
    for row in rows:
        name = file_name(row.base_offset, generation=row.generation)
        path = os.path.join(lake, row.path)
        if name in here and partition.directory is not None:
            path = os.path.join(partition.directory, name)
        elif not os.path.exists(path):
            others = list(partition.other_directories()) if others is None else others
            path = next((str(each / name) for each in others if (each / name).exists()), path)
        yield row, path


def log_start(state: PartitionState, row: PartitionRow) -> int:
    """Return the first offset of a partition: retention raises it in Delta, and its broker (or the next start) in `state` later."""
    return raised_log_start(state.log_start_offset, row.log_start_offset, state.high_watermark)


def readable_end(offsets: PartitionState | PartitionRow, isolation: str) -> int:
    """Return the offset after the last one that a read with this isolation may see."""
    return offsets.last_stable_offset if isolation == READ_COMMITTED else offsets.high_watermark


def topic_id_of(topic: TopicRow) -> str:
    """Return the topic's id in Kafka's format, as in the directories of its partitions."""
    return encode_uuid(UUID(topic.topic_id))


def _is_of(directory: Path, topic: TopicRow) -> bool:
    """Return whether this host sees a log of the topic there. In a lake of version 0.1 directories have no topic id."""
    return (directory / STATE_FILE).exists() and read_topic_id(directory) in (None, UUID(topic.topic_id))


def _states(replicas: Mapping[int, Path], topic: TopicRow) -> Iterator[tuple[int, PartitionState]]:
    """Yield what the replicas' files say that this host sees, by broker. A file that cannot be read says nothing."""
    for broker_id, directory in replicas.items():
        with contextlib.suppress(LakeError, OSError):
            if _is_of(directory, topic):
                yield broker_id, read_state(directory)


def _at(partition: LivePartition, broker_id: int, state: PartitionState) -> LivePartition:
    start = state.log_start_offset if partition.row is None else log_start(state, partition.row)
    directory = partition.replicas[broker_id]
    return replace(partition, broker_id=broker_id, directory=directory, state=state._replace(log_start_offset=start))


def _not_seen(partition: LivePartition) -> str:
    missing = next(iter(partition.replicas.values()))
    if missing.is_dir():
        name = partition.topic.topic
        return f"{missing} belongs to another topic: {name} was deleted and created again just now"
    return (
        f"{missing} cannot be seen on host {socket.gethostname()}, and holds {partition.topic.topic}-{partition.number}"
    )
