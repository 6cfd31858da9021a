"""A read of topics: snapshot, bounds, plan, slices. What Spark's source and `kafkalake.dataset` have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafkalake.reader.bounds import bounded, committed_positions
from kafkalake.reader.plan import SegmentSlice, plan_slices
from kafkalake.reader.predicate import Selection
from kafkalake.reader.read_options import ReadOptions
from kafkalake.reader.snapshot import PartitionSnapshot, take_snapshot


def plan_read(
    options: ReadOptions,
    selection: Selection,
    cores: int | None = None,
    *,
    agreed: Callable[[Sequence[PartitionSnapshot]], list[PartitionSnapshot]] = list,
    refuse_losses: bool = True,
) -> list[list[SegmentSlice]]:
    """Fix the snapshot and what is read of it. Raises what `take_snapshot`, `bounded` and `plan_slices` do.

    `agreed` makes of the snapshot the one that all scans of the same query read.
    """
    snapshots = agreed(take_snapshot(options))
    pieces = bounded(snapshots, options, committed_positions(options))
    return plan_slices(pieces, selection, options, cores, refuse_losses=refuse_losses)
