"""A read of topics: snapshot, bounds, plan, slices. What Spark's source and `kafkalake.dataset` have in common."""

from __future__ import annotations

from kafkalake.spark.offsets import bounded, committed_positions
from kafkalake.spark.options import ReadOptions
from kafkalake.spark.plan import SegmentSlice, plan_slices
from kafkalake.spark.query_snapshot import as_first_seen
from kafkalake.spark.selection import Selection
from kafkalake.spark.snapshot import take_snapshot


def plan_read(
    options: ReadOptions,
    selection: Selection,
    cores: int | None = None,
    query: str = "",
    *,
    refuse_losses: bool = True,
) -> list[list[SegmentSlice]]:
    """Fix the snapshot and what is read of it. Raises what `take_snapshot`, `bounded` and `plan_slices` do.

    `query` names the query that this is one scan of: all its scans read one snapshot.
    """
    snapshots = as_first_seen(take_snapshot(options), options, query)
    pieces = bounded(snapshots, options, committed_positions(options))
    return plan_slices(pieces, selection, options, cores, refuse_losses=refuse_losses)
