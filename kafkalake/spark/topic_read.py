"""A read of topics: snapshot, bounds, plan, slices. What Spark's source and `kafkalake.dataset` have in common."""

from __future__ import annotations

from kafkalake.spark.offsets import bounded
from kafkalake.spark.options import ReadOptions
from kafkalake.spark.plan import SegmentSlice, plan_slices
from kafkalake.spark.selection import Selection
from kafkalake.spark.snapshot import take_snapshot


def plan_read(options: ReadOptions, selection: Selection, cores: int | None = None) -> list[list[SegmentSlice]]:
    """Fix the snapshot and what is read of it. Raises what `take_snapshot` and `bounded` do."""
    return plan_slices(bounded(take_snapshot(options), options), selection, options, cores)
