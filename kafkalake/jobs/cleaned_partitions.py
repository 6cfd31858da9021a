"""The input of the jobs that clean logs: the sealed segments and the broker's state of each partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafkalake.internal_topics import INTERNAL
from kafkalake.jobs.frame import Run
from kafkalake.metadata.catalog import segments_by_id
from kafkalake.metadata.tables.schemas import SegmentRow, TopicRow
from kafkalake.reader.live_partitions import LivePartitions
from kafkalake.storage.state import PartitionState


@dataclass(frozen=True, slots=True)
class CleanedPartition:
    """A partition with sealed segments. `rows`: ascending, including those below the log start.

    leader: the broker in whose directory it is. state: with the log start that readers use, Delta's or the broker's.
    """

    topic: TopicRow
    number: int
    leader: int
    directory: Path
    state: PartitionState
    rows: Sequence[SegmentRow]


def cleaned_topics(run: Run) -> list[TopicRow]:
    """Return the topics of a run, without journals, which the broker trims itself."""
    return [topic for topic in run.topics if topic.topic not in INTERNAL]


def cleaned_partitions(run: Run, topics: Sequence[TopicRow]) -> Iterator[CleanedPartition]:
    """Yield the partitions of `topics`, by topic and number. Raise `LakeError` or `KafkaStorageError`."""
    segments = segments_by_id(run.store.load_segments()) if topics else {}
    live = LivePartitions(run.lake, run.store.load_partitions())
    for topic in topics:
        for number in range(topic.partitions):
            if rows := segments.get((topic.topic_id, number)):
                found = live.of(topic, number)
                if found.row is not None and found.directory is not None:
                    yield CleanedPartition(topic, number, found.row.leader, found.directory, found.state(), rows)
