"""The input of the jobs that clean logs: the sealed segments and the broker's state of each partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafkalake.config.topics import TopicConfig
from kafkalake.config.values import members_of
from kafkalake.internal_topics import INTERNAL
from kafkalake.jobs.frame import Run
from kafkalake.metadata import paths
from kafkalake.metadata.catalog import partitions_by_id, segments_by_id
from kafkalake.metadata.tables.schemas import SegmentRow, TopicRow
from kafkalake.reader.snapshot import log_start
from kafkalake.storage.state import PartitionState, read_state

COMPACT_POLICY, DELETE_POLICY = "compact", "delete"


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


def cleaned_topics(run: Run, policy: str) -> list[TopicRow]:
    """Return the topics of a run whose cleanup.policy contains `policy`, without journals, which the broker trims itself."""
    return [
        topic
        for topic in run.topics
        if topic.topic not in INTERNAL and policy in policies(run.topic_configs[topic.topic])
    ]


def policies(config: TopicConfig) -> list[str]:
    """Return the policies in cleanup.policy."""
    return members_of(config.cleanup_policy)


def cleaned_partitions(run: Run, topics: Sequence[TopicRow]) -> Iterator[CleanedPartition]:
    """Yield the partitions of `topics`, by topic and number. Raise `LakeError` or `KafkaStorageError`."""
    segments = segments_by_id(run.store.load_segments()) if topics else {}
    leaders = partitions_by_id(run.store.load_partitions())
    for topic in topics:
        for number in range(topic.partitions):
            row = leaders.get((topic.topic_id, number))
            rows = segments.get((topic.topic_id, number))
            if row is None or not rows:
                continue
            directory = paths.partition_path(run.lake, row.leader, topic.topic, number)
            state = read_state(directory)
            state = state._replace(log_start_offset=log_start(state, row))
            yield CleanedPartition(topic, number, row.leader, directory, state, rows)
