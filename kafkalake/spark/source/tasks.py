"""A Spark task: its slices of segments, and their reading in Python, on a driver without the jar."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkalake.reader.columns import Projection
    from kafkalake.reader.plan import SegmentSlice


class Slices(InputPartition):
    """The slices of one task."""

    def __init__(self, slices: Sequence[SegmentSlice]) -> None:
        self.slices = slices


def tasks_of(groups: Iterable[Sequence[SegmentSlice]]) -> list[Slices]:
    """Return one task per group of slices."""
    return [Slices(group) for group in groups]


def read_task(task: InputPartition, projection: Projection) -> Iterator[pa.RecordBatch]:
    """Return the records of a task, read in this process. Raise the errors of `SliceReader.read`."""
    # Imported here: the planning process does not need it, and no Python does if the JVM reads.
    from kafkalake.reader.predicate import Selection
    from kafkalake.reader.slice_reader import SliceReader

    assert isinstance(task, Slices)
    load_compiled_code()
    return SliceReader(projection, Selection()).read(task.slices)


@cache
def load_compiled_code() -> None:
    """Load compiled code before the first record, once per worker, and exempt it from garbage collection.

    A worker collects garbage after every task. With numba loaded that took 65 ms per task, more than reading 64 MiB.
    """
    import kafkalake.record.message_set  # noqa: F401

    gc.freeze()
