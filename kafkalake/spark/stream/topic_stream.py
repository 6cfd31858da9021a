"""A stream over topics: where it begins, how far the next batch reads, its tasks, and what a group has read.

The driver's planner (`planner/streams.py`) and Spark's Python source (`stream.py`) answer Spark with it. Its state can be lost at
any time: a batch is determined by its two offsets, which Spark keeps, so that Spark can request it again, in another process,
after a crash, and gets the same records: records below the last stable offset do not change.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, NamedTuple

from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.reader.group_positions import GroupPositions
from kafkalake.reader.partition_edges import PartitionBounds
from kafkalake.reader.plan import SegmentSlice
from kafkalake.reader.positions import BatchDelay, Positions, from_json, ids_from_json, next_end, to_json
from kafkalake.reader.read_options import ReadOptions
from kafkalake.spark.stream.checkpoint import initial_offsets
from kafkalake.spark.stream.plan import first_positions, plan_batch
from kafkalake.spark.stream.tails import Tail, plan_tails

Offsets = dict[str, Any]
"""Positions and topic ids in JSON, as in checkpoints (`reader.positions`)."""
_FEW_OFFSETS = 1000
"""Where compaction or an aborted transaction left none of them, the age of the next record is not known."""


class NextBatch(NamedTuple):
    """The end of a batch, and the readable ends of the partitions when it was planned."""

    end: Offsets
    readable_ends: Positions


class TopicStream:
    """A stream over the topics that `options` name, of the lake with these `tables`."""

    def __init__(self, options: ReadOptions, tables: DeltaMetadataStore) -> None:
        self.options = options
        self.tables = tables
        self._bounds = PartitionBounds(options, tables)
        self._delay = (
            None
            if options.offsets_per_trigger_min is None
            else BatchDelay(options.offsets_per_trigger_min, options.trigger_delay_ms_max, _monotonic_ms)
        )
        self._group = None if options.group is None else GroupPositions(options.lake, options.group, tables)

    def begin(self, checkpoint: str) -> Offsets:
        """Return the start: from the source's part of the checkpoint, or else from the options, stored there.

        Raise the errors of `initial_offsets` and `first_positions`.
        """
        return initial_offsets(checkpoint, self._first, is_repeatable=self.options.has_lasting_start)

    def readable_ends(self) -> Positions:
        """Return the current end of each partition. Raise the errors of `PartitionBounds.look`."""
        return {partition: edge.readable_end for partition, edge in self._bounds.look().items()}

    def next_batch(
        self, start: Offsets, *, offsets_max: int | None, target: Positions | None, may_wait: bool = False
    ) -> NextBatch:
        """Return the end of the batch that begins at `start`, of about `offsets_max` offsets, not beyond `target`.

        may_wait: for `minOffsetsPerTrigger`; the end of a batch that waits for more is `start`. Raise the errors of
        `PartitionBounds.look` and `next_end`.
        """
        edges = self._bounds.look()
        readable_ends = {partition: edge.readable_end for partition, edge in edges.items()}
        if may_wait and self._delay is not None and self._delay.delays(from_json(start), readable_ends):
            return NextBatch(start, readable_ends)
        end = next_end(
            from_json(start),
            edges,
            topic_ids=ids_from_json(start),
            offsets_max=offsets_max,
            target=target,
            fail_on_data_loss=self.options.fail_on_data_loss,
        )
        return NextBatch(to_json(end, {topic: edge.topic_id for (topic, _), edge in edges.items()}), readable_ends)

    def plan(self, start: Offsets, end: Offsets) -> list[list[SegmentSlice]]:
        """Return the slices of each task of a batch. Raise the errors of `plan_batch`."""
        return plan_batch(
            self.options,
            from_json(start),
            from_json(end),
            self.tables,
            start_ids=ids_from_json(start),
            end_ids=ids_from_json(end),
        )

    def plan_first(self, start: Offsets, ends: Positions) -> list[SegmentSlice]:
        """Return slices with the first records from `start` on, a few offsets of each partition, before `ends`.

        Records that are gone are passed over. Raise the errors of `take_snapshot`.
        """
        begins = from_json(start)
        near = {each: min(end, begins.get(each, 0) + _FEW_OFFSETS) for each, end in ends.items()}
        groups = plan_batch(replace(self.options, fail_on_data_loss=False), begins, near, self.tables)
        return [piece for group in groups for piece in group]

    def plan_tails(self, start: Offsets) -> list[Tail]:
        """Return the partitions to follow from `start` on. Raise the errors of `next_end` and `plan_tails`."""
        end = self.next_batch(start, offsets_max=None, target=None).end
        return plan_tails(
            self.options,
            from_json(start),
            from_json(end),
            self._bounds,
            start_ids=ids_from_json(start),
            end_ids=ids_from_json(end),
        )

    def commit(self, end: Offsets) -> None:
        """Commit offsets to the group, if one is named. A failure is logged, and the offsets are committed with the next ones."""
        if self._group is not None:
            self._group.commit(from_json(end), ids_from_json(end))

    def _first(self) -> Offsets:
        return to_json(*first_positions(self.options, self.tables))


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
