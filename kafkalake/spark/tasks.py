"""What a task is to Spark: the slices of segments that it reads, and what its worker process loads once."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from kafkalake.spark.plan import SegmentSlice


class Slices(InputPartition):
    """What one task reads."""

    def __init__(self, slices: Sequence[SegmentSlice]) -> None:
        self.slices = slices


@cache
def load_compiled_code() -> None:
    """Once a worker: what the first record would wait for, kept out of the garbage collector's sight.

    A worker collects garbage after every task. With numba loaded that took 65 ms a task, more than reading 64 MiB does.
    """
    import kafkalake.record.message_set  # noqa: F401

    gc.freeze()
