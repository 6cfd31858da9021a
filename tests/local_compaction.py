"""The two steps that compaction has Spark do, in this process: the job's own tasks with a dict in place of Spark's grouping.

For tests that run the job hundreds of times, or kill it at every point; others run it on Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from kafkalake.jobs.compaction import command as compaction
from kafkalake.jobs.compaction import key_offsets
from kafkalake.jobs.compaction.key_offsets import Output, ProducerEvents, Source, Work


def install(patch: pytest.MonkeyPatch | None = None) -> None:
    """Have the job run here, until `patch` is undone; pass anything but None as its session."""
    patch = patch or pytest.MonkeyPatch()
    patch.setattr(compaction, "producer_events", producer_events)
    patch.setattr(compaction, "rewrite_segments", rewrite_segments)


def producer_events(spark: Any, sources: Sequence[Source]) -> dict[int, dict[int, ProducerEvents]]:
    return {source.number: key_offsets._events(source) for source in sources}


def rewrite_segments(spark: Any, work: Work, outputs: Sequence[Output]) -> list[Any]:
    tasks = [[piece for source in work.sources for piece in key_offsets._pieces(source)]]
    newest: dict[tuple[int, int], tuple[int, int]] = {}
    for batch in key_offsets._hasher(work, tasks)([pa.RecordBatch.from_pydict({"id": [0]})]):
        for first, second, offset, group in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            key = (first, second)
            newest[key] = max(newest.get(key, (-1, -1)), (offset, group))
    found = pa.RecordBatch.from_pydict(
        {
            "group": pa.array([group for _, group in newest.values()], pa.int32()),
            "offset": pa.array([offset for offset, _ in newest.values()], pa.int64()),
        }
    )
    return [row for batch in key_offsets._rewriter(work, outputs)([found]) for row in batch.to_pylist()]
