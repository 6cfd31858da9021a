"""The steps of a read: snapshot, bounds, plan, slices. Shared by Spark's source and `kafkalake.dataset`."""

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
    """Take the snapshot and plan its slices. Raise the errors of `take_snapshot`, `bounded` and `plan_slices`.

    `agreed` maps the snapshot to the one shared by all scans of the same query.
    """
    snapshots = agreed(take_snapshot(options))
    pieces = bounded(snapshots, options, committed_positions(options))
    return plan_slices(pieces, selection, options, cores, refuse_losses=refuse_losses)
