"""Plans a batch of Real-Time Mode: the partitions that its tasks follow, each for as long as the batch lasts.

A task begins with slices, as in any batch, up to the end that the partition has now. From there it reads what the leader appends to
the directory, which is looked up for each batch: a batch that has begun does not change over to another leader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kafkalake.errors import ConfigurationError, UnknownTopicOrPartitionError
from kafkalake.reader.partition_edges import PartitionBounds
from kafkalake.reader.plan import SegmentSlice, plan_slices
from kafkalake.reader.positions import Positions, TopicIds
from kafkalake.reader.predicate import Selection
from kafkalake.reader.read import Read
from kafkalake.reader.read_options import ReadOptions
from kafkalake.spark.stream.plan import batch_partitions
from kafkalake.topic_partition import TopicPartition


class Tail(NamedTuple):
    """A partition to follow: `slices` with the records before `from_offset`, then what is appended to `directory`."""

    topic: str
    topic_id: str
    partition: int
    directory: Path
    slices: Sequence[SegmentSlice]
    from_offset: int


def check_tail_options(options: ReadOptions) -> None:
    """Raise `ConfigurationError` for options that say how large a batch or a task is."""
    for name, value in (
        ("maxOffsetsPerTrigger", options.offsets_per_trigger_max),
        ("minOffsetsPerTrigger", options.offsets_per_trigger_min),
        ("minPartitions", options.partitions_min),
        ("maxRecordsPerPartition", options.records_per_partition_max),
    ):
        if value is not None:
            raise ConfigurationError(
                f"{name} has no meaning in Real-Time Mode, where each task follows one partition for as long as the trigger says"
            )


def plan_tails(
    options: ReadOptions,
    start: Mapping[TopicPartition, int],
    ends: Positions,
    bounds: PartitionBounds,
    *,
    start_ids: TopicIds,
    end_ids: TopicIds,
) -> list[Tail]:
    """Return the tails of the partitions of `ends`, the offsets that they end at now.

    A partition that no broker has opened yet has none. Raise the errors of `batch_partitions`, or `UnknownTopicOrPartitionError` if
    there is nothing to follow.
    """
    pieces = batch_partitions(options, start, ends, bounds.tables, start_ids=start_ids, end_ids=end_ids)
    slices = {
        (piece.topic, piece.partition): [
            each for group in plan_slices(Read(options, [piece]), Selection()) for each in group
        ]
        for piece in pieces
    }
    directories = bounds.directories()
    tails = [
        Tail(topic, end_ids.get(topic, ""), number, directory, slices.get((topic, number), ()), end)
        for (topic, number), end in sorted(ends.items())
        if (directory := directories.get((topic, number))) is not None
    ]
    if not tails:
        raise UnknownTopicOrPartitionError(f"no partition of {options.lake} can be followed yet: none was opened")
    return tails
