"""The input of the jobs that clean logs: the sealed segments and the broker's state of each partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafkalake.internal_topics import INTERNAL
from kafkalake.jobs.frame import Run
from kafkalake.metadata.catalog import segments_by_id
from kafkalake.metadata.tables.schemas import SegmentRow, TopicRow
from kafkalake.reader.live_partitions import LivePartition, LivePartitions, file_names, files_of
from kafkalake.storage.state import PartitionState


@dataclass(frozen=True, slots=True)
class CleanedPartition:
    """A partition with sealed segments. `rows`: ascending, including those below the log start; `files`: where each one's file is.

    broker_id, directory: the replica that a job reads and rewrites, as in `LivePartition`. state: with the log start that readers
    use, Delta's or the broker's.
    """

    topic: TopicRow
    number: int
    broker_id: int
    directory: Path
    state: PartitionState
    rows: Sequence[SegmentRow]
    files: Sequence[str]


def cleaned_topics(run: Run) -> list[TopicRow]:
    """Return the topics of a run, without journals, which the broker trims itself."""
    return [topic for topic in run.topics if topic.topic not in INTERNAL]


def cleaned_partitions(run: Run, topics: Sequence[TopicRow]) -> Iterator[CleanedPartition]:
    """Yield the partitions of `topics`, by topic and number, without those that cannot be read, which the run names.

    Raise `LakeError` or `KafkaStorageError`.
    """
    segments = segments_by_id(run.store.load_segments()) if topics else {}
    live = LivePartitions(run.lake, run.store.load_partitions(), run.store.newest_image)
    for topic in topics:
        for number in range(topic.partitions):
            found = None
            if rows := segments.get((topic.topic_id, number)):
                with run.reading(topic.topic, number):
                    found = _cleaned(run.lake, live.of(topic, number), rows)
            if found is not None:
                yield found


def _cleaned(lake: Path, found: LivePartition, rows: Sequence[SegmentRow]) -> CleanedPartition | None:
    """Return a partition with sealed segments, or None if it was never published or opened. Raise `LakeError`."""
    if found.row is None or found.broker_id is None or found.directory is None:
        return None
    files = [path for _, path in files_of(lake, found, file_names(found.directory), rows)]
    return CleanedPartition(found.topic, found.number, found.broker_id, found.directory, found.state, rows, files)
